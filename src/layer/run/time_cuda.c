/* SPDX-License-Identifier: Apache-2.0
 *
 * time_cuda.c - measures how long runs on a GPU take as an engine makes them: captured once in a graph, launched many
 * times.
 *
 *     copy in -> run 0 -> [capture: run 0, run 1, ...] -> launch (warm) -> timer | launch | timer, ... -> copy out
 *
 * The driver loads a kernel at its first launch, which must not happen while a stream is captured. So run 0 runs once
 * before the capture.
 */
#include "layer/run/time_cuda.h"

#include "base/memory.h"
#include "layer/run/run_mirror.h"

static moxie_status begin_runs(const moxie_cuda_timed_run *timed, int32_t count, mox_mirrored_run *runs,
                               moxie_error *error)
{
    for (int32_t i = 0; i < count; i++) {
        MOX_FAIL_IF(timed[i].plan == NULL || timed[i].args == NULL, MOXIE_ERR_ARGUMENT, error,
                    "run %d to be timed has no plan or no arguments", (int)i);
        runs[i] = (mox_mirrored_run) { .plan = timed[i].plan, .call = MOX_RUN_WHOLE };
        const mox_device *device = &runs[i].plan->device;
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

static moxie_status time_mirrored(const mox_mirror *m, const mox_mirrored_run *runs, int32_t count, int32_t repeats,
                                  double *seconds, moxie_error *error)
{
    const mox_cuda_table *table = m->device->table;
    void *graph = NULL, *timer = NULL;
    moxie_status status = mox_mirror_copy(m, true, error);
    if (status == MOXIE_OK)
        status = mox_mirror_enqueue(m, &runs[0], NULL, error);
    if (status == MOXIE_OK)
        status = table->stream_wait(m->stream, error);
    if (status == MOXIE_OK)
        status = capture(m, runs, count, &graph, error);
    if (status == MOXIE_OK)
        status = table->timer_create(&timer, error);
    if (status == MOXIE_OK)
        status = time_launches(m, graph, timer, repeats, seconds, error);
    if (status == MOXIE_OK)
        status = mox_mirror_copy(m, false, error);
    table->timer_destroy(timer);
    table->graph_destroy(graph);
    return status;
}

moxie_status mox_cuda_time_runs(const moxie_cuda_timed_run *timed, int32_t count, int32_t repeats, double *seconds,
                                moxie_error *error)
{
    MOX_FAIL_IF(count < 1 || repeats < 1, MOXIE_ERR_ARGUMENT, error,
                "%d runs were to be timed %d times; both must be at least 1", (int)count, (int)repeats);
    for (int32_t i = 0; i < count; i++)
        MOX_FAIL_IF(
            timed[i].plan != NULL && timed[i].plan->ranks != NULL, MOXIE_ERR_UNSUPPORTED, error,
            "run %d: the host takes part in a run over ranks, so no graph can hold it: time a plan that is made "
            "without options.comm, or the calls themselves",
            (int)i);
    mox_mirror m = { 0 };
    mox_mirrored_run *runs = mox_calloc((uint64_t)count, sizeof *runs);
    MOX_FAIL_IF(runs == NULL, MOXIE_ERR_MEMORY, error, "no memory for the arguments of %d runs", (int)count);
    moxie_status status = begin_runs(timed, count, runs, error);
    if (status == MOXIE_OK)
        status = mox_mirror_open(&m, runs, count, false, error);
    if (status == MOXIE_OK)
        status = time_mirrored(&m, runs, count, repeats, seconds, error);
    mox_mirror_close(&m);
    mox_free(runs);
    return status;
}
