/* SPDX-License-Identifier: Apache-2.0
 *
 * run_route.h - the part of a run that needs tokens but no experts: router, topk, weight of the shared expert.
 */
#ifndef MOX_LAYER_RUN_ROUTE_H
#define MOX_LAYER_RUN_ROUTE_H

#include "layer/run/run_state.h"

/* Runs the router and topk (`with_topk`) and the gate of the shared expert (`with_gate`), as far as the plan has them,
 * for the whole batch. Sets the run's logits, ids and weights. */
moxie_status mox_run_route(mox_run *run, bool with_topk, bool with_gate, moxie_error *error);
/* Copies logits, ids and weights to the caller's arrays where it asks for them and they are not there yet. */
moxie_status mox_run_copy_routing(const mox_run *run, moxie_error *error);

#endif
