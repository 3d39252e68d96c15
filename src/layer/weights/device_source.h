/* SPDX-License-Identifier: Apache-2.0
 *
 * device_source.h - where a run on a GPU gets records that are not all in device memory: a table of functions, which
 * src/store fills. The sibling of record_source.h, for kernels that read records which lie end to end.
 *
 *     begin   a run tells which experts it will use, over all its passes
 *     want    a pass tells its own
 *     next    a window: slots in device memory with the records of some of them, which may still be on their way
 *     ready   the run's stream waits until the window's records are there
 *     done    all kernels that read the window are enqueued, or the host has computed it
 *     end     the run has enqueued everything, or has failed
 *
 * One session at a time: begin() waits for the end of another run's. Calls come from one thread, in this order: begin,
 * (want, (next, ready, done) ...) for each pass, end. Nothing is allocated.
 */
#ifndef MOX_LAYER_DEVICE_SOURCE_H
#define MOX_LAYER_DEVICE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include <moxie/moxie.h>

#include "cuda/cuda_table.h"

/* Slot s is at base + s * record_bytes. */
typedef struct mox_device_window {
    const void *base;
    uint64_t record_bytes;
    int64_t slots;
    int64_t count;          /* of experts; 0: none is left */
    const int32_t *experts; /* [count] */
    const int32_t *slot;    /* [count] of each */
    bool last;              /* no further window of this pass */
    bool on_host;           /* the host computes its experts (run_beside.h): no slots, no call of ready() */
} mox_device_window;

typedef struct mox_device_source {
    void *user;
    int64_t max_slots; /* of a window */
    /* `experts` [count] differ. The host has waited for the stream up to here for `waited` seconds. On failure the
     * session is not open. */
    moxie_status (*begin)(void *user, mox_cuda_stream stream, const int32_t *experts, int64_t count, double waited,
                          moxie_error *error);
    /* Experts of those that begin() got. */
    moxie_status (*want)(void *user, const int32_t *experts, int64_t count, moxie_error *error);
    moxie_status (*next)(void *user, mox_device_window *out, moxie_error *error);
    moxie_status (*ready)(void *user, moxie_error *error);
    moxie_status (*done)(void *user, moxie_error *error);
    /* Returns `status`, the result of the run so far, if that is an error. */
    moxie_status (*end)(void *user, moxie_status status, moxie_error *error);
    /* Where the host computes experts (moxie_layer.beside): its plan of that layer, and rows [T,K,H] of a run. */
    moxie_status (*host_plan)(const moxie_layer *layer, const moxie_options *options, moxie_plan **out,
                              moxie_error *error);
    moxie_status (*host_rows)(const moxie_plan *plan, const moxie_run_args *args, float *rows, moxie_error *error);
    void (*host_plan_destroy)(moxie_plan *plan);
    /* A layer of the same records that are all in device memory, for a check; mox_layer_destroy() it. */
    moxie_status (*resident)(void *user, const moxie_layer_config *config, const moxie_options *options,
                             moxie_layer **out, moxie_error *error);
} mox_device_source;

#endif
