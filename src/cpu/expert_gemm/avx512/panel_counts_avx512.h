/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_counts_avx512.h - 4-bit codes times activations in integers, for processors with AVX512-VNNI: what row
 * avx512_fma does with few rows where no sum can round (expert_gemm_digits_avx512_vnni.c), and row avx512_bytes with
 * any number nearly everywhere (expert_gemm_bytes_avx512_vnni.c). Digits and bytes are panel_digits_avx512.h's; steps
 * that cannot be either are multiplied in floats (panel_fma_avx512.h).
 *
 *     few     up to ZMM_ROWS rows, codes looked up on the way: bytes; or digits, a step as its longest row needs
 *     many    bytes: the counts of a step, of both panels, stay in 16 registers, while row after row is multiplied
 *             by them; then rows in floats
 *
 *     digits  [step][row] 128 bytes, or 64
 *     order   [step] rows by kind (panel_digits_avx512.h): how many are of the first, of the first two, the rows;
 *             a byte each
 *
 * For files compiled with AVX-512 F, BW, DQ, VL and VNNI.
 */
#ifndef MOX_CPU_PANEL_COUNTS_AVX512_H
#define MOX_CPU_PANEL_COUNTS_AVX512_H

#include "cpu/expert_gemm/expert_gemm_panel.h"
#include "cpu/expert_gemm/avx512/panel_digits_avx512.h"
#include "cpu/expert_gemm/avx512/panel_fma_avx512.h"

/* What the code is instantiated for. Many rows and groups of 16 columns (Q = 2) are for bytes alone: of many rows in
 * digits, two of them take 24 cycles a step of two panels, three 31, and multiply-adds 34. */
typedef struct mox_count_form {
    bool bytes, zeros;
    int Q;
} mox_count_form;

typedef struct mox_count_job {
    mox_fma_job fma;
    mox_zmm_rule rule;
    uint8_t *digits, *order;
    int64_t *floats; /* steps, of all rows, that are multiplied in floats */
} mox_count_job;

MOX_KERNEL_INLINE int64_t mox_count_order_bytes(int64_t rows)
{
    return rows + 2;
}

MOX_KERNEL_INLINE int64_t mox_count_step_bytes(mox_count_form f)
{
    return f.bytes ? MOX_ZMM_BYTES_STEP : MOX_ZMM_STEP;
}

/* Bytes of scratch; with `base` its parts go to `job`, `scale` becomes [2][groups][16]. */
static inline uint64_t mox_count_lay_out(mox_count_form f, int64_t cols, int64_t groups, uint8_t *base,
                                         mox_count_job *job, float **scale)
{
    const int64_t steps = mox_ceil_div(cols, 8 * f.Q), rows = f.bytes ? MOX_PANEL_BLOCK : MOX_ZMM_ROWS;
    uint64_t at = mox_fma_lay_out(groups, base, &job->fma, scale);
    job->digits = mox_gemm_carve(base, &at, (uint64_t)(steps * rows), (uint64_t)mox_count_step_bytes(f));
    job->order = mox_gemm_carve(base, &at, (uint64_t)steps, (uint64_t)mox_count_order_bytes(rows));
    job->floats = mox_gemm_carve(base, &at, 1, sizeof *job->floats);
    return at;
}

/* ---- digits -------------------------------------------------------------------------------------- */

/* Rows of one step by their kinds. */
static inline void mox_count_order(const uint8_t *kinds, int64_t rows, uint8_t *order)
{
    int64_t count = 0;
    for (int kind = 0; kind <= MOX_ZMM_FLOATS; kind++) {
        for (int64_t row = 0; row < rows; row++)
            if (kinds[row] == kind)
                order[2 + count++] = (uint8_t)row;
        if (kind < MOX_ZMM_FLOATS)
            order[kind] = (uint8_t)count;
    }
}

/* Of all rows and steps. */
MOX_KERNEL_INLINE void mox_count_derive(mox_count_form f, const mox_count_job *j)
{
    const mox_fma_job *fma = &j->fma;
    const int64_t rows = fma->walk.a->rows;
    uint8_t *to = j->digits, kinds[MOX_PANEL_BLOCK];
    *j->floats = 0;
    for (int64_t s = 0; s < fma->walk.steps; s++, to += rows * mox_count_step_bytes(f)) {
        uint8_t *order = j->order + s * mox_count_order_bytes(rows);
        __m512 even, odd;
        for (int64_t row = 0; row < rows; row++) {
            uint8_t *out = to + row * mox_count_step_bytes(f);
            mox_zmm_floats_of_f32(fma->values + row * fma->stride + s * 8 * f.Q, 8 * f.Q, &even, &odd);
            kinds[row] =
                (uint8_t)(f.bytes ? mox_zmm_bytes_of(&j->rule, even, odd, out) : mox_zmm_of(&j->rule, even, odd, out));
        }
        mox_count_order(kinds, rows, order);
        *j->floats += rows - order[1];
        for (int64_t row = 0; row < rows && !f.bytes && order[1] < rows; row++) {
            mox_zmm_floats_of_f32(fma->values + row * fma->stride + s * 8 * f.Q, 8 * f.Q, &even, &odd);
            mox_zmm_put_floats(even, odd, to + row * MOX_ZMM_STEP);
        }
    }
}

/* ---- steps --------------------------------------------------------------------------------------- */

/* What a step's rows have in common. */
typedef struct mox_count_step {
    int64_t s;
    mox_walk_place at;
    bool first, last; /* of its segment */
    mox_walk_ending ending;
    const uint8_t *digits, *order;
    __m512i zeros[2]; /* points */
    mox_zmm_source source;
} mox_count_step;

MOX_KERNEL_INLINE mox_count_step mox_count_step_of(mox_count_form f, const mox_count_job *j, const mox_walk_place *at,
                                                   int64_t s)
{
    const mox_walk *w = &j->fma.walk;
    const int64_t rows = w->a->rows;
    mox_count_step step = { .s = s,
                            .at = *at,
                            .first = mox_walk_is_first(w, at),
                            .last = mox_walk_is_last(at),
                            .ending = mox_walk_ending_of(w, at, 0),
                            .digits = j->digits + s * rows * mox_count_step_bytes(f),
                            .order = j->order + s * mox_count_order_bytes(rows),
                            .source.table = j->rule.counts };
    for (int p = 0; p < 2; p++) {
        step.source.codes[p] = w->codes[p] + s * f.Q * 64;
        if (f.zeros)
            step.zeros[p] = mox_zmm_zeros(w->zero[p] + at->group * MOX_PANEL_ROWS);
    }
    for (int p = 0; p < w->panels; p++)
        mox_walk_prefetch(w, p, w->panels, s, f.Q * 64);
    return step;
}

/* Adds t of a step to the sums of row `row`. No t is -0, so that a segment's first needs no zero to be added to. */
MOX_KERNEL_INLINE void mox_count_add(const mox_fma_job *j, const mox_count_step *step, int64_t row, __m512 t[2])
{
    float *c = j->c + row * 2 * MOX_PANEL_ROWS, *part = j->part + row * 2 * MOX_PANEL_ROWS;
    MOX_KERNEL_UNROLL
    for (int p = 0; p < 2; p++) {
        float *sum = c + p * MOX_PANEL_ROWS, *before = part + p * MOX_PANEL_ROWS;
        if (!step->first)
            t[p] = _mm512_add_ps(_mm512_load_ps(before), t[p]);
        if (step->last)
            _mm512_store_ps(sum, mox_walk_ended(&step->ending, (int)row, p, t[p], _mm512_load_ps(sum)));
        else
            _mm512_store_ps(before, t[p]);
    }
}

/* t times the unit, of a row of D digits. */
MOX_KERNEL_INLINE void mox_count_add_units(int D, const mox_fma_job *j, const mox_count_step *step, int64_t row,
                                           const uint8_t *digits, __m512 t[2])
{
    const __m512 unit = mox_zmm_unit(D, digits);
    t[0] = _mm512_mul_ps(t[0], unit);
    t[1] = _mm512_mul_ps(t[1], unit);
    mox_count_add(j, step, row, t);
}

/* ---- many ---------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE void mox_count_look_up(mox_count_form f, mox_count_step *step)
{
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2 * f.Q; i++) {
        MOX_KERNEL_UNROLL
        for (int p = 0; p < 2; p++)
            step->source.found[i][p] = mox_zmm_counts(step->source.table, step->source.codes[p], i);
    }
}

/* The rows of bytes. */
MOX_KERNEL_INLINE void mox_count_rows(mox_count_form f, const mox_fma_job *j, const mox_count_step *step)
{
    for (int64_t i = 0; i < step->order[0]; i++) {
        const int64_t row = step->order[2 + i];
        const uint8_t *digits = mox_zmm_row(1, step->digits, row);
        __m512 t[1][2];
        mox_zmm_multiply(false, f.zeros, f.Q, 1, 1, &step->source, step->zeros, digits, t);
        mox_count_add_units(1, j, step, row, digits, t[0]);
    }
}

/* The others, in runs of neighbours. */
MOX_KERNEL_INLINE void mox_count_floats(mox_count_form f, mox_fma_job *j, const mox_count_step *step)
{
    const int64_t rows = j->walk.a->rows;
    const uint8_t *row = step->order + 2;
    j->places[0] = step->at;
    for (int p = 0; p < j->walk.panels; p++)
        mox_fma_decode(f.zeros ? MOXIE_I4 : MOXIE_F4_E2M1, f.zeros, f.Q, j, p, step->s,
                       mox_fma_zero(MOXIE_I4, f.zeros, j, &step->at, p), j->slab);
    for (int64_t i = step->order[0], count; i < rows; i += count) {
        for (count = 1; count < MOX_FMA_BLOCK && i + count < rows && row[i + count] == row[i] + count;)
            count++;
        mox_fma_block_of(count, j->walk.panels, f.Q)(j, step->s, 1, row[i]);
    }
}

MOX_KERNEL_INLINE void mox_count_many(mox_count_form f, mox_count_job *j)
{
    mox_walk_place at = mox_walk_start(&j->fma.walk);
    for (int64_t s = 0; s < j->fma.walk.steps; s++, mox_walk_advance(&j->fma.walk, &at)) {
        mox_count_step step = mox_count_step_of(f, j, &at, s);
        mox_count_look_up(f, &step);
        mox_count_rows(f, &j->fma, &step);
        if (step.order[0] < j->fma.walk.a->rows)
            mox_count_floats(f, &j->fma, &step);
    }
}

/* ---- few ----------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE void mox_count_few_step(mox_count_form f, int R, int D, const mox_count_job *j,
                                          const mox_count_step *step)
{
    __m512 t[MOX_ZMM_ROWS][2];
    mox_zmm_multiply(true, f.zeros, f.Q, R, D, &step->source, step->zeros, step->digits, t);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        mox_count_add_units(D, &j->fma, step, r, mox_zmm_row(D, step->digits, r), t[r]);
}

/* All rows in floats, which lie where digits would. */
MOX_KERNEL_INLINE void mox_count_few_floats(mox_count_form f, int R, const mox_count_job *j, const mox_count_step *step)
{
    __m512 t[MOX_ZMM_ROWS][2], points[2];
    for (int p = 0; p < 2 && f.zeros; p++)
        points[p] = mox_zmm_floats_of_counts(j->fma.walk.zero[p] + step->at.group * MOX_PANEL_ROWS);
    mox_zmm_floats(f.zeros, R, j->rule.values, points, step->source.codes, step->digits, t);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        for (int p = 0; p < 2; p++)
            t[r][p] = _mm512_add_ps(_mm512_setzero_ps(), t[r][p]);
        mox_count_add(&j->fma, step, r, t[r]);
    }
}

MOX_KERNEL_INLINE void mox_count_few(mox_count_form f, int R, mox_count_job *from)
{
    mox_count_job j = *from;
    mox_walk_place at = mox_walk_start(&j.fma.walk);
    for (int64_t s = 0; s < j.fma.walk.steps; s++, mox_walk_advance(&j.fma.walk, &at)) {
        mox_count_step step = mox_count_step_of(f, &j, &at, s);
        if (f.bytes)
            mox_count_few_step(f, R, 1, &j, &step);
        else if (step.order[0] == R)
            mox_count_few_step(f, R, 2, &j, &step);
        else if (step.order[1] == R)
            mox_count_few_step(f, R, 3, &j, &step);
        else
            mox_count_few_floats(f, R, &j, &step);
    }
}

/* ---- one call ------------------------------------------------------------------------------------ */

/* Digits are of up to ZMM_ROWS rows. */
MOX_KERNEL_INLINE void mox_count_multiply(mox_count_form f, const mox_panel_matrix *matrix, const moxie_quant *weight,
                                          int64_t panel, int panels, const mox_panel_rows *a, float *c, void *scratch)
{
    mox_count_job j = { .fma = { .values = a->data, .stride = matrix->steps * MOX_PANEL_STEP, .c = c } };
    mox_panel_counts format;
    float *scale;
    mox_count_lay_out(f, matrix->cols, matrix->groups, scratch, &j, &scale);
    mox_walk_open(&j.fma.walk, matrix, weight, panel, panels, a, 8 * f.Q, scale);
    mox_floats_tables(weight->element, &j.fma.tables);
    mox_panel_count(weight->element, f.zeros, &format);
    j.rule = mox_zmm_rule_of(&format, f.zeros);
    const unsigned mxcsr = mox_walk_flush_subnormals();
    if (!a->again)
        mox_count_derive(f, &j);
    memset(c, 0, (size_t)a->rows * 2 * MOX_PANEL_ROWS * sizeof *c);
    if (f.bytes && (a->rows > MOX_ZMM_ROWS || *j.floats > 0))
        mox_count_many(f, &j);
    else if (a->rows == 1)
        mox_count_few(f, 1, &j);
    else if (a->rows == 2)
        mox_count_few(f, 2, &j);
    else
        mox_count_few(f, 3, &j);
    _mm_setcsr(mxcsr);
}

#endif
