/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_block_bytes_avx2.h - kernels avx2_block_int8 and avx2_block_bytes: block types (pack/panel/block_panel.h) times
 * activations of 8 bits, as integers.
 *
 *     t[n] = unit sum over the step's runs of  S[n] I[n] - M[n] D       I = sum d (level - offset)    D = sum d
 *
 * d are the activations' bytes, and unit their scale: 1 when they are int8 codes, whose scale follows the sum. I and D
 * are exact in int32; panel_kernel.h has the order of the rest (sums INT32_RUNS and BYTE_RUNS). Four columns of 8 rows
 * take
 *
 *     codes      load, VPSHUFB: the four columns of a row become neighbours; shift, mask; the upper bits likewise
 *     product    VPMADDUBSW by four d; 16-bit sums while they cannot overflow, then VPMADDWD
 *
 * Levels have a sign: their magnitudes are multiplied by d with that sign.
 *
 *     bytes     [step][row] lines of block_bytes.h
 *     slab      SLAB steps of one panel: | [step][half][group of four columns][32] | [step][half][run] S, M [8] f32 |
 *
 * One or two rows multiply codes as they are decoded. More rows share the slab, up to four at a time.
 *
 * Parameters of the always-inline functions are constants where they are called: the row `f` of block_fields.def,
 * `weights` of a block, R rows of activations.
 */
#ifndef MOX_CPU_PANEL_BLOCK_BYTES_AVX2_H
#define MOX_CPU_PANEL_BLOCK_BYTES_AVX2_H

#include "base/sizes.h"
#include "cpu/expert_gemm/avx2/panel_block_avx2.h"
#include "cpu/expert_gemm/block_bytes.h"

enum { MOX_BYTES_NARROW = 2, MOX_BYTES_ROWS = 4, MOX_BYTES_GROUPS = MOX_PANEL_STEP / 4 };
/* mox_block_fields.levels: those of iq4_nl; the integers of block_levels.def. Both have a sign. */
enum { MOX_BYTES_TABLE = 1, MOX_BYTES_LEVELS = 2 };

/* The product of a call; `floats`: some lines must be multiplied as floats. NULL: not this type. */
typedef void (*mox_ymm_block_bytes_fn)(const mox_ymm_job *job, bool floats);
mox_ymm_block_bytes_fn mox_ymm_block_bytes_of(moxie_dtype element);

/* ---- weights -------------------------------------------------------------------------------------- */

/* Groups of four columns whose products may be added in 16 bits. */
MOX_KERNEL_INLINE int mox_bytes_groups(const mox_block_fields *f)
{
    const int largest = f->levels == MOX_BYTES_TABLE ? 127 : (1 << (f->low.bits + f->high.bits)) - 1;
    const int groups = 32767 / (2 * 127 * largest), of_run = MOX_BYTES_GROUPS / mox_bytes_runs(f);
    return groups >= of_run ? of_run : groups >= 4 ? 4 : groups >= 2 ? 2 : 1;
}

/* As mox_ymm_field(), with the four columns of a row side by side. */
MOX_KERNEL_INLINE __m256i mox_bytes_field(const uint8_t *plane, int bits, int up, int half, int g)
{
    const __m256i by_row =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const int fields = 8 / bits, shift = bits * (g % fields) - up;
    const __m256i x = _mm256_shuffle_epi8(
        _mm256_load_si256((const __m256i *)(const void *)(plane + (2 * (g / fields) + half) * 32)), by_row);
    const __m256i moved = shift > 0 ? _mm256_srli_epi16(x, shift) : shift < 0 ? _mm256_slli_epi16(x, -shift) : x;
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)(((1 << bits) - 1) << up)));
}

/* Codes, or levels, of columns 4 g .. 4 g + 3 of a step and of 8 rows. */
MOX_KERNEL_INLINE __m256i mox_bytes_weights(const mox_block_fields *f, const uint8_t *step, int half, int g)
{
    const __m256i low = mox_bytes_field(step, f->low.bits, 0, half, g);
    if (f->levels)
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10,
                                                                             1, 13, 25, 38, 53, 69, 89, 113)),
                                   low);
    if (f->high.bits == 0)
        return low;
    return _mm256_or_si256(low, mox_bytes_field(step + 64 * f->low.bits, f->high.bits, f->low.bits, half, g));
}

/* Sums of two products each. */
MOX_KERNEL_INLINE __m256i mox_bytes_multiply(const mox_block_fields *f, __m256i w, const int8_t *d)
{
    const __m256i four = _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)d));
    return f->levels ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(four, w))
                     : _mm256_maddubs_epi16(w, four);
}

/* Adds group `g` of a step, whose weights are w, to `part` (16 bits), and to `sum` before that may overflow. A run's
 * first ones are stored. */
MOX_KERNEL_INLINE void mox_bytes_add_group(const mox_block_fields *f, int g, __m256i w, const int8_t *d, __m256i *part,
                                           __m256i *sum)
{
    const int of_run = MOX_BYTES_GROUPS / mox_bytes_runs(f), together = mox_bytes_groups(f);
    const __m256i two = mox_bytes_multiply(f, w, d + 4 * g);
    *part = g % together == 0 ? two : mox_ymm_add_16(*part, two);
    if (g % together != together - 1)
        return;
    const __m256i four = _mm256_madd_epi16(*part, _mm256_set1_epi16(1));
    *sum = g % of_run < together ? four : mox_ymm_add_32(*sum, four);
}

/* ---- the sums of a step --------------------------------------------------------------------------- */

/* Adds run `i` to t: S (sum - offset D) - M D. */
MOX_KERNEL_INLINE __m256 mox_bytes_add_run(const mox_block_fields *f, const mox_bytes_line *line, int i, __m256i sum,
                                           mox_ymm_run run, __m256 t)
{
    if (f->m_at < 0 && f->offset != 0 && !f->levels)
        sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(line->run.offset[i]));
    const __m256 whole = _mm256_cvtepi32_ps(sum);
    t = i == 0 ? _mm256_mul_ps(whole, run.s) : _mm256_fmadd_ps(whole, run.s, t);
    return f->m_at < 0 ? t : _mm256_fnmadd_ps(_mm256_broadcast_ss(&line->run.minimum[i]), run.m, t);
}

/* ---- few rows ------------------------------------------------------------------------------------- */

/* A panel's step times R rows, whose lines begin at `line`, to t[row][half]. Both halves share the activations. */
MOX_KERNEL_INLINE void mox_bytes_codes_step(const mox_block_fields *f, int weights, int R, const uint8_t *blocks,
                                            const mox_ymm_run d[2], int64_t s, const mox_bytes_line *line,
                                            __m256 t[][4])
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const uint8_t *step = blocks + form.codes_at + s * form.step_bytes;
    const int runs = mox_bytes_runs(f), of_run = MOX_BYTES_GROUPS / runs;
    const int64_t first_run = f->integers == MOX_BLOCK_NONE ? 0 : s * MOX_PANEL_STEP / f->run;
    MOX_KERNEL_UNROLL
    for (int i = 0; i < runs; i++) {
        __m256i sum[MOX_BYTES_NARROW][2], part[MOX_BYTES_NARROW][2];
        MOX_KERNEL_UNROLL
        for (int n = 2 * i * of_run; n < 2 * (i + 1) * of_run; n++) {
            const int g = n / 2, half = n % 2;
            const __m256i w = mox_bytes_weights(f, step, half, g);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                mox_bytes_add_group(f, g, w, line[r].d, &part[r][half], &sum[r][half]);
        }
        MOX_KERNEL_UNROLL
        for (int half = 0; half < 2; half++) {
            const mox_ymm_run run = mox_ymm_block_run(f, &form, blocks, d[half], (int)first_run + i, half);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                t[r][half] = mox_bytes_add_run(f, &line[r], i, sum[r][half], run, t[r][half]);
        }
    }
    MOX_KERNEL_UNROLL
    for (int n = 0; n < 2 * R; n++)
        t[n / 2][n % 2] = _mm256_mul_ps(t[n / 2][n % 2], _mm256_broadcast_ss(&line[n / 2].unit));
}

/* Without scales of activations there is one segment: the sums of all steps stay in registers. */
MOX_KERNEL_INLINE void mox_bytes_narrow_whole(const mox_block_fields *f, int weights, int R, const mox_ymm_job *j)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const int64_t count = j->matrix->cols / weights;
    for (int p = 0; p < j->panels; p++) {
        const uint8_t *blocks = j->codes + p * (int64_t)j->matrix->panel_bytes;
        const mox_bytes_line *line = (const mox_bytes_line *)(const void *)j->limbs;
        __m256 sum[MOX_BYTES_NARROW][2];
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            sum[r][0] = sum[r][1] = _mm256_setzero_ps();
        for (int64_t b = 0; b < count; b++, blocks += form.bytes) {
            const mox_ymm_run d[2] = { mox_ymm_block_d(j, f, p, b, 0), mox_ymm_block_d(j, f, p, b, 1) };
            mox_ymm_block_prefetch_d(j, &form, blocks);
            for (int64_t s = 0; s < form.steps; s++, line += R) {
                __m256 t[MOX_BYTES_NARROW][4];
                mox_ymm_block_prefetch(blocks + form.codes_at + s * form.step_bytes, form.step_bytes);
                mox_bytes_codes_step(f, weights, R, blocks, d, s, line, t);
                MOX_KERNEL_UNROLL
                for (int n = 0; n < 2 * R; n++)
                    sum[n / 2][n % 2] = _mm256_add_ps(sum[n / 2][n % 2], t[n / 2][n % 2]);
            }
        }
        MOX_KERNEL_UNROLL
        for (int i = 0; i < 2 * R; i++)
            _mm256_store_ps(j->c + i / 2 * MOX_YMM_WIDTH + p * MOX_PANEL_ROWS + i % 2 * 8, sum[i / 2][i % 2]);
    }
}

/* One row, some of whose steps may need floats, or whose activations have scales. */
MOX_KERNEL_INLINE void mox_bytes_narrow(const mox_block_fields *f, int weights, const mox_ymm_job *j)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const int64_t count = j->matrix->cols / weights;
    for (int p = 0; p < j->panels; p++) {
        const uint8_t *blocks = j->codes + p * (int64_t)j->matrix->panel_bytes;
        const mox_bytes_line *line = (const mox_bytes_line *)(const void *)j->limbs;
        mox_ymm_pos at = { 0 };
        for (int64_t b = 0; b < count; b++, blocks += form.bytes) {
            const mox_ymm_run d[2] = { mox_ymm_block_d(j, f, p, b, 0), mox_ymm_block_d(j, f, p, b, 1) };
            mox_ymm_block_prefetch_d(j, &form, blocks);
            for (int64_t s = 0; s < form.steps; s++, line++, mox_ymm_next(j, &at)) {
                if (line->floats) {
                    mox_ymm_block_step(f, weights, 1, j, &at, p, 0, blocks, d, s);
                    continue;
                }
                const mox_ymm_sink sink = mox_ymm_sink_of(j, &at, 0);
                __m256 sum[1][4];
                mox_ymm_block_prefetch(blocks + form.codes_at + s * form.step_bytes, form.step_bytes);
                mox_bytes_codes_step(f, weights, 1, blocks, d, s, line, sum);
                mox_ymm_add_step(1, 2, false, &sink, p, 0, sum);
            }
        }
    }
}

/* ---- more rows ------------------------------------------------------------------------------------ */

enum {
    MOX_BYTES_STEP = 2 * MOX_BYTES_GROUPS * 32, /* bytes of a step's weights in the slab */
    MOX_BYTES_SCALES = 2 * 2 * 2 * 8            /* floats of its S and M */
};

MOX_KERNEL_INLINE const float *mox_bytes_scales(const mox_ymm_job *j, int64_t i)
{
    return (const float *)(const void *)((const uint8_t *)j->slab + MOX_YMM_SLAB * MOX_BYTES_STEP) +
           i * MOX_BYTES_SCALES;
}

/* Decodes `count` steps of panel p to the slab. */
MOX_KERNEL_INLINE void mox_bytes_expand(const mox_block_fields *f, int weights, const mox_ymm_job *j, int p,
                                        int64_t first, int64_t count)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const uint8_t *panel = j->codes + p * (int64_t)j->matrix->panel_bytes;
    const int runs = mox_bytes_runs(f);
    for (int64_t i = 0; i < count; i++) {
        const int64_t block = (first + i) / form.steps, s = (first + i) % form.steps;
        const uint8_t *blocks = panel + block * form.bytes, *step = blocks + form.codes_at + s * form.step_bytes;
        const int64_t first_run = f->integers == MOX_BLOCK_NONE ? 0 : s * MOX_PANEL_STEP / f->run;
        uint8_t *to = (uint8_t *)j->slab + i * MOX_BYTES_STEP;
        float *scales = (float *)(uintptr_t)mox_bytes_scales(j, i);
        mox_ymm_block_prefetch(step, form.step_bytes);
        MOX_KERNEL_UNROLL
        for (int half = 0; half < 2; half++) {
            const mox_ymm_run d = mox_ymm_block_d(j, f, p, block, half);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < runs; r++, scales += 16) {
                const mox_ymm_run run = mox_ymm_block_run(f, &form, blocks, d, (int)first_run + r, half);
                _mm256_store_ps(scales, run.s);
                if (f->m_at >= 0)
                    _mm256_store_ps(scales + 8, run.m);
            }
            MOX_KERNEL_UNROLL
            for (int g = 0; g < MOX_BYTES_GROUPS; g++, to += 32)
                _mm256_store_si256((__m256i *)(void *)to, mox_bytes_weights(f, step, half, g));
        }
    }
}

/* Half of step `i` of the slab times R rows, whose lines begin at `line`, to t. */
MOX_KERNEL_INLINE void mox_bytes_half(const mox_block_fields *f, int R, const mox_ymm_job *j, int64_t i, int half,
                                      const mox_bytes_line *line, __m256 t[][4])
{
    const int runs = mox_bytes_runs(f), of_run = MOX_BYTES_GROUPS / runs;
    const uint8_t *w = (const uint8_t *)j->slab + i * MOX_BYTES_STEP + half * MOX_BYTES_STEP / 2;
    const float *scales = mox_bytes_scales(j, i) + half * runs * 16;
    MOX_KERNEL_UNROLL
    for (int run = 0; run < runs; run++, scales += 16) {
        __m256i sum[MOX_BYTES_ROWS], part[MOX_BYTES_ROWS];
        MOX_KERNEL_UNROLL
        for (int g = run * of_run; g < (run + 1) * of_run; g++, w += 32) {
            const __m256i x = _mm256_load_si256((const __m256i *)(const void *)w);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                mox_bytes_add_group(f, g, x, line[r].d, &part[r], &sum[r]);
        }
        const mox_ymm_run of = { _mm256_load_ps(scales),
                                 f->m_at >= 0 ? _mm256_load_ps(scales + 8) : _mm256_setzero_ps() };
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            t[r][0] = mox_bytes_add_run(f, &line[r], run, sum[r], of, t[r][0]);
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        t[r][0] = _mm256_mul_ps(t[r][0], _mm256_broadcast_ss(&line[r].unit));
}

MOX_KERNEL_INLINE void mox_bytes_step(const mox_block_fields *f, int R, const mox_ymm_job *j, int64_t i, int p,
                                      const mox_bytes_line *line, const mox_ymm_sink *sink)
{
    __m256 t[MOX_BYTES_ROWS][4];
    MOX_KERNEL_UNROLL
    for (int half = 0; half < 2; half++) {
        mox_bytes_half(f, R, j, i, half, line, t);
        mox_ymm_add_step(R, 1, false, sink, p, half, t);
    }
}

/* All steps of the slab times R rows from `row` on, without scales of activations: one segment, whose sums are in c. */
MOX_KERNEL_INLINE void mox_bytes_rows_whole(const mox_block_fields *f, int R, const mox_ymm_job *j, int p,
                                            int64_t first, int64_t count, int64_t row)
{
    for (int half = 0; half < 2; half++) {
        const mox_bytes_line *line = (const mox_bytes_line *)(const void *)j->limbs + first * j->a->rows + row;
        float *c = j->c + row * MOX_YMM_WIDTH + p * MOX_PANEL_ROWS + 8 * half;
        __m256 sum[MOX_BYTES_ROWS];
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            sum[r] = _mm256_load_ps(c + r * MOX_YMM_WIDTH);
        for (int64_t i = 0; i < count; i++, line += j->a->rows) {
            __m256 t[MOX_BYTES_ROWS][4];
            mox_bytes_half(f, R, j, i, half, line, t);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                sum[r] = _mm256_add_ps(sum[r], t[r][0]);
        }
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            _mm256_store_ps(c + r * MOX_YMM_WIDTH, sum[r]);
    }
}

/* All steps of the slab times R rows from `row` on. */
MOX_KERNEL_INLINE void mox_bytes_rows(const mox_block_fields *f, int R, const mox_ymm_job *j, int p,
                                      const mox_ymm_pos *start, int64_t count, int64_t row)
{
    const mox_bytes_line *line = (const mox_bytes_line *)(const void *)j->limbs + start->step * j->a->rows + row;
    mox_ymm_pos at = *start;
    if (j->a->scales == NULL) {
        mox_bytes_rows_whole(f, R, j, p, start->step, count, row);
        return;
    }
    for (int64_t i = 0; i < count; i++, line += j->a->rows, mox_ymm_next(j, &at)) {
        const mox_ymm_sink sink = mox_ymm_sink_of(j, &at, row);
        mox_bytes_step(f, R, j, i, p, line, &sink);
    }
}

/* One row of step `at`, as floats. */
MOX_KERNEL_INLINE void mox_bytes_float_step(const mox_block_fields *f, int weights, const mox_ymm_job *j,
                                            const mox_ymm_pos *at, int p, int64_t row)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const int64_t block = at->step / form.steps;
    const mox_ymm_run d[2] = { mox_ymm_block_d(j, f, p, block, 0), mox_ymm_block_d(j, f, p, block, 1) };
    const uint8_t *blocks = j->codes + p * (int64_t)j->matrix->panel_bytes + block * form.bytes;
    mox_ymm_block_step(f, weights, 1, j, at, p, row, blocks, d, at->step % form.steps);
}

/* What a type decodes by: its `count` steps from `first` on to the slab; one row of a step as floats. */
typedef struct mox_bytes_type {
    void (*expand)(const mox_ymm_job *j, int p, int64_t first, int64_t count);
    void (*float_step)(const mox_ymm_job *j, const mox_ymm_pos *at, int p, int64_t row);
} mox_bytes_type;

/* All steps of the slab times one row, some of whose steps may need floats. */
MOX_KERNEL_INLINE void mox_bytes_mixed_row(const mox_block_fields *f, const mox_bytes_type *type, const mox_ymm_job *j,
                                           int p, const mox_ymm_pos *start, int64_t count, int64_t row)
{
    const mox_bytes_line *line = (const mox_bytes_line *)(const void *)j->limbs + start->step * j->a->rows + row;
    mox_ymm_pos at = *start;
    for (int64_t i = 0; i < count; i++, line += j->a->rows, mox_ymm_next(j, &at)) {
        const mox_ymm_sink sink = mox_ymm_sink_of(j, &at, row);
        if (line->floats)
            type->float_step(j, &at, p, row);
        else
            mox_bytes_step(f, 1, j, i, p, line, &sink);
    }
}

MOX_KERNEL_INLINE void mox_bytes_slab(const mox_block_fields *f, const mox_bytes_type *type, const mox_ymm_job *j,
                                      bool floats, int p, const mox_ymm_pos *at, int64_t count)
{
    const int64_t rows = j->a->rows;
    int64_t row = 0;
    for (; floats && row < rows; row++)
        mox_bytes_mixed_row(f, type, j, p, at, count, row);
    for (; row + MOX_BYTES_ROWS <= rows; row += MOX_BYTES_ROWS)
        mox_bytes_rows(f, MOX_BYTES_ROWS, j, p, at, count, row);
    if (rows - row >= 2) {
        mox_bytes_rows(f, 2, j, p, at, count, row);
        row += 2;
    }
    if (row < rows)
        mox_bytes_rows(f, 1, j, p, at, count, row);
}

MOX_KERNEL_INLINE void mox_bytes_wide(const mox_block_fields *f, const mox_bytes_type *type, const mox_ymm_job *j,
                                      bool floats)
{
    for (int p = 0; p < j->panels; p++) {
        mox_ymm_pos at = { 0 };
        while (at.step < j->steps) {
            const int64_t count = mox_min_i64(MOX_YMM_SLAB, j->steps - at.step);
            type->expand(j, p, at.step, count);
            mox_bytes_slab(f, type, j, floats, p, &at, count);
            for (int64_t i = 0; i < count; i++)
                mox_ymm_next(j, &at);
        }
    }
}

#endif
