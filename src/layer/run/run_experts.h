/* SPDX-License-Identifier: Apache-2.0
 *
 * run_experts.h - the experts of one pass, stage by stage, on any back end.
 */
#ifndef MOX_LAYER_RUN_EXPERTS_H
#define MOX_LAYER_RUN_EXPERTS_H

#include "layer/run/run_state.h"

/* Runs the experts of one kind, from hidden states to y. The pass was permuted. */
moxie_status mox_run_experts(mox_run *run, mox_expert_kind kind, moxie_error *error);

#endif
