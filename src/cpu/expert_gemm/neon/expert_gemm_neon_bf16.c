/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_neon_bf16.c - kernel neon_bf16: pair lines (panel_neon.h) times bf16 activations. BFMLALB multiplies the
 * even columns of a line and BFMLALT the odd ones, as fused multiply-adds in fp32 that obey FPCR. These are the two
 * chains of "FMA_STEPS" (panel_kernel.h). BFDOT and BFMMLA would be faster, but they round differently.
 */
#include "cpu/expert_gemm/neon/neon_plan.h"

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC

#include "cpu/expert_gemm/neon/panel_neon.h"

/* Line `line` times the columns 2 * at, 2 * at + 1 of xs. */
#define MOX_NEON_PAIR(line, xs, at)                                                                                    \
    for (int m = 0; m < 4; m++) {                                                                                      \
        const bfloat16x8_t w = vreinterpretq_bf16_u32(vld1q_u32((line) + 4 * m));                                      \
        even[m] = vbfmlalbq_laneq_f32(even[m], w, xs, 2 * (at));                                                       \
        odd[m] = vbfmlaltq_laneq_f32(odd[m], w, xs, 2 * (at) + 1);                                                     \
    }

static inline void sums_bf16(const uint32_t *restrict lines, int64_t count, const void *restrict x, uint32x4_t t[4])
{
    const uint16_t *values = x;
    float32x4_t even[4], odd[4];
    for (int m = 0; m < 4; m++)
        even[m] = odd[m] = vdupq_n_f32(0.0f);
    for (int64_t j = 0; j < count; j += 4) {
        const bfloat16x8_t xs = vreinterpretq_bf16_u16(vld1q_u16(values + 2 * j));
        MOX_NEON_PAIR(lines + j * 16, xs, 0)
        MOX_NEON_PAIR(lines + j * 16 + 16, xs, 1)
        MOX_NEON_PAIR(lines + j * 16 + 32, xs, 2)
        MOX_NEON_PAIR(lines + j * 16 + 48, xs, 3)
    }
    for (int m = 0; m < 4; m++)
        t[m] = vreinterpretq_u32_f32(vaddq_f32(even[m], odd[m]));
}
#undef MOX_NEON_PAIR

static void times_bf16(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                       const mox_panel_rows *a, float *c, void *scratch)
{
    mox_neon_multiply((mox_neon_variant) { MOX_ACT_ORDER_BF16, sums_bf16 }, m, weight, panel, panels, a, c, scratch);
}

const mox_panel_multiply_fn mox_neon_bf16_multiply = times_bf16;

#else

const mox_panel_multiply_fn mox_neon_bf16_multiply = NULL;

#endif
