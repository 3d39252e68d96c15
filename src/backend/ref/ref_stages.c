/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_stages.c - the stages row_norm, dense, topk, quant_act, glu and combine in double precision (ref_stages.h). Sums
 * and functions are in double; each result is rounded once. The products are in ref_product.c.
 */
#include "backend/ref/ref_stages.h"

#include "base/sizes.h"
#include "cpu/combine/combine.h"
#include "ref/ref.h"
#include "route/route_rules.h"

/* ---- row_norm ------------------------------------------------------------------------------------ */

static void norm_row(void *context, int64_t row, int32_t worker)
{
    const mox_row_norm_args *args = context;
    const mox_ref_norm norm = { args->weight, args->weight_first != 0, args->eps, args->factor };
    (void)worker;
    float *out = args->out + row * args->cols;
    double relative;
    mox_widen(args->x_dtype, (const char *)args->x + row * args->cols * mox_dtype_bytes(args->x_dtype), out,
              args->cols);
    const double scale = mox_ref_row_norm_scale(&norm, out, args->cols, &relative);
    for (int64_t k = 0; k < args->cols; k++)
        out[k] = (float)mox_ref_row_norm_element(&norm, out, k, scale);
}

void mox_ref_run_row_norm(const mox_row_norm_args *args, const moxie_executor *executor)
{
    mox_row_norm_args context = *args;
    mox_parallel(executor, args->rows != NULL ? *args->rows : args->max_rows, norm_row, &context);
}

/* ---- dense --------------------------------------------------------------------------------------- */

static void dense_token(void *context, int64_t t, int32_t worker)
{
    const mox_dense_args *args = context;
    (void)worker;
    const int64_t bytes = mox_dtype_bytes(args->x_dtype);
    const char *x = (const char *)args->x + t * args->cols * bytes;
    for (int64_t n = 0; n < args->rows; n++) {
        double sum = args->bias != NULL ? args->bias[n] : 0;
        for (int64_t k = 0; k < args->cols; k++)
            sum += (double)args->weight[n * args->cols + k] * mox_load(args->x_dtype, x + k * bytes);
        args->out[t * args->rows + n] = (float)(args->logistic ? 1 / (1 + exp(-sum)) : sum);
    }
}

void mox_ref_run_dense(const mox_dense_args *args, const moxie_executor *executor)
{
    mox_dense_args context = *args;
    mox_parallel(executor, args->tokens, dense_token, &context);
}

/* ---- topk ---------------------------------------------------------------------------------------- */

static double *widen_logits(const mox_topk_args *args, int64_t token, double *logits)
{
    const int64_t bytes = mox_dtype_bytes(args->logits_dtype);
    for (int64_t e = 0; e < args->experts; e++)
        logits[e] = mox_load(args->logits_dtype, (const char *)args->logits + (token * args->experts + e) * bytes);
    return logits;
}

/* Computes a token's weights again in double, for the ids that fp32 keys chose. */
static void weigh_token(void *context, int64_t token, int32_t worker)
{
    const mox_topk_args *args = context;
    (void)worker;
    double logits[MOXIE_MAX_EXPERTS], weights[MOXIE_MAX_TOP_K];
    const bool alt = args->bias_choice != NULL && args->bias_choice[token] != 0;
    const moxie_routing routing = alt ? mox_route_with_bias_alt(&args->routing) : args->routing;
    if (args->padding != NULL && args->padding[token] != 0)
        return;
    mox_ref_route_weights(&routing, args->experts, args->top_k, widen_logits(args, token, logits),
                          args->ids + token * args->top_k, weights);
    for (int64_t j = 0; j < args->top_k; j++) {
        const float weight = (float)weights[j];
        args->weights[token * args->top_k + j] =
            args->routing.round_weights_bf16 ? mox_round_to(MOXIE_BF16, weight) : weight;
    }
}

moxie_status mox_ref_run_topk(const mox_topk_args *args, const moxie_executor *executor, moxie_error *error)
{
    const int32_t select = args->routing.select;
    MOX_TRY(mox_topk_at(0)->run(args, executor, error));
    mox_topk_args context = *args;
    if (select == MOXIE_SELECT_TOPK || select == MOXIE_SELECT_TABLE || select == MOXIE_SELECT_SPARSEMIXER)
        mox_parallel(executor, args->tokens, weigh_token, &context);
    return MOXIE_OK;
}

/* ---- quant_act ----------------------------------------------------------------------------------- */

typedef struct quant_job {
    const mox_quant_act_args *args;
    float amax;
} quant_job;

static void quantize_groups(const quant_job *job, int64_t row, const float *x, uint8_t *codes)
{
    const mox_quant_act_args *args = job->args;
    const mox_activations *out = &args->out;
    const mox_format *element = mox_format_of(args->quant.element);
    const float static_scale = args->row_scale != NULL ? args->row_scale[row] : args->static_scale;
    for (int64_t g = 0; g < out->scale_cols; g++) {
        const int64_t k0 = g * out->group_cols, count = mox_min_i64(out->group_cols, args->cols - k0);
        double scale;
        mox_ref_act_quant_row(&args->quant, static_scale, job->amax, x + k0, count, codes, &scale);
        for (int64_t k = 0; k < count; k++)
            out->values[row * out->stride + k0 + k] = element->decode(codes[k]);
        out->scales[row * out->scale_cols + g] = (float)scale;
    }
    if (out->global != NULL)
        out->global[row] = static_scale;
}

static void quantize_row(void *context, int64_t row, int32_t worker)
{
    const quant_job *job = context;
    const mox_quant_act_args *args = job->args;
    const mox_activations *out = &args->out;
    float *x = args->row_scratch + worker * args->cols, *values = out->values + row * out->stride;
    mox_quant_act_load(args, row, x);
    for (int64_t k = 0; k < out->stride; k++)
        values[k] = k < args->cols ? mox_round_to(args->round_to, x[k]) : 0;
    if (out->scale_cols > 0)
        quantize_groups(job, row, x, args->codes + worker * args->cols);
}

void mox_ref_run_quant_act(const mox_quant_act_args *args, const moxie_executor *executor)
{
    quant_job job = { args, mox_quant_act_amax(args) };
    mox_parallel(executor, mox_quant_act_rows(args), quantize_row, &job);
}

/* ---- glu ----------------------------------------------------------------------------------------- */

static void activate_slot(void *context, int64_t slot, int32_t worker)
{
    const mox_glu_args *args = context;
    (void)worker;
    const int64_t cols = args->intermediate, width = mox_activation_is_gated(args->activation.kind) ? 2 * cols : cols;
    const mox_ref_act act =
        mox_ref_act_resolve(&args->activation, args->expert_of != NULL ? args->expert_of[slot] : -1);
    for (int64_t p = args->offsets[slot]; p < args->offsets[slot + 1]; p++)
        for (int64_t i = 0; i < cols; i++) {
            const float *h = args->h + p * width;
            const double gate = args->interleaved ? h[2 * i] : h[i];
            const double up = width == cols ? 0 : args->interleaved ? h[2 * i + 1] : h[cols + i];
            double sensitivity;
            args->out[p * cols + i] = (float)mox_ref_activate(&act, gate, up, &sensitivity);
        }
}

void mox_ref_run_glu(const mox_glu_args *args, const moxie_executor *executor)
{
    mox_glu_args context = *args;
    mox_parallel(executor, args->slots, activate_slot, &context);
}

/* ---- combine ------------------------------------------------------------------------------------- */

/* The row of y for a choice, -1 for none. */
static int64_t row_of(const mox_combine_args *args, int64_t choice)
{
    if (args->position != NULL)
        return args->position[choice];
    return args->ids[choice] >= 0 && args->ids[choice] < args->experts ? choice : -1;
}

static void combine_token(void *context, int64_t t, int32_t worker)
{
    const mox_combine_args *args = context;
    (void)worker;
    const int64_t bytes = mox_dtype_bytes(args->out_dtype);
    for (int64_t n = 0; n < args->hidden; n++) {
        double sum = 0;
        for (int64_t i = t * args->top_k; i < (t + 1) * args->top_k; i++)
            if (row_of(args, i) >= 0)
                sum += (args->weights != NULL ? (double)args->weights[i] : 1) *
                       mox_combine_y(args, row_of(args, i) * args->hidden + n);
            else if (mox_combine_is_identity(args, i))
                sum += (double)args->identity_weights[i] *
                       mox_load(args->out_dtype, (const char *)args->identity + (t * args->hidden + n) * bytes);
        if (args->shared != NULL)
            sum += (double)mox_combine_shared_weight(args, t) * args->shared[t * args->hidden + n];
        const float value = (float)sum;
        mox_narrow(args->out_dtype, &value, (char *)args->out + (t * args->hidden + n) * bytes, 1);
    }
}

void mox_ref_run_combine(const mox_combine_args *args, const moxie_executor *executor)
{
    mox_combine_args context = *args;
    mox_parallel(executor, args->tokens, combine_token, &context);
}
