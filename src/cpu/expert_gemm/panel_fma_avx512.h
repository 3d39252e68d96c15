/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_fma_avx512.h - fp32 multiply-adds over layout panel16, 16 rows of a panel in a register: what the files share
 * that instantiate row avx512_fma (expert_gemm_avx512.c, and expert_gemm_avx512_vbmi.c for what wants VBMI).
 *
 *     step      32 columns, or 16 when the weights' groups are: even[r] and odd[r], a chain of multiply-adds each for
 *               every row r of activations
 *     segment   C[r] = 0 + t + t ..., t = even[r] + odd[r]; then  c[r] = fma(C[r] * sa[r], sw, c[r])
 *
 * Two ways through a panel, of the same arithmetic (fma32, panel_kernel.h):
 *
 *     narrow    up to NARROW rows: columns are multiplied in the register that they are decoded into
 *     wide      more: SLAB steps of both panels are decoded to the first-level cache, then multiplied by blocks of up
 * to BLOCK rows; 2 x BLOCK x 2 chains use both units without waiting, a weight is loaded once a block, an activation
 * once a pair of panels
 *
 *     slab      [step][column][panel 2][row 16] f32
 *
 * Parameters of the always-inline functions are constants where they are called:
 *     element   one format of an order stands for all whose tables alone differ
 *     zeros     with zero points (NIBBLES)
 *     Q         quarters (8 columns) of a step: 4, or 2 (no PLANES)
 *     R, P      rows of activations, panels
 */
#ifndef MOX_CPU_PANEL_FMA_AVX512_H
#define MOX_CPU_PANEL_FMA_AVX512_H

#include "base/sizes.h"
#include "cpu/expert_gemm/panel_floats_avx512.h"
#include "cpu/expert_gemm/panel_kernel.h"

#define MOX_FMA_NARROW 4
#define MOX_FMA_BLOCK  6
#define MOX_FMA_SLAB   4
#define MOX_FMA_AHEAD  2048 /* bytes between the codes that are prefetched and those in use */

/* Of loops whose arrays are to be registers. */
#ifdef __clang__
#define MOX_UNROLL _Pragma("unroll")
#else
#define MOX_UNROLL _Pragma("GCC unroll 16")
#endif

/* Where a step is. Counted, not divided: a division costs as much as a step's products. */
typedef struct mox_fma_place {
    int64_t group, act_group;
    int64_t group_left, act_left, segment_left, left; /* steps, this one included; `left` of the matrix */
} mox_fma_place;

typedef struct mox_fma_job {
    const mox_panel_rows *a;
    const float *values; /* a's, rows `stride` apart */
    int64_t stride;
    int panels;
    const uint8_t *codes[2];
    const uint8_t *zero[2]; /* [groups][16] */
    const float *scale[2];  /* [groups][16] */
    bool scaled;            /* weights have scales */
    int64_t codes_bytes, panel_bytes;
    int64_t steps;
    int64_t group_steps, act_steps, segment_steps; /* of a weight group, an activation group, the shorter of both */
    float *c;                                      /* [rows][2][16] */
    float *part;                                   /* likewise: C of segments that are not finished */
    float *slab;
    mox_fma_place places[MOX_FMA_SLAB]; /* of the slab's steps */
    mox_float_tables tables;
} mox_fma_job;

/* Multiplies the first `steps` steps of the slab, the first of them being step s, by rows [row, row + R). */
typedef void (*mox_fma_block_fn)(const mox_fma_job *job, int64_t s, int64_t steps, int64_t row);
mox_fma_block_fn mox_fma_block_of(int64_t rows, int panels, int quarters);

/* Bytes of scratch; with `base` its parts go to `job`, `scale` becomes [2][groups][16]. */
uint64_t mox_fma_lay_out(int64_t groups, uint8_t *base, mox_fma_job *job, float **scale);
/* Everything but the tables. Before subnormals are switched off. */
void mox_fma_prepare(mox_fma_job *job, const mox_panel_matrix *matrix, const moxie_quant *weight, int64_t panel,
                     int panels, const mox_panel_rows *a, float *c, void *scratch);
/* The form of a format that is better with VBMI, where the processor has it; else NULL. */
mox_panel_multiply_fn mox_fma_vbmi_form(moxie_dtype element);

/* ---- segments ------------------------------------------------------------------------------------ */

MOX_KERNEL_INLINE mox_fma_place mox_fma_start(const mox_fma_job *j)
{
    return (mox_fma_place) {
        .group_left = j->group_steps, .act_left = j->act_steps, .segment_left = j->segment_steps, .left = j->steps
    };
}

MOX_KERNEL_INLINE bool mox_fma_is_first(const mox_fma_job *j, const mox_fma_place *at)
{
    return at->segment_left == j->segment_steps;
}

MOX_KERNEL_INLINE bool mox_fma_is_last(const mox_fma_place *at)
{
    return at->segment_left == 1 || at->left == 1;
}

MOX_KERNEL_INLINE void mox_fma_advance(const mox_fma_job *j, mox_fma_place *at)
{
    at->left--;
    if (--at->segment_left == 0)
        at->segment_left = j->segment_steps;
    if (--at->group_left == 0)
        at->group++, at->group_left = j->group_steps;
    if (--at->act_left == 0)
        at->act_group++, at->act_left = j->act_steps;
}

/* What the end of a segment multiplies C by: sa[r] and sw, where there are any. */
typedef struct mox_fma_ending {
    const float *act;
    int64_t act_stride;
    __m512 weight[2];
    bool scaled;
} mox_fma_ending;

MOX_KERNEL_INLINE mox_fma_ending mox_fma_ending_of(const mox_fma_job *j, const mox_fma_place *at, int64_t row)
{
    const float *act = j->a->scales;
    return (mox_fma_ending) {
        .act = act != NULL ? act + row * j->a->scale_stride + at->act_group : NULL,
        .act_stride = j->a->scale_stride,
        .weight = { _mm512_load_ps(j->scale[0] + at->group * MOX_PANEL_ROWS),
                    _mm512_load_ps(j->scale[j->panels - 1] + at->group * MOX_PANEL_ROWS) },
        .scaled = j->scaled,
    };
}

/* The sum of row r in panel p after a segment whose total is `part`. */
MOX_KERNEL_INLINE __m512 mox_fma_ended(const mox_fma_ending *ending, int r, int p, __m512 part, __m512 sum)
{
    if (ending->act != NULL)
        part = _mm512_mul_ps(part, _mm512_set1_ps(ending->act[r * ending->act_stride]));
    else if (!ending->scaled)
        return part; /* of the only segment */
    return _mm512_fmadd_ps(part, ending->weight[p], sum);
}

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

/* Brings in codes MOX_FMA_AHEAD bytes on, past the panel's end those of the next. */
MOX_KERNEL_INLINE void mox_fma_prefetch(moxie_dtype element, int Q, const mox_fma_job *j, int p, int64_t s)
{
    const int bytes = mox_fma_step_bytes(element, Q);
    const int64_t ahead = s * bytes + MOX_FMA_AHEAD;
    const uint8_t *at = j->codes[p] + ahead + (ahead < j->codes_bytes ? 0 : j->panel_bytes - j->codes_bytes);
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T0);
}

MOX_KERNEL_INLINE __m512 mox_fma_zero(bool zeros, const mox_fma_job *j, const mox_fma_place *at, int p)
{
    return zeros ? mox_floats_zeros(j->zero[p] + at->group * MOX_PANEL_ROWS) : _mm512_setzero_ps();
}

/* ---- narrow -------------------------------------------------------------------------------------- */

typedef struct mox_fma_sums {
    __m512 of[MOX_FMA_NARROW];
} mox_fma_sums;

MOX_KERNEL_INLINE void mox_fma_clear(int R, mox_fma_sums *sums)
{
    MOX_UNROLL
    for (int r = 0; r < R; r++)
        sums->of[r] = _mm512_setzero_ps();
}

/* Columns 8q .. 8q+7 of a step of codes by R rows that begin at `a`. */
MOX_KERNEL_INLINE void mox_fma_quarter(moxie_dtype element, bool zeros, int R, const mox_fma_job *j,
                                       const uint8_t *codes, int q, __m512 zero, const float *a, mox_fma_sums *even,
                                       mox_fma_sums *odd)
{
    __m512 w[2][4];
    mox_floats_quarter(element, zeros, &j->tables, codes, q, zero, w[0], w[1]);
    MOX_UNROLL
    for (int i = 0; i < 4; i++) {
        MOX_UNROLL
        for (int r = 0; r < R; r++) {
            const float *x = a + r * j->stride + 8 * q + 2 * i;
            even->of[r] = _mm512_fmadd_ps(w[0][i], _mm512_set1_ps(x[0]), even->of[r]);
            odd->of[r] = _mm512_fmadd_ps(w[1][i], _mm512_set1_ps(x[1]), odd->of[r]);
        }
    }
}

/* Panels [p, p + P) by the first R rows. P is 2 where one panel has too few chains to keep the units busy. */
MOX_KERNEL_INLINE void mox_fma_narrow(moxie_dtype element, bool zeros, int Q, int R, int P, const mox_fma_job *j, int p)
{
    const int bytes = mox_fma_step_bytes(element, Q);
    mox_fma_sums sum[2], part[2], even[2], odd[2];
    mox_fma_place at = mox_fma_start(j);
    for (int i = 0; i < P; i++)
        mox_fma_clear(R, &sum[i]), mox_fma_clear(R, &part[i]);
    for (int64_t s = 0; s < j->steps; s++, mox_fma_advance(j, &at)) {
        __m512 zero[2];
        for (int i = 0; i < P; i++) {
            mox_fma_prefetch(element, Q, j, p + i, s);
            mox_fma_clear(R, &even[i]), mox_fma_clear(R, &odd[i]);
            zero[i] = mox_fma_zero(zeros, j, &at, p + i);
        }
        MOX_UNROLL
        for (int q = 0; q < Q; q++)
            for (int i = 0; i < P; i++)
                mox_fma_quarter(element, zeros, R, j, j->codes[p + i] + s * bytes, q, zero[i], j->values + s * 8 * Q,
                                &even[i], &odd[i]);
        for (int i = 0; i < P; i++)
            for (int r = 0; r < R; r++)
                part[i].of[r] = _mm512_add_ps(part[i].of[r], _mm512_add_ps(even[i].of[r], odd[i].of[r]));
        if (!mox_fma_is_last(&at))
            continue;
        const mox_fma_ending ending = mox_fma_ending_of(j, &at, 0);
        for (int i = 0; i < P; i++) {
            for (int r = 0; r < R; r++)
                sum[i].of[r] = mox_fma_ended(&ending, r, p + i, part[i].of[r], sum[i].of[r]);
            mox_fma_clear(R, &part[i]);
        }
    }
    for (int i = 0; i < P; i++)
        for (int r = 0; r < R; r++)
            _mm512_store_ps(j->c + (2 * r + p + i) * MOX_PANEL_ROWS, sum[i].of[r]);
}

MOX_KERNEL_INLINE void mox_fma_all_narrow(moxie_dtype element, bool zeros, int Q, const mox_fma_job *j)
{
    const int64_t rows = j->a->rows;
    if (rows == 1 && j->panels == 2) {
        mox_fma_narrow(element, zeros, Q, 1, 2, j, 0);
        return;
    }
    if (rows == 2 && j->panels == 2) {
        mox_fma_narrow(element, zeros, Q, 2, 2, j, 0);
        return;
    }
    for (int p = 0; p < j->panels; p++)
        switch (rows) {
        case 1: mox_fma_narrow(element, zeros, Q, 1, 1, j, p); break;
        case 2: mox_fma_narrow(element, zeros, Q, 2, 1, j, p); break;
        case 3: mox_fma_narrow(element, zeros, Q, 3, 1, j, p); break;
        default: mox_fma_narrow(element, zeros, Q, 4, 1, j, p); break;
        }
}

/* ---- wide ---------------------------------------------------------------------------------------- */

/* Step s of panel p to its place in the slab. */
MOX_KERNEL_INLINE void mox_fma_decode(moxie_dtype element, bool zeros, int Q, const mox_fma_job *j, int p, int64_t s,
                                      __m512 zero, float *slab)
{
    const uint8_t *codes = j->codes[p] + s * mox_fma_step_bytes(element, Q);
    MOX_UNROLL
    for (int q = 0; q < Q; q++) {
        __m512 w[2][4];
        mox_floats_quarter(element, zeros, &j->tables, codes, q, zero, w[0], w[1]);
        MOX_UNROLL
        for (int i = 0; i < 8; i++)
            _mm512_store_ps(slab + ((8 * q + i) * 2 + p) * MOX_PANEL_ROWS, w[i % 2][i / 2]);
    }
}

/* The first `steps` steps of the slab by all rows, in blocks of nearly the same size. */
MOX_KERNEL_INLINE void mox_fma_blocks(int Q, const mox_fma_job *j, int64_t s, int64_t steps)
{
    const int64_t blocks = mox_ceil_div(j->a->rows, MOX_FMA_BLOCK);
    for (int64_t b = 0, row = 0, rows; b < blocks; b++, row += rows) {
        rows = mox_ceil_div(j->a->rows - row, blocks - b);
        mox_fma_block_of(rows, j->panels, Q)(j, s, steps, row);
    }
}

MOX_KERNEL_INLINE void mox_fma_wide(moxie_dtype element, bool zeros, int Q, mox_fma_job *j)
{
    mox_fma_place at = mox_fma_start(j);
    memset(j->c, 0, (size_t)j->a->rows * 2 * MOX_PANEL_ROWS * sizeof *j->c);
    for (int64_t s = 0; s < j->steps; s += MOX_FMA_SLAB) {
        const int64_t steps = mox_min_i64(MOX_FMA_SLAB, j->steps - s);
        for (int64_t i = 0; i < steps; i++) {
            j->places[i] = at;
            for (int p = 0; p < j->panels; p++) {
                mox_fma_prefetch(element, Q, j, p, s + i);
                mox_fma_decode(element, zeros, Q, j, p, s + i, mox_fma_zero(zeros, j, &at, p),
                               j->slab + i * 8 * Q * 2 * MOX_PANEL_ROWS);
            }
            mox_fma_advance(j, &at);
        }
        mox_fma_blocks(Q, j, s, steps);
    }
}

/* ---- one call ------------------------------------------------------------------------------------ */

/* `like` stands for all formats of its order whose tables alone differ; weight->element is the one at hand. */
MOX_KERNEL_INLINE void mox_fma_multiply(moxie_dtype like, bool zeros, int Q, const mox_panel_matrix *matrix,
                                        const moxie_quant *weight, int64_t panel, int panels, const mox_panel_rows *a,
                                        float *c, void *scratch)
{
    mox_fma_job j;
    mox_fma_prepare(&j, matrix, weight, panel, panels, a, c, scratch);
    mox_floats_tables(weight->element, &j.tables);
    /* Flush to zero and denormals are zero. */
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | 0x8040u);
    if (a->rows <= MOX_FMA_NARROW)
        mox_fma_all_narrow(like, zeros, Q, &j);
    else
        mox_fma_wide(like, zeros, Q, &j);
    _mm_setcsr(mxcsr);
}

#endif
