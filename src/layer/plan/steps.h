/* SPDX-License-Identifier: Apache-2.0
 *
 * steps.h - a plan as users read it: one step for each kernel that was chosen or rejected, in the order of the chain.
 *
 * In the flow: select -> [steps] -> moxie_plan_step_at, `moxie explain`.
 */
#ifndef MOX_LAYER_STEPS_H
#define MOX_LAYER_STEPS_H

#include "backend/backend.h"
#include "base/memory.h"

/* Which product a step's chosen kernel computes; MOX_NO_PRODUCT for other families and for rejected kernels. */
typedef struct mox_step_product {
    int8_t expert_kind, projection;
} mox_step_product;
#define MOX_NO_PRODUCT ((mox_step_product) { -1, -1 })

typedef struct mox_steps {
    mox_arena arena; /* strings of the items */
    moxie_plan_step *items;
    mox_step_product *products; /* [capacity], one an item */
    int32_t count, capacity;
} mox_steps;

/* Appends a copy of `step`, which is no product. */
moxie_status mox_steps_add(mox_steps *steps, const moxie_plan_step *step, moxie_error *error);
/* A copy of a text that lives as long as the steps; NULL when there is no memory. */
const char *mox_steps_copy_text(mox_steps *steps, const char *text);
void mox_steps_free(mox_steps *steps);

#endif
