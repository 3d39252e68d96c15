/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_tp.c - the buffers of tensor parallel plans (plan_tp.h).
 *
 *     workspace | act [pairs, I_r] | y [pairs, H_r] | pieces to send | pieces of all ranks of the group | row numbers |
 */
#include "layer/plan/plan_tp.h"

#include <stdio.h>

#include "base/sizes.h"

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
    s->tp_send = mox_carve_offset(carver, pairs, (uint64_t)(sums ? all_y : mox_max_i64(act, y)));
    s->tp_recv = mox_carve_offset(carver, pairs, (uint64_t)mox_max_i64(sums ? size * y : all_acts, all_y));
    s->tp_rows = mox_carve_offset(carver, (uint64_t)(4 * size * mox_config_ep_ranks(&plan->config)), sizeof(int64_t));
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
