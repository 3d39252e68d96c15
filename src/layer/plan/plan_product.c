/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_product.c - fills in a product's problem and arguments from a plan (plan_product.h).
 */
#include "layer/plan/plan_product.h"

mox_expert_gemm_problem mox_plan_problem(const moxie_plan *plan, mox_expert_kind kind, mox_projection projection)
{
    const mox_expert_plan *experts = &plan->experts[kind];
    const bool first = projection == MOX_W13;
    return (mox_expert_gemm_problem) { .shape = &experts->shape,
                                       .projection = projection,
                                       .weight = first ? &experts->shape.w13 : &experts->shape.w2,
                                       .act = &experts->act[projection],
                                       .dtype = plan->config.dtype,
                                       .next = first ? &experts->act[MOX_W2] : NULL,
                                       .max_rows = experts->max_pairs };
}

mox_expert_gemm_args mox_plan_product(const moxie_plan *plan, mox_expert_kind kind, mox_projection projection,
                                      int64_t slots, int64_t tokens)
{
    const mox_expert_plan *experts = &plan->experts[kind];
    const bool first = projection == MOX_W13;
    const uint32_t fuses = plan->backend->fuses(experts->kernels.product[projection]);
    return (mox_expert_gemm_args) {
        .shape = &experts->shape,
        .projection = projection,
        .layout = experts->kernels.layout,
        .slots = slots,
        .experts = plan->config.experts,
        .max_pairs = kind == MOX_ROUTED ? tokens * plan->config.top_k : tokens,
        .tokens = tokens,
        .a = &experts->form[projection].shape,
        .act = &experts->act[projection],
        .dtype = plan->config.dtype,
        .n_out = !first                  ? mox_shape_rows2(&experts->shape)
                 : fuses & MOX_FUSES_ACT ? mox_shape_rows13(&experts->shape)
                                         : experts->n13,
        .next = first ? &experts->form[MOX_W2].shape : NULL,
        .next_act = first ? &experts->act[MOX_W2] : NULL,
    };
}
