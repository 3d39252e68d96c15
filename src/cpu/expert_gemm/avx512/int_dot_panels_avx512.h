/* SPDX-License-Identifier: Apache-2.0
 *
 * int_dot_panels_avx512.h - panels of 4-bit codes times activations in integers, for processors with AVX512-VNNI.
 * int_dot_avx512.h multiplies one step; here the steps of one or two panels are multiplied and summed.
 *
 *     c[r, n] = sum over segments of  (sum over the segment's steps t[r, n]) [* sa[r]] * sw[n]
 *     t[r, n] = unit[r] * sum over the step's columns k of  A[r, k] * W[n, k]
 *
 * Two kernels use it:
 *     avx512_fma    up to LIMB_ROWS rows. An activation is split into two or three 8-bit limbs, where that is exact.
 *                   Other steps are multiplied in floats. The bits are those of multiply-adds.
 *     avx512_bytes  any number of rows. An activation is rounded to one byte (sum "BYTE_ACTIVATIONS", panel_kernel.h).
 *
 * Two ways through a panel give the same bits:
 *     few rows   all rows at once. A weight is looked up and multiplied right away.
 *     many rows  bytes only. The weights of a step stay in 16 registers while one row after the other is multiplied.
 *                Then come the rows whose step cannot be rounded to bytes, in floats (panel_fma_avx512.h).
 *
 * Scratch, beside that of panel_fma_avx512.h; written by the first call for its activations (mox_panel_rows.again):
 *     format   the weights' number format in integers
 *     limbs    [step][row] 128 bytes, or 64 for bytes (int_dot_avx512.h)
 *     order    [step] the rows sorted by kind: the number of rows of kind 0, of kinds 0 and 1, then the rows; a byte
 *              each
 *
 * For files compiled with AVX-512 F, BW, DQ, VL and VNNI.
 */
#ifndef MOX_CPU_INT_DOT_PANELS_AVX512_H
#define MOX_CPU_INT_DOT_PANELS_AVX512_H

#include "cpu/expert_gemm/avx512/int_dot_avx512.h"
#include "cpu/expert_gemm/avx512/panel_fma_avx512.h"

typedef struct mox_int_dot_job {
    mox_fma_job fma;
    mox_int_dot_format *format;
    uint8_t *limbs, *order;
    int64_t *float_steps; /* number of (row, step) that are multiplied in floats */
} mox_int_dot_job;

/* ---- conversion of the activations ----------------------------------------------------------------- */

/* Sorts the rows of one step by kind. */
static inline void mox_int_dot_sort_rows(const uint8_t *kinds, int64_t rows, uint8_t *order)
{
    int64_t count = 0;
    for (int kind = 0; kind <= MOX_INT_DOT_FLOATS; kind++) {
        for (int64_t row = 0; row < rows; row++)
            if (kinds[row] == kind)
                order[2 + count++] = (uint8_t)row;
        if (kind < MOX_INT_DOT_FLOATS)
            order[kind] = (uint8_t)count;
    }
}

/* Converts all rows and steps. Where limbs cannot hold a row's step, all rows of that step become floats. */
MOX_KERNEL_INLINE void mox_int_dot_convert(mox_int_dot_variant f, const mox_int_dot_job *j)
{
    const mox_fma_job *fma = &j->fma;
    const mox_int_dot_format format = *j->format;
    const int64_t rows = fma->iter.a->rows;
    uint8_t *to = j->limbs, kinds[MOX_PANEL_BLOCK];
    *j->float_steps = 0;
    for (int64_t s = 0; s < fma->iter.steps; s++, to += rows * mox_int_dot_step_bytes(f)) {
        uint8_t *order = j->order + s * mox_int_dot_order_bytes(rows);
        __m512 even, odd;
        for (int64_t row = 0; row < rows; row++) {
            uint8_t *out = to + row * mox_int_dot_step_bytes(f);
            mox_int_dot_load_f32(fma->values + row * fma->stride + s * 8 * f.Q, 8 * f.Q, &even, &odd);
            kinds[row] = (uint8_t)(f.bytes ? mox_int_dot_to_bytes(&format, even, odd, out)
                                           : mox_int_dot_to_limbs(&format, even, odd, out));
        }
        mox_int_dot_sort_rows(kinds, rows, order);
        *j->float_steps += rows - order[1];
        for (int64_t row = 0; row < rows && !f.bytes && order[1] < rows; row++) {
            mox_int_dot_load_f32(fma->values + row * fma->stride + s * 8 * f.Q, 8 * f.Q, &even, &odd);
            mox_int_dot_store_floats(even, odd, to + row * MOX_INT_DOT_LIMBS_STEP);
        }
    }
}

/* ---- one step ------------------------------------------------------------------------------------- */

/* What all rows of a step share. */
typedef struct mox_int_dot_step {
    int64_t s;
    mox_segment_pos at;
    bool first, last; /* of its segment */
    mox_segment_scales scales;
    const uint8_t *limbs, *order;
    __m512i zero_points[2];
    mox_int_dot_codes codes;
} mox_int_dot_step;

MOX_KERNEL_INLINE mox_int_dot_step mox_int_dot_enter_step(mox_int_dot_variant f, const mox_int_dot_job *j,
                                                          const mox_segment_pos *at, int64_t s)
{
    const mox_segment_iter *iter = &j->fma.iter;
    const int64_t rows = iter->a->rows;
    mox_int_dot_step step = { .s = s,
                              .at = *at,
                              .first = mox_segment_is_first(iter, at),
                              .last = mox_segment_is_last(at),
                              .scales = mox_segment_scales_at(iter, at, 0),
                              .limbs = j->limbs + s * rows * mox_int_dot_step_bytes(f),
                              .order = j->order + s * mox_int_dot_order_bytes(rows),
                              .codes.table = j->format->counts };
    for (int p = 0; p < 2; p++) {
        step.codes.codes[p] = iter->codes[p] + s * f.Q * 64;
        if (f.zeros)
            step.zero_points[p] = mox_int_dot_zero_points(iter->zero[p] + at->group * MOX_PANEL_ROWS);
    }
    for (int p = 0; p < iter->panels; p++)
        mox_segment_prefetch(iter->prefetch_to_l2, iter, p, iter->panels, s, f.Q * 64);
    return step;
}

/* Adds the step sums t to the sums of row `row`. No t is -0, so the first t of a segment is stored as it is. */
MOX_KERNEL_INLINE void mox_int_dot_add(const mox_fma_job *j, const mox_int_dot_step *step, int64_t row, __m512 t[2])
{
    float *c = j->c + row * 2 * MOX_PANEL_ROWS, *part = j->part + row * 2 * MOX_PANEL_ROWS;
    MOX_KERNEL_UNROLL
    for (int p = 0; p < 2; p++) {
        float *sum = c + p * MOX_PANEL_ROWS, *before = part + p * MOX_PANEL_ROWS;
        if (!step->first)
            t[p] = _mm512_add_ps(_mm512_load_ps(before), t[p]);
        if (step->last)
            _mm512_store_ps(sum, mox_segment_finish(&step->scales, (int)row, p, t[p], _mm512_load_ps(sum)));
        else
            _mm512_store_ps(before, t[p]);
    }
}

/* Adds t times the unit of the row, which has L limbs. */
MOX_KERNEL_INLINE void mox_int_dot_add_scaled(int L, const mox_fma_job *j, const mox_int_dot_step *step, int64_t row,
                                              const uint8_t *limbs, __m512 t[2])
{
    const __m512 unit = mox_int_dot_unit(L, limbs);
    t[0] = _mm512_mul_ps(t[0], unit);
    t[1] = _mm512_mul_ps(t[1], unit);
    mox_int_dot_add(j, step, row, t);
}

/* ---- many rows ------------------------------------------------------------------------------------ */

/* The rows that are bytes. */
MOX_KERNEL_INLINE void mox_int_dot_byte_rows(mox_int_dot_variant f, const mox_fma_job *j, const mox_int_dot_step *step)
{
    __m512i counts[8][2];
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2 * f.Q; i++) {
        MOX_KERNEL_UNROLL
        for (int p = 0; p < 2; p++)
            counts[i][p] = mox_int_dot_look_up(step->codes.table, step->codes.codes[p], i);
    }
    for (int64_t i = 0; i < step->order[0]; i++) {
        const int64_t row = step->order[2 + i];
        const uint8_t *limbs = mox_int_dot_row(1, step->limbs, row);
        __m512 t[1][2];
        mox_int_dot_multiply_step(f.zeros, f.Q, 1, 1, &step->codes, counts, step->zero_points, limbs, t);
        mox_int_dot_add_scaled(1, j, step, row, limbs, t[0]);
    }
}

/* The other rows, in runs of neighbours. */
MOX_KERNEL_INLINE void mox_int_dot_float_rows(mox_int_dot_variant f, mox_fma_job *j, const mox_int_dot_step *step)
{
    const int64_t rows = j->iter.a->rows;
    const uint8_t *row = step->order + 2;
    j->places[0] = step->at;
    for (int p = 0; p < j->iter.panels; p++)
        mox_fma_decode(f.zeros ? MOXIE_I4 : MOXIE_F4_E2M1, f.zeros, f.Q, j, p, step->s,
                       mox_fma_zero(MOXIE_I4, f.zeros, j, &step->at, p), j->slab);
    for (int64_t i = step->order[0], count; i < rows; i += count) {
        for (count = 1; count < MOX_FMA_BLOCK && i + count < rows && row[i + count] == row[i] + count;)
            count++;
        mox_fma_block_of(count, j->iter.panels, f.Q)(j, step->s, 1, row[i]);
    }
}

MOX_KERNEL_INLINE void mox_int_dot_many_rows(mox_int_dot_variant f, mox_int_dot_job *j)
{
    mox_segment_pos at = mox_segment_begin(&j->fma.iter);
    for (int64_t s = 0; s < j->fma.iter.steps; s++, mox_segment_next(&j->fma.iter, &at)) {
        const mox_int_dot_step step = mox_int_dot_enter_step(f, j, &at, s);
        mox_int_dot_byte_rows(f, &j->fma, &step);
        if (step.order[0] < j->fma.iter.a->rows)
            mox_int_dot_float_rows(f, &j->fma, &step);
    }
}

/* ---- few rows ------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE void mox_int_dot_few_rows_step(mox_int_dot_variant f, int R, int L, const mox_int_dot_job *j,
                                                 const mox_int_dot_step *step)
{
    __m512 t[MOX_INT_DOT_BYTE_ROWS][2];
    mox_int_dot_multiply_step(f.zeros, f.Q, R, L, &step->codes, NULL, step->zero_points, step->limbs, t);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        mox_int_dot_add_scaled(L, &j->fma, step, r, mox_int_dot_row(L, step->limbs, r), t[r]);
}

/* All rows in floats, which lie in the place of limbs. */
MOX_KERNEL_INLINE void mox_int_dot_few_rows_floats(mox_int_dot_variant f, int R, const mox_int_dot_job *j,
                                                   const mox_int_dot_step *step)
{
    __m512 t[MOX_INT_DOT_LIMB_ROWS][2], zero_points[2];
    for (int p = 0; p < 2 && f.zeros; p++)
        zero_points[p] = mox_int_dot_counts_to_floats(j->fma.iter.zero[p] + step->at.group * MOX_PANEL_ROWS);
    mox_int_dot_multiply_step_floats(f.zeros, R, j->format->values, zero_points, step->codes.codes, step->limbs, t);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        for (int p = 0; p < 2; p++)
            t[r][p] = _mm512_add_ps(_mm512_setzero_ps(), t[r][p]);
        mox_int_dot_add(&j->fma, step, r, t[r]);
    }
}

/* Works on a copy of the job, to which no other pointer points. So the compiler need not load its fields again after a
 * store. */
MOX_KERNEL_INLINE void mox_int_dot_few_rows(mox_int_dot_variant f, int R, const mox_int_dot_job *from)
{
    mox_int_dot_job j = *from;
    mox_segment_pos at = mox_segment_begin(&j.fma.iter);
    for (int64_t s = 0; s < j.fma.iter.steps; s++, mox_segment_next(&j.fma.iter, &at)) {
        const mox_int_dot_step step = mox_int_dot_enter_step(f, &j, &at, s);
        if (f.bytes)
            mox_int_dot_few_rows_step(f, R, 1, &j, &step);
        else if (step.order[0] == R)
            mox_int_dot_few_rows_step(f, R, 2, &j, &step);
        else if (step.order[1] == R)
            mox_int_dot_few_rows_step(f, R, 3, &j, &step);
        else
            mox_int_dot_few_rows_floats(f, R, &j, &step);
    }
}

/* ---- one call ------------------------------------------------------------------------------------- */

/* Limbs: up to LIMB_ROWS rows. Bytes: any number of rows, but more than BYTE_ROWS are "many". */
MOX_KERNEL_INLINE void mox_int_dot_all_rows(mox_int_dot_variant f, mox_int_dot_job *j)
{
    const int64_t rows = j->fma.iter.a->rows;
    if (f.bytes && *j->float_steps > 0)
        mox_int_dot_many_rows(f, j);
    else if (rows == 1)
        mox_int_dot_few_rows(f, 1, j);
    else if (rows == 2)
        mox_int_dot_few_rows(f, 2, j);
    else if (rows == 3)
        mox_int_dot_few_rows(f, 3, j);
    else if (f.bytes && rows == 4)
        mox_int_dot_few_rows(f, 4, j);
    else if (f.bytes && rows == 5)
        mox_int_dot_few_rows(f, 5, j);
    else if (f.bytes && rows == MOX_INT_DOT_BYTE_ROWS)
        mox_int_dot_few_rows(f, MOX_INT_DOT_BYTE_ROWS, j);
    else if (f.bytes)
        mox_int_dot_many_rows(f, j);
}

MOX_KERNEL_INLINE void mox_int_dot_multiply(mox_int_dot_variant f, const mox_panel_matrix *matrix,
                                            const moxie_quant *weight, int64_t panel, int panels,
                                            const mox_panel_rows *a, float *c, void *scratch)
{
    mox_carver carver = mox_carver_of(scratch);
    mox_int_dot_scratch sc;
    mox_int_dot_lay_out(&carver, f, matrix->cols, matrix->groups, a->rows, &sc);
    mox_int_dot_job j = { .fma = { .values = a->data,
                                   .stride = matrix->steps * MOX_PANEL_STEP,
                                   .c = c,
                                   .part = sc.fma.part,
                                   .slab = sc.fma.slab },
                          .format = sc.format,
                          .limbs = sc.limbs,
                          .order = sc.order,
                          .float_steps = sc.float_steps };
    mox_segment_iter_init(&j.fma.iter, matrix, weight, panel, panels, a, 8 * f.Q, sc.fma.scale);
    const unsigned mxcsr = mox_segment_flush_subnormals();
    if (!a->again) {
        mox_panel_counts format;
        mox_panel_count(weight->element, f.zeros, &format);
        *j.format = mox_int_dot_format_of(&format, f.zeros);
        mox_int_dot_convert(f, &j);
    }
    if (f.bytes && *j.float_steps > 0)
        mox_floats_tables(weight->element, &j.fma.tables);
    memset(c, 0, (size_t)a->rows * 2 * MOX_PANEL_ROWS * sizeof *c);
    mox_int_dot_all_rows(f, &j);
    _mm_setcsr(mxcsr);
}

#endif
