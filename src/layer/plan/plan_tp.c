/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_tp.c - the buffers of tensor parallel plans (plan_tp.h).
 *
 *     workspace | act [pairs, I_r] | y [pairs, H_r] | pieces to send | pieces of all ranks of the group | row numbers |
 */
#include "layer/plan/plan_tp.h"

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
    return projection == MOX_W13 && mox_quant_is_none(&plan->config.a2) ? plan->config.dtype : MOXIE_F32;
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
    const mox_expert_plan *routed = &plan->experts[MOX_ROUTED];
    const uint64_t pairs = (uint64_t)routed->max_pairs;
    const int64_t ranks = (int64_t)mox_config_tp_ranks(&plan->config) * mox_config_ep_ranks(&plan->config);
    mox_workspace *s = &plan->space;
    s->tp_act = mox_carve_offset(carver, pairs, (uint64_t)routed->shape.rows13 * sizeof(float));
    s->tp_y = mox_carve_offset(carver, pairs, (uint64_t)routed->shape.rows2 * sizeof(float));
    s->tp_send = mox_carve_offset(
        carver, pairs, (uint64_t)mox_max_i64(pair_bytes(plan, MOX_W13, false), pair_bytes(plan, MOX_W2, false)));
    s->tp_recv = mox_carve_offset(
        carver, pairs, (uint64_t)mox_max_i64(pair_bytes(plan, MOX_W13, true), pair_bytes(plan, MOX_W2, true)));
    s->tp_rows = mox_carve_offset(carver, (uint64_t)(4 * ranks), sizeof(int64_t));
}
