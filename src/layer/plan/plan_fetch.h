/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_fetch.h - host memory of a plan on a GPU whose layer gets its records from a source (device_source.h): a run may
 * not allocate, and what is copied from or to the device must lie in pinned memory.
 *
 *     pinned | ids of the batch | tables | tables | ... |       a ring: one entry for each window that is under way
 *
 * The tables of a window, here and in device memory, are what kernels read by expert or by slot:
 *
 *     tables | slot_of [E] | expert_of [slots] | place_of [slots] | static scales of W13 [slots], of W2 [slots] |
 *
 * In the flow: plan_create -> [plan_fetch] -> run/run_windows.c.
 */
#ifndef MOX_LAYER_PLAN_FETCH_H
#define MOX_LAYER_PLAN_FETCH_H

#include "layer/plan/plan_beside.h"

enum { MOX_FETCH_RING = 4 };

/* Byte offsets in tables. */
typedef struct mox_fetch_tables {
    uint64_t slot_of, expert_of, place_of, scale[2], bytes;
} mox_fetch_tables;

struct mox_plan_fetch {
    const mox_device *device;
    void *pinned;
    int32_t *ids;                        /* [max_tokens, K] */
    char *ring[MOX_FETCH_RING];          /* tables */
    mox_cuda_event sent[MOX_FETCH_RING]; /* the copy from this entry is done */
    int32_t entry;                       /* used last */
    mox_fetch_tables tables;
    int32_t *experts;        /* [E] of the pass */
    int32_t *order;          /* [E] position of an expert's rows in y: the windows in turn; -1: it is not used */
    int64_t *pairs;          /* [E] of the pass */
    int64_t count, ordered;  /* experts of the pass; those that were in a window */
    const void *base;        /* of the window */
    mox_plan_beside *beside; /* of experts that the host computes; NULL: there are none */
};

/* Nothing unless the plan's layer has such a source. */
moxie_status mox_plan_fetch_create(moxie_plan *plan, moxie_error *error);
void mox_plan_fetch_destroy(mox_plan_fetch *fetch);
/* The tables' places for windows of so many experts and slots. */
mox_fetch_tables mox_fetch_tables_of(int64_t experts, int64_t slots);

#endif
