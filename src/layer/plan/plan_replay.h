/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_replay.h - what a plan on a GPU remembers of its last call, so that equal calls can be launched as one graph
 * (layer/run/replay.h says when).
 */
#ifndef MOX_LAYER_PLAN_REPLAY_H
#define MOX_LAYER_PLAN_REPLAY_H

#include "layer/plan/plan.h"

/* All that decides what a call enqueues, besides the plan itself. Compared byte by byte, so every byte is set. */
typedef struct mox_replay_key {
    moxie_run_args args;
    mox_cuda_stream stream;
    uint64_t changes; /* of the layer */
} mox_replay_key;

struct mox_plan_replay {
    const mox_cuda_table *table;
    mox_replay_key key; /* of the last call; all zero: none, or it failed */
    int64_t equal;      /* calls in a row that were equal to the one before */
    int64_t wanted;     /* so many make a graph */
    void *graph;        /* of `key`; NULL: there is none */
    int64_t launches;   /* of the graph */
    bool refused;       /* no graph can be made of `key`, or it cannot be launched */
};

/* Nothing where calls are never launched as graphs: on the host, with other ranks, where the host decides in the middle
 * of a run, and where options.call_graphs says so. */
moxie_status mox_plan_replay_create(moxie_plan *plan, const moxie_options *options, moxie_error *error);
void mox_plan_replay_destroy(mox_plan_replay *replay);
/* Another call comes: the graph of the last one goes. */
void mox_plan_replay_expect(mox_plan_replay *replay, const mox_replay_key *key);
/* The graph goes, and none is made of equal calls that follow. */
void mox_plan_replay_refuse(mox_plan_replay *replay);
/* As of a new plan. `replay` may be NULL. */
void mox_plan_replay_forget(mox_plan_replay *replay);

#endif
