/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_neon_bf16.c - kernel neon_bf16: weights that are exact in bf16 times bf16 activations, by BFDOT and
 * BFMMLA. The sum is ODD_PAIRS (panel_kernel.h).
 *
 *     BFDOT     lane n: sum[n] (+) (w[n, 0] x[0] (+) w[n, 1] x[1])          one pair of columns of four rows
 *     BFMMLA    sum[i, j], i, j < 2: the same for pair 0, then for pair 1   two rows of activations, two of weights
 *
 * (+) rounds to odd. So BFMMLA is two BFDOT for each of four sums, and both ways give the same bits. Neither reads
 * FPCR's rounding mode: they always flush subnormals. (FPCR.EBF, which changes this, is off unless a program sets it.)
 *
 *     slab    [4 columns][8 pairs of rows] of | row 2i: 4 bf16 | row 2i+1: 4 bf16 |
 *
 * One row: BFDOT on pair registers (neon_decode.h). More: 4 rows have 16 accumulators of 2 x 2 sums.
 *
 * Source: Arm Architecture Reference Manual for A-profile (BFDOT, BFMMLA, BFDotAdd).
 */
#include "cpu/expert_gemm/neon/neon_plan.h"

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC

#include "cpu/expert_gemm/neon/panel_neon.h"

#define NEON_ORDER         MOX_ACT_ORDER_BF16
#define NEON_X_BYTES       2
#define NEON_RUN           MOX_NEON_SLAB
#define NEON_QUARTER_BYTES 256
#define NEON_CLASSES       MOX_NEON_UNITS
#define NEON_OTHER         /* there is none */

#define neon_unit mox_neon_unit

/* Pair registers 2i and 2i+1 make columns 4i .. 4i+3 of rows 4m and 4m+1, and of the next two. */
MOX_KERNEL_INLINE void neon_put(uint8_t *slab, int64_t q, int m, const uint32x4_t u[4])
{
    uint8_t *to = slab + q * NEON_QUARTER_BYTES + 32 * m;
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2; i++) {
        vst1q_u8(to + 128 * i, vreinterpretq_u8_u32(vzip1q_u32(u[2 * i], u[2 * i + 1])));
        vst1q_u8(to + 128 * i + 16, vreinterpretq_u8_u32(vzip2q_u32(u[2 * i], u[2 * i + 1])));
    }
}

typedef struct neon_sums {
    float32x4_t of[4];
} neon_sums;

MOX_KERNEL_INLINE void neon_one(const uint32x4_t u[4], const uint8_t *x, int m, neon_sums *sums)
{
    const bfloat16x8_t xs = vreinterpretq_bf16_u8(vld1q_u8(x));
    float32x4_t sum = sums->of[m];
    sum = vbfdotq_laneq_f32(sum, vreinterpretq_bf16_u32(u[0]), xs, 0);
    sum = vbfdotq_laneq_f32(sum, vreinterpretq_bf16_u32(u[1]), xs, 1);
    sum = vbfdotq_laneq_f32(sum, vreinterpretq_bf16_u32(u[2]), xs, 2);
    sums->of[m] = vbfdotq_laneq_f32(sum, vreinterpretq_bf16_u32(u[3]), xs, 3);
}

MOX_KERNEL_INLINE uint32x4_t neon_total(const neon_sums *sums, int m)
{
    return vreinterpretq_u32_f32(sums->of[m]);
}

#include "cpu/expert_gemm/neon/neon_multiply.h"

/* 8 columns, from x on, of R rows: xs[pair of rows][4 columns]. A last row without another is taken twice. */
MOX_KERNEL_INLINE void neon_row_pairs(int R, const uint8_t *x, int64_t row, bfloat16x8_t xs[MOX_NEON_ROWS / 2][2])
{
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r += 2) {
        const uint64x2_t a = vreinterpretq_u64_u8(vld1q_u8(x + r * row));
        const uint64x2_t b = r + 1 < R ? vreinterpretq_u64_u8(vld1q_u8(x + (r + 1) * row)) : a;
        xs[r / 2][0] = vreinterpretq_bf16_u64(vzip1q_u64(a, b));
        xs[r / 2][1] = vreinterpretq_bf16_u64(vzip2q_u64(a, b));
    }
}

MOX_KERNEL_INLINE void neon_more(int R, const neon_run *run, uint32x4_t t[MOX_NEON_ROWS][4])
{
    float32x4_t sum[MOX_NEON_ROWS / 2][8];
    const uint8_t *w = run->slab;
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 8 * ((R + 1) / 2); i++)
        sum[i / 8][i % 8] = vdupq_n_f32(0.0f);
    for (int64_t s = 0; s < run->steps; s++) {
        const uint8_t *x = mox_neon_x(NEON_ORDER, &run->x, run->col + s * run->quarters * 8);
        for (int64_t q = 0; q < run->quarters; q++, x += 16, w += NEON_QUARTER_BYTES) {
            bfloat16x8_t xs[MOX_NEON_ROWS / 2][2];
            neon_row_pairs(R, x, run->x.row, xs);
            MOX_KERNEL_UNROLL
            for (int i = 0; i < 16; i++) {
                const bfloat16x8_t four = vreinterpretq_bf16_u8(vld1q_u8(w + 16 * i));
                MOX_KERNEL_UNROLL
                for (int r = 0; r < (R + 1) / 2; r++)
                    sum[r][i % 8] = vbfmmlaq_f32(sum[r][i % 8], xs[r][i / 8], four);
            }
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        MOX_KERNEL_UNROLL
    for (int m = 0; m < 4; m++) {
        const uint64x2_t a = vreinterpretq_u64_f32(sum[r / 2][2 * m]);
        const uint64x2_t b = vreinterpretq_u64_f32(sum[r / 2][2 * m + 1]);
        t[r][m] = vreinterpretq_u32_u64(r % 2 == 0 ? vzip1q_u64(a, b) : vzip2q_u64(a, b));
    }
}

const mox_panel_multiply_fn mox_neon_bf16_multiply = neon_multiply;

#else

const mox_panel_multiply_fn mox_neon_bf16_multiply = NULL;

#endif
