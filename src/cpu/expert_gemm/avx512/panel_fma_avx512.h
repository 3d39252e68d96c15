/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_fma_avx512.h - kernel avx512_fma: fp32 multiply-adds over layout panel16, 16 rows of a panel in a register.
 * Instantiated by expert_gemm_avx512.c, by expert_gemm_avx512_vbmi.c (f8 on processors with VBMI) and by
 * expert_gemm_int_dot_avx512_vnni.c (4 bits on processors with VNNI).
 *
 *     step      32 columns, or 16 when weight groups have 16. Each row r of activations has two chains of
 *               multiply-adds: even[r] over the even columns, odd[r] over the odd ones
 *     segment   C[r] = 0 + t + t ..., t = even[r] + odd[r]; then  c[r] = fma(C[r] * sa[r], sw, c[r])
 *
 * Two ways through a panel give the same bits (FMA_STEPS, panel_kernel.h):
 *
 *     narrow    up to NARROW rows: columns are multiplied in the register that they are decoded to
 *     wide      more rows: SLAB steps of both panels are decoded to the L1 cache, then multiplied by blocks of up to
 *               BLOCK rows. 2 x BLOCK x 2 chains keep both multiply-add units busy. A weight is loaded once per block,
 *               an activation once per pair of panels
 *
 *     slab      [step][column][panel 2][row 16] f32
 *
 * Parameters of the always-inline functions are constants where they are called:
 *     element   one format of a decode class; it serves all formats whose tables alone differ
 *     zeros     weights have zero points (NIBBLES, QUADS)
 *     Q         quarters (8 columns) of a step: 4, or 2 (NIBBLES)
 *     R, P      rows of activations, panels
 */
#ifndef MOX_CPU_PANEL_FMA_AVX512_H
#define MOX_CPU_PANEL_FMA_AVX512_H

#include "cpu/expert_gemm/avx512/avx512_plan.h"
#include "cpu/expert_gemm/avx512/panel_floats_avx512.h"
#include "cpu/expert_gemm/avx512/segment_iter_avx512.h"

#define MOX_FMA_NARROW 4
#define MOX_FMA_BLOCK  6

typedef struct mox_fma_job {
    mox_segment_iter iter;
    const float *values; /* of activations, rows `stride` apart */
    int64_t stride;
    float *c;    /* [rows][2][16] */
    float *part; /* [rows][2][16]: C of unfinished segments */
    float *slab;
    mox_segment_pos places[MOX_FMA_SLAB]; /* of the steps in the slab */
    mox_float_tables tables;
} mox_fma_job;

/* Multiplies the first `steps` steps in the slab, which begins at step s, by rows [row, row + R). */
typedef void (*mox_fma_block_fn)(const mox_fma_job *job, int64_t s, int64_t steps, int64_t row);
mox_fma_block_fn mox_fma_block_of(int64_t rows, int panels, int quarters);

/* ---- decoding ------------------------------------------------------------------------------------ */

MOX_KERNEL_INLINE int mox_fma_step_bytes(moxie_dtype element, int Q)
{
    switch (mox_pairs_order(element)) {
    case MOX_PANEL_PAIRS:
    case MOX_PANEL_HALVES: return Q * 256;
    case MOX_PANEL_QUADS:
    case MOX_PANEL_ZIPPED: return Q * 128;
    case MOX_PANEL_PLANES: return Q * 96;
    default: return Q * 64;
    }
}

MOX_KERNEL_INLINE __m512 mox_fma_zero(moxie_dtype element, bool zeros, const mox_fma_job *j, const mox_segment_pos *at,
                                      int p)
{
    return zeros ? mox_floats_zeros(element, j->iter.zero[p] + at->group * MOX_PANEL_ROWS) : _mm512_setzero_ps();
}

/* ---- narrow -------------------------------------------------------------------------------------- */

typedef struct mox_fma_sums {
    __m512 of[MOX_FMA_NARROW];
} mox_fma_sums;

MOX_KERNEL_INLINE void mox_fma_clear(int R, mox_fma_sums *sums)
{
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        sums->of[r] = _mm512_setzero_ps();
}

/* Multiplies columns 8q .. 8q+7 of a step of codes by R rows, which begin at `a`. */
MOX_KERNEL_INLINE void mox_fma_quarter(moxie_dtype element, bool zeros, int R, const mox_fma_job *j,
                                       const uint8_t *codes, int q, __m512 zero, const float *a, mox_fma_sums *even,
                                       mox_fma_sums *odd)
{
    __m512 w[2][4];
    mox_floats_quarter(element, zeros, &j->tables, codes, q, zero, w[0], w[1]);
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 4; i++) {
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            const float *x = a + r * j->stride + 8 * q + 2 * i;
            even->of[r] = _mm512_fmadd_ps(w[0][i], _mm512_set1_ps(x[0]), even->of[r]);
            odd->of[r] = _mm512_fmadd_ps(w[1][i], _mm512_set1_ps(x[1]), odd->of[r]);
        }
    }
}

/* Panels [p, p + P) by R rows. P is 2 where one panel has too few chains to keep the multiply-add units busy. */
MOX_KERNEL_INLINE void mox_fma_narrow(moxie_dtype element, bool zeros, int Q, int R, int P, const mox_fma_job *j, int p)
{
    const int bytes = mox_fma_step_bytes(element, Q);
    mox_fma_sums sum[2], part[2], even[2], odd[2];
    mox_segment_pos at = mox_segment_begin(&j->iter);
    for (int i = 0; i < P; i++)
        mox_fma_clear(R, &sum[i]), mox_fma_clear(R, &part[i]);
    for (int64_t s = 0; s < j->iter.steps; s++, mox_segment_next(&j->iter, &at)) {
        __m512 zero[2];
        for (int i = 0; i < P; i++) {
            mox_segment_prefetch(j->iter.prefetch_to_l2, &j->iter, p + i, P, s, bytes);
            mox_fma_clear(R, &even[i]), mox_fma_clear(R, &odd[i]);
            zero[i] = mox_fma_zero(element, zeros, j, &at, p + i);
        }
        MOX_KERNEL_UNROLL
        for (int q = 0; q < Q; q++)
            for (int i = 0; i < P; i++)
                mox_fma_quarter(element, zeros, R, j, j->iter.codes[p + i] + s * bytes, q, zero[i],
                                j->values + s * 8 * Q, &even[i], &odd[i]);
        for (int i = 0; i < P; i++)
            for (int r = 0; r < R; r++)
                part[i].of[r] = _mm512_add_ps(part[i].of[r], _mm512_add_ps(even[i].of[r], odd[i].of[r]));
        if (!mox_segment_is_last(&at))
            continue;
        const mox_segment_scales ending = mox_segment_scales_at(&j->iter, &at, 0);
        for (int i = 0; i < P; i++) {
            for (int r = 0; r < R; r++)
                sum[i].of[r] = mox_segment_finish(&ending, r, p + i, part[i].of[r], sum[i].of[r]);
            mox_fma_clear(R, &part[i]);
        }
    }
    for (int i = 0; i < P; i++)
        for (int r = 0; r < R; r++)
            _mm512_store_ps(j->c + (2 * r + p + i) * MOX_PANEL_ROWS, sum[i].of[r]);
}

/* Up to NARROW rows. One or two rows take both panels at once. */
MOX_KERNEL_INLINE void mox_fma_all_narrow(moxie_dtype element, bool zeros, int Q, const mox_fma_job *j)
{
    switch (j->iter.a->rows) {
    case 1: mox_fma_narrow(element, zeros, Q, 1, 2, j, 0); break;
    case 2: mox_fma_narrow(element, zeros, Q, 2, 2, j, 0); break;
    case 3:
        for (int p = 0; p < j->iter.panels; p++)
            mox_fma_narrow(element, zeros, Q, 3, 1, j, p);
        break;
    default:
        for (int p = 0; p < j->iter.panels; p++)
            mox_fma_narrow(element, zeros, Q, 4, 1, j, p);
        break;
    }
}

/* ---- wide ---------------------------------------------------------------------------------------- */

/* Decodes step s of panel p to its place in the slab. */
MOX_KERNEL_INLINE void mox_fma_decode(moxie_dtype element, bool zeros, int Q, const mox_fma_job *j, int p, int64_t s,
                                      __m512 zero, float *slab)
{
    const uint8_t *codes = j->iter.codes[p] + s * mox_fma_step_bytes(element, Q);
    MOX_KERNEL_UNROLL
    for (int q = 0; q < Q; q++) {
        __m512 w[2][4];
        mox_floats_quarter(element, zeros, &j->tables, codes, q, zero, w[0], w[1]);
        MOX_KERNEL_UNROLL
        for (int i = 0; i < 8; i++)
            _mm512_store_ps(slab + ((8 * q + i) * 2 + p) * MOX_PANEL_ROWS, w[i % 2][i / 2]);
    }
}

/* Multiplies the first `steps` steps in the slab by all rows, in blocks of nearly the same size. */
MOX_KERNEL_INLINE void mox_fma_blocks(int Q, const mox_fma_job *j, int64_t s, int64_t steps)
{
    const int64_t blocks = mox_ceil_div(j->iter.a->rows, MOX_FMA_BLOCK);
    for (int64_t b = 0, row = 0, rows; b < blocks; b++, row += rows) {
        rows = mox_ceil_div(j->iter.a->rows - row, blocks - b);
        mox_fma_block_of(rows, j->iter.panels, Q)(j, s, steps, row);
    }
}

MOX_KERNEL_INLINE void mox_fma_wide(moxie_dtype element, bool zeros, int Q, mox_fma_job *j)
{
    const int bytes = mox_fma_step_bytes(element, Q);
    mox_segment_pos at = mox_segment_begin(&j->iter);
    memset(j->c, 0, (size_t)j->iter.a->rows * 2 * MOX_PANEL_ROWS * sizeof *j->c);
    for (int64_t s = 0; s < j->iter.steps; s += MOX_FMA_SLAB) {
        const int64_t steps = mox_min_i64(MOX_FMA_SLAB, j->iter.steps - s);
        for (int64_t i = 0; i < steps; i++) {
            j->places[i] = at;
            for (int p = 0; p < j->iter.panels; p++) {
                mox_segment_prefetch(j->iter.prefetch_to_l2, &j->iter, p, j->iter.panels, s + i, bytes);
                mox_fma_decode(element, zeros, Q, j, p, s + i, mox_fma_zero(element, zeros, j, &at, p),
                               j->slab + i * 8 * Q * 2 * MOX_PANEL_ROWS);
            }
            mox_segment_next(&j->iter, &at);
        }
        mox_fma_blocks(Q, j, s, steps);
    }
}

/* ---- one call ------------------------------------------------------------------------------------ */

/* `decode_class`: the format whose decoder is used (`like` in element_traits.def), weight->element the format itself.
 */
MOX_KERNEL_INLINE void mox_fma_multiply(moxie_dtype decode_class, bool zeros, int Q, const mox_panel_matrix *matrix,
                                        const moxie_quant *weight, int64_t panel, int panels, const mox_panel_rows *a,
                                        float *c, void *scratch)
{
    mox_carver carver = mox_carver_of(scratch);
    mox_fma_scratch sc;
    mox_fma_lay_out(&carver, matrix->groups, &sc);
    mox_fma_job j = {
        .values = a->data, .stride = matrix->steps * MOX_PANEL_STEP, .c = c, .part = sc.part, .slab = sc.slab
    };
    mox_segment_iter_init(&j.iter, matrix, weight, panel, panels, a, 8 * Q, sc.scale);
    mox_floats_tables(weight->element, &j.tables);
    const unsigned mxcsr = mox_segment_flush_subnormals();
    /* A single panel at the end of an odd number: one or two rows have no narrow code for it. */
    if (a->rows > MOX_FMA_NARROW || (a->rows <= 2 && panels == 1))
        mox_fma_wide(decode_class, zeros, Q, &j);
    else
        mox_fma_all_narrow(decode_class, zeros, Q, &j);
    _mm_setcsr(mxcsr);
}

#endif
