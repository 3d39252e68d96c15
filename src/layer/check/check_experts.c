/* SPDX-License-Identifier: Apache-2.0
 *
 * check_experts.c - checks of the stages inside the experts (check_experts.h).
 *
 *     quantization   codes and scales must be equal
 *     product        within the bound of an fp32 dot product, plus what the kernel's class allows
 *     activation     within the function's sensitivity to its inputs
 *
 * Decoding weights from the checkpoint's views dominates the time of a check. So each row of weights is decoded once,
 * for all pairs of its expert.
 */
#include "layer/check/check_experts.h"

#include "base/sizes.h"
#include "format/block_parts.h"
#include "layer/check/check_lora.h"
#include "ref/ref.h"
#include "ref/ref_bounds.h"

#define PANEL 64

_Static_assert(MOX_SEGMENT <= MOX_SUM_SEGMENT, "the bounds assume segments of at most this length");

/* Token of pair p within the pass. It comes from the permutation, not from the run's token_of, so that a run that reads
 * the wrong rows fails the check. */
static int64_t token_of(const mox_check_context *c, int64_t p)
{
    const bool shared = c->pass->expert_of == NULL;
    return shared ? p : c->run->permutation.pair_at[p] / c->checker->plan->config.top_k;
}

/* Whether W13's activations have a row a token; else they have a row a pair. */
static bool is_by_token(const mox_check_context *c)
{
    return c->pass->expert_of == NULL || c->pass->act_row != NULL;
}

/* The place of an element in pair p of slot s. */
static mox_place place_of(const mox_check_context *c, int64_t s, int64_t p, int64_t column)
{
    const bool shared = c->pass->expert_of == NULL;
    return (mox_place) { .token = c->run->first + token_of(c, p),
                         .slot = shared ? -1 : c->run->permutation.pair_at[p] % c->checker->plan->config.top_k,
                         .expert = shared ? -1 : c->pass->expert_of[s],
                         .column = column };
}

static const moxie_expert *expert_of(const mox_check_context *c, int64_t s)
{
    const moxie_weights *weights = c->checker->weights;
    return c->pass->expert_of != NULL ? &weights->experts[c->pass->expert_of[s]] : weights->shared;
}

/* ---- quantization -------------------------------------------------------------------------------- */

/* The slot whose static scale row r has. A row a token belongs to several slots; their scales are equal then. */
static int64_t slot_of_row(const mox_check_context *c, int64_t r)
{
    int64_t s = 0;
    if (c->projection == MOX_W13 && is_by_token(c))
        return 0;
    while (s + 1 < c->pass->slots && r >= c->pass->offsets[s + 1])
        s++;
    return s;
}

/* Reads row r of the input of a quantization into x; returns its place. Row r of W13's input is a token or a pair. */
static mox_place read_input(const mox_check_context *c, int64_t r, float *x)
{
    const mox_expert_pass *pass = c->pass;
    const moxie_dtype dtype = c->checker->plan->config.dtype;
    const int64_t cols = pass->experts->shape.hidden, bytes = mox_dtype_bytes(dtype);
    if (c->projection == MOX_W2) {
        memcpy(x, pass->act + r * pass->experts->shape.intermediate,
               (size_t)pass->experts->shape.intermediate * sizeof *x);
        return place_of(c, slot_of_row(c, r), r, -1);
    }
    const int64_t t = c->run->first + (is_by_token(c) ? r : token_of(c, r));
    mox_widen(dtype, (const char *)c->run->args.hidden + t * cols * bytes, x, cols);
    if (pass->expert_of != NULL && c->checker->plan->config.routing.on_input) {
        const float weight =
            c->run->weights[c->run->first * c->checker->plan->config.top_k + c->run->permutation.pair_at[r]];
        for (int64_t k = 0; k < cols; k++)
            x[k] = mox_round_to(dtype, x[k] * weight);
    }
    return (mox_place) { t, -1, -1, -1 };
}

static int64_t input_cols(const mox_check_context *c)
{
    return c->projection == MOX_W2 ? c->pass->experts->shape.intermediate : c->pass->experts->shape.hidden;
}

/* The static scale of row r: the checkpoint's, or for an expert without one what the layer resolved. */
static float static_scale_of(const mox_check_context *c, int64_t r)
{
    const int64_t s = slot_of_row(c, r);
    const moxie_layer *layer = c->checker->plan->layer;
    const mox_static_scale *scale = &layer->static_scale[c->projection];
    const float own = c->projection == MOX_W2 ? expert_of(c, s)->a2_scale : expert_of(c, s)->a13_scale;
    return own != 0 || c->pass->expert_of == NULL || !scale->needed ? own : scale->resolved[s];
}

static void compare_quantized(const mox_check_context *c, int64_t r, const mox_activations *a, mox_check_worker *own,
                              mox_place place)
{
    const mox_format *element = mox_format_of(c->quant->element);
    const float static_scale = static_scale_of(c, r);
    mox_ref_act_quant_row(c->quant, static_scale, c->amax, own->x, a->cols, own->codes, own->scales);
    for (int64_t k = 0; k < a->cols; k++) {
        place.column = k;
        mox_check_equal(&own->tally, a->values[r * a->stride + k], element->decode(own->codes[k]), place);
    }
    for (int64_t g = 0; g < a->scale_cols; g++) {
        place.column = g * a->group_cols;
        mox_check_equal(&own->tally, a->scales[r * a->scale_cols + g], own->scales[g], place);
    }
    if (c->quant->global != MOXIE_GLOBAL_NONE)
        mox_check_equal(&own->tally, a->global != NULL ? a->global[r] : 0, static_scale, place);
}

static void quant_row(void *user, int64_t r, int32_t worker)
{
    const mox_check_context *c = user;
    const mox_activations *a = &c->pass->traced[c->projection];
    mox_check_worker *own = mox_check_worker_of(c, worker);
    mox_place place = read_input(c, r, own->x);
    if (!mox_quant_is_none(c->quant)) {
        compare_quantized(c, r, a, own, place);
        return;
    }
    for (place.column = 0; place.column < a->cols; place.column++) {
        const double want = mox_round_to(c->checker->plan->config.dtype, own->x[place.column]);
        mox_check_equal(&own->tally, a->values[r * a->stride + place.column], want, place);
    }
}

static float amax_of(const mox_check_context *c, int64_t rows)
{
    float *x = c->checker->workers[0].x;
    float amax = 0;
    for (int64_t r = 0; r < rows; r++) {
        read_input(c, r, x);
        amax = fmaxf(amax, mox_amax(x, input_cols(c)));
    }
    return amax;
}

void mox_check_quant(mox_check_context *c, mox_check_stage stage)
{
    const int64_t rows = c->projection == MOX_W2 ? c->pass->pairs : c->pass->rows13;
    c->quant = &c->pass->experts->act[c->projection];
    if (mox_act_quant_needs_amax(c->quant))
        c->amax = amax_of(c, rows);
    mox_check_run(c, stage, rows, quant_row);
}

/* ---- products ------------------------------------------------------------------------------------ */

/* The matrix that row n of the product belongs to, and n within it. */
static const moxie_matrix *matrix_of_row(const mox_check_context *c, const moxie_expert *expert, int64_t *n)
{
    const mox_record_shape *shape = &c->pass->experts->shape;
    if (c->projection == MOX_W2)
        return &expert->down;
    if (shape->gated && *n < shape->intermediate)
        return &expert->gate;
    *n -= shape->gated ? shape->intermediate : 0;
    return &expert->up;
}

/* The factor that all activations of row r share. */
static double act_global(const mox_activations *a, int64_t r)
{
    const double global = a->global != NULL ? a->global[r] : 1;
    return a->global_kind == MOXIE_GLOBAL_DIVIDE ? 1 / global : global;
}

/* Dot product of a row of weights and a row of activations in double; *magnitude: the sum of its terms' magnitudes. */
static double product(const mox_activations *a, int64_t r, const double *w, double *magnitude)
{
    const float *values = a->values + r * a->stride;
    double sum = 0, total = 0;
    for (int64_t k0 = 0, g = 0; k0 < a->cols; k0 += a->group_cols, g++) {
        const double scale = a->scales != NULL ? a->scales[r * a->scale_cols + g] : 1;
        double part = 0, part_magnitude = 0;
        for (int64_t k = k0; k < mox_min_i64(k0 + a->group_cols, a->cols); k++) {
            part += w[k] * values[k];
            part_magnitude += fabs(w[k] * values[k]);
        }
        sum += part * scale;
        total += part_magnitude * fabs(scale);
    }
    const double global = act_global(a, r);
    *magnitude = total * fabs(global);
    return sum * global;
}

/* For the bound of FP8 tensor cores (mox_bound_mma). Each instruction aligns its terms to the one of the largest
 * magnitude; this is the sum of these magnitudes over all instructions. */
static double aligned_sum(const mox_activations *a, int64_t r, const double *w)
{
    const float *values = a->values + r * a->stride;
    double total = 0, sum = 0;
    for (int64_t k0 = 0; k0 < a->cols; k0 += 32) {
        sum = k0 % 128 == 0 ? 0 : sum;
        double largest = fabs(sum);
        for (int64_t k = k0; k < mox_min_i64(k0 + 32, a->cols); k++) {
            const double term =
                w[k] * values[k] * (a->scales != NULL ? a->scales[r * a->scale_cols + k / a->group_cols] : 1);
            sum += term;
            largest = fmax(largest, fabs(term));
        }
        total += largest;
    }
    return total * fabs(act_global(a, r));
}

/* The error bound of a kernel that rounds activations to 8 bits, with one scale for each `block` columns; 0 when
 * `block` is 0. */
static double bytes_bound(int64_t block, const mox_activations *a, int64_t r, const double *w)
{
    double sum = 0;
    for (int64_t first = 0; block > 0 && first < a->cols; first += block) {
        double largest = 0, weights = 0;
        for (int64_t k = first; k < mox_min_i64(first + block, a->cols); k++) {
            const float scale = a->scales != NULL ? a->scales[r * a->scale_cols + k / a->group_cols] : 1;
            largest = fmax(largest, fabs((double)a->values[r * a->stride + k] * scale));
            weights += fabs(w[k]);
        }
        sum += isfinite(largest) ? largest * weights : 0;
    }
    return mox_bound_bytes(sum * fabs(act_global(a, r)));
}

/* For the bounds of kernels that sum the minimums of block types apart from the rest: sum |x||minimum|. */
static double minimums_of(const mox_activations *a, int64_t r, const double *minimum)
{
    double minimums;
    product(a, r, minimum, &minimums);
    return minimums;
}

/* The relative error that the kernel may make when it rounds a weight. */
static double weight_rounding(const mox_kernel *kernel, const moxie_quant *weight)
{
    if (kernel->exactness == MOX_W16)
        return weight->scale == MOXIE_F16 ? 0x1p-11 : 0x1p-8;
    return 0;
}

/* The error bound of a kernel that flushes subnormal numbers to zero. */
static double flush_bound(const moxie_quant *weight, const moxie_matrix *matrix, const mox_activations *a, int64_t r,
                          int64_t n, double weights)
{
    double acts = 0, global = 1;
    for (int64_t k = 0; k < a->cols; k++) {
        const float scale = a->scales != NULL ? a->scales[r * a->scale_cols + k / a->group_cols] : 1;
        acts += fabs((double)a->values[r * a->stride + k] * scale);
    }
    if (weight->global != MOXIE_GLOBAL_NONE)
        global = mox_grid_value(&matrix->global, matrix->global.rows == 1 ? 0 : n, 0);
    global = weight->global == MOXIE_GLOBAL_DIVIDE ? 1 / global : global;
    return mox_bound_flush(a->cols, weights, acts * fabs(act_global(a, r)), global * act_global(a, r));
}

static double sum_of_magnitudes(const double *w, int64_t count)
{
    double sum = 0;
    for (int64_t k = 0; k < count; k++)
        sum += fabs(w[k]);
    return sum;
}

static void gemm_row(const mox_check_context *c, int64_t s, int64_t n, mox_check_worker *own)
{
    const mox_expert_pass *pass = c->pass;
    const mox_activations *a = &pass->traced[c->projection];
    const float *out = c->projection == MOX_W2 ? pass->y : pass->h;
    const int64_t n_out = c->projection == MOX_W2 ? pass->experts->shape.hidden : pass->experts->n13;
    int64_t row = n;
    const moxie_matrix *matrix = matrix_of_row(c, expert_of(c, s), &row);
    const double bias = matrix->bias.data != NULL ? mox_grid_value(&matrix->bias, row, 0) : 0;
    const mox_kernel *kernel = pass->experts->kernels.product[c->projection];
    const mox_sum_traits *sum = mox_sum_traits_of(c->checker->plan->backend->sum(kernel));
    const double rounding = weight_rounding(kernel, c->quant);
    const int64_t weight_group = mox_group_cols(c->quant, a->cols);
    const int64_t byte_cols = sum->bytes ? mox_panel_step_cols(c->quant, a->cols) : 0;
    const int64_t depth = mox_dot_depth(a->cols, weight_group, a->scales != NULL ? a->group_cols : a->cols);
    mox_ref_weight_row(matrix, c->quant, row, own->w);
    const bool apart = sum->bytes || (sum->mma_bits > 0 && mox_block_has_minimums(c->quant->element));
    if (apart)
        mox_ref_minimum_row(matrix, row, own->minimum);
    const double weights = sum_of_magnitudes(own->w, a->cols);
    for (int64_t p = pass->offsets[s]; p < pass->offsets[s + 1]; p++) {
        double magnitude;
        const int64_t r = c->projection == MOX_W13 && is_by_token(c) ? token_of(c, p) : p;
        double want = product(a, r, own->w, &magnitude) + bias;
        double bound = mox_bound_dot(a->cols, depth, magnitude + fabs(bias));
        const double minimums = apart ? minimums_of(a, r, own->minimum) : 0;
        if (sum->mma_bits > 0)
            bound = mox_bound_mma(a->cols, sum->mma_bits, mox_magnitude_apart(magnitude, minimums) + fabs(bias),
                                  sum->mma_bits < 23 ? aligned_sum(a, r, own->w) : 0);
        bound += rounding * magnitude + bytes_bound(byte_cols, a, r, own->w);
        if (sum->bytes && minimums > 0)
            bound += mox_bound_minimums(magnitude, minimums);
        if (sum->flushes)
            bound += flush_bound(c->quant, matrix, a, r, row, weights);
        if (c->lora != NULL) {
            double change_bound;
            want += mox_check_lora_element(c->lora, s, p, n, magnitude + fabs(bias) + bound, &change_bound);
            bound += change_bound;
        }
        mox_check_element(&own->tally, out[p * n_out + n], want, bound, mox_check_largest(MOXIE_F32),
                          place_of(c, s, p, n));
    }
}

static void gemm_panel(void *user, int64_t task, int32_t worker)
{
    const mox_check_context *c = user;
    const int64_t n_out = c->projection == MOX_W2 ? c->pass->experts->shape.hidden : c->pass->experts->n13;
    const int64_t panels = mox_ceil_div(n_out, PANEL), s = task / panels, n0 = task % panels * PANEL;
    if (c->pass->offsets[s] == c->pass->offsets[s + 1])
        return;
    for (int64_t n = n0; n < mox_min_i64(n0 + PANEL, n_out); n++)
        gemm_row(c, s, n, mox_check_worker_of(c, worker));
}

moxie_status mox_check_gemm(mox_check_context *c, mox_check_stage stage, moxie_error *error)
{
    mox_check_lora lora;
    const mox_record_shape *shape = &c->pass->experts->shape;
    const int64_t n_out = c->projection == MOX_W2 ? shape->hidden : c->pass->experts->n13;
    c->quant = c->projection == MOX_W2 ? &shape->w2 : &shape->w13;
    const moxie_status status = mox_check_lora_begin(c, &lora, error);
    if (status == MOXIE_OK)
        mox_check_run(c, stage, c->pass->slots * mox_ceil_div(n_out, PANEL), gemm_panel);
    mox_check_lora_end(c, &lora);
    return status;
}

/* ---- activation ---------------------------------------------------------------------------------- */

static void glu_slot(void *user, int64_t s, int32_t worker)
{
    const mox_check_context *c = user;
    const mox_expert_pass *pass = c->pass;
    const int64_t cols = pass->experts->shape.intermediate, width = pass->experts->n13;
    moxie_stage_report *tally = &mox_check_worker_of(c, worker)->tally;
    const mox_ref_act act =
        mox_ref_act_resolve(&pass->experts->activation, pass->expert_of != NULL ? pass->expert_of[s] : -1);
    for (int64_t p = pass->offsets[s]; p < pass->offsets[s + 1]; p++)
        for (int64_t i = 0; i < cols; i++) {
            const float *h = pass->h + p * width;
            double sensitivity;
            const double want = mox_ref_activate(&act, h[i], width > cols ? h[cols + i] : 0, &sensitivity);
            const double bound = mox_bound_act(sensitivity) + mox_bound_round(MOXIE_F32, want);
            mox_check_element(tally, pass->act[p * cols + i], want, bound, mox_check_largest(MOXIE_F32),
                              place_of(c, s, p, i));
        }
}

void mox_check_glu(mox_check_context *c, mox_check_stage stage)
{
    mox_check_run(c, stage, c->pass->slots, glu_slot);
}
