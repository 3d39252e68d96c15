/* SPDX-License-Identifier: Apache-2.0
 *
 * run_pass.c - one pass of a run: permute, experts, norm, combine (run_pass.h).
 */
#include "layer/run/run_pass.h"

#include "base/sizes.h"
#include "layer/run/ranks_device.h"
#include "layer/run/run_adapters.h"
#include "layer/run/run_experts.h"
#include "layer/run/run_fetch.h"
#include "layer/run/run_fused.h"
#include "layer/run/run_permute.h"
#include "layer/run/run_tp.h"
#include "layer/run/run_windows.h"

moxie_status mox_run_begin_pass(mox_run *run, int64_t first, int64_t each, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    run->first = first;
    run->tokens = mox_min_i64(each, run->args.tokens - first);
    run->permutation = (mox_permutation) { MOX_RUN_AT(run, int64_t, offsets), MOX_RUN_AT(run, int64_t, pair_at),
                                           MOX_RUN_AT(run, int64_t, position) };
    if (plan->kernels.shared_gate != NULL)
        run->shared_weight = MOX_RUN_AT(run, float, shared_weight) + first;
    if (mox_run_has_windows(run)) { /* each permutes its own pairs */
        if (run->args.adapters != NULL)
            mox_run_assign_adapters(run);
        return mox_run_windows_want(run, error);
    }
    mox_run_set_slots(run);
    MOX_TRY(mox_run_permute(run, true, error));
    if (run->args.adapters != NULL)
        mox_run_assign_adapters(run);
    return MOXIE_OK;
}

mox_combine_args mox_run_combine_args(const mox_run *run, const float *y, const int64_t *position)
{
    const moxie_layer_config *c = &run->plan->config;
    const int64_t first = run->first;
    const bool identity = mox_config_adds_identity(c, run->plan->ranks != NULL);
    return (mox_combine_args) { .tokens = run->tokens,
                                .top_k = c->top_k,
                                .hidden = c->hidden,
                                .position = position,
                                .ids = run->ids + first * c->top_k,
                                .experts = c->experts,
                                .weights = c->routing.on_input ? NULL : run->weights + first * c->top_k,
                                .y = y,
                                .round_y = mox_run_rounds_to(run),
                                .shared = run->shared_y,
                                .shared_weight = run->shared_weight,
                                .shared_scale = c->shared.scale,
                                .out = (char *)run->args.output + first * c->hidden * mox_dtype_bytes(c->dtype),
                                .out_dtype = c->dtype,
                                .identity = identity ? mox_run_hidden(run) : NULL,
                                .identity_weights = identity ? run->weights + first * c->top_k : NULL,
                                .identities = c->routing.zero_experts };
}

moxie_status mox_run_combine(mox_run *run, const mox_combine_args *args, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    run->y = args->y;
    const mox_phase before = mox_run_enter(run, MOX_PHASE_COMBINE);
    MOX_TRY(plan->backend->combine(&run->queue, plan->kernels.combine, args, error));
    mox_run_enter(run, before);
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
    args.rows = &run->permutation.offsets[run->slots.count];
    args.x = run->before_norm = run->y;
    args.out = MOX_RUN_AT(run, float, normed);
    run->y = args.out;
    const mox_phase before = mox_run_enter(run, MOX_PHASE_COMBINE);
    MOX_TRY(plan->backend->row_norm(&run->queue, plan->kernels.expert_norm, &args, error));
    mox_run_enter(run, before);
    return mox_run_probe(run, MOX_STAGE_EXPERT_NORM, NULL, error);
}

/* The experts of a pass up to y, and combine where `span` is set and includes it: *combined says whether it did. */
static moxie_status run_to_y(mox_run *run, bool shared, const mox_combine_args *span, bool *combined,
                             moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const bool fused[] = { plan->experts[MOX_ROUTED].fused, shared && plan->experts[MOX_SHARED_EXPERT].fused };
    const bool any = fused[MOX_ROUTED] || fused[MOX_SHARED_EXPERT];
    *combined = false;
    if (fused[MOX_ROUTED] && plan->experts[MOX_ROUTED].shape.cut) /* of a rank, so neither shared nor span */
        return mox_run_fused_rows(run, MOX_ROUTED, error);
    if (!fused[MOX_ROUTED])
        MOX_TRY(mox_run_experts(run, MOX_ROUTED, MOX_EXPERTS_ALL, error));
    if (shared && !fused[MOX_SHARED_EXPERT])
        MOX_TRY(mox_run_experts(run, MOX_SHARED_EXPERT, MOX_EXPERTS_ALL, error));
    *combined = any && span != NULL;
    return any ? mox_run_fused(run, fused[MOX_ROUTED], fused[MOX_SHARED_EXPERT], span, error) : MOXIE_OK;
}

/* Routed experts, window by window: the parts that `parts` names. */
static moxie_status run_windows(mox_run *run, uint32_t parts, moxie_error *error)
{
    const bool fused = run->plan->experts[MOX_ROUTED].fused;
    while (run->slots.first < run->slots.end) {
        MOX_TRY(fused ? mox_run_fused(run, true, false, NULL, error) : mox_run_experts(run, MOX_ROUTED, parts, error));
        parts &= ~(uint32_t)MOX_EXPERTS_INPUT;
        MOX_TRY(mox_run_fetch_next(run, true, error));
    }
    return MOXIE_OK;
}

/* All windows. Where one scale is for the activations of all experts, W2 needs a second trip through them. */
static moxie_status run_all_windows(mox_run *run, moxie_error *error)
{
    const mox_expert_plan *routed = &run->plan->experts[MOX_ROUTED];
    const bool twice = !routed->fused && mox_act_quant_needs_amax(&routed->act[MOX_W2]);
    if (run->slots.first == run->slots.end)
        MOX_TRY(mox_run_fetch_next(run, true, error));
    if (!twice)
        return run_windows(run, MOX_EXPERTS_ALL, error);
    MOX_TRY(run_windows(run, MOX_EXPERTS_INPUT | MOX_EXPERTS_FIRST, error));
    run->slots.first = 0;
    MOX_TRY(mox_run_experts(run, MOX_ROUTED, MOX_EXPERTS_REQUANTIZE, error));
    mox_run_fetch_again(run);
    MOX_TRY(mox_run_fetch_next(run, true, error));
    return run_windows(run, MOX_EXPERTS_SECOND, error);
}

/* The experts of a pass up to y where a source has some of the records on disk. The shared expert is computed while it
 * reads; but routed experts that are not fused have their buffers in the same memory, and permute has filled some. */
static moxie_status run_fetched(mox_run *run, bool shared, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const bool shared_first = plan->experts[MOX_ROUTED].fused;
    if (!shared_first)
        MOX_TRY(run_all_windows(run, error));
    if (shared)
        MOX_TRY(plan->experts[MOX_SHARED_EXPERT].fused
                    ? mox_run_fused(run, false, true, NULL, error)
                    : mox_run_experts(run, MOX_SHARED_EXPERT, MOX_EXPERTS_ALL, error));
    return shared_first ? run_all_windows(run, error) : MOXIE_OK;
}

/* run_to_y() at once if all records are there. */
static moxie_status run_or_fetch(mox_run *run, bool shared, const mox_combine_args *span, bool *combined,
                                 moxie_error *error)
{
    if (mox_run_has_windows(run))
        return mox_run_windows(run, shared, error);
    if (run->fetches) {
        MOX_TRY(mox_run_fetch_next(run, false, error));
        if (run->slots.end < run->slots.count)
            return run_fetched(run, shared, error);
    }
    return run_to_y(run, shared, span, combined, error);
}

moxie_status mox_run_pass(mox_run *run, bool whole, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const bool shared = whole && mox_plan_has_shared(plan), normed = plan->kernels.expert_norm != NULL;
    bool combined = false;
    run->y = space_of_y(run, MOX_ROUTED);
    run->shared_y = shared ? space_of_y(run, MOX_SHARED_EXPERT) : NULL;
    if (shared && plan->kernels.shared_gate != NULL)
        MOX_TRY(mox_run_probe(run, MOX_STAGE_SHARED_GATE, NULL, error));
    mox_combine_args args =
        whole ? mox_run_combine_args(run, run->y, run->permutation.position) : (mox_combine_args) { 0 };
    MOX_TRY(run_or_fetch(run, shared, whole && !normed ? &args : NULL, &combined, error));
    if (plan->tp_cut == MOX_TP_SUMS)
        MOX_TRY(mox_run_tp_sum(run, error));
    MOX_TRY(norm_experts(run, error));
    args.y = run->y;
    if (!whole)
        return MOXIE_OK;
    return combined ? mox_run_probe(run, MOX_STAGE_COMBINE, NULL, error) : mox_run_combine(run, &args, error);
}

moxie_status mox_run_scatter(const mox_run *run, const int64_t *position, int64_t count, int64_t cols,
                             moxie_dtype dtype, void *rows, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const mox_combine_args args = { .tokens = count,
                                    .top_k = 1,
                                    .hidden = cols,
                                    .position = position,
                                    .y = run->y,
                                    .round_y = mox_run_rounds_to(run),
                                    .out = rows,
                                    .out_dtype = dtype };
    return plan->backend->combine(&run->queue, plan->kernels.combine, &args, error);
}
