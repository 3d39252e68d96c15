/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_neon_dotprod.c - kernel neon_i8 on processors with SDOT, which multiplies a lane of a quad line
 * (panel_neon.h) by four activations and adds them to its sum. Sums are exact, so the bits are those of the variant
 * without SDOT (expert_gemm_neon.c).
 */
#include "cpu/expert_gemm/neon/neon_plan.h"

#ifdef __ARM_FEATURE_DOTPROD

#include "cpu/expert_gemm/neon/panel_neon.h"

/* Line `line` times bytes 4 * at .. 4 * at + 3 of xs. */
#define MOX_NEON_QUAD(line, xs, at)                                                                                    \
    for (int m = 0; m < 4; m++)                                                                                        \
        sum[m] = vdotq_laneq_s32(sum[m], vreinterpretq_s8_u32(vld1q_u32((line) + 4 * m)), xs, at);

static inline void sums_i8(const uint32_t *restrict lines, int64_t count, const void *restrict x, uint32x4_t t[4])
{
    const int8_t *codes = x;
    int32x4_t sum[4];
    for (int m = 0; m < 4; m++)
        sum[m] = vdupq_n_s32(0);
    for (int64_t q = 0; q < count; q += 4) {
        const int8x16_t xs = vld1q_s8(codes + 4 * q);
        MOX_NEON_QUAD(lines + q * 16, xs, 0)
        MOX_NEON_QUAD(lines + q * 16 + 16, xs, 1)
        MOX_NEON_QUAD(lines + q * 16 + 32, xs, 2)
        MOX_NEON_QUAD(lines + q * 16 + 48, xs, 3)
    }
    for (int m = 0; m < 4; m++)
        t[m] = vreinterpretq_u32_s32(sum[m]);
}
#undef MOX_NEON_QUAD

static void times_i8(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                     const mox_panel_rows *a, float *c, void *scratch)
{
    mox_neon_multiply((mox_neon_variant) { MOX_ACT_ORDER_I8, sums_i8 }, m, weight, panel, panels, a, c, scratch);
}

const mox_panel_multiply_fn mox_neon_dotprod_multiply = times_i8;

#else

const mox_panel_multiply_fn mox_neon_dotprod_multiply = NULL;

#endif
