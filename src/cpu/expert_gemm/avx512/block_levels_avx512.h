/* SPDX-License-Identifier: Apache-2.0
 *
 * block_levels_avx512.h - kernel avx512_block_levels: block types without minimums, whose levels are multiplied, and
 * the scales after. The sum is LEVEL_RUNS (panel_kernel.h).
 *
 *     t[n] = sum over the step's runs of  S[n] I[n]       I = sum a (level - offset)
 *
 *     few rows    block_levels_narrow_avx512.h: codes are multiplied as they are decoded, as integers where that rounds
 *                 nothing
 *     more rows   here. SLAB steps of both panels are decoded to levels, then multiplied by blocks of up to BLOCK rows
 *
 *     slab        [step][column][panel 2][row 16] f32: levels
 *     scales      [step][run 2][panel 2][row 16] f32: S
 *
 * A single panel is multiplied as both panels.
 *
 * Parameters of the always-inline functions are constants where they are called: the row `f` of block_fields.def,
 * `weights` of a block, R rows of activations, `runs` of a step.
 */
#ifndef MOX_CPU_BLOCK_LEVELS_AVX512_H
#define MOX_CPU_BLOCK_LEVELS_AVX512_H

#include "cpu/expert_gemm/avx512/block_job_avx512.h"

enum { MOX_BLOCK_LEVELS_SCALES = 2 * 2 * MOX_PANEL_ROWS }; /* floats of a step's scales */

typedef struct mox_block_levels_job mox_block_levels_job;

/* Decodes step `step` of panel p to its place in the slab, and its scales. */
typedef void (*mox_block_levels_expand_fn)(const mox_block_levels_job *j, int p, int64_t step, float *slab,
                                           float *scales);
/* Multiplies the first `steps` steps in the slab, which begins at step s, by rows from `row` on. */
typedef void (*mox_block_levels_rows_fn)(const mox_block_levels_job *j, int64_t s, int64_t steps, int64_t row);

struct mox_block_levels_job {
    mox_block_job block;
    float *scales;
    const mox_levels_line *lines; /* [steps][rows], for few rows */
    const uint8_t *kinds;         /* [steps], likewise */
};

/* ---- scales ---------------------------------------------------------------------------------------------- */

/* Adds S I of run `i` of a step to t. */
MOX_KERNEL_INLINE __m512 mox_block_levels_add_run(int i, __m512 levels, __m512 s, __m512 t)
{
    return i == 0 ? _mm512_mul_ps(levels, s) : _mm512_fmadd_ps(levels, s, t);
}

/* ---- many rows ------------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE void mox_block_levels_expand(const mox_block_fields *f, int weights, const mox_block_levels_job *j,
                                               int p, int64_t step, float *slab, float *scales)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const int64_t block = step / form.steps, s = step % form.steps;
    const uint8_t *blocks = j->block.fma.iter.codes[p] + block * form.bytes;
    const mox_zmm_codes codes = mox_zmm_step_codes(f, blocks + form.codes_at + s * form.step_bytes);
    const mox_zmm_run d = mox_zmm_marked_d(f, &form, blocks);
    MOX_KERNEL_UNROLL
    for (int i = 0; i < mox_zmm_runs(f); i++)
        _mm512_store_ps(scales + (2 * i + p) * MOX_PANEL_ROWS,
                        mox_zmm_block_run(f, &form, blocks, d, mox_zmm_first_run(f, s) + i).s);
    MOX_UNROLL_STEP
    for (int c = 0; c < MOX_PANEL_STEP; c++)
        _mm512_store_ps(slab + (2 * c + p) * MOX_PANEL_ROWS,
                        mox_zmm_level(f, &j->block.tables, mox_zmm_index(f, &codes, c / 4, c % 2), c % 4 >= 2));
}

/* The sums t of step i in the slab, both panels by R rows. `a`: the step's activations of the first row. */
MOX_KERNEL_INLINE void mox_block_levels_step(int runs, int R, const mox_block_levels_job *j, int64_t i, const float *a,
                                             __m512 t[][2])
{
    const float *w = j->block.fma.slab + i * MOX_PANEL_STEP * 2 * MOX_PANEL_ROWS;
    const float *scales = j->scales + i * MOX_BLOCK_LEVELS_SCALES;
    const int64_t stride = j->block.fma.stride;
    MOX_KERNEL_UNROLL
    for (int run = 0; run < runs; run++, scales += 2 * MOX_PANEL_ROWS) {
        __m512 chain[MOX_FMA_BLOCK][2][2];
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            chain[r][0][0] = chain[r][0][1] = chain[r][1][0] = chain[r][1][1] = _mm512_setzero_ps();
        for (int k = 0; k < MOX_PANEL_STEP / runs; k += 2, a += 2, w += 4 * MOX_PANEL_ROWS) {
            const __m512 even[2] = { _mm512_load_ps(w), _mm512_load_ps(w + MOX_PANEL_ROWS) };
            const __m512 odd[2] = { _mm512_load_ps(w + 2 * MOX_PANEL_ROWS), _mm512_load_ps(w + 3 * MOX_PANEL_ROWS) };
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++) {
                const __m512 x = _mm512_set1_ps(a[r * stride]), y = _mm512_set1_ps(a[r * stride + 1]);
                MOX_KERNEL_UNROLL
                for (int p = 0; p < 2; p++) {
                    chain[r][p][0] = _mm512_fmadd_ps(even[p], x, chain[r][p][0]);
                    chain[r][p][1] = _mm512_fmadd_ps(odd[p], y, chain[r][p][1]);
                }
            }
        }
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            MOX_KERNEL_UNROLL
            for (int p = 0; p < 2; p++)
                t[r][p] = mox_block_levels_add_run(run, _mm512_add_ps(chain[r][p][0], chain[r][p][1]),
                                                   _mm512_load_ps(scales + p * MOX_PANEL_ROWS), t[r][p]);
        }
    }
}

/* The slab by R rows. */
MOX_KERNEL_INLINE void mox_block_levels_rows(int runs, int R, const mox_block_levels_job *j, int64_t s, int64_t steps,
                                             int64_t row)
{
    const mox_fma_job *fma = &j->block.fma;
    for (int64_t i = 0; i < steps; i++) {
        __m512 t[MOX_FMA_BLOCK][2];
        mox_block_levels_step(runs, R, j, i, fma->values + row * fma->stride + (s + i) * MOX_PANEL_STEP, t);
        mox_segment_add_step(R, 2, &fma->iter, &fma->places[i], row, 0, fma->c + row * 2 * MOX_PANEL_ROWS,
                             fma->part + row * 2 * MOX_PANEL_ROWS, t);
    }
}

/* All steps by all rows. `times`: by the number of rows, less 1. */
static inline void mox_block_levels_wide(mox_block_levels_job *j, mox_block_levels_expand_fn expand,
                                         const mox_block_levels_rows_fn times[MOX_FMA_BLOCK])
{
    mox_fma_job *fma = &j->block.fma;
    const int64_t rows = fma->iter.a->rows, blocks = mox_ceil_div(rows, MOX_FMA_BLOCK);
    mox_segment_pos at = mox_segment_begin(&fma->iter);
    memset(fma->c, 0, (size_t)rows * 2 * MOX_PANEL_ROWS * sizeof *fma->c);
    for (int64_t s = 0; s < fma->iter.steps; s += MOX_FMA_SLAB) {
        const int64_t steps = mox_min_i64(MOX_FMA_SLAB, fma->iter.steps - s);
        for (int64_t i = 0; i < steps; i++, mox_segment_next(&fma->iter, &at)) {
            fma->places[i] = at;
            for (int p = 0; p < 2; p++) {
                mox_block_job_prefetch(&j->block, p, s + i);
                expand(j, p, s + i, fma->slab + i * MOX_PANEL_STEP * 2 * MOX_PANEL_ROWS,
                       j->scales + i * MOX_BLOCK_LEVELS_SCALES);
            }
        }
        for (int64_t b = 0; b < blocks; b++) { /* of nearly the same size */
            const int64_t row = b * rows / blocks;
            times[(b + 1) * rows / blocks - row - 1](j, s, steps, row);
        }
    }
}

#endif
