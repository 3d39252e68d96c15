/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.h - how the products of a plan for a Hopper GPU are launched, as a function of the batch size.
 */
#ifndef MOX_LAYER_LAUNCH_H
#define MOX_LAYER_LAUNCH_H

#include <moxie/moxie_cuda.h>

#include "layer/plan/plan.h"

/* Body of moxie_cuda_plan_launch; struct_size of `out` is not set. */
bool mox_plan_launch(const moxie_plan *plan, int32_t step, int64_t tokens, moxie_cuda_launch *out);

#endif
