/* SPDX-License-Identifier: Apache-2.0
 *
 * time_cuda.c - measures how long runs on a GPU take as an engine makes them: captured once in a graph, launched many
 * times.
 *
 *     copy in -> run 0 -> [capture: run 0, run 1, ...] -> launch (warm) -> timer | launch | timer, ... -> copy out
 *
 * The driver loads a kernel at its first launch, which must not happen while a stream is captured. So run 0 runs once
 * before the capture.
 *
 * Runs over ranks: all ranks time theirs together. They agree before the graphs are launched, since a rank without one
 * would leave the others waiting on their GPUs. Where no graph can hold the runs they are timed as calls:
 *
 *     barrier -> clock | run 0, run 1, ..., wait for the stream | clock
 *
 * So are runs on a layer of a store, which are made as often as they are timed: each changes what is in device memory.
 *
 * With ranks run 0 is then made PARTS times more with a wait at the end of each phase, and the plan's phases are those
 * of such a run.
 */
#include "layer/run/time_cuda.h"

#include "base/memory.h"
#include "layer/plan/plan_replay.h"
#include "layer/run/replay.h"
#include "layer/run/run_mirror.h"

enum { PARTS = 8, WARM_CALLS = 3, CALLS_AT_ONCE = 8 };

/* Whether the host takes part in the runs, so that no graph can hold them. */
static bool needs_host(const moxie_plan *plan)
{
    return plan->fetch != NULL || (plan->ranks != NULL && !mox_ranks_fit_graph(plan->ranks));
}

static moxie_status begin_runs(const moxie_cuda_timed_run *timed, int32_t count, mox_mirrored_run *runs,
                               moxie_error *error)
{
    for (int32_t i = 0; i < count; i++) {
        MOX_FAIL_IF(timed[i].plan == NULL || timed[i].args == NULL, MOXIE_ERR_ARGUMENT, error,
                    "run %d to be timed has no plan or no arguments", (int)i);
        runs[i] = (mox_mirrored_run) { .plan = timed[i].plan, .call = MOX_RUN_WHOLE };
        const mox_device *device = &runs[i].plan->device;
        const mox_ranks *ranks = runs[i].plan->ranks, *first = runs[0].plan->ranks;
        MOX_FAIL_IF((ranks == NULL) != (first == NULL) || (ranks != NULL && ranks->comm != first->comm),
                    MOXIE_ERR_ARGUMENT, error,
                    "plan %d has another comm than plan 0: runs that are timed together share a comm, or have none",
                    (int)i);
        MOX_FAIL_IF(
            needs_host(runs[i].plan) != needs_host(runs[0].plan), MOXIE_ERR_ARGUMENT, error,
            "the host takes part in the run of only one of plans 0 and %d, so no graph can hold both: give both "
            "an exchange_capacity, or none",
            (int)i);
        MOX_FAIL_IF(mox_device_is_host(device) || device->ordinal != runs[0].plan->device.ordinal, MOXIE_ERR_ARGUMENT,
                    error, "plan %d is for another GPU than plan 0: runs that are timed together must share a device",
                    (int)i);
        MOX_TRY(mox_mirrored_run_begin(&runs[i], timed[i].args, error));
    }
    return MOXIE_OK;
}

/* Ends the capture even when a run failed: the stream would stay in capture mode. */
static moxie_status capture(const mox_mirror *m, const mox_mirrored_run *runs, int32_t count, void **graph,
                            moxie_error *error)
{
    const mox_cuda_table *table = m->device->table;
    moxie_status status = table->capture_begin(m->stream, error);
    if (status != MOXIE_OK)
        return status;
    for (int32_t i = 0; i < count && status == MOXIE_OK; i++)
        status = mox_mirror_enqueue(m, &runs[i], NULL, error);
    const moxie_status ended = table->capture_end(m->stream, graph, status == MOXIE_OK ? error : NULL);
    return status != MOXIE_OK ? status : ended;
}

static moxie_status time_launches(const mox_mirror *m, void *graph, void *timer, int32_t repeats, double *seconds,
                                  moxie_error *error)
{
    const mox_cuda_table *table = m->device->table;
    MOX_TRY(table->graph_launch(graph, m->stream, error));
    for (int32_t i = 0; i < repeats; i++) {
        float milliseconds;
        MOX_TRY(table->timer_start(timer, m->stream, error));
        MOX_TRY(table->graph_launch(graph, m->stream, error));
        MOX_TRY(table->timer_stop(timer, m->stream, &milliseconds, error));
        seconds[i] = (double)milliseconds * 1e-3;
    }
    return MOXIE_OK;
}

/* ---- ranks ------------------------------------------------------------------------------------------------ */

/* Whether all ranks have come so far: on each, `status` or that another one has failed. */
static moxie_status agree(const moxie_plan *plan, moxie_status status, moxie_error *error)
{
    return plan->ranks != NULL ? mox_comm_agree(plan->ranks->comm, status, "prepare or capture its runs", error)
                               : status;
}

static moxie_status time_calls(const mox_mirror *m, const mox_mirrored_run *runs, int32_t count, int32_t repeats,
                               double *seconds, moxie_error *error)
{
    for (int32_t i = 0; i < repeats; i++) {
        MOX_TRY(agree(runs[0].plan, MOXIE_OK, error));
        const uint64_t begin = mox_clock_now();
        for (int32_t r = 0; r < count; r++)
            MOX_TRY(mox_mirror_enqueue(m, &runs[r], NULL, error));
        MOX_TRY(m->device->table->stream_wait(m->stream, error));
        seconds[i] = 1e-9 * (double)(mox_clock_now() - begin);
    }
    return MOXIE_OK;
}

static void set_clocks(const moxie_plan *plan, uint64_t divisor)
{
    for (int32_t w = 0; w < plan->executor.workers; w++)
        for (int p = 0; p < MOX_PHASES; p++)
            plan->clocks[w].ns[p] = divisor > 0 ? plan->clocks[w].ns[p] / divisor : 0;
}

static moxie_status time_parts(const mox_mirror *m, const mox_mirrored_run *run, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    if (run->plan->ranks == NULL)
        return MOXIE_OK;
    set_clocks(run->plan, 0);
    run->plan->ranks->sent_bytes = 0;
    run->plan->ranks->timed = true;
    for (int i = 0; i < PARTS && status == MOXIE_OK; i++)
        status = mox_mirror_enqueue(m, run, NULL, error);
    run->plan->ranks->timed = false;
    set_clocks(run->plan, PARTS);
    run->plan->ranks->sent_bytes /= PARTS;
    return status;
}

/* ---- the calls -------------------------------------------------------------------------------------------- */

static moxie_status time_graph(const mox_mirror *m, const mox_mirrored_run *runs, int32_t count, int32_t repeats,
                               double *seconds, moxie_error *error)
{
    const mox_cuda_table *table = m->device->table;
    void *graph = NULL, *timer = NULL;
    moxie_status status = capture(m, runs, count, &graph, error);
    if (status == MOXIE_OK)
        status = table->timer_create(&timer, error);
    status = agree(runs[0].plan, status, error);
    if (status == MOXIE_OK)
        status = time_launches(m, graph, timer, repeats, seconds, error);
    table->timer_destroy(timer);
    table->graph_destroy(graph);
    return status;
}

static moxie_status time_mirrored(const mox_mirror *m, const mox_mirrored_run *runs, int32_t count, int32_t repeats,
                                  double *seconds, moxie_error *error)
{
    if (runs[0].plan->fetch == NULL) { /* one more run would change what is where */
        MOX_TRY(mox_mirror_enqueue(m, &runs[0], NULL, error));
        MOX_TRY(m->device->table->stream_wait(m->stream, error));
    }
    if (needs_host(runs[0].plan))
        MOX_TRY(time_calls(m, runs, count, repeats, seconds, error));
    else
        MOX_TRY(time_graph(m, runs, count, repeats, seconds, error));
    MOX_TRY(time_parts(m, &runs[0], error));
    return mox_mirror_copy(m, false, error);
}

moxie_status mox_cuda_time_runs(const moxie_cuda_timed_run *timed, int32_t count, int32_t repeats, double *seconds,
                                moxie_error *error)
{
    MOX_FAIL_IF(count < 1 || repeats < 1, MOXIE_ERR_ARGUMENT, error,
                "%d runs were to be timed %d times; both must be at least 1", (int)count, (int)repeats);
    mox_mirror m = { 0 };
    mox_mirrored_run *runs = mox_calloc((uint64_t)count, sizeof *runs);
    MOX_FAIL_IF(runs == NULL, MOXIE_ERR_MEMORY, error, "no memory for the arguments of %d runs", (int)count);
    moxie_status status = begin_runs(timed, count, runs, error);
    if (status == MOXIE_OK)
        status = mox_mirror_open(&m, runs, count, false, error);
    if (status == MOXIE_OK)
        status = mox_mirror_copy(&m, true, error);
    if (timed[0].plan != NULL)
        status = agree(timed[0].plan, status, error);
    if (status == MOXIE_OK)
        status = time_mirrored(&m, runs, count, repeats, seconds, error);
    mox_mirror_close(&m);
    mox_free(runs);
    return status;
}

/* `plan` NULL: kernel by kernel. The queue of the stream never fills, so no call waits for room in it. */
static moxie_status time_host(const mox_mirror *m, const mox_mirrored_run *run, moxie_plan *plan, int32_t repeats,
                              double *seconds, moxie_error *error)
{
    const moxie_run_args args = mox_mirror_args(m, run);
    for (int32_t i = -WARM_CALLS; i < repeats; i++) {
        if (i % CALLS_AT_ONCE == 0)
            MOX_TRY(m->device->table->stream_wait(m->stream, error));
        const uint64_t begin = mox_clock_now();
        MOX_TRY(plan != NULL ? mox_replay_run(plan, &args, m->stream, error) : mox_mirror_enqueue(m, run, NULL, error));
        if (i >= 0)
            seconds[i] = 1e-9 * (double)(mox_clock_now() - begin);
    }
    return m->device->table->stream_wait(m->stream, error);
}

moxie_status mox_cuda_time_host(const moxie_cuda_timed_run *timed, int32_t repeats, double *equal, double *kernels,
                                moxie_error *error)
{
    mox_mirror m = { 0 };
    mox_mirrored_run run;
    MOX_FAIL_IF(repeats < 1, MOXIE_ERR_ARGUMENT, error, "calls were to be timed %d times; it must be at least 1",
                (int)repeats);
    MOX_TRY(begin_runs(timed, 1, &run, error));
    MOX_FAIL_IF(run.plan->ranks != NULL, MOXIE_ERR_UNSUPPORTED, error,
                "a plan with a comm waits for other ranks in its calls: time its runs with moxie_cuda_time_runs");
    moxie_status status = mox_mirror_open(&m, &run, 1, false, error);
    if (status == MOXIE_OK)
        status = mox_mirror_copy(&m, true, error);
    if (status == MOXIE_OK)
        status = time_host(&m, &run, NULL, repeats, kernels, error);
    mox_plan_replay_forget(timed->plan->replay); /* else earlier graphs decide when there is one */
    if (status == MOXIE_OK)
        status = time_host(&m, &run, timed->plan, repeats, equal, error);
    mox_plan_replay_forget(timed->plan->replay); /* of the mirror's memory */
    if (status == MOXIE_OK)
        status = mox_mirror_copy(&m, false, error);
    mox_mirror_close(&m);
    return status;
}
