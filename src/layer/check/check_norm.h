/* SPDX-License-Identifier: Apache-2.0
 *
 * check_norm.h - the checks of the norms: of the router's input, of routed experts' results.
 */
#ifndef MOX_LAYER_CHECK_NORM_H
#define MOX_LAYER_CHECK_NORM_H

#include "layer/check/checker.h"

void mox_check_router_norm(mox_check_context *context);
void mox_check_expert_norm(mox_check_context *context);

#endif
