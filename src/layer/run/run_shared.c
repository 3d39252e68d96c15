/* SPDX-License-Identifier: Apache-2.0
 *
 * run_shared.c - the shared expert of ranks that exchange rows (run_shared.h).
 */
#include "layer/run/run_shared.h"

#include "layer/run/exchange_agree.h"
#include "layer/run/ranks_device.h"
#include "layer/run/run_experts.h"
#include "layer/run/run_fused.h"
#include "layer/run/run_tp.h"

static float *space_of_y(const mox_run *run)
{
    return (float *)(run->space + run->plan->experts[MOX_SHARED_EXPERT].space.y);
}

static moxie_status run_whole(mox_run *run, moxie_error *error)
{
    MOX_TRY(mox_ranks_shared_offsets(run, MOX_RUN_AT(run, int64_t, shared_offsets), error));
    if (!run->plan->experts[MOX_SHARED_EXPERT].fused)
        return mox_run_experts(run, MOX_SHARED_EXPERT, MOX_EXPERTS_ALL, error);
    return run->tokens > 0 ? mox_run_fused(run, false, true, NULL, error) : MOXIE_OK;
}

/* The group's tokens are a batch of their own. Ranks without tokens take part, too. */
static moxie_status run_rows(mox_run *run, int64_t number, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const mox_ranks *x = plan->ranks;
    mox_run group = *run;
    mox_exchange_share(run, number, x->share);
    group.first = group.tokens = 0;
    for (int32_t r = 0; r < x->tp_size; r++)
        group.tokens += x->share[r];
    group.args.tokens = group.tokens;
    MOX_TRY(mox_run_tp_gather_hidden(run, x->share, number, &group.args.hidden, error));
    MOX_TRY(mox_ranks_group_offsets(&group, MOX_RUN_AT(run, int64_t, shared_offsets), error));
    MOX_TRY(plan->experts[MOX_SHARED_EXPERT].fused
                ? mox_run_fused_rows(&group, MOX_SHARED_EXPERT, error)
                : mox_run_experts(&group, MOX_SHARED_EXPERT, MOX_EXPERTS_ALL, error));
    return mox_run_tp_return_shared(run, x->share, MOX_RUN_AT(run, float, tp_y), space_of_y(run), error);
}

moxie_status mox_run_shared(mox_run *run, int64_t number, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    if (!mox_plan_has_shared(plan))
        return MOXIE_OK;
    run->shared_y = space_of_y(run);
    if (plan->kernels.shared_gate != NULL)
        run->shared_weight = MOX_RUN_AT(run, float, shared_weight) + run->first;
    return plan->shared_cut == MOX_TP_ROWS ? run_rows(run, number, error) : run_whole(run, error);
}
