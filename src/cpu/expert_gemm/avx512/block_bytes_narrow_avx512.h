/* SPDX-License-Identifier: Apache-2.0
 *
 * block_bytes_narrow_avx512.h - up to four rows of activations in kernels avx512_block_int8 and avx512_block_bytes:
 * codes are multiplied as they are decoded, and the sums stay in registers. The bits are those of block_bytes_avx512.h,
 * which decodes to a slab first. A store, a load and a call for each step of a panel cost more than few rows' products.
 *
 * For types of block_fields.def and activations without scales; every step is multiplied as bytes.
 *
 * Parameters of the always-inline functions are constants where they are called: the row `f` of block_fields.def,
 * `weights` of a block, R rows of activations.
 */
#ifndef MOX_CPU_BLOCK_BYTES_NARROW_AVX512_H
#define MOX_CPU_BLOCK_BYTES_NARROW_AVX512_H

#include "cpu/expert_gemm/avx512/block_bytes_avx512.h"

enum { MOX_BLOCK_BYTES_NARROW = 4 }; /* most rows */

/* Adds to sum[r][p] the products of step s of the 16 blocks at `blocks`, panel p, by R rows; d: of the blocks. */
MOX_KERNEL_INLINE void mox_block_bytes_narrow_step(const mox_block_fields *f, int weights, int R, const uint8_t *blocks,
                                                   mox_zmm_run d, int64_t s, const mox_bytes_line *line, int p,
                                                   __m512 sum[][2])
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const int runs = mox_zmm_runs(f), of_run = MOX_BLOCK_BYTES_GROUPS / runs;
    const mox_zmm_codes codes = mox_zmm_step_codes(f, blocks + form.codes_at + s * form.step_bytes);
    __m512 t[MOX_BLOCK_BYTES_NARROW];
    MOX_KERNEL_UNROLL
    for (int i = 0; i < runs; i++) {
        const mox_zmm_run run = mox_zmm_block_run(f, &form, blocks, d, mox_zmm_first_run(f, s) + i);
        __m512i dot[MOX_BLOCK_BYTES_NARROW];
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            dot[r] = _mm512_setzero_si512();
        MOX_KERNEL_UNROLL
        for (int g = i * of_run; g < (i + 1) * of_run; g++) {
            const __m512i w = mox_zmm_bytes(f, &codes, g);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                dot[r] = _mm512_dpbusd_epi32(dot[r], w, _mm512_set1_epi32(mox_bytes_four(&line[r], g)));
        }
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            t[r] = mox_block_bytes_add_run(f->m_at >= 0, &line[r], i, dot[r], run, t[r]);
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        sum[r][p] = _mm512_add_ps(sum[r][p], _mm512_mul_ps(t[r], _mm512_set1_ps(line[r].unit)));
}

/* Both panels by R rows. There is one segment. */
MOX_KERNEL_INLINE void mox_block_bytes_narrow(const mox_block_fields *f, int weights, int R,
                                              const mox_block_bytes_job *j)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const mox_segment_iter *iter = &j->block.fma.iter;
    const int64_t blocks = iter->steps / form.steps;
    const mox_bytes_line *line = j->lines;
    __m512 sum[MOX_BLOCK_BYTES_NARROW][2];
    for (int r = 0; r < R; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; b++) {
        const uint8_t *at[2] = { iter->codes[0] + b * form.bytes, iter->codes[1] + b * form.bytes };
        const mox_zmm_run d[2] = { mox_zmm_marked_d(f, &form, at[0]), mox_zmm_marked_d(f, &form, at[1]) };
        for (int64_t s = 0; s < form.steps; s++, line += R) {
            MOX_KERNEL_UNROLL
            for (int p = 0; p < 2; p++) {
                mox_block_job_prefetch_narrow(iter, p, b * form.bytes + s * form.bytes / form.steps,
                                              form.bytes / form.steps);
                mox_block_bytes_narrow_step(f, weights, R, at[p], d[p], s, line, p, sum);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < iter->panels; p++)
            _mm512_store_ps(j->block.fma.c + (2 * r + p) * MOX_PANEL_ROWS, sum[r][p]);
}

#endif
