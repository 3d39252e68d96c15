/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_product.h - one of an expert's two products as a plan fixes it.
 *
 *     plan -> problem   -> order of its activations (plan_create.c), scratch (workspace.c)
 *     plan -> arguments -> run (run_experts.c), launch sizes (launch.c)
 */
#ifndef MOX_LAYER_PLAN_PRODUCT_H
#define MOX_LAYER_PLAN_PRODUCT_H

#include "layer/plan/plan.h"

/* The problem that the product's kernel admitted; points into the plan. Immutable. */
mox_expert_gemm_problem mox_plan_problem(const moxie_plan *plan, mox_expert_kind kind, mox_projection projection);
/* A product's arguments for a pass of `tokens` tokens, without pointers to memory of a run or a layer; point into the
 * plan. Immutable. */
mox_expert_gemm_args mox_plan_product(const moxie_plan *plan, mox_expert_kind kind, mox_projection projection,
                                      int64_t slots, int64_t tokens);

#endif
