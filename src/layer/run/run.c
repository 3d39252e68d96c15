/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c - the chain of a run (run.h): routes the batch once, then computes the experts pass by pass (run_pass.h).
 *
 *     mox_run_enqueue
 *       run_whole      route; then for each pass: begin (permute), experts, combine
 *       run_experts    for each pass: begin, experts up to y, scatter
 *       run_combine    combine alone
 *       mox_run_ranks  run_whole where ranks exchange rows (run_ranks.h)
 *
 * Every operation is a call of the back end's table (backend.h) with a kernel of the plan and arguments that point into
 * the caller's arrays, the workspace and the layer.
 */
#include "layer/run/run.h"

#include "base/sizes.h"
#include "layer/run/run_args.h"
#include "layer/run/run_fetch.h"
#include "layer/run/run_pass.h"
#include "layer/run/run_ranks.h"
#include "layer/run/run_route.h"
#include "layer/run/run_tp.h"

/* ---- the four calls ------------------------------------------------------------------------------ */

static moxie_status run_passes(mox_run *run, moxie_error *error)
{
    const int64_t each = mox_plan_pass(run->plan, run->args.tokens);
    for (int64_t t = 0; t < run->args.tokens; t += each) {
        MOX_TRY(mox_run_begin_pass(run, t, each, error));
        MOX_TRY(mox_run_pass(run, true, error));
    }
    return MOXIE_OK;
}

/* moxie_plan_run: the whole chain. */
static moxie_status run_whole(mox_run *run, moxie_error *error)
{
    MOX_TRY(mox_run_route(run, run->ids == NULL, true, error));
    MOX_TRY(mox_run_copy_routing(run, error));
    MOX_TRY(mox_run_fetch_begin(run, error));
    return mox_run_fetch_end(run, run_passes(run, error), error);
}

static moxie_status run_rows(mox_run *run, float *rows, moxie_error *error)
{
    const moxie_layer_config *c = &run->plan->config;
    int64_t passes;
    MOX_TRY(mox_run_tp_passes(run, run->args.tokens, &passes, error));
    for (int64_t i = 0; i < passes; i++) {
        MOX_TRY(mox_run_begin_pass(run, mox_min_i64(i * run->plan->pass_tokens, run->args.tokens),
                                   run->plan->pass_tokens, error));
        MOX_TRY(mox_run_pass(run, false, error));
        MOX_TRY(mox_run_scatter(run, run->permutation.position, run->tokens * c->top_k, c->hidden, MOXIE_F32,
                                rows + run->first * c->top_k * c->hidden, error));
    }
    return MOXIE_OK;
}

/* moxie_plan_experts. */
static moxie_status run_experts(mox_run *run, float *rows, moxie_error *error)
{
    MOX_TRY(mox_run_fetch_begin(run, error));
    return mox_run_fetch_end(run, run_rows(run, rows, error), error);
}

/* moxie_plan_combine: the whole batch at once, since combine stores nothing in the workspace. */
static moxie_status run_combine(mox_run *run, const float *rows, moxie_error *error)
{
    run->tokens = run->args.tokens;
    const mox_combine_args args = mox_run_combine_args(run, rows, NULL);
    return mox_run_combine(run, &args, error);
}

/* The arguments that a call needs. */
static uint32_t needs_of(const moxie_plan *plan, mox_run_call call)
{
    const uint32_t weights = plan->config.routing.on_input ? MOX_NEEDS_WEIGHTS : 0;
    const uint32_t identity =
        mox_config_adds_identity(&plan->config, plan->ranks != NULL) ? MOX_NEEDS_HIDDEN | MOX_NEEDS_WEIGHTS : 0;
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
    return run->args.tokens > 0 || run->plan->ranks != NULL ? device->table->use(device->ordinal, error) : MOXIE_OK;
}

static moxie_status walk(mox_run *run, mox_run_call call, float *rows, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const bool waits = call == MOX_RUN_EXPERTS && plan->tp_cut != MOX_TP_WHOLE; /* others wait for this rank */
    if (plan->ranks != NULL && call == MOX_RUN_WHOLE)
        return mox_run_ranks(run, error);
    if (run->args.tokens == 0 && !waits)
        return MOXIE_OK;
    switch (call) {
    case MOX_RUN_WHOLE: return run_whole(run, error);
    case MOX_RUN_ROUTE: MOX_TRY(mox_run_route(run, true, false, error)); return mox_run_copy_routing(run, error);
    case MOX_RUN_EXPERTS: return run_experts(run, rows, error);
    default: return run_combine(run, rows, error);
    }
}

/* The clocks count the whole run. What the comm only waited is no work of an exchange. */
static moxie_status timed_walk(mox_run *run, mox_run_call call, float *rows, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const moxie_comm *comm = plan->ranks != NULL ? plan->ranks->comm : NULL;
    const uint64_t waited = comm != NULL ? mox_comm_waited(comm) : 0;
    const uint64_t sent = comm != NULL ? mox_comm_sent_bytes(comm) : 0;
    mox_clock_start(plan->clocks, plan->executor.workers, MOX_PHASE_ROUTE);
    MOX_TRY(walk(run, call, rows, error));
    if (comm != NULL && plan->ranks->timed)
        MOX_TRY(run->queue.table->stream_wait(run->queue.stream, error));
    mox_clock_stop(plan->clocks, plan->executor.workers);
    if (comm == NULL)
        return MOXIE_OK;
    if (!plan->ranks->timed)
        mox_clock_move(plan->clocks, MOX_PHASE_EXCHANGE, MOX_PHASE_WAIT, mox_comm_waited(comm) - waited);
    plan->ranks->sent_bytes += mox_comm_sent_bytes(comm) - sent;
    return MOXIE_OK;
}

/* The others of a run over ranks learn that this one's arguments are wrong. While a graph is captured nobody listens.
 */
static moxie_status refuse(const moxie_plan *plan, mox_run_call call, mox_cuda_stream stream, moxie_status status)
{
    int32_t captured = 0;
    if (plan->ranks == NULL || call != MOX_RUN_WHOLE)
        return status;
    if (plan->backend->on_device && plan->device.table->capturing(stream, &captured, NULL) == MOXIE_OK && captured)
        return status;
    return mox_run_ranks_refuse(plan, status);
}

moxie_status mox_run_enqueue(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                             mox_cuda_stream stream, const mox_probe *probe, moxie_error *error)
{
    mox_run run;
    moxie_status status = mox_run_begin(plan, args, needs_of(plan, call), &run, error);
    if (status == MOXIE_OK && plan->backend->on_device)
        status = use_device(&run, error);
    if (status != MOXIE_OK)
        return refuse(plan, call, stream, status);
    run.queue = (mox_queue) { &plan->executor, plan->device.table, &plan->device.features, stream };
    run.probe = probe;
    return timed_walk(&run, call, rows, error);
}
