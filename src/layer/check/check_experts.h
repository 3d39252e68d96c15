/* SPDX-License-Identifier: Apache-2.0
 *
 * check_experts.h - checks of the stages inside the experts, routed and shared: quantization, product, activation.
 */
#ifndef MOX_LAYER_CHECK_EXPERTS_H
#define MOX_LAYER_CHECK_EXPERTS_H

#include "layer/check/checker.h"

/* Each checks the stage that just ran and adds to the report as `stage`; the context has checker, run, pass and
 * projection. */
void mox_check_quant(mox_check_context *context, mox_check_stage stage);
/* With the change of adapters, where tokens have one. MOXIE_ERR_MEMORY. */
moxie_status mox_check_gemm(mox_check_context *context, mox_check_stage stage, moxie_error *error);
void mox_check_glu(mox_check_context *context, mox_check_stage stage);

#endif
