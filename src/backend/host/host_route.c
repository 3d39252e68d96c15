/* SPDX-License-Identifier: Apache-2.0
 *
 * host_route.c - the span `route` on the host: router, topk, weight of the shared expert.
 *
 *     [row_norm] -> [dense router] -> [topk],  [dense shared gate]        for MOX_ROUTE_TOKENS tokens at a time
 *
 * A long batch takes one parallel region: each task runs all three operations for MOX_ROUTE_TOKENS tokens. A batch of
 * at most so many tokens runs on the caller's thread, since a parallel region costs more than it saves. If its router
 * is large, the router alone runs in parallel, over its rows.
 */
#include "backend/host/host_backend.h"
#include "base/executor.h"
#include "base/sizes.h"

/* A short batch's router runs in parallel from this many multiplications on. */
#define MIN_PARALLEL_MULTIPLIES (INT64_C(1) << 18)

/* Tokens [first, first + tokens) of a dense product; `scratch`: offset of the worker's scratch, in floats. */
static void run_dense(const mox_kernel *kernel, const mox_dense_args *whole, int64_t first, int64_t tokens,
                      int64_t scratch, const moxie_executor *executor)
{
    mox_dense_args part = *whole;
    part.tokens = tokens;
    part.x = (const char *)whole->x + first * whole->cols * mox_dtype_bytes(whole->x_dtype);
    part.out = whole->out + first * whole->rows;
    part.x_scratch = whole->x_scratch + scratch;
    ((const mox_dense_kernel *)kernel)->run(&part, executor);
}

/* Tokens [first, first + tokens) of the norm of the router's input. */
static void run_norm(const mox_kernel *kernel, const mox_row_norm_args *whole, int64_t first, int64_t tokens,
                     const moxie_executor *executor)
{
    mox_row_norm_args part = *whole;
    part.max_rows = tokens;
    part.x = (const char *)whole->x + first * whole->cols * mox_dtype_bytes(whole->x_dtype);
    part.out = whole->out + first * whole->cols;
    ((const mox_row_norm_kernel *)kernel)->run(&part, executor);
}

/* Tokens [first, first + tokens) of topk. Cannot fail: only a custom callback can, and that is never part of the span.
 */
static void run_topk(const mox_kernel *kernel, const mox_topk_args *whole, int64_t first, int64_t tokens,
                     const moxie_executor *executor)
{
    mox_topk_args part = *whole;
    part.tokens = tokens;
    part.first = whole->first + first;
    part.logits = (const char *)whole->logits + first * whole->experts * mox_dtype_bytes(whole->logits_dtype);
    part.token_ids = whole->token_ids != NULL ? whole->token_ids + first : NULL;
    part.padding = whole->padding != NULL ? whole->padding + first : NULL;
    part.bias_choice = whole->bias_choice != NULL ? whole->bias_choice + first : NULL;
    part.ids = whole->ids + first * whole->top_k;
    part.weights = whole->weights + first * whole->top_k;
    ((const mox_topk_kernel *)kernel)->run(&part, executor, NULL);
}

static int64_t tokens_of(const mox_route_span *span)
{
    return span->router != NULL ? span->router->tokens : span->topk != NULL ? span->topk->tokens : span->gate->tokens;
}

/* Columns of the wider dense product, since both use the same scratch. */
static int64_t max_cols(const mox_route_span *span)
{
    const int64_t router = span->router != NULL ? span->router->cols : 0;
    return span->gate != NULL ? mox_max_i64(router, span->gate->cols) : router;
}

static void route_tokens(void *context, int64_t task, int32_t worker)
{
    const mox_route_span *span = context;
    const int64_t first = task * MOX_ROUTE_TOKENS, tokens = mox_min_i64(MOX_ROUTE_TOKENS, tokens_of(span) - first);
    const int64_t scratch = worker * MOX_ROUTE_TOKENS * max_cols(span);
    const moxie_executor here = mox_executor_on_worker(&worker);
    if (span->norm != NULL)
        run_norm(span->norm_kernel, span->norm, first, tokens, &here);
    if (span->router != NULL)
        run_dense(span->router_kernel, span->router, first, tokens, scratch, &here);
    if (span->gate != NULL)
        run_dense(span->gate_kernel, span->gate, first, tokens, scratch, &here);
    if (span->topk != NULL)
        run_topk(span->topk_kernel, span->topk, first, tokens, &here);
}

static void route_short(const mox_route_span *span, int64_t tokens, const moxie_executor *executor)
{
    const int32_t caller = 0;
    const moxie_executor here = mox_executor_on_worker(&caller);
    const mox_dense_args *router = span->router;
    if (span->norm != NULL)
        run_norm(span->norm_kernel, span->norm, 0, tokens, &here);
    if (router != NULL) {
        const bool large = tokens * router->rows * router->cols >= MIN_PARALLEL_MULTIPLIES;
        run_dense(span->router_kernel, router, 0, tokens, 0, large ? executor : &here);
    }
    if (span->gate != NULL)
        run_dense(span->gate_kernel, span->gate, 0, tokens, 0, &here);
    if (span->topk != NULL)
        run_topk(span->topk_kernel, span->topk, 0, tokens, &here);
}

moxie_status mox_host_route(const mox_queue *q, const mox_route_span *span, moxie_error *error)
{
    mox_route_span copy = *span;
    (void)error;
    if (span->router == NULL && span->topk == NULL && span->gate == NULL)
        return MOXIE_OK;
    const int64_t tokens = tokens_of(span);
    if (tokens <= MOX_ROUTE_TOKENS)
        route_short(span, tokens, q->executor);
    else
        mox_parallel(q->executor, mox_ceil_div(tokens, MOX_ROUTE_TOKENS), route_tokens, &copy);
    return MOXIE_OK;
}
