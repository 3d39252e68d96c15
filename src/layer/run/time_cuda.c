/* SPDX-License-Identifier: Apache-2.0
 *
 * time_cuda.c - how long runs on a GPU take when an engine makes them: enqueued once into a graph, launched many times.
 *
 *     copy in -> run 0 -> [capture: run 0, run 1, ...] -> launch (warm) -> timer | launch | timer, ... -> copy out
 *
 * The single run before has the driver load the kernels, which it does when they are first launched; a stream that is
 * captured is not the place for that.
 */
#include "layer/run/time_cuda.h"

#include "base/memory.h"
#include "layer/run/staged.h"

static moxie_status begin_runs(const moxie_cuda_timed_run *timed, int32_t count, mox_staged_run *runs,
                               moxie_error *error)
{
    for (int32_t i = 0; i < count; i++) {
        MOX_FAIL_IF(timed[i].plan == NULL || timed[i].args == NULL, MOXIE_ERR_ARGUMENT, error,
                    "run %d of those to be timed has no plan or no arguments", (int)i);
        runs[i] = (mox_staged_run) { .plan = timed[i].plan, .call = MOX_RUN_WHOLE };
        const mox_device *device = &runs[i].plan->device;
        MOX_FAIL_IF(mox_device_is_host(device) || device->ordinal != runs[0].plan->device.ordinal, MOXIE_ERR_ARGUMENT,
                    error, "plan %d is not of the first one's GPU: runs that are timed together share a device",
                    (int)i);
        MOX_TRY(mox_staged_run_begin(&runs[i], timed[i].args, error));
    }
    return MOXIE_OK;
}

/* A capture is ended even when a run was refused: the stream would stay in it. */
static moxie_status capture(const mox_staged *s, const mox_staged_run *runs, int32_t count, void **graph,
                            moxie_error *error)
{
    const mox_cuda_table *table = s->device->table;
    moxie_status status = table->capture_begin(s->stream, error);
    if (status != MOXIE_OK)
        return status;
    for (int32_t i = 0; i < count && status == MOXIE_OK; i++)
        status = mox_staged_enqueue(s, &runs[i], NULL, error);
    const moxie_status ended = table->capture_end(s->stream, graph, status == MOXIE_OK ? error : NULL);
    return status != MOXIE_OK ? status : ended;
}

static moxie_status time_launches(const mox_staged *s, void *graph, void *timer, int32_t repeats, double *seconds,
                                  moxie_error *error)
{
    const mox_cuda_table *table = s->device->table;
    MOX_TRY(table->graph_launch(graph, s->stream, error));
    for (int32_t i = 0; i < repeats; i++) {
        float milliseconds;
        MOX_TRY(table->timer_start(timer, s->stream, error));
        MOX_TRY(table->graph_launch(graph, s->stream, error));
        MOX_TRY(table->timer_stop(timer, s->stream, &milliseconds, error));
        seconds[i] = (double)milliseconds * 1e-3;
    }
    return MOXIE_OK;
}

static moxie_status time_staged(const mox_staged *s, const mox_staged_run *runs, int32_t count, int32_t repeats,
                                double *seconds, moxie_error *error)
{
    const mox_cuda_table *table = s->device->table;
    void *graph = NULL, *timer = NULL;
    moxie_status status = mox_staged_copy(s, true, error);
    if (status == MOXIE_OK)
        status = mox_staged_enqueue(s, &runs[0], NULL, error);
    if (status == MOXIE_OK)
        status = table->stream_wait(s->stream, error);
    if (status == MOXIE_OK)
        status = capture(s, runs, count, &graph, error);
    if (status == MOXIE_OK)
        status = table->timer_create(&timer, error);
    if (status == MOXIE_OK)
        status = time_launches(s, graph, timer, repeats, seconds, error);
    if (status == MOXIE_OK)
        status = mox_staged_copy(s, false, error);
    table->timer_destroy(timer);
    table->graph_destroy(graph);
    return status;
}

moxie_status mox_cuda_time_runs(const moxie_cuda_timed_run *timed, int32_t count, int32_t repeats, double *seconds,
                                moxie_error *error)
{
    MOX_FAIL_IF(count < 1 || repeats < 1, MOXIE_ERR_ARGUMENT, error,
                "%d runs were to be timed %d times; both must be at least 1", (int)count, (int)repeats);
    mox_staged s = { 0 };
    mox_staged_run *runs = mox_calloc((uint64_t)count, sizeof *runs);
    MOX_FAIL_IF(runs == NULL, MOXIE_ERR_MEMORY, error, "no memory for the arguments of %d runs", (int)count);
    moxie_status status = begin_runs(timed, count, runs, error);
    if (status == MOXIE_OK)
        status = mox_staged_open(&s, runs, count, false, error);
    if (status == MOXIE_OK)
        status = time_staged(&s, runs, count, repeats, seconds, error);
    mox_staged_close(&s);
    mox_free(runs);
    return status;
}
