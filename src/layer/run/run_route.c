/* SPDX-License-Identifier: Apache-2.0
 *
 * run_route.c - what a run computes from tokens alone, before any expert: router, choice, weight of the shared expert.
 *
 *     [dense router] -> topk,  [dense shared gate]        whole batch, in runs of MOX_ROUTE_TOKENS
 *
 * One parallel region at most: a worker takes a run of tokens through all of them. A short batch is not worth waking
 * the workers for, unless its router is large; then the router's rows are shared out instead.
 */
#include "base/executor.h"
#include "base/sizes.h"
#include "layer/run/run.h"

#define AT(run, type, offset) ((type *)((run)->space + (run)->plan->space.offset))

/* Multiplications from which on a short batch's dense products are worth a parallel region. */
#define WORTH_WAKING (INT64_C(1) << 18)

typedef struct route_job {
    const mox_run *run;
    bool choose; /* topk too, run by run */
    moxie_status status;
} route_job;

static float *dense_scratch(const mox_run *run, int32_t worker)
{
    const moxie_layer_config *c = &run->plan->config;
    const int64_t gate = run->plan->rows.shared_gate != NULL ? c->hidden : 0;
    return AT(run, float, dense_x) + worker * MOX_ROUTE_TOKENS * mox_max_i64(c->router_width, gate);
}

static void run_router(const mox_run *run, int64_t first, int64_t tokens, int32_t worker,
                       const moxie_executor *executor)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer_config *c = &plan->config;
    const mox_dense_args args = { .tokens = tokens,
                                  .rows = c->experts,
                                  .cols = c->router_width,
                                  .weight = plan->layer->router.weight,
                                  .bias = plan->layer->router.bias,
                                  .x = (const char *)mox_run_router_input(run) +
                                       first * c->router_width * mox_dtype_bytes(c->dtype),
                                  .x_dtype = c->dtype,
                                  .x_scratch = dense_scratch(run, worker),
                                  .out = AT(run, float, logits) + first * c->experts };
    plan->rows.router->run(&args, executor);
}

static void run_shared_gate(const mox_run *run, int64_t first, int64_t tokens, int32_t worker,
                            const moxie_executor *executor)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer_config *c = &plan->config;
    const mox_dense_args args = { .tokens = tokens,
                                  .rows = 1,
                                  .cols = c->hidden,
                                  .weight = plan->layer->shared_gate.weight,
                                  .x = (const char *)run->args.hidden + first * c->hidden * mox_dtype_bytes(c->dtype),
                                  .x_dtype = c->dtype,
                                  .x_scratch = dense_scratch(run, worker),
                                  .logistic = 1,
                                  .out = AT(run, float, shared_weight) + first };
    plan->rows.shared_gate->run(&args, executor);
}

static moxie_status run_topk(const mox_run *run, int64_t first, int64_t tokens, const moxie_executor *executor,
                             moxie_error *error)
{
    const moxie_layer_config *c = &run->plan->config;
    const char *logits = run->logits;
    const mox_topk_args args = { .routing = &c->routing,
                                 .tokens = tokens,
                                 .experts = c->experts,
                                 .top_k = c->top_k,
                                 .first = first,
                                 .logits = logits + first * c->experts * mox_dtype_bytes(run->logits_dtype),
                                 .logits_dtype = run->logits_dtype,
                                 .token_ids = run->args.token_ids != NULL ? run->args.token_ids + first : NULL,
                                 .ids = AT(run, int32_t, ids) + first * c->top_k,
                                 .weights = AT(run, float, weights) + first * c->top_k,
                                 .row_scratch = AT(run, float, topk_row),
                                 .logits_scratch = AT(run, float, topk_logits) };
    return run->plan->rows.topk->run(&args, executor, error);
}

/* A run of tokens through everything; only a custom callback can fail, and that one is called for the whole batch. */
static void route_tokens(void *context, int64_t task, int32_t worker)
{
    route_job *job = context;
    const mox_run *run = job->run;
    const int64_t first = task * MOX_ROUTE_TOKENS, tokens = mox_min_i64(MOX_ROUTE_TOKENS, run->args.tokens - first);
    const moxie_executor here = mox_executor_here(&worker);
    if (run->logits == AT(run, float, logits))
        run_router(run, first, tokens, worker, &here);
    if (run->shared_weight != NULL)
        run_shared_gate(run, first, tokens, worker, &here);
    if (job->choose)
        run_topk(run, first, tokens, &here, NULL);
}

static void route_short(mox_run *run, bool choose)
{
    const moxie_layer_config *c = &run->plan->config;
    const int32_t caller = 0;
    const moxie_executor here = mox_executor_here(&caller);
    const int64_t tokens = run->args.tokens;
    const bool large = tokens * c->experts * c->router_width >= WORTH_WAKING;
    if (run->logits == AT(run, float, logits))
        run_router(run, 0, tokens, 0, large ? &run->plan->executor : &here);
    if (run->shared_weight != NULL)
        run_shared_gate(run, 0, tokens, 0, &here);
    if (choose)
        run_topk(run, 0, tokens, &here, NULL);
}

moxie_status mox_run_route(mox_run *run, bool routed, bool gated, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const bool custom = plan->config.routing.select == MOXIE_SELECT_CUSTOM;
    route_job job = { .run = run, .choose = routed && !custom };
    run->logits = routed ? run->args.logits : NULL;
    run->logits_dtype = run->args.logits_dtype;
    const bool own_logits = routed && run->logits == NULL;
    if (own_logits) {
        run->logits = AT(run, float, logits);
        run->logits_dtype = MOXIE_F32;
    }
    run->shared_weight = gated && plan->rows.shared_gate != NULL ? AT(run, float, shared_weight) : NULL;
    if (run->args.tokens <= MOX_ROUTE_TOKENS)
        route_short(run, job.choose);
    else if (job.choose || own_logits || run->shared_weight != NULL)
        mox_parallel(&plan->executor, mox_ceil_div(run->args.tokens, MOX_ROUTE_TOKENS), route_tokens, &job);
    if (own_logits)
        MOX_TRY(mox_run_probe(run, MOX_STAGE_ROUTER, NULL, error));
    if (!routed)
        return MOXIE_OK;
    if (custom)
        MOX_TRY(run_topk(run, 0, run->args.tokens, &plan->executor, error));
    run->ids = AT(run, int32_t, ids);
    run->weights = AT(run, float, weights);
    return mox_run_probe(run, MOX_STAGE_TOPK, NULL, error);
}
