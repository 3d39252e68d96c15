/* SPDX-License-Identifier: Apache-2.0
 *
 * workspace.h - assigns each buffer of a run its place in the workspace.
 *
 * In the flow: plan_create -> [workspace] -> run.
 */
#ifndef MOX_LAYER_WORKSPACE_H
#define MOX_LAYER_WORKSPACE_H

#include "layer/plan/plan.h"

/* Fills plan->space and the experts' spaces, for max_tokens and pass_tokens. MOXIE_ERR_MEMORY when a size does not fit
 * in 64 bits. */
moxie_status mox_workspace_assign(moxie_plan *plan, moxie_error *error);

#endif
