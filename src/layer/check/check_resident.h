/* SPDX-License-Identifier: Apache-2.0
 *
 * check_resident.h - the plan whose stages a check follows. A run on a GPU with a store computes experts as they come,
 * so no stage of it is whole. In its place the check follows a plan with the same options on a layer of the same file
 * whose records are all in device memory. Other plans are followed themselves.
 *
 * In the flow: check.c -> [check_resident] -> a traced run -> check_store.c (the store's bytes are the same).
 */
#ifndef MOX_LAYER_CHECK_RESIDENT_H
#define MOX_LAYER_CHECK_RESIDENT_H

#include "layer/adapters/adapters.h"
#include "layer/plan/plan.h"

typedef struct mox_check_resident {
    const moxie_plan *plan; /* to follow */
    moxie_run_args args;    /* of its run */
    moxie_layer *layer;     /* the following are NULL where that is the plan to check */
    moxie_plan *own;
    moxie_adapters adapters; /* the caller's, for `layer` */
} mox_check_resident;

/* mox_check_resident_close() in any case; `out` is all zero before. */
moxie_status mox_check_resident_open(const moxie_plan *plan, const moxie_run_args *args, mox_check_resident *out,
                                     moxie_error *error);
void mox_check_resident_close(mox_check_resident *resident);

#endif
