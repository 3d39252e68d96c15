/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_run.c - runs a plan for callers with host memory.
 *
 *     on the host                 mox_run_enqueue with the caller's workspace
 *     on the host, traced         mox_run_enqueue with a larger workspace, allocated here
 *     on a device                 mox_run_mirrored: copies in, runs, copies out
 */
#include "layer/run/plan_run.h"

#include "layer/run/run_args.h"
#include "layer/run/run_mirror.h"

static moxie_status run_traced(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                               const mox_probe *probe, moxie_error *error)
{
    mox_run checked;
    MOX_TRY(mox_run_begin(plan, args, 0, &checked, error));
    void *workspace = mox_alloc_pages(plan->space.traced_bytes);
    MOX_FAIL_IF(workspace == NULL, MOXIE_ERR_MEMORY, error,
                "no memory to trace a run with a workspace of %llu bytes: make the plan with a smaller max_tokens",
                (unsigned long long)plan->space.traced_bytes);
    checked.args.workspace = workspace;
    checked.args.workspace_bytes = plan->space.traced_bytes;
    const moxie_status status = mox_run_enqueue(plan, call, &checked.args, rows, NULL, probe, error);
    mox_free_pages(workspace);
    return status;
}

moxie_status mox_plan_run(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                          const mox_probe *probe, moxie_error *error)
{
    MOX_FAIL_IF(probe != NULL && plan->ranks != NULL, MOXIE_ERR_UNSUPPORTED, error,
                "a plan with a comm cannot be checked stage by stage: check one that is made without options.comm");
    if (plan->backend->on_device)
        return mox_run_mirrored(plan, call, args, rows, probe, error);
    if (probe != NULL)
        return run_traced(plan, call, args, rows, probe, error);
    return mox_run_enqueue(plan, call, args, rows, NULL, NULL, error);
}
