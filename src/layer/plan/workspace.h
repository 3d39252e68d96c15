/* SPDX-License-Identifier: Apache-2.0
 *
 * workspace.h - where each buffer of a run lies.
 */
#ifndef MOX_LAYER_WORKSPACE_H
#define MOX_LAYER_WORKSPACE_H

#include "layer/plan/plan.h"

/* Lays the workspace out for max_tokens and pass_tokens; MOXIE_ERR_MEMORY when it does not fit in 64 bits. */
moxie_status mox_plan_lay_out(moxie_plan *plan, moxie_error *error);

#endif
