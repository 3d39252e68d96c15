/* SPDX-License-Identifier: Apache-2.0
 *
 * run_fused.c - hands one pass of a plan to the fused experts (cpu/fused), and shows their stages to a probe.
 *
 *     permutation, records, workspace -> sides (routed, shared) -> two parallel regions -> [trace -> probe]
 */
#include "base/sizes.h"
#include "layer/run/run.h"

enum { ROUTED = 0, SHARED = 1 };

static void *at(const mox_run *run, uint64_t offset)
{
    return run->space + offset;
}

static mox_fused_operand operand_of(const mox_run *run, const mox_fused_product *product, const mox_fused_space *space)
{
    mox_fused_operand operand = { .data = at(run, space->data) };
    if (product->scaling == MOX_ACT_GROUPED)
        operand.scales = at(run, space->scales);
    if (product->scaling == MOX_ACT_BY_ROW)
        operand.row_scale = at(run, space->row_scale);
    if (product->act.global != MOXIE_GLOBAL_NONE)
        operand.global = at(run, space->global);
    return operand;
}

/* What both kinds have in common. */
static mox_fused_side side_of(const mox_run *run, const mox_expert_side *side)
{
    return (mox_fused_side) { .shape = &side->shape,
                              .activation = &side->activation,
                              .glu = side->rows.glu,
                              .first = &side->first,
                              .second = &side->second,
                              .a13 = operand_of(run, &side->first, &side->fused13),
                              .a2 = operand_of(run, &side->second, &side->fused2),
                              .act = mox_quant_is_none(&side->a2) ? NULL : at(run, side->space.act),
                              .y = at(run, side->space.y) };
}

static mox_fused_side routed_side(const mox_run *run)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const int64_t top_k = plan->config.top_k;
    mox_fused_side side = side_of(run, &plan->routed);
    side.slots = layer->slots;
    side.pairs = run->permutation.offsets[layer->slots];
    side.records = (const void *const *)layer->records;
    side.offsets = run->permutation.offsets;
    side.expert_of = layer->expert_of;
    side.per_token = top_k;
    side.position = run->permutation.position;
    side.row_weight = plan->config.routing.on_input ? run->weights + run->first * top_k : NULL;
    side.given13 = layer->given13.resolved;
    side.given2 = layer->given2.resolved;
    side.by_pair = plan->config.routing.on_input || !layer->given13.uniform;
    return side;
}

static mox_fused_side shared_side(const mox_run *run, const int64_t *offsets)
{
    const moxie_layer *layer = run->plan->layer;
    mox_fused_side side = side_of(run, &run->plan->shared);
    side.slots = 1;
    side.pairs = run->tokens;
    side.records = (const void *const *)&layer->shared_record;
    side.offsets = offsets;
    side.per_token = 1;
    side.given13 = &layer->shared_given13;
    side.given2 = &layer->shared_given2;
    return side;
}

/* ---- the probe ----------------------------------------------------------------------------------- */

static mox_operand look_at(const mox_fused_product *product, const mox_trace *trace, int second, int64_t pairs)
{
    const bool quantized = !mox_quant_is_none(&product->act);
    mox_operand look = { .rows = pairs, .cols = product->cols, .values = trace->values[second] };
    look.stride = mox_ceil_div(look.cols, MOX_OPERAND_PAD) * MOX_OPERAND_PAD;
    look.group_cols = quantized ? mox_act_group_cols(&product->act, look.cols) : mox_max_i64(look.cols, 1);
    if (!quantized)
        return look;
    look.scale_cols = mox_ceil_div(look.cols, look.group_cols);
    look.scales = trace->scales[second];
    look.global_kind = product->act.global;
    look.global = look.global_kind != MOXIE_GLOBAL_NONE ? trace->global[second] : NULL;
    return look;
}

/* Operands that were stored as they are, read back from where the kernel found them. */
static void read_back(const mox_fused_side *side, bool second, const mox_operand *look)
{
    if (look->scales != NULL)
        return;
    for (int64_t p = 0; p < side->pairs; p++)
        mox_fused_operand_row(side, second, p, look->values + p * look->stride);
}

static moxie_status show(const mox_run *run, const mox_expert_side *expert, const mox_fused_side *side,
                         moxie_error *error)
{
    static const mox_stage stages[] = { MOX_STAGE_QUANT13, MOX_STAGE_GEMM13, MOX_STAGE_GLU, MOX_STAGE_QUANT2,
                                        MOX_STAGE_GEMM2 };
    const mox_expert_pass pass = { .side = expert,
                                   .slots = side->slots,
                                   .pairs = side->pairs,
                                   .records = side->records,
                                   .offsets = side->offsets,
                                   .expert_of = side->expert_of,
                                   .rows13 = side->pairs,
                                   .a13 = *side->look13,
                                   .a2 = *side->look2,
                                   .h = side->h,
                                   .act = side->act,
                                   .y = side->y };
    if (side->pairs == 0)
        return MOXIE_OK;
    read_back(side, false, side->look13);
    read_back(side, true, side->look2);
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        MOX_TRY(mox_run_probe(run, stages[i], &pass, error));
    return MOXIE_OK;
}

/* ---- the call ------------------------------------------------------------------------------------ */

moxie_status mox_run_fused(mox_run *run, bool shared, const mox_combine_args *combine, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const int64_t whole[2] = { 0, run->tokens };
    const mox_expert_side *experts[MOX_FUSED_SIDES];
    mox_fused_side sides[MOX_FUSED_SIDES];
    mox_operand look[MOX_FUSED_SIDES][2];
    int64_t n = 0;
    if (plan->routed.fused) {
        experts[n] = &plan->routed;
        sides[n++] = routed_side(run);
    }
    if (shared) {
        experts[n] = &plan->shared;
        sides[n++] = shared_side(run, whole);
    }
    for (int64_t i = 0; run->probe != NULL && i < n; i++) {
        const mox_trace *trace = &run->probe->trace[experts[i] == &plan->routed ? ROUTED : SHARED];
        look[i][0] = look_at(sides[i].first, trace, 0, sides[i].pairs);
        look[i][1] = look_at(sides[i].second, trace, 1, sides[i].pairs);
        sides[i].look13 = &look[i][0];
        sides[i].look2 = &look[i][1];
        sides[i].h = trace->h;
        sides[i].act = trace->act;
    }
    const mox_fused_args args = { .sides = sides,
                                  .n_sides = n,
                                  .tokens = run->tokens,
                                  .x = (const char *)run->args.hidden +
                                       run->first * plan->config.hidden * mox_dtype_bytes(plan->config.dtype),
                                  .dtype = plan->config.dtype,
                                  .items = at(run, plan->space.fused_items),
                                  .scratch = at(run, plan->space.fused_scratch),
                                  .scratch_bytes = plan->space.fused_scratch_bytes,
                                  .combine = combine != NULL ? plan->rows.combine : NULL,
                                  .combine_args = combine };
    mox_fused_run(&args, &plan->executor);
    for (int64_t i = 0; run->probe != NULL && i < n; i++)
        MOX_TRY(show(run, experts[i], &sides[i], error));
    return MOXIE_OK;
}
