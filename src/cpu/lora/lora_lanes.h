/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_lanes.h - the two tiles of family lora (lora.h) in the compiler's vector types. lora_scalar.c, lora_avx2.c and
 * lora_avx512.c each compile it for one instruction set. Sixteen lanes are one register or several.
 *
 *     shrink   MOX_LORA_BLOCK rows of A x up to 4 rows of x: each register loaded serves a whole block of sums
 *     expand   one panel of B x up to 4 rows of u
 *
 * The bits are equal because products and sums are IEEE 754's, in the order written, and none is fused
 * (-ffp-contract=off).
 */
#ifndef MOX_CPU_LORA_LANES_H
#define MOX_CPU_LORA_LANES_H

#include <string.h>

#include "cpu/lora/lora.h"

#define MOX_LORA_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define MOX_LORA_WIDTH 16 /* lanes of a register */
#define MOX_LORA_BLOCK 4  /* rows of A whose sums are in registers together */
#elif defined(__AVX2__)
#define MOX_LORA_WIDTH 8
#define MOX_LORA_BLOCK 1
#else
#define MOX_LORA_WIDTH 4
#define MOX_LORA_BLOCK 1
#endif
#define MOX_LORA_REGISTERS (MOX_LORA_LANES / MOX_LORA_WIDTH)

typedef float mox_lora_lanes __attribute__((vector_size(4 * MOX_LORA_WIDTH)));
typedef float mox_lora_floats __attribute__((vector_size(4 * MOX_LORA_WIDTH), aligned(4), may_alias));
typedef uint32_t mox_lora_bits __attribute__((vector_size(4 * MOX_LORA_WIDTH)));
typedef uint16_t mox_lora_halves __attribute__((vector_size(2 * MOX_LORA_WIDTH), aligned(2), may_alias));
typedef float mox_lora_quad __attribute__((vector_size(16)));

/* Register `r` of the sixteen numbers from element `at` on. */
MOX_LORA_INLINE mox_lora_lanes mox_lora_read(moxie_dtype dtype, const void *from, int64_t at, int r)
{
    at += r * MOX_LORA_WIDTH;
    if (dtype == MOXIE_F32)
        return *(const mox_lora_floats *)((const float *)from + at);
    const mox_lora_halves codes = *(const mox_lora_halves *)((const uint16_t *)from + at);
    return (mox_lora_lanes)(__builtin_convertvector(codes, mox_lora_bits) << 16);
}

/* The sum of sixteen lanes: the upper half is added to the lower one, four times. */
MOX_LORA_INLINE float mox_lora_total(const mox_lora_lanes *sums)
{
    mox_lora_quad q[4];
    memcpy(q, sums, sizeof q);
    q[0] = (q[0] + q[2]) + (q[1] + q[3]);
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}

/* Rows [i, i + block) of A. */
MOX_LORA_INLINE void mox_lora_shrink_block(const mox_lora_shrink_tile *t, moxie_dtype dtype, int rows, int64_t i,
                                           int block)
{
    mox_lora_lanes sum[MOX_LORA_BLOCK][MOX_LORA_ROWS][MOX_LORA_REGISTERS] = { 0 };
    for (int64_t k = 0; k < t->cols; k += MOX_LORA_LANES)
#pragma GCC unroll 4
        for (int r = 0; r < MOX_LORA_REGISTERS; r++)
#pragma GCC unroll 4
            for (int b = 0; b < block; b++) {
                const mox_lora_lanes a = mox_lora_read(dtype, t->a, (i + b) * t->cols + k, r);
#pragma GCC unroll 4
                for (int j = 0; j < rows; j++)
                    sum[b][j][r] += a * mox_lora_read(MOXIE_F32, t->x[j], k, r);
            }
    for (int b = 0; b < block; b++)
        for (int j = 0; j < rows; j++)
            t->u[j][i + b] = t->scale * mox_lora_total(sum[b][j]);
}

MOX_LORA_INLINE void mox_lora_shrink_rows(const mox_lora_shrink_tile *t, moxie_dtype dtype, int rows)
{
    int64_t i = 0;
    for (; i + MOX_LORA_BLOCK <= t->rank; i += MOX_LORA_BLOCK)
        mox_lora_shrink_block(t, dtype, rows, i, MOX_LORA_BLOCK);
    for (; i < t->rank; i++)
        mox_lora_shrink_block(t, dtype, rows, i, 1);
}

MOX_LORA_INLINE void mox_lora_expand_rows(const mox_lora_expand_tile *t, moxie_dtype dtype, int rows)
{
    mox_lora_lanes sum[MOX_LORA_ROWS][MOX_LORA_REGISTERS] = { 0 };
    for (int64_t i = 0; i < t->rank; i++)
#pragma GCC unroll 4
        for (int r = 0; r < MOX_LORA_REGISTERS; r++) {
            const mox_lora_lanes b = mox_lora_read(dtype, t->b, i * MOX_LORA_LANES, r);
#pragma GCC unroll 4
            for (int j = 0; j < rows; j++)
                sum[j][r] += b * t->u[j][i];
        }
    for (int j = 0; j < rows; j++)
        for (int r = 0; r < MOX_LORA_REGISTERS; r++)
            *(mox_lora_floats *)(t->out[j] + r * MOX_LORA_WIDTH) += sum[j][r];
}

/* Calls fn(tile, dtype, rows) with constants, so that each pair of them has a loop of its own. */
#define MOX_LORA_FOR_ROWS(fn, tile, dtype)                                                                             \
    switch ((tile)->rows) {                                                                                            \
    case 1: fn(tile, dtype, 1); break;                                                                                 \
    case 2: fn(tile, dtype, 2); break;                                                                                 \
    case 3: fn(tile, dtype, 3); break;                                                                                 \
    default: fn(tile, dtype, 4); break;                                                                                \
    }
#define MOX_LORA_FOR(fn, tile)                                                                                         \
    if ((tile)->dtype == MOXIE_BF16) {                                                                                 \
        MOX_LORA_FOR_ROWS(fn, tile, MOXIE_BF16)                                                                        \
    } else {                                                                                                           \
        MOX_LORA_FOR_ROWS(fn, tile, MOXIE_F32)                                                                         \
    }

#endif
