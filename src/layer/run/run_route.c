/* SPDX-License-Identifier: Apache-2.0
 *
 * run_route.c - routes the whole batch (run_route.h):
 *
 *     hidden [T,H] -> [row_norm] -> [dense router] -> logits [T,E] -> topk -> ids, weights [T,K]
 *     hidden [T,H] -> [dense shared gate] -> weight of the shared expert [T]
 *
 * This is one span where the back end has it (host_route.c), else three operations. A custom callback is never part of
 * the span: it is called once, for all tokens.
 */
#include "layer/run/run_route.h"

static mox_row_norm_args norm_args(const mox_run *run)
{
    const moxie_layer_config *c = &run->plan->config;
    mox_row_norm_args args = mox_run_norm_args(&c->router_norm, run->plan->layer->arrays.router_norm, c->router_width);
    args.max_rows = run->args.tokens;
    args.x = mox_run_router_input(run);
    args.x_dtype = c->dtype;
    args.out = MOX_RUN_AT(run, float, router_x);
    return args;
}

static mox_dense_args router_args(const mox_run *run)
{
    const moxie_layer_config *c = &run->plan->config;
    const mox_layer_arrays *arrays = &run->plan->layer->arrays;
    return (mox_dense_args) { .tokens = run->args.tokens,
                              .rows = mox_config_candidates(c),
                              .cols = c->router_width,
                              .weight = arrays->router,
                              .bias = arrays->router_bias,
                              .x = run->router_x != NULL ? run->router_x : mox_run_router_input(run),
                              .x_dtype = run->router_x != NULL ? MOXIE_F32 : c->dtype,
                              .x_scratch = MOX_RUN_AT(run, float, dense_x),
                              .out = (float *)(uintptr_t)run->logits };
}

static mox_dense_args gate_args(const mox_run *run)
{
    const moxie_layer_config *c = &run->plan->config;
    return (mox_dense_args) { .tokens = run->args.tokens,
                              .rows = 1,
                              .cols = c->hidden,
                              .weight = run->plan->layer->arrays.shared_gate,
                              .x = run->args.hidden,
                              .x_dtype = c->dtype,
                              .x_scratch = MOX_RUN_AT(run, float, dense_x),
                              .logistic = 1,
                              .out = MOX_RUN_AT(run, float, shared_weight) };
}

/* Ids and weights go straight to the caller's arrays where it has some, else to the workspace. */
static mox_topk_args topk_args(const mox_run *run)
{
    const moxie_layer_config *c = &run->plan->config;
    const moxie_run_args *a = &run->args;
    return (mox_topk_args) { .routing = run->plan->layer->arrays.routing,
                             .tokens = a->tokens,
                             .experts = mox_config_candidates(c),
                             .top_k = c->top_k,
                             .logits = run->logits,
                             .logits_dtype = run->logits_dtype,
                             .token_ids = a->token_ids,
                             .padding = a->padding,
                             .bias_choice = a->bias_choice,
                             .ids = a->ids_out != NULL ? a->ids_out : MOX_RUN_AT(run, int32_t, ids),
                             .weights = a->weights_out != NULL ? a->weights_out : MOX_RUN_AT(run, float, weights),
                             .row_scratch = MOX_RUN_AT(run, float, topk_row),
                             .logits_scratch = MOX_RUN_AT(run, float, topk_logits) };
}

static moxie_status run_span(const mox_run *run, const mox_route_span *span, moxie_error *error)
{
    const mox_backend *b = run->plan->backend;
    const mox_queue *q = &run->queue;
    if (b->route != NULL)
        return b->route(q, span, error);
    if (span->gate != NULL)
        MOX_TRY(b->dense(q, span->gate_kernel, span->gate, error));
    if (span->norm != NULL)
        MOX_TRY(b->row_norm(q, span->norm_kernel, span->norm, error));
    if (span->router != NULL)
        MOX_TRY(b->dense(q, span->router_kernel, span->router, error));
    return span->topk != NULL ? b->topk(q, span->topk_kernel, span->topk, error) : MOXIE_OK;
}

/* Sets where the logits are. True when the router must compute them. */
static bool set_logits(mox_run *run)
{
    const moxie_run_args *a = &run->args;
    const bool computed = a->logits == NULL;
    run->logits = a->logits;
    run->logits_dtype = a->logits_dtype;
    if (computed) {
        run->logits = a->logits_out != NULL ? a->logits_out : MOX_RUN_AT(run, float, logits);
        run->logits_dtype = MOXIE_F32;
    }
    return computed;
}

moxie_status mox_run_route(mox_run *run, bool with_topk, bool with_gate, moxie_error *error)
{
    const mox_kernels *k = &run->plan->kernels;
    const bool custom = run->plan->config.routing.select == MOXIE_SELECT_CUSTOM;
    const bool runs_router = with_topk && set_logits(run);
    const bool runs_norm = runs_router && k->router_norm != NULL;
    const mox_row_norm_args norm = runs_norm ? norm_args(run) : (mox_row_norm_args) { 0 };
    run->router_x = norm.out;
    const mox_dense_args router = runs_router ? router_args(run) : (mox_dense_args) { 0 };
    const bool runs_gate = with_gate && k->shared_gate != NULL;
    const mox_dense_args gate = runs_gate ? gate_args(run) : (mox_dense_args) { 0 };
    const mox_topk_args topk = topk_args(run);
    const mox_route_span span = { .norm_kernel = k->router_norm,
                                  .router_kernel = k->router,
                                  .topk_kernel = k->topk,
                                  .gate_kernel = k->shared_gate,
                                  .norm = runs_norm ? &norm : NULL,
                                  .router = runs_router ? &router : NULL,
                                  .gate = runs_gate ? &gate : NULL,
                                  .topk = with_topk && !custom ? &topk : NULL };
    MOX_TRY(run_span(run, &span, error));
    if (runs_norm)
        MOX_TRY(mox_run_probe(run, MOX_STAGE_ROUTER_NORM, NULL, error));
    if (runs_router)
        MOX_TRY(mox_run_probe(run, MOX_STAGE_ROUTER, NULL, error));
    if (!with_topk)
        return MOXIE_OK;
    if (custom)
        MOX_TRY(run->plan->backend->topk(&run->queue, k->topk, &topk, error));
    run->ids = topk.ids;
    run->weights = topk.weights;
    return mox_run_probe(run, MOX_STAGE_TOPK, NULL, error);
}

/* ---- results for the caller ------------------------------------------------------------------------ */

/* Copies the caller's own logits to logits_out, as f32. The router's are there already. */
static moxie_status copy_logits(const mox_run *run, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const moxie_run_args *a = &run->args;
    const moxie_quant none = { .element = MOXIE_DTYPE_NONE };
    const int64_t cols = mox_config_candidates(&plan->config);
    if (a->logits_out == NULL || run->logits == NULL || a->logits_out == run->logits)
        return MOXIE_OK;
    mox_quant_act_args widen = { .quant = none,
                                 .x = run->logits,
                                 .x_dtype = run->logits_dtype,
                                 .round_to = MOXIE_F32,
                                 .max_rows = a->tokens,
                                 .cols = cols,
                                 .row_scratch = MOX_RUN_AT(run, float, topk_row),
                                 .out = mox_activations_f32(&none, a->tokens, cols) };
    widen.out.stride = cols;
    widen.out.values = a->logits_out;
    return plan->backend->quantize(&run->queue, plan->kernels.widen, &widen, error);
}

static moxie_status copy_array(const mox_run *run, void *to, const void *from, size_t bytes, moxie_error *error)
{
    if (to == NULL || from == NULL || to == from)
        return MOXIE_OK;
    return run->plan->backend->copy(&run->queue, to, from, bytes, error);
}

moxie_status mox_run_copy_routing(const mox_run *run, moxie_error *error)
{
    const moxie_run_args *a = &run->args;
    const size_t choices = (size_t)(a->tokens * run->plan->config.top_k);
    MOX_TRY(copy_logits(run, error));
    MOX_TRY(copy_array(run, a->ids_out, run->ids, choices * sizeof *run->ids, error));
    return copy_array(run, a->weights_out, run->weights, choices * sizeof *run->weights, error);
}
