/* SPDX-License-Identifier: Apache-2.0
 *
 * run_adapters.h - LoRA adapters in a run: which pairs of a pass have one, and the arguments of family lora.
 *
 *     adapter_ids [T] -> begin_pass -> adapter_of [pairs] -> lora after each product (run_experts.c, run_fused.c)
 */
#ifndef MOX_LAYER_RUN_ADAPTERS_H
#define MOX_LAYER_RUN_ADAPTERS_H

#include "layer/run/run_state.h"

/* Checks the caller's adapters and ids against the plan. */
moxie_status mox_run_check_adapters(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error);
/* Sets run->adapted and adapter_of for the pass, whose pairs are sorted and have token_of. */
void mox_run_assign_adapters(mox_run *run);
/* The arguments of one product of the routed experts; `x` as fp32 for W2, hidden states for W13. */
mox_lora_args mox_run_lora_args(const mox_run *run, mox_projection p, const void *x, float *out);

#endif
