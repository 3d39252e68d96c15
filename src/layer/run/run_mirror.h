/* SPDX-License-Identifier: Apache-2.0
 *
 * run_mirror.h - runs on a GPU for callers whose memory is the host's. A mirror is one block of device memory with a
 * range for each host array; runs that name the same array share its range.
 *
 *     host arrays:          hidden   logits   ids   ...   output   workspace
 *     block on the device:  | hidden | logits | ids | ... | output | workspace |
 *
 *     open -> copy in -> enqueue ... -> copy out -> close
 *
 * In the flow: plan_run.c (one run), time_cuda.c (many runs, as a graph) -> [run_mirror] -> run.c.
 */
#ifndef MOX_LAYER_RUN_MIRROR_H
#define MOX_LAYER_RUN_MIRROR_H

#include "layer/run/run.h"

#define MOX_MIRROR_MAX_RANGES 15 /* host arrays of one run */

/* One array on the host and in the block. */
typedef struct mox_mirror_range {
    void *host;
    uint64_t bytes, at;              /* at: offset in the block */
    uint64_t scratch, scratch_bytes; /* what is not copied from the device: offset in the array */
    bool in, out;                    /* is copied to the device, from the device */
} mox_mirror_range;

typedef struct mox_mirror {
    const mox_device *device;
    char *block;
    mox_mirror_range *ranges;
    int64_t count;
    bool workspace_out; /* workspaces are copied back, too */
    mox_cuda_stream stream;
} mox_mirror;

typedef struct mox_mirrored_run {
    const moxie_plan *plan;
    mox_run_call call;
    moxie_run_args host; /* the caller's, checked by mox_mirrored_run_begin */
    float *rows;         /* of MOX_RUN_EXPERTS and _COMBINE */
} mox_mirrored_run;

/* Checks sizes and the workspace and stores the arguments. Enqueueing checks the rest. */
moxie_status mox_mirrored_run_begin(mox_mirrored_run *run, const moxie_run_args *args, moxie_error *error);

/* Allocates the block for `count` begun runs, all of one device, and creates a stream. Call mox_mirror_close() even
 * after a failure. */
moxie_status mox_mirror_open(mox_mirror *s, const mox_mirrored_run *runs, int64_t count, bool workspace_out,
                             moxie_error *error);
void mox_mirror_close(mox_mirror *s);
/* Copies to the device what the runs read (`in`), or from the device what they wrote; waits. */
moxie_status mox_mirror_copy(const mox_mirror *s, bool in, moxie_error *error);
/* The run's arguments with device pointers. */
moxie_run_args mox_mirror_args(const mox_mirror *s, const mox_mirrored_run *run);
/* Enqueues a run with device pointers on the mirror's stream. */
moxie_status mox_mirror_enqueue(const mox_mirror *s, const mox_mirrored_run *run, const mox_probe *probe,
                                moxie_error *error);

/* One run from start to end: copies in, runs, copies out, waits. Its probe sees host memory. */
moxie_status mox_run_mirrored(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                              const mox_probe *probe, moxie_error *error);

#endif
