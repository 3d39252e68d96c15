/* SPDX-License-Identifier: Apache-2.0
 *
 * staged.h - runs on a GPU whose arguments lie in the host's memory: one block of device memory with a range for each
 * host pointer, which runs that name the same pointer share.
 *
 *     open -> copy in -> enqueue ... -> copy out -> close         run_staged.c: one run at once; time_cuda.c: many, as
 * a graph
 */
#ifndef MOX_LAYER_STAGED_H
#define MOX_LAYER_STAGED_H

#include "layer/run/run.h"

#define MOX_STAGED_RANGES 12 /* of a run, at most */

/* The same bytes on both sides. */
typedef struct mox_staged_range {
    void *host;
    uint64_t bytes, at; /* in the block */
    bool in, out;
} mox_staged_range;

typedef struct mox_staged {
    const mox_device *device;
    char *block;
    mox_staged_range *ranges;
    int64_t count;
    bool workspace_out; /* workspaces come back, too */
    mox_cuda_stream stream;
} mox_staged;

typedef struct mox_staged_run {
    const moxie_plan *plan;
    mox_run_call call;
    moxie_run_args host; /* checked */
    float *rows;         /* of MOX_RUN_EXPERTS and _COMBINE */
} mox_staged_run;

/* Checks sizes and the workspace, and keeps the arguments; the rest is checked when they are enqueued. */
moxie_status mox_staged_run_begin(mox_staged_run *run, const moxie_run_args *args, moxie_error *error);

/* Memory for `count` begun runs, all of one device, and a stream. mox_staged_close() in any case. */
moxie_status mox_staged_open(mox_staged *s, const mox_staged_run *runs, int64_t count, bool workspace_out,
                             moxie_error *error);
void mox_staged_close(mox_staged *s);
/* What runs read to the device, or what they wrote from it; waits. */
moxie_status mox_staged_copy(const mox_staged *s, bool in, moxie_error *error);
/* The run with device pointers. */
moxie_status mox_staged_enqueue(const mox_staged *s, const mox_staged_run *run, const mox_probe *probe,
                                moxie_error *error);

/* A run of a plan on a device with pointers of the host: copies in, runs, copies out, waits. Its probe sees the host.
 */
moxie_status mox_run_staged(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                            const mox_probe *probe, moxie_error *error);

#endif
