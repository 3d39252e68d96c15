/* SPDX-License-Identifier: Apache-2.0
 *
 * run_permute.c - the arguments of permute (run_permute.h).
 */
#include "layer/run/run_permute.h"

/* Arrays that permute sorts along with the pairs, for experts that run stage by stage: tokens, routing weights that
 * multiply the input, static scales where slots differ. Fused experts read these by slot; adapters need the first two.
 */
static void add_pair_arrays(const mox_run *run, mox_permute_args *args)
{
    const moxie_plan *plan = run->plan;
    const mox_expert_plan *routed = &plan->experts[MOX_ROUTED];
    const bool on_input = plan->config.routing.on_input != 0;
    if (routed->fused && run->args.adapters == NULL)
        return;
    args->token_of = MOX_RUN_AT(run, int64_t, token_of);
    if (on_input) {
        args->weights = run->weights + run->first * plan->config.top_k;
        args->row_weight = MOX_RUN_AT(run, float, row_weight);
    }
    if (routed->fused)
        return;
    args->static_scale13 = run->slots.static_scale[MOX_W13];
    args->static_scale2 = run->slots.static_scale[MOX_W2];
    args->pair_scale2 = (float *)(run->space + routed->space.pair_scale[MOX_W2]);
    if (mox_run_has_row_per_pair(run))
        args->pair_scale13 = (float *)(run->space + routed->space.pair_scale[MOX_W13]);
}

moxie_status mox_run_permute(mox_run *run, bool with_arrays, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    mox_permute_args args = { .ids = run->ids + run->first * plan->config.top_k,
                              .tokens = run->tokens,
                              .top_k = plan->config.top_k,
                              .experts = plan->config.experts,
                              .slots = run->slots.count,
                              .slot_of = run->slots.slot_of,
                              .offsets = run->permutation.offsets,
                              .pair_at = run->permutation.pair_at,
                              .position = run->permutation.position,
                              .counts = MOX_RUN_AT(run, int32_t, counts) };
    if (mox_plan_has_shared(plan))
        args.shared_offsets = MOX_RUN_AT(run, int64_t, shared_offsets);
    if (with_arrays)
        add_pair_arrays(run, &args);
    const mox_phase before = mox_run_enter(run, MOX_PHASE_PERMUTE);
    return mox_run_back(run, before, plan->backend->permute(&run->queue, plan->kernels.permute, &args, error));
}
