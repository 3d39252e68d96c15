/* SPDX-License-Identifier: Apache-2.0
 *
 * block_bytes_avx512.h - kernels avx512_block_int8 and avx512_block_bytes: block types times activations of 8 bits, as
 * integers. The sums are INT32_RUNS and BYTE_RUNS (panel_kernel.h), block_bytes.h has the activations.
 *
 *     t[n] = unit sum over the step's runs of  S[n] I[n] - M[n] D       I = sum d (level - offset)    D = sum d
 *
 *     step      decoded once to the slab: unsigned codes, four columns of a row in a lane. Levels with a sign count
 *               from -128, which is their offset
 *     block     up to BLOCK rows by both panels: VPDPBUSD by four bytes of each row, then the run's S, M and offset
 *
 *     slab      [step][group of four columns][panel 2][row 16][4] u8
 *     scales    [step][run 2][panel 2][S, M][row 16] f32
 *
 * A single panel is multiplied as both panels.
 *
 * Parameters of the always-inline functions are constants where they are called: the row `f` of block_fields.def,
 * `weights` of a block, R rows of activations, `runs` of a step, `minimums`: weights have M; `whole`: activations
 * without scales, so that sums stay in registers.
 */
#ifndef MOX_CPU_BLOCK_BYTES_AVX512_H
#define MOX_CPU_BLOCK_BYTES_AVX512_H

#include "cpu/expert_gemm/avx512/block_job_avx512.h"
#include "cpu/expert_gemm/block_bytes.h"

enum {
    MOX_BLOCK_BYTES_GROUPS = MOX_PANEL_STEP / 4,
    MOX_BLOCK_BYTES_STEP = MOX_BLOCK_BYTES_GROUPS * 2 * 64, /* bytes of a step in the slab */
    MOX_BLOCK_BYTES_SCALES = 2 * 2 * 2 * MOX_PANEL_ROWS,    /* floats of its scales */
    MOX_BLOCK_BYTES_ROWS = 6                                /* of a block */
};

typedef struct mox_block_bytes_job mox_block_bytes_job;

/* Decodes step `step` of panel p to its place in the slab, `to`, and its scales. */
typedef void (*mox_block_bytes_expand_fn)(const mox_block_job *j, int p, int64_t step, uint8_t *to, float *scales);
/* Multiplies the first `steps` steps in the slab, which begins at step s, by rows from `row` on. */
typedef void (*mox_block_bytes_rows_fn)(const mox_block_bytes_job *j, int64_t s, int64_t steps, int64_t row);

struct mox_block_bytes_job {
    mox_block_job block;
    const mox_bytes_line *lines; /* [steps][rows] */
    uint8_t *slab;
    float *scales;
    mox_block_bytes_expand_fn expand;
};

/* ---- decoding -------------------------------------------------------------------------------------------- */

/* Unsigned codes, or levels, of columns 4 g .. 4 g + 3. */
MOX_KERNEL_INLINE __m512i mox_zmm_bytes(const mox_block_fields *f, const mox_zmm_codes *codes, int g)
{
    const int high = ((1 << f->high.bits) - 1) << f->low.bits;
    const __m512i mask = _mm512_set1_epi8((char)((1 << f->low.bits) - 1));
    const __m512i low = mox_zmm_field(codes->low, f->low.bits, g, 0, 0);
    if (f->levels)
        return _mm512_shuffle_epi8(
            _mm512_broadcast_i32x4(_mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153,
                                                 (char)166, (char)181, (char)197, (char)217, (char)241)),
            _mm512_and_si512(low, mask));
    if (f->high.bits == 0)
        return _mm512_and_si512(low, mask);
    return mox_zmm_join(
        mask, low,
        _mm512_and_si512(mox_zmm_field(codes->high, f->high.bits, g, 0, f->low.bits), _mm512_set1_epi8((char)high)));
}

MOX_KERNEL_INLINE void mox_block_bytes_expand(const mox_block_fields *f, int weights, const mox_block_job *j, int p,
                                              int64_t step, uint8_t *to, float *scales)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const int64_t block = step / form.steps, s = step % form.steps;
    const uint8_t *blocks = j->fma.iter.codes[p] + block * form.bytes;
    const int runs = mox_zmm_runs(f);
    const mox_zmm_codes codes = mox_zmm_step_codes(f, blocks + form.codes_at + s * form.step_bytes);
    const mox_zmm_run d = mox_zmm_marked_d(f, &form, blocks);
    MOX_KERNEL_UNROLL
    for (int i = 0; i < runs; i++, scales += 2 * 2 * MOX_PANEL_ROWS) {
        const mox_zmm_run run = mox_zmm_block_run(f, &form, blocks, d, mox_zmm_first_run(f, s) + i);
        _mm512_store_ps(scales + p * 2 * MOX_PANEL_ROWS, run.s);
        if (f->m_at >= 0)
            _mm512_store_ps(scales + (2 * p + 1) * MOX_PANEL_ROWS, run.m);
    }
    MOX_KERNEL_UNROLL
    for (int g = 0; g < MOX_BLOCK_BYTES_GROUPS; g++)
        _mm512_store_si512(to + (2 * g + p) * 64, mox_zmm_bytes(f, &codes, g));
}

MOX_KERNEL_INLINE void mox_block_bytes_expand_levels(mox_levels_step_fn decode, int weights, int bytes, int d_at,
                                                     int runs, const mox_block_job *j, int p, int64_t step, uint8_t *to,
                                                     float *scales)
{
    const int steps = weights / MOX_PANEL_STEP;
    __m512i w[8];
    __m512 scale[2];
    mox_zmm_levels(decode, true, bytes, d_at, j->fma.iter.codes[p] + step / steps * MOX_PANEL_ROWS * bytes,
                   (int32_t)(step % steps), w, scale);
    MOX_KERNEL_UNROLL
    for (int i = 0; i < runs; i++)
        _mm512_store_ps(scales + (4 * i + 2 * p) * MOX_PANEL_ROWS, scale[i]);
    MOX_KERNEL_UNROLL
    for (int g = 0; g < MOX_BLOCK_BYTES_GROUPS; g++)
        _mm512_store_si512(to + (2 * g + p) * 64, _mm512_xor_si512(w[g], _mm512_set1_epi8((char)0x80)));
}

/* ---- products -------------------------------------------------------------------------------------------- */

/* Four activations: columns 4 g .. 4 g + 3. */
MOX_KERNEL_INLINE int32_t mox_bytes_four(const mox_bytes_line *line, int g)
{
    int32_t four;
    memcpy(&four, line->d + 4 * g, sizeof four);
    return four;
}

/* Adds run `i` of one row and panel to t: S (sum - offset D) - M D. */
MOX_KERNEL_INLINE __m512 mox_block_bytes_add_run(bool minimums, const mox_bytes_line *line, int i, __m512i sum,
                                                 mox_zmm_run run, __m512 t)
{
    if (!minimums)
        sum = _mm512_sub_epi32(sum, _mm512_set1_epi32(line->run.offset[i]));
    const __m512 whole = _mm512_cvtepi32_ps(sum);
    t = i == 0 ? _mm512_mul_ps(whole, run.s) : _mm512_fmadd_ps(whole, run.s, t);
    return minimums ? _mm512_fnmadd_ps(_mm512_set1_ps(line->run.minimum[i]), run.m, t) : t;
}

/* The sums t of step i in the slab, both panels by R rows. */
MOX_KERNEL_INLINE void mox_block_bytes_step(int runs, bool minimums, int R, const mox_block_bytes_job *j, int64_t i,
                                            const mox_bytes_line *line, __m512 t[][2])
{
    const uint8_t *w = j->slab + i * MOX_BLOCK_BYTES_STEP;
    const float *scales = j->scales + i * MOX_BLOCK_BYTES_SCALES;
    const int of_run = MOX_BLOCK_BYTES_GROUPS / runs;
    MOX_KERNEL_UNROLL
    for (int run = 0; run < runs; run++, scales += 4 * MOX_PANEL_ROWS) {
        __m512i sum[MOX_BLOCK_BYTES_ROWS][2];
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            sum[r][0] = sum[r][1] = _mm512_setzero_si512();
        MOX_KERNEL_UNROLL
        for (int g = run * of_run; g < (run + 1) * of_run; g++) {
            const __m512i w0 = _mm512_load_si512(w + 128 * g), w1 = _mm512_load_si512(w + 128 * g + 64);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++) {
                const __m512i four = _mm512_set1_epi32(mox_bytes_four(&line[r], g));
                sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], w0, four);
                sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], w1, four);
            }
        }
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            MOX_KERNEL_UNROLL
            for (int p = 0; p < 2; p++) {
                const float *at = scales + 2 * p * MOX_PANEL_ROWS;
                const mox_zmm_run of = { _mm512_load_ps(at), _mm512_load_ps(at + MOX_PANEL_ROWS) };
                t[r][p] = mox_block_bytes_add_run(minimums, &line[r], run, sum[r][p], of, t[r][p]);
            }
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        t[r][0] = _mm512_mul_ps(t[r][0], _mm512_set1_ps(line[r].unit));
        t[r][1] = _mm512_mul_ps(t[r][1], _mm512_set1_ps(line[r].unit));
    }
}

/* The slab by R rows. */
MOX_KERNEL_INLINE void mox_block_bytes_rows(int runs, bool minimums, bool whole, int R, const mox_block_bytes_job *j,
                                            int64_t s, int64_t steps, int64_t row)
{
    const mox_fma_job *fma = &j->block.fma;
    const mox_bytes_line *line = j->lines + s * fma->iter.a->rows + row;
    float *c = fma->c + row * 2 * MOX_PANEL_ROWS, *part = fma->part + row * 2 * MOX_PANEL_ROWS;
    __m512 sum[MOX_BLOCK_BYTES_ROWS][2], t[MOX_BLOCK_BYTES_ROWS][2];
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        sum[r][0] = _mm512_load_ps(c + 2 * r * MOX_PANEL_ROWS);
        sum[r][1] = _mm512_load_ps(c + (2 * r + 1) * MOX_PANEL_ROWS);
    }
    for (int64_t i = 0; i < steps; i++, line += fma->iter.a->rows) {
        mox_block_bytes_step(runs, minimums, R, j, i, line, t);
        if (!whole) {
            mox_segment_add_step(R, 2, &fma->iter, &fma->places[i], row, 0, c, part, t);
            continue;
        }
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            sum[r][0] = _mm512_add_ps(sum[r][0], t[r][0]);
            sum[r][1] = _mm512_add_ps(sum[r][1], t[r][1]);
        }
    }
    if (!whole)
        return;
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        _mm512_store_ps(c + 2 * r * MOX_PANEL_ROWS, sum[r][0]);
        _mm512_store_ps(c + (2 * r + 1) * MOX_PANEL_ROWS, sum[r][1]);
    }
}

#endif
