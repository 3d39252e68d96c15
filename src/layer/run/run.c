/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c - the chain of a run (run.h): routes the batch once, then computes the experts pass by pass.
 *
 *     mox_run_enqueue
 *       run_whole      route; then for each pass: begin_pass (permute), run_pass (experts, combine)
 *       run_experts    for each pass: begin_pass, run_pass up to y, scatter
 *       run_combine    combine alone
 *
 * Every operation is a call of the back end's table (backend.h) with a kernel of the plan and arguments that point into
 * the caller's arrays, the workspace and the layer.
 */
#include "layer/run/run.h"

#include "base/sizes.h"
#include "layer/run/run_args.h"
#include "layer/run/run_experts.h"
#include "layer/run/run_fused.h"
#include "layer/run/run_route.h"

/* ---- one pass ------------------------------------------------------------------------------------ */

/* Arrays that permute sorts along with the pairs, for experts that run stage by stage: tokens, routing weights that
 * multiply the input, static scales where slots differ. Fused experts read these by slot. */
static void add_pair_arrays(const mox_run *run, mox_permute_args *args)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const mox_expert_plan *routed = &plan->experts[MOX_ROUTED];
    const bool on_input = plan->config.routing.on_input != 0;
    if (routed->fused)
        return;
    args->token_of = MOX_RUN_AT(run, int64_t, token_of);
    args->static_scale13 = layer->arrays.static_scale[MOX_W13];
    args->static_scale2 = layer->arrays.static_scale[MOX_W2];
    args->pair_scale2 = (float *)(run->space + routed->space.pair_scale[MOX_W2]);
    if (on_input) {
        args->weights = run->weights + run->first * plan->config.top_k;
        args->row_weight = MOX_RUN_AT(run, float, row_weight);
    }
    if (mox_run_has_row_per_pair(run))
        args->pair_scale13 = (float *)(run->space + routed->space.pair_scale[MOX_W13]);
}

/* Starts the pass of tokens from `first`: sorts its pairs by slot. */
static moxie_status begin_pass(mox_run *run, int64_t first, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    run->first = first;
    run->tokens = mox_min_i64(plan->pass_tokens, run->args.tokens - first);
    run->permutation = (mox_permutation) { MOX_RUN_AT(run, int64_t, offsets), MOX_RUN_AT(run, int64_t, pair_at),
                                           MOX_RUN_AT(run, int64_t, position) };
    mox_permute_args args = { .ids = run->ids + first * plan->config.top_k,
                              .tokens = run->tokens,
                              .top_k = plan->config.top_k,
                              .experts = plan->config.experts,
                              .slots = layer->slots,
                              .slot_of = layer->arrays.slot_of,
                              .offsets = run->permutation.offsets,
                              .pair_at = run->permutation.pair_at,
                              .position = run->permutation.position,
                              .counts = MOX_RUN_AT(run, int32_t, counts) };
    if (mox_plan_has_shared(plan))
        args.shared_offsets = MOX_RUN_AT(run, int64_t, shared_offsets);
    if (plan->kernels.shared_gate != NULL)
        run->shared_weight = MOX_RUN_AT(run, float, shared_weight) + first;
    add_pair_arrays(run, &args);
    return plan->backend->permute(&run->queue, plan->kernels.permute, &args, error);
}

/* Arguments of combine for the present pass. Rows of y are in the permutation's order, found by `position`; rows that
 * come from the caller are in the order [T,K], and `position` is NULL. */
static mox_combine_args combine_args(const mox_run *run, const float *y, const int64_t *position)
{
    const moxie_layer_config *c = &run->plan->config;
    const int64_t first = run->first;
    const bool identity = mox_config_adds_identity(c);
    return (mox_combine_args) { .tokens = run->tokens,
                                .top_k = c->top_k,
                                .hidden = c->hidden,
                                .position = position,
                                .ids = run->ids + first * c->top_k,
                                .experts = c->experts,
                                .weights = c->routing.on_input ? NULL : run->weights + first * c->top_k,
                                .y = y,
                                .shared = run->shared_y,
                                .shared_weight = run->shared_weight,
                                .shared_scale = c->shared.scale,
                                .out = (char *)run->args.output + first * c->hidden * mox_dtype_bytes(c->dtype),
                                .out_dtype = c->dtype,
                                .identity = identity ? mox_run_hidden(run) : NULL,
                                .identity_weights = identity ? run->weights + first * c->top_k : NULL,
                                .identities = c->routing.zero_experts };
}

static moxie_status combine(mox_run *run, const mox_combine_args *args, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    run->y = args->y;
    MOX_TRY(plan->backend->combine(&run->queue, plan->kernels.combine, args, error));
    return mox_run_probe(run, MOX_STAGE_COMBINE, NULL, error);
}

static const float *space_of_y(const mox_run *run, mox_expert_kind kind)
{
    return (const float *)(run->space + run->plan->experts[kind].space.y);
}

/* The norm of the routed experts' results, out of y into memory of its own: a traced run compares both. */
static moxie_status norm_experts(mox_run *run, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    if (plan->kernels.expert_norm == NULL)
        return MOXIE_OK;
    mox_row_norm_args args =
        mox_run_norm_args(&plan->config.expert_norm, layer->arrays.expert_norm, plan->config.hidden);
    args.max_rows = run->tokens * plan->config.top_k;
    args.rows = &run->permutation.offsets[layer->slots];
    args.x = run->before_norm = run->y;
    args.out = MOX_RUN_AT(run, float, normed);
    run->y = args.out;
    MOX_TRY(plan->backend->row_norm(&run->queue, plan->kernels.expert_norm, &args, error));
    return mox_run_probe(run, MOX_STAGE_EXPERT_NORM, NULL, error);
}

/* The experts of a pass up to y, and combine where `span` is set and includes it: *combined says whether it did. */
static moxie_status run_to_y(mox_run *run, bool shared, const mox_combine_args *span, bool *combined,
                             moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const bool fused[] = { plan->experts[MOX_ROUTED].fused, shared && plan->experts[MOX_SHARED_EXPERT].fused };
    const bool any = fused[MOX_ROUTED] || fused[MOX_SHARED_EXPERT];
    if (!fused[MOX_ROUTED])
        MOX_TRY(mox_run_experts(run, MOX_ROUTED, error));
    if (shared && !fused[MOX_SHARED_EXPERT])
        MOX_TRY(mox_run_experts(run, MOX_SHARED_EXPERT, error));
    *combined = any && span != NULL;
    return any ? mox_run_fused(run, fused[MOX_SHARED_EXPERT], span, error) : MOXIE_OK;
}

/* Runs the experts of a pass. `whole`: routed and shared experts, and combine; else the routed experts up to y. */
static moxie_status run_pass(mox_run *run, bool whole, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const bool shared = whole && mox_plan_has_shared(plan), normed = plan->kernels.expert_norm != NULL;
    bool combined = false;
    run->y = space_of_y(run, MOX_ROUTED);
    run->shared_y = shared ? space_of_y(run, MOX_SHARED_EXPERT) : NULL;
    if (shared && plan->kernels.shared_gate != NULL)
        MOX_TRY(mox_run_probe(run, MOX_STAGE_SHARED_GATE, NULL, error));
    mox_combine_args args = whole ? combine_args(run, run->y, run->permutation.position) : (mox_combine_args) { 0 };
    MOX_TRY(run_to_y(run, shared, whole && !normed ? &args : NULL, &combined, error));
    MOX_TRY(norm_experts(run, error));
    args.y = run->y;
    if (!whole)
        return MOXIE_OK;
    return combined ? mox_run_probe(run, MOX_STAGE_COMBINE, NULL, error) : combine(run, &args, error);
}

/* Copies y to rows [T,K,H]. It is a combine with T*K tokens, one expert each, and no weights. */
static moxie_status scatter(const mox_run *run, float *rows, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer_config *c = &plan->config;
    const mox_combine_args args = { .tokens = run->tokens * c->top_k,
                                    .top_k = 1,
                                    .hidden = c->hidden,
                                    .position = run->permutation.position,
                                    .y = run->y,
                                    .out = rows + run->first * c->top_k * c->hidden,
                                    .out_dtype = MOXIE_F32 };
    return plan->backend->combine(&run->queue, plan->kernels.combine, &args, error);
}

/* ---- the four calls ------------------------------------------------------------------------------ */

/* moxie_plan_run: the whole chain. */
static moxie_status run_whole(mox_run *run, moxie_error *error)
{
    MOX_TRY(mox_run_route(run, run->ids == NULL, true, error));
    MOX_TRY(mox_run_copy_routing(run, error));
    for (int64_t t = 0; t < run->args.tokens; t += run->plan->pass_tokens) {
        MOX_TRY(begin_pass(run, t, error));
        MOX_TRY(run_pass(run, true, error));
    }
    return MOXIE_OK;
}

/* moxie_plan_experts. */
static moxie_status run_experts(mox_run *run, float *rows, moxie_error *error)
{
    for (int64_t t = 0; t < run->args.tokens; t += run->plan->pass_tokens) {
        MOX_TRY(begin_pass(run, t, error));
        MOX_TRY(run_pass(run, false, error));
        MOX_TRY(scatter(run, rows, error));
    }
    return MOXIE_OK;
}

/* moxie_plan_combine: the whole batch at once, since combine stores nothing in the workspace. */
static moxie_status run_combine(mox_run *run, const float *rows, moxie_error *error)
{
    run->tokens = run->args.tokens;
    const mox_combine_args args = combine_args(run, rows, NULL);
    return combine(run, &args, error);
}

/* The arguments that a call needs. */
static uint32_t needs_of(const moxie_plan *plan, mox_run_call call)
{
    const uint32_t weights = plan->config.routing.on_input ? MOX_NEEDS_WEIGHTS : 0;
    const uint32_t identity = mox_config_adds_identity(&plan->config) ? MOX_NEEDS_HIDDEN | MOX_NEEDS_WEIGHTS : 0;
    switch (call) {
    case MOX_RUN_WHOLE: return MOX_NEEDS_HIDDEN | MOX_NEEDS_OUTPUT | MOX_NEEDS_IDS_OR_LOGITS;
    case MOX_RUN_ROUTE: return MOX_NEEDS_LOGITS | MOX_NEEDS_IDS_OUT;
    case MOX_RUN_EXPERTS: return MOX_NEEDS_HIDDEN | MOX_NEEDS_IDS | weights;
    default: return MOX_NEEDS_OUTPUT | MOX_NEEDS_IDS | (weights ? 0 : MOX_NEEDS_WEIGHTS) | identity;
    }
}

/* Makes the plan's device the thread's. */
static moxie_status use_device(const mox_run *run, moxie_error *error)
{
    const mox_device *device = &run->plan->device;
    MOX_FAIL_IF((uintptr_t)run->args.workspace % MOX_DEVICE_ALIGN != 0, MOXIE_ERR_ARGUMENT, error,
                "workspace is %p; on a device it must be aligned to %d bytes", run->args.workspace, MOX_DEVICE_ALIGN);
    return run->args.tokens > 0 ? device->table->use(device->ordinal, error) : MOXIE_OK;
}

moxie_status mox_run_enqueue(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                             mox_cuda_stream stream, const mox_probe *probe, moxie_error *error)
{
    mox_run run;
    MOX_TRY(mox_run_begin(plan, args, needs_of(plan, call), &run, error));
    run.queue = (mox_queue) { &plan->executor, plan->device.table, &plan->device.features, stream };
    run.probe = probe;
    if (plan->backend->on_device)
        MOX_TRY(use_device(&run, error));
    if (run.args.tokens == 0)
        return MOXIE_OK;
    switch (call) {
    case MOX_RUN_WHOLE: return run_whole(&run, error);
    case MOX_RUN_ROUTE: MOX_TRY(mox_run_route(&run, true, false, error)); return mox_run_copy_routing(&run, error);
    case MOX_RUN_EXPERTS: return run_experts(&run, rows, error);
    default: return run_combine(&run, rows, error);
    }
}
