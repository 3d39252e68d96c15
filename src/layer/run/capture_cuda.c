/* SPDX-License-Identifier: Apache-2.0
 *
 * capture_cuda.c - makes a graph of runs that are given device pointers (capture_cuda.h).
 */
#include "layer/run/capture_cuda.h"

static moxie_status check(moxie_plan *const *plans, const moxie_run_args *const *args, int32_t count,
                          moxie_error *error)
{
    MOX_FAIL_IF(count < 1, MOXIE_ERR_ARGUMENT, error, "a graph of %d runs was asked for; it holds 1 or more",
                (int)count);
    for (int32_t i = 0; i < count; i++) {
        MOX_FAIL_IF(plans[i] == NULL || args[i] == NULL, MOXIE_ERR_ARGUMENT, error,
                    "run %d of the graph has no plan or no arguments", (int)i);
        MOX_FAIL_IF(!plans[i]->backend->on_device, MOXIE_ERR_ARGUMENT, error,
                    "plan %d runs on the host: a graph holds runs of layers that were made with backend cuda", (int)i);
        MOX_FAIL_IF(plans[i]->fetch != NULL, MOXIE_ERR_UNSUPPORTED, error,
                    "plan %d is of a layer of a store, whose runs wait on the host for the chosen experts, to copy "
                    "those that are missing: run it outside of graphs, or give the GPU all experts "
                    "(moxie_layer_open_file)",
                    (int)i);
        MOX_FAIL_IF(plans[i]->device.ordinal != plans[0]->device.ordinal, MOXIE_ERR_ARGUMENT, error,
                    "plan %d is for another GPU than plan 0: runs of one graph must share a device", (int)i);
    }
    return MOXIE_OK;
}

static moxie_status enqueue_all(moxie_plan *const *plans, const moxie_run_args *const *args, int32_t count,
                                mox_cuda_stream stream, moxie_error *error)
{
    for (int32_t i = 0; i < count; i++)
        MOX_TRY(mox_run_enqueue(plans[i], MOX_RUN_WHOLE, args[i], NULL, stream, NULL, error));
    return MOXIE_OK;
}

/* Ends the capture even when a run failed: the stream would stay in capture mode. */
static moxie_status capture(moxie_plan *const *plans, const moxie_run_args *const *args, int32_t count,
                            mox_cuda_stream stream, void **graph, moxie_error *error)
{
    const mox_cuda_table *table = plans[0]->device.table;
    void *made = NULL;
    const moxie_status tried = enqueue_all(plans, args, count, stream, error);
    const moxie_status waited = table->stream_wait(stream, tried == MOXIE_OK ? error : NULL);
    if (tried != MOXIE_OK || waited != MOXIE_OK) /* the runs before one that failed use the caller's buffers no more */
        return tried != MOXIE_OK ? tried : waited;
    MOX_TRY(table->capture_begin(stream, error));
    const moxie_status status = enqueue_all(plans, args, count, stream, error);
    const moxie_status ended = table->capture_end(stream, &made, status == MOXIE_OK ? error : NULL);
    if (status == MOXIE_OK && ended == MOXIE_OK)
        *graph = made;
    else
        table->graph_destroy(made);
    return status != MOXIE_OK ? status : ended;
}

moxie_status mox_cuda_capture(moxie_plan *const *plans, const moxie_run_args *const *args, int32_t count, void **graph,
                              moxie_error *error)
{
    mox_cuda_stream stream = NULL;
    MOX_TRY(check(plans, args, count, error));
    const mox_cuda_table *table = plans[0]->device.table;
    MOX_TRY(table->use(plans[0]->device.ordinal, error));
    MOX_TRY(table->stream_create(&stream, error));
    const moxie_status status = capture(plans, args, count, stream, graph, error);
    table->stream_destroy(stream);
    return status;
}
