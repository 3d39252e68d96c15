/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_referee.h - the sums that panel kernels promise (panel_kernel.h), restated in plain C from the checkpoint's
 * views. Every kernel of a `sum` is compared with it byte for byte. Nothing here is shared with the kernels.
 *
 *     "FMA_STEPS"  step = 32 columns (16 under weight groups of 16):
 *                  even = fma(a[0], w[0], 0), fma(a[2], w[2], even), ...     odd likewise     t = even + odd
 *              segment = the steps inside one weight group and one activation group:  C = 0 + t + t + ...
 *     "DOT_STEPS"  as "FMA_STEPS", but the two chains are a step's first 16 columns and its last 16, each in the order
 *                  1, 0, 3, 2, ...; a step of 16 columns is one chain
 *     "ODD_PAIRS"
 *                  run = columns of a segment up to the next multiple of 256:  t = 0, then for each pair of columns
 *                  t = odd(t + odd(a w + a' w')), odd() being rounding to odd;  C = 0 + t + t + ...
 *     "BYTE_ACTIVATIONS"
 *                  as "FMA_STEPS", but with m the greatest |a| of a step, for 2^-60 <= m <= 2^60 or m = 0:
 *                  t = (sum of rint(a * (127 / m)) * w, exact, rounded to f32) * (m * (1 / 127))
 *     "i32"        segment: C = the exact integer, rounded to f32
 *     "BYTE_RUNS"  of block types: as "BYTE_ACTIVATIONS" in steps of 32, with w = S level - M, infinite S and M as NaN,
 *                  and t from the runs of the step: t = I S of the first, then fma(I, S, t), and for each
 *                  fma(-D, M, t) where the type has minimums (I = sum of d level, D = sum of d). Activations that are
 *                  int8 codes are d, and t is not multiplied
 *     "INT32_RUNS" that, of such activations alone
 *     "LEVEL_RUNS" of block types: as "FMA_STEPS" in steps of 32, with w = S level, infinite S as NaN. In
 *                  each run of the step I is the t of "FMA_STEPS" with level for w. t = I S of the first run, then
 *                  fma(I, S, t)
 *     all          sum = fma(C * sa, sw, sum) from 0; missing factors are left out; without any, sum = C
 *     "SCALE_IN_WEIGHT"
 *                  as "FMA_STEPS" in steps of 32, but sw is multiplied into the codes when that is exact in bf16. For
 *                  E4M3 that is 2^-16 times the product, and 2^16 becomes a factor of the sum. Where scales are so
 *                  large or small that the products leave the normal numbers of bf16, any result within the bound is
 *                  right.
 *
 * with w = code - zero point, all in f32, subnormal operands and results zero. The result, with subnormals kept, is
 *
 *     ((sum * activation scale of the row) (*|/) activation global) (*|/) weight global + bias
 */
#ifndef GEMM_REFEREE_H
#define GEMM_REFEREE_H

#include "format/block_levels.h"
#include "format/block_parts.h"
#include "gemm_problem.h"

enum { REFEREE_COLS = 2048 }; /* the largest number, with padding */

typedef enum referee_sum {
    REFEREE_NONE = 0,
    REFEREE_FMA32,
    REFEREE_DOT32,
    REFEREE_ODD,
    REFEREE_FOLD32,
    REFEREE_BYTES32,
    REFEREE_I32,
    REFEREE_BYTE_RUNS,
    REFEREE_INT32_RUNS,
    REFEREE_LEVEL_RUNS,
    REFEREE_SUMS
} referee_sum;

/* NONE: a sum that this file does not know. */
static inline referee_sum referee_sum_of(const mox_expert_gemm_kernel *row)
{
    static const mox_sum sums[REFEREE_SUMS] = { [REFEREE_FMA32] = MOX_SUM_FMA_STEPS,
                                                [REFEREE_DOT32] = MOX_SUM_DOT_STEPS,
                                                [REFEREE_ODD] = MOX_SUM_ODD_PAIRS,
                                                [REFEREE_FOLD32] = MOX_SUM_SCALE_IN_WEIGHT,
                                                [REFEREE_BYTES32] = MOX_SUM_BYTE_ACTIVATIONS,
                                                [REFEREE_I32] = MOX_SUM_INT32_STEPS,
                                                [REFEREE_BYTE_RUNS] = MOX_SUM_BYTE_RUNS,
                                                [REFEREE_INT32_RUNS] = MOX_SUM_INT32_RUNS,
                                                [REFEREE_LEVEL_RUNS] = MOX_SUM_LEVEL_RUNS };
    for (int i = REFEREE_FMA32; i < REFEREE_SUMS; i++)
        if (row->sum == sums[i])
            return (referee_sum)i;
    return REFEREE_NONE;
}

static inline float referee_flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

static inline float referee_fma(float a, float b, float c)
{
    return referee_flushed(fmaf(referee_flushed(a), referee_flushed(b), referee_flushed(c)));
}

static inline bool referee_knows_products(const mox_expert_gemm_kernel *row)
{
    return referee_sum_of(row) != REFEREE_NONE;
}

/* Where activation scales are multiplied: into the values when that is exact in bf16; into the finished sum when a row
 * has one scale; else per segment. */
static inline bool referee_folds(const gemm_problem *p)
{
    const moxie_quant *act = p->asked.act;
    return p->operand.scales != NULL && (act->scale == MOXIE_F8_E8M0 || act->element == MOXIE_F4_E2M1);
}

/* A row of weights or of activations, ready to be multiplied. */
typedef struct referee_row {
    float w[REFEREE_COLS], sw[REFEREE_COLS]; /* by column, by weight group */
    float a[REFEREE_COLS], sa[REFEREE_COLS]; /* by column, by activation group */
    bool has_sw, has_sa;
    float end;                           /* a factor of the sum, instead of sw */
    bool unclaimed;                      /* not defined by the order of summation */
    int64_t cols, weight_cols, act_cols; /* columns of a group */
    /* Block types: integers; S and M of each 16 columns, equal within a run. */
    int32_t level[REFEREE_COLS];
    float s[REFEREE_COLS / 16], m[REFEREE_COLS / 16];
    int64_t run_cols; /* at most a step */
    bool has_m, act_codes;
} referee_row;

/* ---- block types ------------------------------------------------------------------------------------------ */

/* An infinite d or m is NaN: with it some weight may be a zero times infinity. */
static inline float referee_marked(float x)
{
    return isinf(x) ? NAN : x;
}

/* Integers, S and M of a block whose weights begin in column k. */
static inline void referee_fields(const mox_block_fields *f, const uint8_t *block, int64_t weights, int64_t k,
                                  referee_row *row)
{
    static const int levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
    mox_block_parts parts;
    mox_block_split(f, block, &parts);
    const float d = moxie_decode(MOXIE_F16, (uint32_t)parts.d[0] | (uint32_t)parts.d[1] << 8);
    const float m = f->m_at < 0 ? 0.0f : moxie_decode(MOXIE_F16, (uint32_t)parts.m[0] | (uint32_t)parts.m[1] << 8);
    row->run_cols = f->run < 32 ? f->run : 32;
    row->has_m = f->m_at >= 0;
    for (int64_t i = 0; i < weights; i++)
        row->level[k + i] = f->levels ? levels[parts.code[i]] : parts.code[i] - f->offset;
    for (int64_t i = 0; i < weights; i += 16) {
        const uint8_t s = parts.s[i / f->run], t = parts.t[i / f->run];
        const bool nibbles = f->integers == MOX_BLOCK_NIBBLES, none = f->integers == MOX_BLOCK_NONE;
        row->s[(k + i) / 16] = none ? d : d * (float)(nibbles ? s & 15 : (int8_t)s);
        row->m[(k + i) / 16] = -(float)f->m_sign * (none ? m : m * (float)(nibbles ? s >> 4 : t));
    }
}

static inline void referee_levels(const mox_block_levels *l, const uint8_t *block, int64_t weights, int64_t k,
                                  referee_row *row)
{
    const float d = moxie_decode(MOXIE_F16, mox_block_levels_d(block, l->d_at));
    row->run_cols = l->run;
    row->has_m = false;
    for (int64_t s = 0; s < weights / 32; s++) {
        int8_t level[32];
        l->step(block, d, (int32_t)s, level, &row->s[k / 16 + 2 * s]);
        for (int64_t i = 0; i < 32; i++)
            row->level[k + 32 * s + i] = level[i];
    }
}

/* Row n of a matrix of blocks. Its parts must give the weights that the type's own decoder gives. */
static inline void referee_blocks(const moxie_matrix *m, int64_t n, referee_row *row)
{
    const mox_block *type = mox_block_of(m->codes.dtype);
    const mox_block_fields *f = mox_block_fields_of(m->codes.dtype);
    const uint8_t *block = (const uint8_t *)m->codes.data + n * m->codes.row_stride;
    for (int64_t k = 0; k < row->cols; k += type->weights, block += type->bytes)
        if (f != NULL)
            referee_fields(f, block, type->weights, k, row);
        else
            referee_levels(mox_block_levels_of(m->codes.dtype), block, type->weights, k, row);
    for (int64_t k = 0; k < row->cols; k++) {
        const double w = (double)row->s[k / 16] * row->level[k] - (row->has_m ? (double)row->m[k / 16] : 0.0);
        assert_true((float)w == row->w[k] || isnan(row->w[k]));
    }
    for (int64_t g = 0; g < row->cols / 16; g++) {
        row->s[g] = referee_marked(row->s[g]);
        row->m[g] = referee_marked(row->m[g]);
    }
    for (int64_t k = 0; k < row->cols; k++)
        if (isnan(row->s[k / 16]) || (row->has_m && isnan(row->m[k / 16])))
            row->w[k] = NAN;
}

/* d of BYTE_RUNS: the step's activations as bytes, times `per_unit`. */
static inline float referee_step_runs(const referee_row *row, int64_t first, float per_unit, float unit)
{
    float t = 0.0f;
    for (int64_t k = first; k < first + 32; k += row->run_cols) {
        double sum = 0.0, bytes = 0.0;
        for (int64_t i = k; i < k + row->run_cols; i++) {
            const double d = (double)rintf(referee_flushed(row->a[i]) * per_unit);
            sum += d * row->level[i];
            bytes += d;
        }
        t = k == first ? (float)sum * row->s[k / 16] : fmaf((float)sum, row->s[k / 16], t);
        t = row->has_m ? fmaf(-(float)bytes, row->m[k / 16], t) : t;
    }
    return t * unit;
}

/* Decodes row n of the matrix. Columns that fill the last step are code 0. */
static inline void referee_codes(const gemm_problem *p, const moxie_matrix *m, int64_t n, referee_row *row)
{
    const moxie_quant *q = p->asked.weight;
    const int64_t gr = mox_group_rows(q, m->codes.rows), padded = mox_ceil_div(p->cols, 32) * 32;
    assert_true(padded <= REFEREE_COLS);
    row->cols = p->cols;
    row->weight_cols = mox_group_cols(q, p->cols);
    row->has_sw = m->scale.data != NULL;
    row->unclaimed = false;
    row->end = 1.0f;
    for (int64_t k = 0; k < padded; k++) {
        const int64_t g = mox_min_i64(k, p->cols - 1) / row->weight_cols;
        const double zero = m->zero.data != NULL ? mox_grid_value(&m->zero, n / gr, g) + (double)m->zero_add : 0.0;
        const double code = k < p->cols ? mox_grid_value(&m->codes, n, k) : (double)moxie_decode(q->element, 0);
        assert_true(k >= p->cols || m->group_index == NULL || m->group_index[k] == g); /* natural order */
        row->w[k] = (float)(code - zero);
        if (row->has_sw)
            row->sw[g] = (float)mox_grid_value(&m->scale, n / gr, g);
    }
}

/* Multiplies scales into codes where "SCALE_IN_WEIGHT" does. */
static inline void referee_fold(const moxie_quant *q, referee_row *row)
{
    const bool by_16 = row->weight_cols == 16 && row->cols > 16;
    if (!row->has_sw || (q->scale != MOXIE_F8_E8M0 && !(q->scale == MOXIE_F8_E4M3 && by_16)))
        return;
    row->end = q->scale == MOXIE_F8_E4M3 ? 0x1p16f : 1.0f;
    for (int64_t k = 0; k < mox_ceil_div(row->cols, 32) * 32; k++) {
        const float sw = row->sw[mox_min_i64(k, row->cols - 1) / row->weight_cols];
        row->w[k] *= sw / row->end;
        row->unclaimed = row->unclaimed || sw < 0x1p-100f || sw > 0x1p100f;
    }
    row->has_sw = false;
    row->weight_cols = row->cols;
}

static inline void referee_weights(referee_sum kind, const gemm_problem *p, const moxie_matrix *m, int64_t n,
                                   referee_row *row)
{
    referee_codes(p, m, n, row);
    if (kind == REFEREE_BYTE_RUNS || kind == REFEREE_INT32_RUNS || kind == REFEREE_LEVEL_RUNS)
        referee_blocks(m, n, row);
    if (kind == REFEREE_FOLD32)
        referee_fold(p->asked.weight, row);
}

static inline void referee_acts(const gemm_problem *p, int64_t r, referee_row *row)
{
    const mox_activations *a = &p->operand;
    const bool fold = referee_folds(p);
    row->has_sa = a->scales != NULL && !fold && a->scale_cols > 1;
    row->act_cols = row->has_sa ? a->group_cols : p->cols;
    row->act_codes = p->asked.act->element == MOXIE_I8;
    for (int64_t k = 0; k < mox_ceil_div(p->cols, 32) * 32; k++) {
        row->a[k] = k < p->cols ? a->values[r * a->stride + k] : 0.0f;
        if (fold && k < p->cols)
            row->a[k] *= a->scales[r * a->scale_cols + k / a->group_cols];
    }
    for (int64_t g = 0; row->has_sa && g < a->scale_cols; g++)
        row->sa[g] = a->scales[r * a->scale_cols + g];
}

static inline int64_t referee_segment_end(const referee_row *row, int64_t k)
{
    const int64_t weight = (k / row->weight_cols + 1) * row->weight_cols, act = (k / row->act_cols + 1) * row->act_cols;
    return mox_min_i64(row->cols, mox_min_i64(weight, act));
}

static inline float referee_step_fma32(const referee_row *row, int64_t first, int64_t last)
{
    float even = 0.0f, odd = 0.0f;
    for (int64_t i = first; i < last; i += 2) {
        even = referee_fma(row->a[i], row->w[i], even);
        odd = referee_fma(row->a[i + 1], row->w[i + 1], odd);
    }
    return referee_flushed(even + odd);
}

static inline float referee_step_dot32(const referee_row *row, int64_t first, int64_t last)
{
    float t[2] = { 0.0f, 0.0f };
    for (int64_t i = first; i < last; i += 2) {
        float *chain = &t[(i - first) / 16];
        *chain = referee_fma(row->a[i + 1], row->w[i + 1], *chain);
        *chain = referee_fma(row->a[i], row->w[i], *chain);
    }
    return last - first == 16 ? t[0] : referee_flushed(t[0] + t[1]);
}

/* a + b rounded to odd. The sum in double and its error (Knuth's two-sum) are exact together. */
static inline float referee_odd_sum(double a, double b)
{
    const double sum = a + b, part = sum - a, error = (a - (sum - part)) + (b - part);
    const double beyond = sum < 0.0 ? -error : error; /* how far the exact sum is from `sum`, away from zero */
    float near = (float)sum;
    if (!isfinite(sum) || sum == 0.0 || fabs(sum) > 0x1p128 || (fabs(sum) == 0x1p128 && beyond >= 0.0))
        return near;
    const double left = fabs(sum) - fabs((double)near) + beyond;
    if (left == 0.0)
        return referee_flushed(near);
    if (left < 0.0)
        near = nextafterf(near, 0.0f);
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    bits |= 1;
    memcpy(&near, &bits, sizeof near);
    return referee_flushed(near);
}

static inline float referee_run_odd(const referee_row *row, int64_t first, int64_t last)
{
    float t = 0.0f;
    for (int64_t k = first; k < last; k += 2) {
        const double a = (double)referee_flushed(row->a[k]) * (double)referee_flushed(row->w[k]);
        const double b = (double)referee_flushed(row->a[k + 1]) * (double)referee_flushed(row->w[k + 1]);
        t = referee_odd_sum((double)t,
                            (double)referee_odd_sum((double)referee_odd_sum(a, 0.0), (double)referee_odd_sum(b, 0.0)));
    }
    return t;
}

static inline float referee_step_bytes32(referee_sum kind, const referee_row *row, int64_t first, int64_t last)
{
    const bool runs = kind != REFEREE_BYTES32;
    float most = 0.0f;
    double sum = 0.0;
    if (runs && row->act_codes)
        return referee_step_runs(row, first, 1.0f, 1.0f);
    for (int64_t k = first; k < last; k++) {
        if (isnan(row->a[k]))
            return referee_step_fma32(row, first, last);
        most = fmaxf(most, fabsf(referee_flushed(row->a[k])));
    }
    if (most != 0.0f && !(most >= 0x1p-60f && most <= 0x1p60f))
        return referee_step_fma32(row, first, last);
    if (runs)
        return referee_step_runs(row, first, most == 0.0f ? 0.0f : 127.0f / most, most * (1.0f / 127.0f));
    for (int64_t k = first; k < last && most != 0.0f; k++)
        sum += (double)rintf(referee_flushed(row->a[k]) * (127.0f / most)) * (double)row->w[k];
    return (float)sum * (most * (1.0f / 127.0f));
}

static inline float referee_step_levels(const referee_row *row, int64_t first, int64_t last)
{
    float t = 0.0f;
    for (int64_t k = first; k < last; k += row->run_cols) {
        float sum[2] = { 0.0f, 0.0f };
        for (int64_t i = k; i < k + row->run_cols; i++)
            sum[i % 2] = referee_fma(row->a[i], (float)row->level[i], sum[i % 2]);
        const float levels = referee_flushed(sum[0] + sum[1]), s = referee_flushed(row->s[k / 16]);
        t = k == first ? referee_flushed(levels * s) : referee_fma(levels, s, t);
    }
    return t;
}

static inline float referee_step(referee_sum kind, const referee_row *row, int64_t first, int64_t last)
{
    switch (kind) {
    case REFEREE_DOT32: return referee_step_dot32(row, first, last);
    case REFEREE_BYTES32:
    case REFEREE_BYTE_RUNS:
    case REFEREE_INT32_RUNS: return referee_step_bytes32(kind, row, first, last);
    case REFEREE_LEVEL_RUNS: return referee_step_levels(row, first, last);
    default: return referee_step_fma32(row, first, last);
    }
}

static inline float referee_segment_f32(referee_sum kind, const referee_row *row, int64_t first, int64_t last)
{
    const int64_t step = row->weight_cols == 16 && row->cols > 16 ? 16 : 32;
    float c = 0.0f;
    for (int64_t k = first, next; k < last; k = next) {
        next = kind == REFEREE_ODD && step == 32 ? mox_min_i64(last, (k / 256 + 1) * 256) : k + step;
        next = mox_ceil_div(next, step) * step;
        const float t = kind == REFEREE_ODD ? referee_run_odd(row, k, next) : referee_step(kind, row, k, next);
        c = referee_flushed(c + t);
    }
    return c;
}

static inline float referee_segment_i32(const referee_row *row, int64_t first, int64_t last)
{
    int64_t c = 0;
    for (int64_t k = first; k < last; k++)
        c += (int64_t)row->a[k] * (int64_t)row->w[k];
    assert_true(c >= INT32_MIN && c <= INT32_MAX);
    return (float)c;
}

/* Stands for a number that the order of summation does not define. */
static inline float referee_unclaimed(void)
{
    const uint32_t bits = 0x7fc0beefu;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Whether `got` is the referee's number; any NaN equals any other. */
static inline bool referee_agrees(float got, float want)
{
    const float unclaimed = referee_unclaimed();
    return memcmp(&got, &want, sizeof got) == 0 || memcmp(&want, &unclaimed, sizeof want) == 0 ||
           (isnan(got) && isnan(want));
}

/* The sum of a whole row, as a kernel writes it to c. */
static inline float referee_sum_row(referee_sum kind, const referee_row *row)
{
    float sum = 0.0f;
    if (row->unclaimed)
        return referee_unclaimed();
    for (int64_t k = 0; k < row->cols;) {
        const int64_t end = referee_segment_end(row, k);
        float c = kind == REFEREE_I32 ? referee_segment_i32(row, k, end) : referee_segment_f32(kind, row, k, end);
        if (!row->has_sa && !row->has_sw)
            return row->end == 1.0f ? c : referee_flushed(c * row->end);
        if (row->has_sa)
            c = referee_flushed(c * referee_flushed(row->sa[k / row->act_cols]));
        sum = referee_fma(c, row->has_sw ? row->sw[k / row->weight_cols] : row->end, sum);
        k = end;
    }
    return sum;
}

#if defined(__x86_64__)
/* The same numbers, faster: fmaf() is an instruction here, not a call. */
__attribute__((target("fma"), flatten)) static inline float referee_sum_row_by_fma(referee_sum kind,
                                                                                   const referee_row *row)
{
    return referee_sum_row(kind, row);
}

static inline float referee_sum_row_fast(referee_sum kind, const referee_row *row)
{
    return __builtin_cpu_supports("fma") ? referee_sum_row_by_fma(kind, row) : referee_sum_row(kind, row);
}
#else
#define referee_sum_row_fast referee_sum_row
#endif

static inline float referee_global(float value, int32_t kind, float global)
{
    return kind == MOXIE_GLOBAL_DIVIDE ? value / global : value * global;
}

/* The finished number for row n of the matrix and row r of the activations. */
static inline float referee_finish(const gemm_problem *p, const moxie_matrix *m, int64_t n, int64_t r, float sum)
{
    const mox_activations *a = &p->operand;
    const float unclaimed = referee_unclaimed();
    if (memcmp(&sum, &unclaimed, sizeof sum) == 0)
        return sum;
    if (a->scales != NULL && !referee_folds(p) && a->scale_cols == 1)
        sum *= a->scales[r];
    if (a->global != NULL)
        sum = referee_global(sum, a->global_kind, a->global[r]);
    if (m->global.data != NULL)
        sum = referee_global(sum, p->asked.weight->global,
                             (float)mox_grid_value(&m->global, m->global.rows == 1 ? 0 : n, 0));
    return m->bias.data != NULL ? sum + (float)mox_grid_value(&m->bias, n, 0) : sum;
}

/* The whole product [pairs, n_out]. */
static inline float *referee_product(referee_sum kind, const gemm_problem *p, check_buffers *buffers)
{
    float *out = check_buffer(buffers, (size_t)(p->pairs * p->n_out) * sizeof *out);
    referee_row *row = malloc(sizeof *row);
    for (int s = 0; s < GEMM_SLOTS; s++) {
        const moxie_matrix *matrix[2];
        int64_t column[2];
        const int count = gemm_matrices(p, s, matrix, column);
        for (int i = 0; i < count; i++)
            for (int64_t n = 0; n < matrix[i]->codes.rows; n++) {
                referee_weights(kind, p, matrix[i], n, row);
                for (int64_t pair = p->offsets[s]; pair < p->offsets[s + 1]; pair++) {
                    const int64_t r = gemm_operand_row(p, pair);
                    referee_acts(p, r, row);
                    const float sum = referee_sum_row_fast(kind, row);
                    out[pair * p->n_out + column[i] + n] = referee_finish(p, matrix[i], n, r, sum);
                }
            }
    }
    free(row);
    return out;
}

#endif
