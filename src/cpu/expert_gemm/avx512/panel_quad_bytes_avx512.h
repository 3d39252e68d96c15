/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_quad_bytes_avx512.h - kernel avx512_bytes on 8-bit integer weights (order QUADS of panel.h): times activations
 * that are rounded to bytes (sum BYTE_ACTIVATIONS, panel_kernel.h).
 *
 *     t[n] = unit (sum over the step's columns of  d C[n]  -  Z[n] sum of d)       C, Z: the code and the zero point
 *                                                                                  above the least value; Z is 128
 *                                                                                  where the weights have none
 *
 * A line of codes is an operand of VPDPBUSD as it lies: four columns of 16 rows. C is unsigned, as the instruction
 * wants it; d is signed. Each product is below 2^15, so a step's sum is exact in int32, and as a float.
 *
 *     lines     [step][row] of block_bytes.h, whose offset is the sum of d
 *
 * Codes need no decoding and no slab: rows of activations are multiplied in blocks by both panels' codes of one step,
 * which stay in the L1 cache. A row's steps that need floats are decoded as avx512_fma does. A single panel is
 * multiplied as both panels.
 *
 * Parameters of the always-inline functions are constants where they are called: R rows, whether the weights have
 * `zeros`.
 */
#ifndef MOX_CPU_PANEL_QUAD_BYTES_AVX512_H
#define MOX_CPU_PANEL_QUAD_BYTES_AVX512_H

#include "cpu/expert_gemm/avx512/panel_fma_avx512.h"
#include "cpu/expert_gemm/block_bytes.h"

enum { MOX_ZMM_QUAD_ROWS = 6, MOX_ZMM_QUAD_STEP = MOX_PANEL_STEP * MOX_PANEL_ROWS };

typedef struct mox_zmm_quad_job {
    mox_fma_job fma;
    const mox_bytes_line *lines;
    __m512i flip; /* makes codes count from the least value */
} mox_zmm_quad_job;

/* Decodes step s of all panels to the slab, as floats. */
typedef void (*mox_zmm_quad_decode_fn)(const mox_fma_job *j, const mox_segment_pos *at, int64_t s);

/* Z times the sum of d, for one row of activations and panel p. */
MOX_KERNEL_INLINE __m512i mox_zmm_quad_offset(bool zeros, const mox_fma_job *j, const mox_segment_pos *at, int p,
                                              int32_t sum)
{
    if (!zeros)
        return _mm512_set1_epi32(128 * sum);
    const uint8_t *points = j->iter.zero[p] + at->group * MOX_PANEL_ROWS;
    return _mm512_mullo_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)points)),
                              _mm512_set1_epi32(sum));
}

/* Both panels of step s, whose place is `at`, by R rows from `row` on. */
MOX_KERNEL_INLINE void mox_zmm_quad_step(bool zeros, int R, const mox_zmm_quad_job *j, const mox_segment_pos *at,
                                         int64_t s, int64_t row)
{
    const mox_fma_job *fma = &j->fma;
    const mox_bytes_line *line = j->lines + s * fma->iter.a->rows + row;
    float *c = fma->c + row * 2 * MOX_PANEL_ROWS, *part = fma->part + row * 2 * MOX_PANEL_ROWS;
    __m512i sum[MOX_ZMM_QUAD_ROWS][2];
    __m512 t[MOX_ZMM_QUAD_ROWS][2];
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_si512();
    MOX_KERNEL_UNROLL
    for (int g = 0; g < MOX_PANEL_STEP / 4; g++) {
        __m512i w[2];
        for (int p = 0; p < 2; p++)
            w[p] = _mm512_xor_si512(_mm512_loadu_si512(fma->iter.codes[p] + s * MOX_ZMM_QUAD_STEP + 64 * g), j->flip);
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            int32_t four;
            memcpy(&four, line[r].d + 4 * g, sizeof four);
            sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], w[0], _mm512_set1_epi32(four));
            sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], w[1], _mm512_set1_epi32(four));
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        MOX_KERNEL_UNROLL
        for (int p = 0; p < 2; p++) {
            sum[r][p] = _mm512_sub_epi32(sum[r][p], mox_zmm_quad_offset(zeros, fma, at, p, line[r].run.offset[0]));
            t[r][p] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][p]), _mm512_set1_ps(line[r].unit));
        }
    }
    mox_segment_add_step(R, 2, &fma->iter, at, row, 0, c, part, t);
}

/* ---- all rows ---------------------------------------------------------------------------------------------- */

/* All rows as bytes, in blocks of nearly the same size. */
MOX_KERNEL_INLINE void mox_zmm_quad_blocks(bool zeros, const mox_zmm_quad_job *j, const mox_segment_pos *at, int64_t s)
{
    const int64_t all = j->fma.iter.a->rows, blocks = mox_ceil_div(all, MOX_ZMM_QUAD_ROWS);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t row = b * all / blocks;
        switch ((b + 1) * all / blocks - row) {
        case 1: mox_zmm_quad_step(zeros, 1, j, at, s, row); break;
        case 2: mox_zmm_quad_step(zeros, 2, j, at, s, row); break;
        case 3: mox_zmm_quad_step(zeros, 3, j, at, s, row); break;
        case 4: mox_zmm_quad_step(zeros, 4, j, at, s, row); break;
        case 5: mox_zmm_quad_step(zeros, 5, j, at, s, row); break;
        default: mox_zmm_quad_step(zeros, MOX_ZMM_QUAD_ROWS, j, at, s, row); break;
        }
    }
}

/* Rows one by one, as bytes or as floats. */
static inline void mox_zmm_quad_mixed(bool zeros, mox_zmm_quad_decode_fn decode, mox_zmm_quad_job *j,
                                      const mox_segment_pos *at, int64_t s)
{
    const int64_t rows = j->fma.iter.a->rows;
    j->fma.places[0] = *at;
    decode(&j->fma, at, s);
    for (int64_t row = 0; row < rows; row++)
        if (j->lines[s * rows + row].floats)
            mox_fma_block_of(1, j->fma.iter.panels, 4)(&j->fma, s, 1, row);
        else if (zeros)
            mox_zmm_quad_step(true, 1, j, at, s, row);
        else
            mox_zmm_quad_step(false, 1, j, at, s, row);
}

/* All steps. `floats`: some steps of some rows need them. */
MOX_KERNEL_INLINE void mox_zmm_quad_all(bool zeros, mox_zmm_quad_decode_fn decode, mox_zmm_quad_job *j, bool floats)
{
    mox_segment_pos at = mox_segment_begin(&j->fma.iter);
    memset(j->fma.c, 0, (size_t)j->fma.iter.a->rows * 2 * MOX_PANEL_ROWS * sizeof *j->fma.c);
    for (int64_t s = 0; s < j->fma.iter.steps; s++, mox_segment_next(&j->fma.iter, &at)) {
        for (int p = 0; p < j->fma.iter.panels; p++)
            mox_segment_prefetch(j->fma.iter.prefetch_to_l2, &j->fma.iter, p, j->fma.iter.panels, s, MOX_ZMM_QUAD_STEP);
        if (floats)
            mox_zmm_quad_mixed(zeros, decode, j, &at, s);
        else
            mox_zmm_quad_blocks(zeros, j, &at, s);
    }
}

#endif
