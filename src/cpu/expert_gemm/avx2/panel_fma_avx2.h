/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_fma_avx2.h - kernel avx2_fma: fp32 multiply-adds over layout panel16, 8 rows of a panel in a register. Written
 * once for all decode classes and numbers of rows; expert_gemm_avx2.c has the instances.
 *
 *     step      each row of activations has two chains of multiply-adds per half panel (8 rows): one over the even
 *               columns, one over the odd ones. By pair (panel_decode_avx2.h) they share two registers
 *     segment   C = 0 + step + step ..., then  c[r] = fma(C * sa[r], sw, c[r])
 *
 * Chains begin from zero at every step. A multiply-add has a latency of 4 cycles and two start per cycle, so at least 8
 * chains are needed. Two ways through a panel give the same bits (FMA_STEPS, panel_kernel.h):
 *
 *     narrow    few rows: columns are multiplied as they are decoded. Rows x halves x 2 chains; one row takes the
 *               halves of both panels at once. 3 to 8 rows of 4-bit weights take one half at a time, in one or two
 *               blocks of rows: decoding twice costs less than the slab's stores
 *     wide      more rows: SLAB steps of a panel are decoded to floats in the L1 cache, then multiplied by up to BLOCK
 *               rows at a time. Rows x 2 chains
 *
 *     slab      [step][half][column pair][2 vectors][8] f32
 *
 * Parameters of the always-inline functions are constants where they are called:
 *     decode    the decode class      R   rows of activations      H   half panels at once: 1, 2, or 4 of two panels
 */
#ifndef MOX_CPU_PANEL_FMA_AVX2_H
#define MOX_CPU_PANEL_FMA_AVX2_H

#include "cpu/expert_gemm/avx2/avx2_plan.h"
#include "cpu/expert_gemm/avx2/panel_decode_avx2.h"

/* ---- one call ------------------------------------------------------------------------------------ */

/* A step has 16 columns when the weights' groups have 16, else 32. Float arrays hold both panels, one after the other.
 */
typedef struct mox_ymm_job {
    const mox_panel_matrix *matrix;
    const mox_panel_rows *a;
    int64_t stride; /* of a row of activations, in floats */
    int panels;
    const uint8_t *codes;      /* of the first panel */
    const float *scale, *zero; /* [panels][groups][16] */
    int64_t panel_floats;      /* groups * 16 */
    bool scaled, zeros;        /* weights have scales, zero points */
    bool bytes;                /* activations are rounded to bytes: kernel avx2_bytes */
    int64_t steps, quarters;   /* steps of 4 quarters, or of 2 */
    int64_t group_steps, act_steps, segment_steps;
    float *c;    /* [rows][32] */
    float *part; /* [rows][32]: C of unfinished segments */
    float *slab;
    mox_half_tables tables;
    int8_t *limbs;                              /* int_dot_avx2.h */
    uint8_t *order;                             /* likewise */
    __m256i counts;                             /* likewise: by nibble */
    bool plain;                                 /* likewise: codes are counts */
    unsigned mxcsr;                             /* the caller's */
    const struct mox_ymm_block_variant *blocks; /* weights are a block type: panel_block_avx2.h; else NULL */
} mox_ymm_job;

/* ---- segments ------------------------------------------------------------------------------------ */

/* The position of a step: its groups, and how many steps of them come before it. */
typedef struct mox_ymm_pos {
    int64_t step, group, act_group;
    int64_t in_group, in_act, in_segment;
} mox_ymm_pos;

MOX_KERNEL_INLINE void mox_ymm_next(const mox_ymm_job *j, mox_ymm_pos *at)
{
    at->step++;
    if (++at->in_segment == j->segment_steps)
        at->in_segment = 0;
    if (++at->in_group == j->group_steps) {
        at->in_group = 0;
        at->group++;
    }
    if (++at->in_act == j->act_steps) {
        at->in_act = 0;
        at->act_group++;
    }
}

/* The step sums of 8 panel rows and one row of activations, from the two chains. */
MOX_KERNEL_INLINE __m256 mox_ymm_step_sum(mox_decode_class decode, const __m256 chain[2])
{
    return mox_half_by_pair(decode) ? _mm256_hadd_ps(chain[0], chain[1]) : _mm256_add_ps(chain[0], chain[1]);
}

/* Where step sums are added: to C while the segment has more steps, or scaled to c. In both, rows are 32 floats apart
 * and half panels 8. */
typedef struct mox_ymm_sink {
    const float
        *before; /* C so far; rows are `row_step` apart, halves `half_step`. Both are 0 in a segment's first step */
    int64_t row_step, half_step;
    float *to;
    bool scaled;
    const float *act; /* the first row's scale; NULL: none */
    const float *scale;
    int64_t act_step, scale_step; /* of rows, of panels */
} mox_ymm_sink;

MOX_KERNEL_INLINE mox_ymm_sink mox_ymm_sink_of(const mox_ymm_job *j, const mox_ymm_pos *at, int64_t row)
{
    static const float none[8] __attribute__((aligned(32)));
    const bool first = at->in_segment == 0;
    const bool last = at->in_segment + 1 == j->segment_steps || at->step + 1 == j->steps;
    const float *act = j->a->scales;
    return (mox_ymm_sink) { .before = first ? none : j->part + row * MOX_YMM_WIDTH,
                            .row_step = first ? 0 : MOX_YMM_WIDTH,
                            .half_step = first ? 0 : 8,
                            .to = (last ? j->c : j->part) + row * MOX_YMM_WIDTH,
                            .scaled = last && (act != NULL || j->scaled),
                            .act = act != NULL && last ? act + row * j->a->scale_stride + at->act_group : NULL,
                            .scale = j->scale + at->group * MOX_PANEL_ROWS,
                            .act_step = j->a->scale_stride,
                            .scale_step = j->panel_floats };
}

/* Adds the step sums sum[r][h] of R rows and H halves, from half `half` of panel p on. `unsigned_zero`: no sum is -0,
 * so the first of a segment need not be added to zero. */
MOX_KERNEL_INLINE void mox_ymm_add_step(int R, int H, bool unsigned_zero, const mox_ymm_sink *sink, int p, int half,
                                        __m256 sum[][4])
{
    float *to = sink->to + p * MOX_PANEL_ROWS + 8 * half;
    const float *before = sink->before + (2 * p + half) * sink->half_step;
    if (!unsigned_zero || sink->half_step != 0) {
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            MOX_KERNEL_UNROLL
            for (int h = 0; h < H; h++)
                sum[r][h] = _mm256_add_ps(_mm256_load_ps(before + r * sink->row_step + h * sink->half_step), sum[r][h]);
        }
    }
    if (sink->act != NULL) {
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            const __m256 act = _mm256_broadcast_ss(sink->act + r * sink->act_step);
            MOX_KERNEL_UNROLL
            for (int h = 0; h < H; h++)
                sum[r][h] = _mm256_mul_ps(sum[r][h], act);
        }
    }
    if (sink->scaled) {
        const float *scale = sink->scale + p * sink->scale_step + half * 8;
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            MOX_KERNEL_UNROLL
            for (int h = 0; h < H; h++)
                sum[r][h] = _mm256_fmadd_ps(sum[r][h], _mm256_load_ps(scale + h / 2 * sink->scale_step + h % 2 * 8),
                                            _mm256_load_ps(to + r * MOX_YMM_WIDTH + 8 * h));
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++)
            _mm256_store_ps(to + r * MOX_YMM_WIDTH + 8 * h, sum[r][h]);
    }
}

/* c + a b, in the register of c. gcc otherwise overwrites a or b where it can, and then copies and spills. */
MOX_KERNEL_INLINE __m256 mox_ymm_multiply_add(__m256 a, __m256 b, __m256 c)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
}

/* Adds a column pair of weights, the two vectors w, to the chains of R rows. `a`: the activations of the first row. */
MOX_KERNEL_INLINE void mox_ymm_add_pair(mox_decode_class decode, int R, const float *a, int64_t stride,
                                        const __m256 w[2], __m256 chains[][2])
{
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const float *x = a + r * stride;
        if (mox_half_by_pair(decode)) {
            const __m256 pair = _mm256_castpd_ps(_mm256_broadcast_sd((const double *)(const void *)x));
            chains[r][0] = mox_ymm_multiply_add(w[0], pair, chains[r][0]);
            chains[r][1] = mox_ymm_multiply_add(w[1], pair, chains[r][1]);
        } else {
            chains[r][0] = mox_ymm_multiply_add(w[0], _mm256_broadcast_ss(x), chains[r][0]);
            chains[r][1] = mox_ymm_multiply_add(w[1], _mm256_broadcast_ss(x + 1), chains[r][1]);
        }
    }
}

/* ---- prefetching --------------------------------------------------------------------------------- */

/* Prefetches codes after step `step` of panel p; past the end, those of the panel that the next call begins with. Also
 * prefetches the scales of that panel, a line per step. `to_l2`: for code that reads memory faster than a core has L1
 * misses for, so not where decoding takes longer. */
MOX_KERNEL_INLINE void mox_ymm_prefetch(bool to_l2, const mox_ymm_job *j, int p, int64_t step)
{
    const mox_panel_matrix *m = j->matrix;
    const int64_t bytes = (int64_t)m->step_bytes * j->quarters / 4, all = bytes * j->steps;
    const int64_t ahead = to_l2 ? MOX_YMM_PREFETCH_L2_BYTES : MOX_YMM_PREFETCH_BYTES;
    const int64_t at = step * bytes + ahead, past = j->panels * (int64_t)m->panel_bytes;
    const uint8_t *panel = j->codes + p * (int64_t)m->panel_bytes;
    const uint8_t *from = panel + at + (at < all ? 0 : past - all);
    for (int64_t b = 0; b < bytes; b += 64) {
        if (to_l2)
            _mm_prefetch((const char *)from + b, _MM_HINT_T1);
        else
            _mm_prefetch((const char *)from + b, _MM_HINT_T0);
    }
    const int64_t scales = (int64_t)m->scale_at + step * 64;
    if (scales < (int64_t)m->panel_bytes)
        _mm_prefetch((const char *)panel + past + scales, _MM_HINT_T0);
}

/* ---- narrow -------------------------------------------------------------------------------------- */

/* Makes the compiler load again what is read through the result. Loads are free here, and values kept for all halves
 * would take the registers that the chains need. */
MOX_KERNEL_INLINE const void *mox_ymm_reload(const void *p)
{
    __asm__ volatile("" : "+r"(p));
    return p;
}

/* One step of H halves, from half `half` of panel p on, times R rows from `row` on. */
MOX_KERNEL_INLINE void mox_ymm_narrow_step(mox_decode_class decode, int R, int H, const mox_ymm_job *j,
                                           const mox_ymm_pos *at, int p, int half, int64_t row)
{
    const uint8_t *first = j->codes + p * (int64_t)j->matrix->panel_bytes;
    const uint8_t *second = first + j->matrix->panel_bytes;
    const float *points = j->zero + at->group * MOX_PANEL_ROWS + p * j->panel_floats + half * 8;
    const float *a = (const float *)j->a->data + row * j->stride + at->step * j->quarters * 8;
    const int64_t end = (at->step + 1) * j->quarters, stride = j->stride;
    const mox_ymm_sink sink = mox_ymm_sink_of(j, at, row);
    __m256 chains[4][MOX_YMM_HALF_ROWS][2], zero[4][2], sum[MOX_YMM_HALF_ROWS][4];
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        mox_half_zeros(decode, j->zeros, points + h / 2 * j->panel_floats + h % 2 * 8, zero[h]);
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            chains[h][r][0] = chains[h][r][1] = _mm256_setzero_ps();
    }
    for (int64_t quarter = at->step * j->quarters; quarter < end; quarter++, a += 8) {
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++) {
            const float *x = mox_ymm_reload(a);
            const mox_half_tables *tables = mox_ymm_reload(&j->tables);
            __m256i loaded[4];
            mox_half_load(decode, tables, h < 2 ? first : second, (half + h) % 2, quarter, loaded);
            MOX_KERNEL_UNROLL
            for (int i = 0; i < 4; i++) {
                const __m256 w[2] = { mox_half_column(decode, tables, loaded, zero[h], i, 0),
                                      mox_half_column(decode, tables, loaded, zero[h], i, 1) };
                mox_ymm_add_pair(decode, R, x + 2 * i, stride, w, chains[h]);
            }
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++)
            sum[r][h] = mox_ymm_step_sum(decode, chains[h][r]);
    }
    mox_ymm_add_step(R, H, false, &sink, p, half, sum);
}

/* All steps: H = 2 one panel after the other, H = 4 both at once. */
MOX_KERNEL_INLINE void mox_ymm_narrow(mox_decode_class decode, int R, int H, const mox_ymm_job *j)
{
    mox_ymm_pos at = { 0 };
    for (; at.step < j->steps; mox_ymm_next(j, &at)) {
        for (int p = 0; p < j->panels; p++)
            mox_ymm_prefetch(decode == MOX_DECODE_PAIRS, j, p, at.step);
        for (int p = 0; p < j->panels; p += H / 2)
            mox_ymm_narrow_step(decode, R, H, j, &at, p, 0, 0);
    }
}

/* All steps by one half at a time: R rows, then the S rows after them. */
MOX_KERNEL_INLINE void mox_ymm_narrow_halves(mox_decode_class decode, int R, int S, const mox_ymm_job *j)
{
    mox_ymm_pos at = { 0 };
    for (; at.step < j->steps; mox_ymm_next(j, &at)) {
        for (int p = 0; p < j->panels; p++) {
            mox_ymm_prefetch(false, j, p, at.step);
            for (int half = 0; half < 2; half++) {
                mox_ymm_narrow_step(decode, R, 1, j, &at, p, half, 0);
                if (S > 0)
                    mox_ymm_narrow_step(decode, S, 1, j, &at, p, half, R);
            }
        }
    }
}

/* ---- wide ---------------------------------------------------------------------------------------- */

/* Decodes `count` steps of panel p to the slab. */
MOX_KERNEL_INLINE void mox_ymm_expand(mox_decode_class decode, const mox_ymm_job *j, int p, const mox_ymm_pos *start,
                                      int64_t count)
{
    const uint8_t *codes = j->codes + p * (int64_t)j->matrix->panel_bytes;
    mox_ymm_pos at = *start;
    for (int64_t s = 0; s < count; s++, mox_ymm_next(j, &at)) {
        const int64_t first = at.step * j->quarters;
        mox_ymm_prefetch(true, j, p, at.step);
        for (int half = 0; half < 2; half++) {
            const mox_half_tables *tables = &j->tables;
            float *to = j->slab + (2 * s + half) * MOX_YMM_HALF;
            __m256 zero[2];
            mox_half_zeros(decode, j->zeros, j->zero + at.group * MOX_PANEL_ROWS + p * j->panel_floats + half * 8,
                           zero);
            for (int64_t quarter = first; quarter < first + j->quarters; quarter++, to += 64) {
                __m256i loaded[4];
                mox_half_load(decode, tables, codes, half, quarter, loaded);
                MOX_KERNEL_UNROLL
                for (int i = 0; i < 4; i++) {
                    __m256 w[2];
                    mox_half_pair(decode, tables, loaded, zero, i, w);
                    _mm256_store_ps(to + 16 * i, w[0]);
                    _mm256_store_ps(to + 16 * i + 8, w[1]);
                }
            }
        }
    }
}

/* Multiplies the steps in the slab by R rows from `row` on. */
MOX_KERNEL_INLINE void mox_ymm_wide(mox_decode_class decode, int R, const mox_ymm_job *j, int p,
                                    const mox_ymm_pos *start, int64_t count, int64_t row)
{
    mox_ymm_pos at = *start;
    for (int64_t s = 0; s < count; s++, mox_ymm_next(j, &at)) {
        const mox_ymm_sink sink = mox_ymm_sink_of(j, &at, row);
        for (int half = 0; half < 2; half++) {
            const float *w = j->slab + (2 * s + half) * MOX_YMM_HALF, *end = w + j->quarters * 64;
            const float *a = (const float *)j->a->data + row * j->stride + at.step * j->quarters * 8;
            __m256 chains[MOX_YMM_BLOCK][2], sum[MOX_YMM_BLOCK][4];
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                chains[r][0] = chains[r][1] = _mm256_setzero_ps();
            for (; w < end; w += 64, a += 8) {
                MOX_KERNEL_UNROLL
                for (int i = 0; i < 4; i++) {
                    const __m256 pair[2] = { _mm256_load_ps(w + 16 * i), _mm256_load_ps(w + 16 * i + 8) };
                    mox_ymm_add_pair(decode, R, a + 2 * i, j->stride, pair, chains);
                }
            }
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                sum[r][0] = mox_ymm_step_sum(decode, chains[r]);
            mox_ymm_add_step(R, 1, false, &sink, p, half, sum);
        }
    }
}

#endif
