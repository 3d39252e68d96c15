/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_tp.c - the buffers of tensor parallel plans (plan_tp.h).
 *
 *     workspace | act [pairs, I_r] | y [pairs, H_r] | pieces to send | pieces of all ranks of the group |
 */
#include "layer/plan/plan_tp.h"

#include <stdio.h>

#include "base/sizes.h"
#include "layer/plan/plan_product.h"

mox_tp_rows mox_tp_columns(const moxie_plan *plan, mox_projection projection, int32_t rank)
{
    return projection == MOX_W13 ? mox_tp_rows13(&plan->config, rank) : mox_tp_rows2(&plan->config, rank);
}

int64_t mox_tp_pieces(int64_t columns)
{
    return mox_ceil_div(columns, MOX_TP_UNIT);
}

moxie_dtype mox_tp_dtype(const moxie_plan *plan, mox_projection projection)
{
    const bool rounded = mox_quant_is_none(&plan->config.a2) && plan->max_adapter_rank == 0;
    return projection == MOX_W13 && rounded ? plan->config.dtype : MOXIE_F32;
}

/* Bytes of one pair's pieces, of this rank or of the group. */
static int64_t pair_bytes(const moxie_plan *plan, mox_projection p, bool of_group)
{
    const int32_t size = mox_config_tp_ranks(&plan->config), own = plan->config.tp_rank;
    int64_t pieces = 0;
    for (int32_t r = of_group ? 0 : own; r < (of_group ? size : own + 1); r++)
        pieces += mox_tp_pieces(mox_tp_columns(plan, p, r).count);
    return pieces * MOX_TP_UNIT * mox_dtype_bytes(mox_tp_dtype(plan, p));
}

void mox_tp_carve(mox_carver *carver, moxie_plan *plan)
{
    const uint64_t pairs = (uint64_t)plan->experts[MOX_ROUTED].max_pairs;
    const int32_t size = mox_config_tp_ranks(&plan->config), own = plan->config.tp_rank;
    const bool sums = plan->tp_cut == MOX_TP_SUMS;
    const int64_t act = pair_bytes(plan, MOX_W13, false), all_acts = pair_bytes(plan, MOX_W13, true);
    const int64_t y = pair_bytes(plan, MOX_W2, false), all_y = pair_bytes(plan, MOX_W2, true);
    mox_workspace *s = &plan->space;
    if (!sums)
        s->tp_act = mox_carve_offset(carver, pairs, (uint64_t)mox_tp_columns(plan, MOX_W13, own).count * sizeof(float));
    s->tp_y = mox_carve_offset(carver, pairs, (uint64_t)mox_tp_columns(plan, MOX_W2, own).count * sizeof(float));
    s->tp_send_bytes = pairs * (uint64_t)(sums ? all_y : mox_max_i64(act, y));
    s->tp_recv_bytes = pairs * (uint64_t)mox_max_i64(sums ? size * y : all_acts, all_y);
    s->tp_send = mox_carve_offset(carver, s->tp_send_bytes, 1);
    s->tp_recv = mox_carve_offset(carver, s->tp_recv_bytes, 1);
}

/* Kernels are chosen for whole matrices, so that bits are those of one rank. */
static moxie_status check_part(const moxie_plan *plan, mox_projection p, moxie_error *error)
{
    const mox_target target = { .device = &plan->device.features, .mode = plan->mode };
    const mox_kernel *kernel = plan->kernels.experts[MOX_ROUTED].product[p];
    mox_expert_gemm_problem problem = mox_plan_problem(plan, MOX_ROUTED, p);
    mox_rejection why = { "", "" };
    problem.gathered = true;
    MOX_FAIL_IF(
        !plan->backend->admits(&target, MOX_FAMILY_expert_gemm, kernel, &problem, &why), MOXIE_ERR_UNSUPPORTED, error,
        "kernel %s multiplies %s, but not the rows of tensor parallel rank %d of %d: it %s; use another tp_size",
        kernel->name, p == MOX_W13 ? "w13" : "w2", (int)plan->config.tp_rank, (int)plan->config.tp_size, why.reason);
    return MOXIE_OK;
}

moxie_status mox_tp_check(const moxie_plan *plan, moxie_error *error)
{
    const mox_expert_plan *routed = &plan->experts[MOX_ROUTED];
    const mox_expert_gemm_problem second = mox_plan_problem(plan, MOX_ROUTED, MOX_W2);
    const mox_target target = { .device = &plan->device.features, .mode = plan->mode };
    if (!plan->backend->on_device || plan->tp_cut != MOX_TP_ROWS)
        return MOXIE_OK;
    MOX_TRY(check_part(plan, MOX_W13, error));
    MOX_TRY(check_part(plan, MOX_W2, error));
    /* The kernel of W2 reads where W13's has put the tokens. */
    MOX_FAIL_IF(
        routed->shape.rows13 == 0 && plan->backend->product_scratch(&target, routed->kernels.product[MOX_W2], &second,
                                                                    plan->config.experts, 1, 1) > 0,
        MOXIE_ERR_UNSUPPORTED, error,
        "w13 has too few rows for %d tensor parallel ranks: rank %d has none, and kernel %s of w2 needs one; use a "
        "smaller tp_size",
        (int)plan->config.tp_size, (int)plan->config.tp_rank, routed->kernels.product[MOX_W2]->name);
    return MOXIE_OK;
}

moxie_status mox_tp_add_step(moxie_plan *plan, moxie_error *error)
{
    char text[256];
    const char *why = "";
    const bool sums = plan->tp_cut == MOX_TP_SUMS;
    if (plan->tp_cut == MOX_TP_WHOLE)
        return MOXIE_OK;
    (void)mox_tp_cut_of(&plan->config, plan->mode, &why);
    if (sums)
        snprintf(text, sizeof text,
                 "fast mode: %d ranks each multiply their own columns, and add their results in rank order: %d "
                 "additions in f32, an error of at most %d x 2^-24 of the sum of magnitudes more",
                 (int)mox_config_tp_ranks(&plan->config), (int)mox_config_tp_ranks(&plan->config) - 1,
                 (int)mox_config_tp_ranks(&plan->config) - 1);
    else
        snprintf(text, sizeof text, "%s%s",
                 why[0] != '\0' ? "as in exact mode: " : "every dot product is whole on one rank", why);
    const moxie_plan_step step = { .family = "tensor_parallel",
                                   .role = "w2",
                                   .kernel = sums ? "columns" : "rows",
                                   .isa = "",
                                   .layout = "",
                                   .exactness = sums ? "TOL" : "EXACT",
                                   .chosen = 1,
                                   .reason = mox_steps_copy_text(&plan->steps, text),
                                   .remedy = "" };
    MOX_FAIL_IF(step.reason == NULL, MOXIE_ERR_MEMORY, error, "no memory for the steps of a plan");
    return mox_steps_add(&plan->steps, &step, error);
}
