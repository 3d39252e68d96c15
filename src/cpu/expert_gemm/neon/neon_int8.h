/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_int8.h - kernel neon_i8: 8-bit integers times int8 activations, exact in int32. Three files compile it, for the
 * instructions that a processor may have; all give the same bits.
 *
 *     expert_gemm_int8_neon.c            SMULL and pairwise sums      every aarch64 processor
 *     expert_gemm_int8_neon_dotprod.c    SDOT      lane n: sum[n] + four weights of row n times four activations
 *     expert_gemm_int8_neon_i8mm.c       SMMLA     2 x 2 sums: two rows of activations, two of weights, 8 columns; SDOT
 *                                                  for one row
 *
 *     slab    SMMLA: [8 pairs of rows] of | row 2i: 8 codes | row 2i+1: 8 codes |;  others: two quad lines (panel.h)
 *
 * Weights become two's complement. A zero point times the sum of the activations is subtracted at the end of a segment.
 */
#ifndef MOX_CPU_NEON_INT8_H
#define MOX_CPU_NEON_INT8_H

#include "cpu/expert_gemm/neon/neon_dot.h"
#include "cpu/expert_gemm/neon/panel_neon.h"

#define NEON_ORDER         MOX_ACT_ORDER_I8
#define NEON_X_BYTES       1
#define NEON_RUN           MOX_NEON_SLAB
#define NEON_QUARTER_BYTES 128
#define NEON_CLASSES(X)    X(quads, MOX_NEON_QUADS)
#define NEON_OTHER         /* there is none */

/* u[0], u[1]: columns 8q .. 8q+3 and 8q+4 .. 8q+7. */
MOX_KERNEL_INLINE void neon_unit(mox_neon_class decode, const mox_neon_tables *t, const uint8_t *step, int64_t q, int m,
                                 const uint32_t *zero, uint32x4_t u[4])
{
    (void)decode, (void)zero;
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2; i++)
        u[i] = vreinterpretq_u32_u8(veorq_u8(vld1q_u8(step + 64 * (2 * q + i) + 16 * m), t->flip));
}

typedef struct neon_sums {
    int32x4_t of[4];
} neon_sums;

MOX_KERNEL_INLINE void neon_one(const uint32x4_t *u, const uint8_t *x, int m, neon_sums *sums)
{
    const int32x2_t eight = vreinterpret_s32_u8(vld1_u8(x));
    sums->of[m] = mox_neon_dot(mox_neon_dot(sums->of[m], vreinterpretq_s8_u32(u[0]), eight, 0),
                               vreinterpretq_s8_u32(u[1]), eight, 1);
}

MOX_KERNEL_INLINE uint32x4_t neon_total(const neon_sums *sums, int m)
{
    return vreinterpretq_u32_s32(sums->of[m]);
}

#ifdef __ARM_FEATURE_MATMUL_INT8

MOX_KERNEL_INLINE void neon_put(uint8_t *slab, int64_t q, int m, const uint32x4_t u[4])
{
    mox_neon_put_pairs((int8_t *)slab + q * NEON_QUARTER_BYTES + 32 * m, vreinterpretq_s8_u32(u[0]),
                       vreinterpretq_s8_u32(u[1]));
}

#else

MOX_KERNEL_INLINE void neon_put(uint8_t *slab, int64_t q, int m, const uint32x4_t u[4])
{
    uint8_t *to = slab + q * NEON_QUARTER_BYTES + 16 * m;
    vst1q_u8(to, vreinterpretq_u8_u32(u[0]));
    vst1q_u8(to + 64, vreinterpretq_u8_u32(u[1]));
}

#endif

#include "cpu/expert_gemm/neon/neon_multiply.h"

#ifdef __ARM_FEATURE_MATMUL_INT8

MOX_KERNEL_INLINE void neon_more(int R, const neon_run *run, uint32x4_t t[MOX_NEON_ROWS][4])
{
    int32x4_t sum[MOX_NEON_ROWS / 2][8];
    const uint8_t *w = run->slab;
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 8 * ((R + 1) / 2); i++)
        sum[i / 8][i % 8] = vdupq_n_s32(0);
    for (int64_t s = 0; s < run->steps; s++) {
        const uint8_t *x = mox_neon_x(NEON_ORDER, &run->x, run->col + s * run->quarters * 8);
        for (int64_t q = 0; q < run->quarters; q++, x += 8, w += NEON_QUARTER_BYTES) {
            int8x16_t xs[MOX_NEON_ROWS / 2];
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r += 2)
                xs[r / 2] = mox_neon_row_pair(R, r, (const int8_t *)x, run->x.row);
            MOX_KERNEL_UNROLL
            for (int i = 0; i < 8; i++) {
                const int8x16_t two = vreinterpretq_s8_u8(vld1q_u8(w + 16 * i));
                MOX_KERNEL_UNROLL
                for (int r = 0; r < (R + 1) / 2; r++)
                    sum[r][i] = vmmlaq_s32(sum[r][i], xs[r], two);
            }
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        MOX_KERNEL_UNROLL
    for (int m = 0; m < 4; m++)
        t[r][m] = vreinterpretq_u32_s32(mox_neon_row_sums(sum[r / 2], r, m));
}

#else

MOX_KERNEL_INLINE void neon_more(int R, const neon_run *run, uint32x4_t t[MOX_NEON_ROWS][4])
{
    neon_sums sums[MOX_NEON_ROWS];
    const uint8_t *w = run->slab;
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 4 * R; i++)
        sums[i / 4].of[i % 4] = vdupq_n_s32(0);
    for (int64_t s = 0; s < run->steps; s++) {
        const uint8_t *x = mox_neon_x(NEON_ORDER, &run->x, run->col + s * run->quarters * 8);
        for (int64_t q = 0; q < run->quarters; q++, x += 8, w += NEON_QUARTER_BYTES)
            MOX_KERNEL_UNROLL
        for (int m = 0; m < 4; m++) {
            const uint32x4_t u[2] = { vreinterpretq_u32_u8(vld1q_u8(w + 16 * m)),
                                      vreinterpretq_u32_u8(vld1q_u8(w + 64 + 16 * m)) };
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                neon_one(u, x + r * run->x.row, m, &sums[r]);
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        MOX_KERNEL_UNROLL
    for (int m = 0; m < 4; m++)
        t[r][m] = neon_total(&sums[r], m);
}

#endif

#endif
