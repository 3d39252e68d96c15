/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_quad_bytes_avx2.h - kernel avx2_bytes on 8-bit integer weights (order QUADS of panel.h): times activations that
 * are rounded to bytes (sum BYTE_ACTIVATIONS, panel_kernel.h).
 *
 *     t[n] = unit (sum over the step's columns of  d W[n]  -  Z[n] sum of d)       W, Z: the code and the zero point,
 *                                                                                  less 128 above the least value
 *
 * A line of codes holds four columns of 8 rows as it is needed. VPMADDUBSW adds two products in 16 bits, so one factor
 * counts as unsigned: |W|, at most 128, by d with the sign of W, at most 127. Two products are at most 32512, and fit.
 * VPMADDWD by ones adds two of them in 32 bits at once, because four would not fit.
 *
 *     bytes     [step][row] lines of block_bytes.h, whose offset is the sum of d
 *
 * Codes need no decoding and no slab: rows of activations are multiplied in blocks by both panels' codes of one step,
 * which stay in the L1 cache. A row's steps that need floats are decoded as avx2_fma does.
 *
 * Parameters of the always-inline functions are constants where they are called: R rows, H half panels, whether the
 * weights have `zeros`.
 */
#ifndef MOX_CPU_PANEL_QUAD_BYTES_AVX2_H
#define MOX_CPU_PANEL_QUAD_BYTES_AVX2_H

#include "cpu/expert_gemm/avx2/panel_fma_avx2.h"
#include "cpu/expert_gemm/block_bytes.h"

enum { MOX_QUAD_ROWS = 4, MOX_QUAD_STEP_BYTES = MOX_PANEL_STEP * MOX_PANEL_ROWS };

/* Z of H halves from panel p on. */
MOX_KERNEL_INLINE void mox_quad_points(int H, const mox_ymm_job *j, const mox_ymm_pos *at, int p, __m256i points[4])
{
    const float *zero = j->zero + at->group * MOX_PANEL_ROWS + p * j->panel_floats;
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++)
        points[h] = _mm256_sub_epi32(_mm256_cvtps_epi32(_mm256_load_ps(zero + h / 2 * j->panel_floats + h % 2 * 8)),
                                     _mm256_set1_epi32(128));
}

/* Adds a line of H halves, whose codes are at `codes`, to the sums of R rows. `flip` makes codes two's complement. */
MOX_KERNEL_INLINE void mox_quad_line(int R, int H, const uint8_t *codes, int64_t second, __m256i flip,
                                     const mox_bytes_line *rows, int g, __m256i sum[][4])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i w[4], size[4];
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        w[h] = _mm256_xor_si256(mox_half_line(codes + h / 2 * second + 64 * g + h % 2 * 32), flip);
        size[h] = _mm256_abs_epi8(w[h]);
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const __m256i four = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)(rows[r].d + 4 * g)));
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++) {
            const __m256i two = _mm256_maddubs_epi16(size[h], _mm256_sign_epi8(four, w[h]));
            sum[r][h] = mox_ymm_add_32(sum[r][h], _mm256_madd_epi16(two, ones));
        }
    }
}

/* One step of H halves, from panel p on, times R rows from `row` on. */
MOX_KERNEL_INLINE void mox_quad_step(bool zeros, int R, int H, const mox_ymm_job *j, const mox_ymm_pos *at, int p,
                                     int64_t row)
{
    const mox_bytes_line *rows = (const mox_bytes_line *)(const void *)j->limbs + at->step * j->a->rows + row;
    const int64_t second = (int64_t)j->matrix->panel_bytes;
    const uint8_t *codes = j->codes + p * second + at->step * MOX_QUAD_STEP_BYTES;
    const __m256i flip = _mm256_xor_si256(j->tables.t[0], _mm256_set1_epi8((char)0x80));
    const mox_ymm_sink sink = mox_ymm_sink_of(j, at, row);
    __m256i sum[MOX_QUAD_ROWS][4], points[4];
    __m256 total[MOX_QUAD_ROWS][4];
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++)
        sum[r][h] = _mm256_setzero_si256();
    MOX_KERNEL_UNROLL
    for (int g = 0; g < MOX_PANEL_STEP / 4; g++)
        mox_quad_line(R, H, codes, second, flip, rows, g, sum);
    if (zeros)
        mox_quad_points(H, j, at, p, points);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const __m256 unit = _mm256_broadcast_ss(&rows[r].unit);
        const __m256i bytes = _mm256_set1_epi32(rows[r].run.offset[0]);
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++) {
            if (zeros)
                sum[r][h] = _mm256_sub_epi32(sum[r][h], _mm256_mullo_epi32(points[h], bytes));
            total[r][h] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r][h]), unit);
        }
    }
    mox_ymm_add_step(R, H, true, &sink, p, 0, total);
}

/* One row of a step, as bytes or as floats. */
MOX_KERNEL_INLINE void mox_quad_row(bool zeros, int H, const mox_ymm_job *j, const mox_ymm_pos *at, int p, int64_t row)
{
    const mox_bytes_line *line = (const mox_bytes_line *)(const void *)j->limbs + at->step * j->a->rows + row;
    if (line->floats)
        mox_ymm_narrow_step(MOX_DECODE_QUADS, 1, H, j, at, p, 0, row);
    else
        mox_quad_step(zeros, 1, H, j, at, p, row);
}

/* All rows of a step and of panel p. `floats`: some rows may need floats. */
MOX_KERNEL_INLINE void mox_quad_rows(bool zeros, const mox_ymm_job *j, bool floats, const mox_ymm_pos *at, int p)
{
    const int64_t rows = j->a->rows;
    int64_t row = 0;
    for (; !floats && row + MOX_QUAD_ROWS <= rows; row += MOX_QUAD_ROWS)
        mox_quad_step(zeros, MOX_QUAD_ROWS, 2, j, at, p, row);
    for (; !floats && row + 2 <= rows; row += 2)
        mox_quad_step(zeros, 2, 2, j, at, p, row);
    for (; row < rows; row++)
        mox_quad_row(zeros, 2, j, at, p, row);
}

/* All steps. */
MOX_KERNEL_INLINE void mox_quad_all(bool zeros, const mox_ymm_job *j, bool floats)
{
    mox_ymm_pos at = { 0 };
    for (; at.step < j->steps; mox_ymm_next(j, &at)) {
        for (int p = 0; p < j->panels; p++)
            mox_ymm_prefetch(true, j, p, at.step);
        if (j->a->rows == 1 && j->panels == 2) {
            mox_quad_row(zeros, 4, j, &at, 0, 0);
            continue;
        }
        for (int p = 0; p < j->panels; p++)
            mox_quad_rows(zeros, j, floats, &at, p);
    }
}

#endif
