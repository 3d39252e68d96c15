/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_rows.c - the reference backend's small stages: dense, topk, permute, quant_act, glu, combine. Sums and
 * functions are in double; results are rounded once to what the stage hands on. The products are
 * ref_row_gemm.c.
 */
#include "backend/ref/ref_rows.h"

#include "base/sizes.h"
#include "layer/config/config.h"
#include "ref/ref.h"

#define REF_KERNEL(family_)                                                                                            \
    {                                                                                                                  \
        .family = family_, .name = "ref", .isa = MOX_ISA_SCALAR, .exactness = MOX_EXACT, .layout = ""                  \
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

static void dense_run(const mox_dense_args *args, const moxie_executor *executor)
{
    mox_dense_args context = *args;
    mox_parallel(executor, args->tokens, dense_token, &context);
}

const mox_dense_row mox_ref_row_dense = { .base = REF_KERNEL("dense"), .run = dense_run };

/* ---- topk ---------------------------------------------------------------------------------------- */

static double *widen_logits(const mox_topk_args *args, int64_t token, double *logits)
{
    const int64_t bytes = mox_dtype_bytes(args->logits_dtype);
    for (int64_t e = 0; e < args->experts; e++)
        logits[e] = mox_load(args->logits_dtype, (const char *)args->logits + (token * args->experts + e) * bytes);
    return logits;
}

/* Weights again in double, for the ids that the fp32 keys chose: ids are defined by fp32. */
static void weigh_token(void *context, int64_t token, int32_t worker)
{
    const mox_topk_args *args = context;
    (void)worker;
    double logits[MOXIE_MAX_EXPERTS], weights[MOXIE_MAX_TOP_K];
    mox_ref_route_weights(args->routing, args->experts, args->top_k, widen_logits(args, token, logits),
                          args->ids + token * args->top_k, weights);
    for (int64_t j = 0; j < args->top_k; j++) {
        const float weight = (float)weights[j];
        args->weights[token * args->top_k + j] =
            args->routing->round_weights_bf16 ? mox_round_to(MOXIE_BF16, weight) : weight;
    }
}

static moxie_status topk_run(const mox_topk_args *args, const moxie_executor *executor, moxie_error *error)
{
    const int32_t select = args->routing->select;
    MOX_TRY(mox_topk_at(0)->run(args, executor, error));
    mox_topk_args context = *args;
    if (select == MOXIE_SELECT_TOPK || select == MOXIE_SELECT_TABLE || select == MOXIE_SELECT_SPARSEMIXER)
        mox_parallel(executor, args->tokens, weigh_token, &context);
    return MOXIE_OK;
}

static bool topk_admit(const moxie_routing *routing, int64_t experts, int64_t top_k, mox_refusal *why)
{
    (void)routing, (void)experts, (void)top_k, (void)why;
    return true;
}

const mox_topk_row mox_ref_row_topk = { .base = REF_KERNEL("topk"), .run = topk_run, .admit = topk_admit };

/* ---- permute ------------------------------------------------------------------------------------- */

static void permute_run(const mox_permute_args *args, const moxie_executor *executor)
{
    (void)executor;
    mox_permutation out = args->out;
    mox_permute(args->ids, args->tokens, args->top_k, args->experts, args->slot_of, args->slots, &out);
}

const mox_permute_row mox_ref_row_permute = { .base = REF_KERNEL("permute"), .run = permute_run };

/* ---- quant_act ----------------------------------------------------------------------------------- */

static void quantize_groups(const mox_quant_act_args *args, int64_t row, const float *x, uint8_t *codes)
{
    const mox_operand *out = args->out;
    const mox_format *element = mox_format_of(args->quant->element);
    const float given = args->row_given != NULL ? args->row_given[row] : 0;
    for (int64_t g = 0; g < out->scale_cols; g++) {
        const int64_t k0 = g * out->group_cols, count = mox_min_i64(out->group_cols, args->cols - k0);
        double scale;
        mox_ref_act_quant_row(args->quant, given, args->amax, x + k0, count, codes, &scale);
        for (int64_t k = 0; k < count; k++)
            out->values[row * out->stride + k0 + k] = element->decode(codes[k]);
        out->scales[row * out->scale_cols + g] = (float)scale;
    }
    if (out->global != NULL)
        out->global[row] = given;
}

static void quantize_row(void *context, int64_t row, int32_t worker)
{
    const mox_quant_act_args *args = context;
    mox_operand *out = args->out;
    const int64_t from = args->source != NULL ? args->source[row] : row, bytes = mox_dtype_bytes(args->x_dtype);
    float *x = args->row_scratch + worker * args->cols, *values = out->values + row * out->stride;
    for (int64_t k = 0; k < args->cols; k++) {
        x[k] = mox_load(args->x_dtype, (const char *)args->x + (from * args->cols + k) * bytes);
        if (args->row_weight != NULL)
            x[k] = mox_round_to(args->x_dtype, x[k] * args->row_weight[row]);
        values[k] = mox_round_to(args->round_to, x[k]);
    }
    for (int64_t k = args->cols; k < out->stride; k++)
        values[k] = 0;
    if (out->scales != NULL)
        quantize_groups(args, row, x, args->codes + worker * args->cols);
}

/* Describes the operand; the caller's buffers stay, those without a use become NULL. */
static mox_operand describe(const mox_quant_act_args *args)
{
    const mox_operand *given = args->out;
    mox_operand o = { .rows = args->rows,
                      .cols = args->cols,
                      .stride = mox_ceil_div(args->cols, MOX_OPERAND_PAD) * MOX_OPERAND_PAD,
                      .values = given->values,
                      .group_cols = args->cols };
    if (mox_quant_is_none(args->quant))
        return o;
    o.scales = given->scales;
    o.group_cols = mox_act_group_cols(args->quant, args->cols);
    o.scale_cols = mox_ceil_div(args->cols, o.group_cols);
    o.global_kind = args->quant->global;
    o.global = o.global_kind != MOXIE_GLOBAL_NONE ? given->global : NULL;
    o.integer = mox_format_of(args->quant->element)->kind == MOX_KIND_INTEGER;
    return o;
}

static void quant_act_run(const mox_quant_act_args *args, const moxie_executor *executor)
{
    mox_quant_act_args context = *args;
    *args->out = describe(args);
    mox_parallel(executor, args->rows, quantize_row, &context);
}

static bool quant_act_admit(const moxie_quant *quant, mox_refusal *why)
{
    (void)quant, (void)why;
    return true;
}

const mox_quant_act_row mox_ref_row_quant_act = { .base = REF_KERNEL("quant_act"),
                                                  .run = quant_act_run,
                                                  .admit = quant_act_admit };

/* ---- glu ----------------------------------------------------------------------------------------- */

static void activate_slot(void *context, int64_t slot, int32_t worker)
{
    const mox_glu_args *args = context;
    (void)worker;
    const int64_t cols = args->intermediate, width = mox_glu_is_gated(args->activation->kind) ? 2 * cols : cols;
    const mox_ref_act act = mox_ref_act_resolve(args->activation, args->expert_of != NULL ? args->expert_of[slot] : -1);
    for (int64_t p = args->offsets[slot]; p < args->offsets[slot + 1]; p++)
        for (int64_t i = 0; i < cols; i++) {
            const float *h = args->h + p * width;
            const double gate = args->interleaved ? h[2 * i] : h[i];
            const double up = width == cols ? 0 : args->interleaved ? h[2 * i + 1] : h[cols + i];
            double sensitivity;
            args->out[p * cols + i] = (float)mox_ref_activate(&act, gate, up, &sensitivity);
        }
}

static void glu_run(const mox_glu_args *args, const moxie_executor *executor)
{
    mox_glu_args context = *args;
    mox_parallel(executor, args->slots, activate_slot, &context);
}

static bool glu_admit(const moxie_activation *activation, mox_refusal *why)
{
    (void)activation, (void)why;
    return true;
}

const mox_glu_row mox_ref_row_glu = { .base = REF_KERNEL("glu"), .run = glu_run, .admit = glu_admit };

/* ---- combine ------------------------------------------------------------------------------------- */

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
                       args->y[row_of(args, i) * args->hidden + n];
        if (args->shared != NULL)
            sum +=
                (args->shared_weight != NULL ? (double)args->shared_weight[t] : 1) * args->shared[t * args->hidden + n];
        const float value = (float)sum;
        mox_narrow(args->out_dtype, &value, (char *)args->out + (t * args->hidden + n) * bytes, 1);
    }
}

static void combine_run(const mox_combine_args *args, const moxie_executor *executor)
{
    mox_combine_args context = *args;
    mox_parallel(executor, args->tokens, combine_token, &context);
}

const mox_combine_row mox_ref_row_combine = { .base = REF_KERNEL("combine"), .run = combine_run };
