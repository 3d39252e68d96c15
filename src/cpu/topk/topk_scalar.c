/* SPDX-License-Identifier: Apache-2.0
 *
 * topk_scalar.c - family topk in portable C: one task per token, by mox_route_token(). A custom callback is called
 * once, for all tokens, on the calling thread.
 */
#include "cpu/topk/topk.h"
#include "route/route_rules.h"

typedef struct batch {
    mox_topk_args args;
    moxie_routing alt; /* of tokens with the second bias */
} batch;

static bool is_padding(const mox_topk_args *args, int64_t token)
{
    return args->padding != NULL && args->padding[token] != 0;
}

static void skip_token(const mox_topk_args *args, int64_t token)
{
    mox_route_nothing(args->top_k, args->ids + token * args->top_k, args->weights + token * args->top_k);
}

static void route_one(void *context, int64_t token, int32_t worker)
{
    const batch *b = context;
    const mox_topk_args *args = &b->args;
    const bool alt = args->bias_choice != NULL && args->bias_choice[token] != 0;
    const int64_t bytes = mox_dtype_bytes(args->logits_dtype);
    float *row = args->row_scratch + (int64_t)worker * args->experts;
    if (is_padding(args, token)) {
        skip_token(args, token);
        return;
    }
    mox_widen(args->logits_dtype, (const uint8_t *)args->logits + token * args->experts * bytes, row, args->experts);
    mox_route_token(alt ? &b->alt : &args->routing, args->experts, args->top_k, row, args->first + token,
                    args->token_ids != NULL ? args->token_ids[token] : 0, args->ids + token * args->top_k,
                    args->weights + token * args->top_k);
}

static moxie_status route_custom(const mox_topk_args *args, moxie_error *error)
{
    const float *logits = args->logits;
    if (args->logits_dtype != MOXIE_F32) {
        mox_widen(args->logits_dtype, args->logits, args->logits_scratch, args->tokens * args->experts);
        logits = args->logits_scratch;
    }
    const int code = args->routing.custom(args->routing.custom_user, args->tokens, logits, args->ids, args->weights);
    MOX_FAIL_IF(code != 0, MOXIE_ERR_ARGUMENT, error,
                "the custom routing callback returned %d for %lld tokens of %lld experts: 0 means that it chose", code,
                (long long)args->tokens, (long long)args->experts);
    for (int64_t t = 0; t < args->tokens; t++)
        if (is_padding(args, t))
            skip_token(args, t);
    return MOXIE_OK;
}

moxie_status mox_topk_scalar_run(const mox_topk_args *args, const moxie_executor *executor, moxie_error *error)
{
    if (args->routing.select == MOXIE_SELECT_CUSTOM)
        return args->tokens > 0 ? route_custom(args, error) : MOXIE_OK;
    batch context = { .args = *args };
    if (args->bias_choice != NULL)
        context.alt = mox_route_with_bias_alt(&args->routing);
    mox_parallel(executor, args->tokens, route_one, &context);
    return MOXIE_OK;
}

bool mox_topk_scalar_admit(const moxie_routing *routing, int64_t experts, int64_t top_k, mox_rejection *why)
{
    (void)routing;
    if (experts > MOXIE_MAX_EXPERTS)
        return mox_reject(why, "route outside and pass ids and weights",
                          "routes among at most %d experts, the layer has %lld", MOXIE_MAX_EXPERTS, (long long)experts);
    if (top_k > MOXIE_MAX_TOP_K)
        return mox_reject(why, "route outside and pass ids and weights", "chooses at most %d experts, top_k is %lld",
                          MOXIE_MAX_TOP_K, (long long)top_k);
    return true;
}
