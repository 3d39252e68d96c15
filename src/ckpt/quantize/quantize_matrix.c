/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_matrix.c - codes, scales and zero points of one matrix, group by group:
 *
 *     smallest, largest weight -> scales to try -> codes under each -> the scale with the least error stays
 *
 *     PLAIN           one scale, by the rule of the format (group_scale.h)
 *     MSE             that and others around it: the range shrunk in steps, or powers of two beside the first; squared
 *                     errors may be weighted by an importance for each column
 *     FOUR_OVER_SIX   NVFP4: largest magnitude / 6 and / 4, with a global that leaves block scales room for the latter
 *     from codes      first a power of two that gives every weight exactly, if there is one
 *
 * Sources: compressed-tensors (integers: largest magnitude / (largest code + 1/2); MXFP4: exponents rounded at 1.75),
 * ModelOpt (NVFP4, MXFP8), "Four Over Six" (arXiv 2512.02010).
 */
#include "ckpt/quantize/quantize_matrix.h"

#include <float.h>
#include <math.h>

#include "base/sizes.h"
#include "quant/scale_rule.h"

enum { MAX_TRIES = 16, SHRINK_STEPS = 10 };
static const float shrink_step = 1.0f / 24;
/* The largest block scale under FOUR_OVER_SIX: 1.5 times that is an e4m3 number still. */
static const double four_over_six_largest = 256;

/* Rows [r0, r1), columns [c0, c1), and what is known of them. */
typedef struct group {
    int64_t r0, r1, c0, c1, at; /* at: number of the group */
    mox_weight_range range;
} group;

typedef struct
try {
    float scale, zero;
}
try;

/* ---- rows -------------------------------------------------------------------------------------------- */

const float *mox_quantize_row(const mox_quantize_matrix *m, int64_t r, int32_t *projection, int64_t *row)
{
    int64_t at = r;
    *projection = MOXIE_PROJECTION_DOWN;
    *row = r;
    if (m->kind == MOX_TENSOR_GATE || m->kind == MOX_TENSOR_UP) {
        *projection = m->kind == MOX_TENSOR_UP ? MOXIE_PROJECTION_UP : MOXIE_PROJECTION_GATE;
        at = m->kind == MOX_TENSOR_UP && !m->ungated ? m->rows + r : r;
    } else if (m->kind == MOX_TENSOR_GATE_UP) {
        const int64_t half = m->rows / 2;
        const bool up = m->interleaved ? r % 2 == 1 : r >= half;
        *projection = up ? MOXIE_PROJECTION_UP : MOXIE_PROJECTION_GATE;
        *row = m->interleaved ? r / 2 : r - (up ? half : 0);
        at = *row + (up ? half : 0);
    }
    return m->w + at * m->cols;
}

/* One floating-point scale a tensor: gate and up have the same one, since kernels have one for both. */
static bool shares_scale(const mox_quantize_matrix *m, const group *g)
{
    return g->r0 == 0 && g->r1 == m->rows && g->c0 == 0 && g->c1 == m->cols && m->rule.quant.group_rows < 0 &&
           m->rule.element->kind == MOX_KIND_FLOAT;
}

/* ---- the scale of a group ---------------------------------------------------------------------------- */

static double factor_of(const mox_quantize_matrix *m)
{
    switch (m->rule.quant.global) {
    case MOXIE_GLOBAL_MULTIPLY: return m->global;
    case MOXIE_GLOBAL_DIVIDE: return 1.0 / m->global;
    default: return 1.0;
    }
}

static mox_weight_step step_of(const mox_quantize_matrix *m, try t)
{
    return (mox_weight_step) { .element = m->rule.quant.element,
                               .scale = (float)(t.scale * factor_of(m)),
                               .zero = t.zero,
                               .low = -m->rule.largest - 1,
                               .high = m->rule.largest };
}

/* Half a code is left above the largest one, since there is a code more below. */
static float span_factor(const mox_quantize_matrix *m)
{
    const bool middle = m->rule.element->kind == MOX_KIND_INTEGER && !m->rule.quant.has_zero;
    return middle ? m->rule.largest / (m->rule.largest + 0.5f) : 1.0f;
}

static try try_of(const mox_quantize_matrix *m, const group *g, float factor)
{
    try t;
    const float by = factor * span_factor(m);
    mox_group_scale(&m->rule, g->range.low * by, g->range.high * by, m->global, &t.scale, &t.zero);
    return t;
}

static int add_try(try *tries, int count, try t)
{
    for (int i = 0; i < count; i++)
        if (tries[i].scale == t.scale && tries[i].zero == t.zero)
            return count;
    tries[count] = t;
    return count + 1;
}

/* Scales of e4m3: all below the first that the steps reach. The first is such a number, so its code is in its bits. */
static int add_codes_below(try *tries, int count)
{
    const float *value = mox_format_table(MOXIE_F8_E4M3), first = tries[0].scale;
    const float least = first * (1 - (float)SHRINK_STEPS * shrink_step);
    int32_t code = first < 0x1p-6f ? (int32_t)(first * 0x1p9f) : (int32_t)(mox_f32_encode(first) >> 20) - (120 << 3);
    while (--code > 0 && value[code] >= least)
        tries[count++] = (try) { .scale = value[code] };
    return count;
}

static int tries_of(const mox_quantize_matrix *m, const group *g, try tries[MAX_TRIES])
{
    int count = add_try(tries, 0, try_of(m, g, 1));
    if (m->how->scales == MOXIE_SCALES_FOUR_OVER_SIX)
        return add_try(tries, count, try_of(m, g, 1.5f));
    if (m->how->scales != MOXIE_SCALES_MSE)
        return count;
    if (m->rule.quant.scale == MOXIE_F8_E8M0) {
        count = add_try(tries, count, try_of(m, g, 0.5f));
        return add_try(tries, count, try_of(m, g, 2));
    }
    if (m->rule.quant.scale == MOXIE_F8_E4M3)
        count = add_codes_below(tries, count);
    for (int i = 1; i <= SHRINK_STEPS && m->rule.quant.scale != MOXIE_F8_E4M3; i++)
        count = add_try(tries, count, try_of(m, g, 1 - (float)i * shrink_step));
    return m->rule.quant.element == MOXIE_F4_E2M1 ? add_try(tries, count, try_of(m, g, 1.5f)) : count;
}

/* A power of two as the scale, with the group's largest weight in the upper half of the codes' range. */
static bool power_of_two(const mox_quantize_matrix *m, const group *g, try *out)
{
    const moxie_quant *quant = &m->rule.quant;
    const mox_format *scale = mox_format_of(quant->scale);
    const float amax = fmaxf(-g->range.low, g->range.high);
    if (!m->from_codes || quant->has_zero || quant->global || quant->scale == MOXIE_F8_E8M0 || !(amax > 0))
        return false;
    const int32_t exponent = mox_scale_exponent(MOXIE_RULE_CEIL, m->rule.largest, amax);
    *out = (try) { .scale = ldexpf(1, exponent) };
    return scale->decode(scale->encode(out->scale)) == out->scale;
}

/* ---- one group --------------------------------------------------------------------------------------- */

static mox_weight_error encode_rows(const mox_quantize_matrix *m, const group *g, try t)
{
    const mox_weight_step step = step_of(m, t);
    mox_weight_error error = { 0 };
    for (int64_t r = g->r0; r < g->r1; r++) {
        int32_t projection;
        int64_t row;
        const float *w = mox_quantize_row(m, r, &projection, &row) + g->c0;
        uint8_t *codes = m->codes + r * m->cols + g->c0;
        m->how->loops->codes(&step, w, g->c1 - g->c0, codes);
        const mox_weight_error row_error = m->how->loops->error(&step, w, codes, g->c1 - g->c0);
        error.squares += row_error.squares;
        error.worst = row_error.worst > error.worst ? row_error.worst : error.worst;
    }
    return error;
}

/* Whether another matrix, which is stored apart, will have the same scale: up of gate, gate of up. */
static bool has_partner(const mox_quantize_matrix *m, const group *g)
{
    return m->kind != MOX_TENSOR_DOWN && m->kind != MOX_TENSOR_GATE_UP && !m->ungated && shares_scale(m, g);
}

static mox_quantize_matrix partner_of(const mox_quantize_matrix *m)
{
    mox_quantize_matrix other = *m;
    other.kind = m->kind == MOX_TENSOR_UP ? MOX_TENSOR_GATE : MOX_TENSOR_UP;
    return other;
}

/* Encodes the group. Squared errors are with those of the other matrix that will have the same scale. */
static mox_weight_error encode(const mox_quantize_matrix *m, const group *g, try t)
{
    double squares = 0;
    if (has_partner(m, g)) {
        const mox_quantize_matrix other = partner_of(m);
        squares = encode_rows(&other, g, t).squares;
    }
    mox_weight_error error = encode_rows(m, g, t);
    error.squares += squares;
    return error;
}

/* Adds the error of columns [c0, c1) of a stored row to its projection's. `known`: that error, or NULL. */
static void note_error(const mox_quantize_matrix *m, const mox_weight_step *step, const group *g, int64_t r,
                       const mox_weight_error *known)
{
    int32_t projection;
    int64_t row;
    const int64_t count = g->c1 - g->c0;
    const float *w = mox_quantize_row(m, r, &projection, &row) + g->c0;
    const uint8_t *codes = m->codes + r * m->cols + g->c0;
    const mox_weight_error found = known ? *known : m->how->loops->error(step, w, codes, count);
    moxie_quantize_error *error = &m->errors[projection];
    error->squares += found.squares;
    if (!(found.worst > error->worst))
        return;
    error->worst = found.worst;
    error->worst_row = row;
    for (int64_t i = 0; i < count; i++)
        if (m->how->loops->error(step, w + i, codes + i, 1).worst == found.worst) {
            error->worst_col = g->c0 + i;
            return;
        }
}

/* ---- the best of several scales ---------------------------------------------------------------------- */

static void add_rows(const mox_quantize_matrix *m, const group *g, const mox_weight_tries *tries, double *squares)
{
    for (int64_t r = g->r0; r < g->r1; r++) {
        int32_t projection;
        int64_t row;
        const float *w = mox_quantize_row(m, r, &projection, &row) + g->c0, *p = m->importance[projection];
        m->how->loops->tries(tries, w, p ? p + g->c0 : NULL, g->c1 - g->c0, squares);
    }
}

/* Of two scales: encoding with both is less work than comparing eight. *encoded: the codes are those of the better one.
 */
static try better_of(const mox_quantize_matrix *m, const group *g, const try tries[2], mox_weight_error *error,
                     bool *encoded)
{
    const mox_weight_error first = encode(m, g, tries[0]), second = encode(m, g, tries[1]);
    *encoded = second.squares < first.squares;
    *error = *encoded ? second : first;
    return tries[*encoded];
}

/* The first of those with the least squared error, with that of the other matrix that will have the same scale. *error
 * and *encoded are set where they are known. */
static try best_of(const mox_quantize_matrix *m, const group *g, mox_weight_error *error, bool *encoded)
{
    const bool weighted = m->importance[0] || m->importance[1] || m->importance[2];
    try tries[MAX_TRIES];
    double squares[MOX_FIT_TRIES] = { 0 };
    const int count = tries_of(m, g, tries);
    int best = 0;
    if (count == 1)
        return tries[0];
    if (count == 2 && !weighted)
        return better_of(m, g, tries, error, encoded);
    mox_weight_tries all = m->tries;
    const double factor = factor_of(m);
    for (int i = 0; i < count; i++) {
        all.scale[i] = (float)(tries[i].scale * factor);
        all.zero[i] = tries[i].zero;
    }
    mox_weight_tries_set(&all, count);
    add_rows(m, g, &all, squares);
    if (has_partner(m, g)) {
        const mox_quantize_matrix other = partner_of(m);
        add_rows(&other, g, &all, squares);
    }
    for (int i = 1; i < count; i++)
        best = squares[i] < squares[best] ? i : best;
    return tries[best];
}

static void quantize_group(mox_quantize_matrix *m, const group *g)
{
    try best;
    mox_weight_error error = { .squares = -1 };
    bool encoded = power_of_two(m, g, &best) && (error = encode(m, g, best)).squares == 0;
    if (!encoded) {
        error.squares = -1;
        best = best_of(m, g, &error, &encoded);
    }
    /* Errors of one row alone are its error. */
    const bool known = error.squares >= 0 && g->r1 - g->r0 == 1 && !shares_scale(m, g);
    const mox_weight_step step = step_of(m, best);
    for (int64_t r = g->r0; r < g->r1; r++) {
        int32_t projection;
        int64_t row;
        const float *w = mox_quantize_row(m, r, &projection, &row) + g->c0;
        if (!encoded)
            m->how->loops->codes(&step, w, g->c1 - g->c0, m->codes + r * m->cols + g->c0);
        note_error(m, &step, g, r, known ? &error : NULL);
    }
    m->scale[g->at] = best.scale;
    m->zero[g->at] = best.zero;
}

/* ---- the matrix -------------------------------------------------------------------------------------- */

/* The global with which the largest code times the largest block scale reaches the largest weight. */
static float global_of(const mox_quantize_matrix *m)
{
    const moxie_quant *quant = &m->rule.quant;
    if (quant->global == MOXIE_GLOBAL_NONE)
        return 1;
    const double amax = fmax(-(double)m->range.low, (double)m->range.high);
    const double block =
        m->how->scales == MOXIE_SCALES_FOUR_OVER_SIX ? four_over_six_largest : (double)mox_format_of(quant->scale)->max;
    const double largest = (double)m->rule.element->max * block;
    if (!(amax > 0))
        return 1;
    /* A matrix of nearly nothing needs a global that f32 does not have. */
    return (float)(quant->global == MOXIE_GLOBAL_DIVIDE ? fmin(largest / amax, (double)FLT_MAX)
                                                        : fmax(amax / largest, (double)FLT_MIN));
}

static mox_weight_range range_of(const mox_quantize_matrix *m, const group *g)
{
    mox_weight_range range = { 0 };
    if (shares_scale(m, g))
        return m->range;
    for (int64_t r = g->r0; r < g->r1; r++) {
        int32_t projection;
        int64_t row;
        m->how->loops->extent(mox_quantize_row(m, r, &projection, &row) + g->c0, g->c1 - g->c0, &range.low,
                              &range.high);
    }
    return range;
}

/* Products of a code and a scale of these bits are f32 numbers, so that errors of 0 mean equal real numbers. */
static bool scales_are_short(const mox_quantize_matrix *m, int64_t groups)
{
    const moxie_dtype scale = m->rule.quant.scale;
    bool powers = m->rule.quant.global == MOXIE_GLOBAL_NONE;
    for (int64_t i = 0; i < groups && powers && scale == MOXIE_F32; i++)
        powers = (mox_f32_encode(m->scale[i]) & 0x7fffffu) == 0;
    return powers;
}

/* Notes which projections of the matrix have lost nothing. Zeros are zeros under any scale. */
static void note_exact(const mox_quantize_matrix *m, int64_t groups)
{
    const bool exact = m->exact_source && scales_are_short(m, groups);
    const bool both = m->kind == MOX_TENSOR_GATE_UP;
    int32_t first;
    int64_t row;
    mox_quantize_row(m, 0, &first, &row);
    for (int32_t i = first; i <= first + both; i++)
        m->errors[i].exact =
            m->errors[i].exact && m->errors[i].worst == 0 && (exact || m->errors[i].weight_squares == 0);
}

void mox_quantize_matrix_run(mox_quantize_matrix *m)
{
    const int64_t rows = mox_group_rows(&m->rule.quant, m->rows), cols = mox_group_cols(&m->rule.quant, m->cols);
    int64_t groups = 0;
    m->global = global_of(m);
    m->tries = mox_weight_tries_begin(m->rule.element, m->rule.largest);
    for (int64_t r = 0; r < m->rows; r += rows)
        for (int64_t c = 0; c < m->cols; c += cols) {
            group g = { .r0 = r, .r1 = mox_min_i64(r + rows, m->rows), .c0 = c, .c1 = mox_min_i64(c + cols, m->cols) };
            g.at = groups++;
            g.range = range_of(m, &g);
            quantize_group(m, &g);
        }
    note_exact(m, groups);
}

moxie_status mox_quantize_rule(const mox_quantize_how *how, int64_t cols, mox_group_rule *out, moxie_error *error)
{
    MOX_TRY(mox_group_rule_of(how->format, cols, out, error));
    /* 6 is far below the next power of two: most groups up to 7 lose less by rounding to 6 than by a coarser scale. */
    if (out->quant.scale == MOXIE_F8_E8M0 && out->quant.element == MOXIE_F4_E2M1)
        out->quant.rule = MOXIE_RULE_QUARK_EVEN;
    return MOXIE_OK;
}

void mox_quantize_matrix_narrow(mox_quantize_matrix *m)
{
    const mox_format *format = m->rule.element;
    m->global = 1;
    for (int64_t r = 0; r < m->rows; r++) {
        int32_t projection;
        int64_t row;
        const float *w = mox_quantize_row(m, r, &projection, &row);
        moxie_quantize_error *error = &m->errors[projection];
        for (int64_t c = 0; c < m->cols; c++) {
            const float difference = fabsf(format->decode(format->encode(w[c])) - w[c]);
            error->squares += (double)difference * (double)difference;
            if (difference > error->worst) {
                error->worst = difference;
                error->worst_row = row;
                error->worst_col = c;
            }
        }
        error->exact = error->exact && error->worst == 0 && m->exact_source;
    }
}

/* ---- the same quantization --------------------------------------------------------------------------- */

static bool keeps(moxie_dtype dtype, float value)
{
    const mox_format *format = mox_format_of(dtype);
    return format->decode(format->encode(value)) == value;
}

/* The group of stored row r and column group c of the source of its projection. */
static bool repack_group(mox_quantize_matrix *m, const moxie_matrix *source, int64_t row, int64_t c, int64_t at)
{
    const moxie_quant *quant = &m->rule.quant;
    const int64_t group_row = row / mox_group_rows(quant, source->codes.rows);
    const float scale = (float)mox_grid_value(&source->scale, group_row, c);
    const float zero =
        quant->has_zero ? (float)(mox_grid_value(&source->zero, group_row, c) + (double)source->zero_add) : 0;
    if (!keeps(quant->scale, scale) || zero < m->rule.lowest_zero || zero > m->rule.largest ||
        (m->rule.symmetric && zero != 0))
        return false;
    m->scale[at] = scale;
    m->zero[at] = zero;
    return true;
}

/* Whether both have the same numbers, if under other codes. */
static bool same_numbers(const mox_format *a, const mox_format *b)
{
    return a == b || (a->kind == MOX_KIND_INTEGER && b->kind == MOX_KIND_INTEGER && a->max == b->max);
}

/* Whether both divide a matrix of these rows and columns into the same groups, each inside one projection. */
static bool same_groups(const mox_quantize_matrix *m, const moxie_quant *quant)
{
    const moxie_quant *to = &m->rule.quant;
    const int64_t rows = m->kind == MOX_TENSOR_GATE_UP ? m->rows / 2 : m->rows;
    const int64_t together = mox_group_rows(to, m->rows);
    return same_numbers(mox_format_of(quant->element), m->rule.element) && quant->has_zero == to->has_zero &&
           !quant->global && !to->global && mox_group_cols(quant, m->cols) == mox_group_cols(to, m->cols) &&
           together == mox_group_rows(quant, rows) &&
           (together == 1 || m->kind != MOX_TENSOR_GATE_UP || (!m->interleaved && rows % together == 0)) &&
           m->rule.largest == m->rule.element->max;
}

static uint8_t recode(const mox_quantize_matrix *m, const moxie_matrix *source, int64_t row, int64_t c)
{
    const uint32_t code = mox_grid_code(&source->codes, row, c);
    const moxie_dtype dtype = source->codes.dtype;
    return (uint8_t)(dtype == m->rule.element->dtype ? code
                                                     : m->rule.element->encode(mox_format_of(dtype)->decode(code)));
}

static bool repack_rows(mox_quantize_matrix *m, const moxie_matrix *source, const group *g, int64_t row)
{
    const int64_t scale_cols = mox_scale_cols(&m->rule.quant, m->cols);
    for (int64_t c = 0; c < scale_cols; c++)
        if (!repack_group(m, source, row, c, g->at + c))
            return false;
    for (int64_t r = g->r0; r < g->r1; r++)
        for (int64_t c = 0; c < m->cols; c++)
            m->codes[r * m->cols + c] = recode(m, source, row + r - g->r0, c);
    return true;
}

bool mox_quantize_matrix_repack(mox_quantize_matrix *m, const moxie_matrix *const sources[3], const moxie_quant *quant)
{
    const int64_t rows = mox_group_rows(&m->rule.quant, m->rows), cols = mox_scale_cols(&m->rule.quant, m->cols);
    if (mox_quant_is_plain(quant) || mox_quant_is_block(quant) || !same_groups(m, quant))
        return false;
    m->global = 1;
    for (int64_t r = 0; r < m->rows; r += rows) {
        const group g = { .r0 = r, .r1 = mox_min_i64(r + rows, m->rows), .at = r / rows * cols };
        int32_t projection;
        int64_t row;
        mox_quantize_row(m, r, &projection, &row);
        if (sources[projection]->group_index || !repack_rows(m, sources[projection], &g, row))
            return false;
    }
    return true;
}
