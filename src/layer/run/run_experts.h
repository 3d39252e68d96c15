/* SPDX-License-Identifier: Apache-2.0
 *
 * run_experts.h - the experts of one pass, stage by stage, on any back end.
 */
#ifndef MOX_LAYER_RUN_EXPERTS_H
#define MOX_LAYER_RUN_EXPERTS_H

#include "layer/run/run_state.h"

/* Parts of the chain, in its order: activations of W13; W13 and the activation; activations of W2; W2. */
enum {
    MOX_EXPERTS_INPUT = 1,
    MOX_EXPERTS_FIRST = 2,
    MOX_EXPERTS_REQUANTIZE = 4,
    MOX_EXPERTS_SECOND = 8,
    MOX_EXPERTS_ALL = 15
};

/* Runs the experts of one kind, from hidden states to y, or the `parts` of the chain. INPUT is for all slots of the
 * pass, the products are for the window of run->slots. The pass was permuted. */
moxie_status mox_run_experts(mox_run *run, mox_expert_kind kind, uint32_t parts, moxie_error *error);

#endif
