/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_fma.h - kernel neon_fma: any weights times f32 activations by multiply-adds. The sum is FMA_STEPS
 * (panel_kernel.h): even and odd columns of a step are two chains of FMLA. Also what kernel neon_bytes needs for steps
 * that are not multiplied as bytes. Two files compile it, for processors with SDOT and without; neon_int_dot.h uses it.
 *
 *     slab    [column pair][even: 16 rows | odd: 16 rows] f32
 *
 * One row: a pair register (neon_decode.h) is one shift or mask away from four rows of a column. More rows: half a
 * panel at a time, so that 4 rows have 16 accumulators, 4 registers of weights and 4 of activations.
 */
#ifndef MOX_CPU_NEON_FMA_H
#define MOX_CPU_NEON_FMA_H

#include "cpu/expert_gemm/neon/neon_blocks.h"
#include "cpu/expert_gemm/neon/panel_neon.h"

#define NEON_ORDER         MOX_ACT_ORDER_F32
#define NEON_X_BYTES       4
#define NEON_RUN           1
#define NEON_QUARTER_BYTES 512
#define NEON_CLASSES       MOX_NEON_UNITS
#define NEON_OTHER         [MOX_NEON_HALVES] = { NULL, neon_fill_halves }, [MOX_NEON_BLOCKS] = { NULL, mox_neon_fill_blocks },

#define neon_unit mox_neon_unit

MOX_KERNEL_INLINE float32x4_t neon_even(uint32x4_t pairs)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
}

MOX_KERNEL_INLINE float32x4_t neon_odd(uint32x4_t pairs)
{
    return vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000)));
}

MOX_KERNEL_INLINE void neon_put(uint8_t *slab, int64_t q, int m, const uint32x4_t u[4])
{
    float *to = (float *)(void *)(slab + q * NEON_QUARTER_BYTES) + 4 * m;
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 4; i++) {
        vst1q_f32(to + 32 * i, neon_even(u[i]));
        vst1q_f32(to + 32 * i + 16, neon_odd(u[i]));
    }
}

/* f16 lie in the order of the slab, and FPCR.FZ does not concern their subnormals. */
static void neon_fill_halves(const mox_neon_job *j, int64_t s, int64_t count)
{
    float *to = (float *)(void *)j->sc.slab;
    for (const int64_t end = s + count; s < end; s++) {
        int64_t q;
        const uint8_t *step = mox_neon_step(j, s, &q) + q * 256;
        for (int64_t i = 0; i < j->step_cols * MOX_PANEL_ROWS; i += 8, to += 8) {
            const float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(step + 2 * i));
            vst1q_f32(to, vcvt_f32_f16(vget_low_f16(halves)));
            vst1q_f32(to + 4, vcvt_high_f32_f16(halves));
        }
    }
}

typedef struct neon_sums {
    float32x4_t even[4], odd[4];
} neon_sums;

/* Pair register `pairs` times lanes 2i and 2i+1 of xs. */
#define NEON_PAIR(pairs, xs, i)                                                                                        \
    sums->even[m] = vfmaq_laneq_f32(sums->even[m], neon_even(pairs), xs, 2 * (i));                                     \
    sums->odd[m] = vfmaq_laneq_f32(sums->odd[m], neon_odd(pairs), xs, 2 * (i) + 1);

MOX_KERNEL_INLINE void neon_one(const uint32x4_t u[4], const uint8_t *x, int m, neon_sums *sums)
{
    const float *values = (const float *)(const void *)x;
    const float32x4_t first = vld1q_f32(values), second = vld1q_f32(values + 4);
    NEON_PAIR(u[0], first, 0)
    NEON_PAIR(u[1], first, 1)
    NEON_PAIR(u[2], second, 0)
    NEON_PAIR(u[3], second, 1)
}
#undef NEON_PAIR

MOX_KERNEL_INLINE uint32x4_t neon_total(const neon_sums *sums, int m)
{
    return vreinterpretq_u32_f32(vaddq_f32(sums->even[m], sums->odd[m]));
}

#include "cpu/expert_gemm/neon/neon_loops.h"

/* Two columns of half a panel, from `w` on, times lanes 2i and 2i+1 of each row. */
#define NEON_COLUMNS(R, w, i)                                                                                          \
    {                                                                                                                  \
        const float32x4_t w0 = vld1q_f32(w), w1 = vld1q_f32((w) + 4);                                                  \
        const float32x4_t w2 = vld1q_f32((w) + 16), w3 = vld1q_f32((w) + 20);                                          \
        MOX_KERNEL_UNROLL                                                                                              \
        for (int r = 0; r < (R); r++) {                                                                                \
            even[r][0] = vfmaq_laneq_f32(even[r][0], w0, xs[r], 2 * (i));                                              \
            even[r][1] = vfmaq_laneq_f32(even[r][1], w1, xs[r], 2 * (i));                                              \
            odd[r][0] = vfmaq_laneq_f32(odd[r][0], w2, xs[r], 2 * (i) + 1);                                            \
            odd[r][1] = vfmaq_laneq_f32(odd[r][1], w3, xs[r], 2 * (i) + 1);                                            \
        }                                                                                                              \
    }

/* A run is one step. */
MOX_KERNEL_INLINE void neon_more(int R, const neon_run *run, uint32x4_t t[MOX_NEON_ROWS][4])
{
    for (int half = 0; half < 2; half++) {
        const float *w = (const float *)(const void *)run->slab + 8 * half;
        const uint8_t *x = mox_neon_x(NEON_ORDER, &run->x, run->col);
        float32x4_t even[MOX_NEON_ROWS][2], odd[MOX_NEON_ROWS][2];
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            even[r][0] = even[r][1] = odd[r][0] = odd[r][1] = vdupq_n_f32(0.0f);
        for (int64_t k = 0; k < 2 * run->quarters; k++, w += 64, x += 16) {
            float32x4_t xs[MOX_NEON_ROWS];
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                xs[r] = vreinterpretq_f32_u8(vld1q_u8(x + r * run->x.row));
            NEON_COLUMNS(R, w, 0)
            NEON_COLUMNS(R, w + 32, 1)
        }
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            t[r][2 * half] = vreinterpretq_u32_f32(vaddq_f32(even[r][0], odd[r][0]));
            t[r][2 * half + 1] = vreinterpretq_u32_f32(vaddq_f32(even[r][1], odd[r][1]));
        }
    }
}
#undef NEON_COLUMNS

#endif
