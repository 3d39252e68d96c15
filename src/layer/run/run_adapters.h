/* SPDX-License-Identifier: Apache-2.0
 *
 * run_adapters.h - LoRA adapters in a run: which pairs of a pass have one, and the arguments of family lora.
 *
 *     host     adapter_ids [T] -> begin_pass -> adapter_of [pairs] -> lora after each product
 *     device   adapter_ids [T] -> lora after each product, which groups pairs itself
 */
#ifndef MOX_LAYER_RUN_ADAPTERS_H
#define MOX_LAYER_RUN_ADAPTERS_H

#include "layer/run/run_state.h"

/* Checks the caller's adapters against the plan, and the ids of tokens. In a run on a device ids are its memory; then
 * all adapters that are there must fit. */
moxie_status mox_run_check_adapters(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error);
/* Checks ids in host memory. */
moxie_status mox_run_check_adapter_ids(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error);
/* The number of token t's adapter; -1: it has none, or a disabled one. */
int32_t mox_run_adapter_of_token(const mox_run *run, int64_t t);
/* Whether the run has this adapter, enabled and such that the plan can run it. */
bool mox_run_has_adapter(const mox_run *run, int32_t number);
/* Sets run->adapted and, on the host, adapter_of for the pass, whose pairs are sorted and have token_of. */
void mox_run_assign_adapters(mox_run *run);
/* The arguments of one product of the routed experts; `x` as fp32 for W2, hidden states for W13. */
mox_lora_args mox_run_lora_args(const mox_run *run, mox_projection p, const void *x, float *out);

#endif
