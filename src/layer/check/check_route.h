/* SPDX-License-Identifier: Apache-2.0
 *
 * check_route.h - checks of the stages outside the experts: router, topk, permute, the shared expert's gate, combine.
 */
#ifndef MOX_LAYER_CHECK_ROUTE_H
#define MOX_LAYER_CHECK_ROUTE_H

#include "layer/check/checker.h"

/* Each checks the stage that just ran; the context has checker and run. */
void mox_check_router(mox_check_context *context);
void mox_check_topk(mox_check_context *context);
void mox_check_permute(mox_check_context *context);
void mox_check_shared_gate(mox_check_context *context);
void mox_check_combine(mox_check_context *context);

#endif
