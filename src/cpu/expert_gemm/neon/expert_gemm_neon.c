/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_neon.c - the NEON kernels over layout panel16, and those variants that run on every aarch64 processor.
 *
 *     c[r, n] = sum over segments of  (sum over the segment's columns k of a[r, k] w[n, k]) [* sa[r]] * sw[n]
 *
 *     neon_fma    f32 activations   a shift or a mask makes pair lines (panel_neon.h) fp32; two chains of FMLA
 *     neon_bf16   bf16 activations  the same sums by BFMLALB and BFMLALT (expert_gemm_neon_bf16.c)
 *     neon_i8     i8 activations    quad lines by SMULL and pairwise sums, or by SDOT (expert_gemm_neon_dotprod.c)
 *
 * Weights: 4-bit formats and 8-bit integers without zero points, bf16; neon_i8 only 8-bit integers. Each step is
 * decoded once for all rows. Nothing else is tuned yet. neon_plan.c chooses.
 */
#include "cpu/expert_gemm/neon/neon_plan.h"

#ifdef __aarch64__

#include "cpu/expert_gemm/neon/panel_neon.h"

/* ---- sums ---------------------------------------------------------------------------------------- */

/* Columns of pair line j times x[2j], x[2j+1]; `lane` is that of x[2j] in xs. */
#define MOX_NEON_PAIR(line, xs, lane)                                                                                  \
    for (int m = 0; m < 4; m++) {                                                                                      \
        const uint32x4_t w = vld1q_u32((line) + 4 * m);                                                                \
        even[m] = vfmaq_laneq_f32(even[m], vreinterpretq_f32_u32(vshlq_n_u32(w, 16)), xs, lane);                       \
        odd[m] =                                                                                                       \
            vfmaq_laneq_f32(odd[m], vreinterpretq_f32_u32(vandq_u32(w, vdupq_n_u32(0xffff0000))), xs, (lane) + 1);     \
    }

static inline void sums_f32(const uint32_t *restrict lines, int64_t count, const void *restrict x, uint32x4_t t[4])
{
    const float *values = x;
    float32x4_t even[4], odd[4];
    for (int m = 0; m < 4; m++)
        even[m] = odd[m] = vdupq_n_f32(0.0f);
    for (int64_t j = 0; j < count; j += 2) {
        const float32x4_t xs = vld1q_f32(values + 2 * j);
        MOX_NEON_PAIR(lines + j * 16, xs, 0)
        MOX_NEON_PAIR(lines + j * 16 + 16, xs, 2)
    }
    for (int m = 0; m < 4; m++)
        t[m] = vreinterpretq_u32_f32(vaddq_f32(even[m], odd[m]));
}
#undef MOX_NEON_PAIR

/* Products of int8 fit int16; pairwise sums of four of them are the lanes. */
static inline void sums_i8(const uint32_t *restrict lines, int64_t count, const void *restrict x, uint32x4_t t[4])
{
    const uint8_t *codes = x;
    int32x4_t sum[4];
    for (int m = 0; m < 4; m++)
        sum[m] = vdupq_n_s32(0);
    for (int64_t q = 0; q < count; q++) {
        uint32_t four;
        memcpy(&four, codes + 4 * q, sizeof four);
        const int8x16_t xs = vreinterpretq_s8_u32(vdupq_n_u32(four));
        for (int m = 0; m < 4; m++) {
            const int8x16_t w = vreinterpretq_s8_u32(vld1q_u32(lines + q * 16 + 4 * m));
            const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(xs)));
            const int32x4_t high = vpaddlq_s16(vmull_high_s8(w, xs));
            sum[m] = vaddq_s32(sum[m], vpaddq_s32(low, high));
        }
    }
    for (int m = 0; m < 4; m++)
        t[m] = vreinterpretq_u32_s32(sum[m]);
}

static void times_f32(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                      const mox_panel_rows *a, float *c, void *scratch)
{
    mox_neon_multiply((mox_neon_variant) { MOX_ACT_ORDER_F32, sums_f32 }, m, weight, panel, panels, a, c, scratch);
}

static void times_i8(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                     const mox_panel_rows *a, float *c, void *scratch)
{
    mox_neon_multiply((mox_neon_variant) { MOX_ACT_ORDER_I8, sums_i8 }, m, weight, panel, panels, a, c, scratch);
}

const mox_panel_multiply_fn mox_neon_fma_multiply = times_f32, mox_neon_i8_multiply = times_i8;

#else

const mox_panel_multiply_fn mox_neon_fma_multiply = NULL, mox_neon_i8_multiply = NULL;

#endif
