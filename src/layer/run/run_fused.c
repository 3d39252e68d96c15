/* SPDX-License-Identifier: Apache-2.0
 *
 * run_fused.c - hands one pass of a plan to the back end's span `experts` (cpu/fused), and tells a probe its stages.
 *
 *     permutation, records, workspace -> sides (routed, shared) -> span -> [trace -> probe]
 */
#include "base/sizes.h"
#include "layer/run/run.h"

static void *at(const mox_run *run, uint64_t offset)
{
    return run->space + offset;
}

static mox_fused_activations activations_of(const mox_run *run, const mox_fused_product *product,
                                            const mox_fused_space *space)
{
    mox_fused_activations a = { .data = at(run, space->data) };
    if (product->scaling == MOX_ACT_GROUPED)
        a.scales = at(run, space->scales);
    if (product->scaling == MOX_ACT_BY_ROW)
        a.row_scale = at(run, space->row_scale);
    if (product->act.global != MOXIE_GLOBAL_NONE)
        a.global = at(run, space->global);
    return a;
}

/* What both kinds have in common. */
static mox_fused_part side_of(const mox_run *run, const mox_expert_plan *e)
{
    const bool keeps_act = run->probe != NULL || !mox_quant_is_none(&e->act[MOX_W2]);
    return (mox_fused_part) { .shape = &e->shape,
                              .activation = &e->activation,
                              .glu = (const mox_glu_kernel *)e->kernels.glu,
                              .first = &e->fused_product[MOX_W13],
                              .second = &e->fused_product[MOX_W2],
                              .a13 = activations_of(run, &e->fused_product[MOX_W13], &e->fused_space[MOX_W13]),
                              .a2 = activations_of(run, &e->fused_product[MOX_W2], &e->fused_space[MOX_W2]),
                              .act = keeps_act ? at(run, e->space.act) : NULL,
                              .y = at(run, e->space.y) };
}

static mox_fused_part routed_side(const mox_run *run)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const int64_t top_k = plan->config.top_k;
    mox_fused_part side = side_of(run, &plan->experts[MOX_ROUTED]);
    side.slots = layer->slots;
    side.pairs = run->permutation.offsets[layer->slots];
    side.records = (const void *const *)layer->records;
    side.offsets = run->permutation.offsets;
    side.expert_of = layer->arrays.expert_of;
    side.per_token = top_k;
    side.position = run->permutation.position;
    side.row_weight = plan->config.routing.on_input ? run->weights + run->first * top_k : NULL;
    side.static_scale13 = layer->arrays.static_scale[MOX_W13];
    side.static_scale2 = layer->arrays.static_scale[MOX_W2];
    side.by_pair = plan->config.routing.on_input || !layer->static_scale[MOX_W13].uniform;
    return side;
}

static mox_fused_part shared_side(const mox_run *run)
{
    const moxie_layer *layer = run->plan->layer;
    mox_fused_part side = side_of(run, &run->plan->experts[MOX_SHARED_EXPERT]);
    side.slots = 1;
    side.pairs = run->tokens;
    side.records = (const void *const *)&layer->shared_record;
    side.offsets = MOX_RUN_AT(run, int64_t, shared_offsets);
    side.per_token = 1;
    side.static_scale13 = &layer->shared_static_scale[MOX_W13];
    side.static_scale2 = &layer->shared_static_scale[MOX_W2];
    return side;
}

/* ---- the trace ------------------------------------------------------------------------------------ */

/* One kind of expert: its side of the span, and in a traced run the stages inside. */
typedef struct traced_side {
    mox_expert_kind kind;
    mox_activations trace[2];
} traced_side;

static mox_activations place_trace(const mox_run *run, const mox_expert_plan *e, mox_projection p, int64_t pairs)
{
    const mox_activations_space *space = &e->space.traced[p];
    mox_activations a = e->traced[p];
    a.rows = pairs;
    a.values = at(run, space->values);
    if (a.scale_cols > 0)
        a.scales = at(run, space->scales);
    if (a.global_kind != MOXIE_GLOBAL_NONE)
        a.global = at(run, space->global);
    return a;
}

/* Has the span leave what it would not keep. */
static void add_trace(const mox_run *run, traced_side *traced, mox_fused_part *side)
{
    const mox_expert_plan *e = &run->plan->experts[traced->kind];
    for (int p = MOX_W13; p <= MOX_W2; p++)
        traced->trace[p] = place_trace(run, e, (mox_projection)p, side->pairs);
    side->trace13 = &traced->trace[MOX_W13];
    side->trace2 = &traced->trace[MOX_W2];
    side->h = at(run, e->space.h);
}

/* Activations that were stored as they are, read back from where the kernel found them. */
static void read_back(const mox_fused_part *side, bool second, const mox_activations *trace)
{
    if (trace->scales != NULL)
        return;
    for (int64_t p = 0; p < side->pairs; p++)
        mox_fused_activations_row(side, second, p, trace->values + p * trace->stride);
}

static moxie_status tell(const mox_run *run, const traced_side *traced, const mox_fused_part *side, moxie_error *error)
{
    static const mox_stage stages[] = { MOX_STAGE_QUANT13, MOX_STAGE_GEMM13, MOX_STAGE_GLU, MOX_STAGE_QUANT2,
                                        MOX_STAGE_GEMM2 };
    const mox_expert_pass pass = { .kind = traced->kind,
                                   .experts = &run->plan->experts[traced->kind],
                                   .slots = side->slots,
                                   .pairs = side->pairs,
                                   .records = side->records,
                                   .offsets = side->offsets,
                                   .expert_of = side->expert_of,
                                   .rows13 = side->pairs,
                                   .traced = { traced->trace[MOX_W13], traced->trace[MOX_W2] },
                                   .h = side->h,
                                   .act = side->act,
                                   .y = side->y };
    read_back(side, false, side->trace13);
    read_back(side, true, side->trace2);
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        MOX_TRY(mox_run_probe(run, stages[i], &pass, error));
    return MOXIE_OK;
}

/* ---- the call ------------------------------------------------------------------------------------ */

moxie_status mox_run_fused(mox_run *run, bool shared, const mox_combine_args *combine, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    traced_side traced[MOX_EXPERT_KINDS];
    mox_fused_part sides[MOX_EXPERT_KINDS];
    int64_t n = 0;
    if (plan->experts[MOX_ROUTED].fused) {
        traced[n].kind = MOX_ROUTED;
        sides[n++] = routed_side(run);
    }
    if (shared) {
        traced[n].kind = MOX_SHARED_EXPERT;
        sides[n++] = shared_side(run);
    }
    for (int64_t i = 0; run->probe != NULL && i < n; i++)
        add_trace(run, &traced[i], &sides[i]);
    const mox_fused_args args = { .parts = sides,
                                  .n_parts = n,
                                  .tokens = run->tokens,
                                  .x = mox_run_hidden(run),
                                  .dtype = plan->config.dtype,
                                  .items = at(run, plan->space.fused_items),
                                  .scratch = at(run, plan->space.fused_scratch),
                                  .scratch_bytes = plan->space.fused_scratch_bytes,
                                  .combine = combine != NULL ? (const mox_combine_kernel *)plan->kernels.combine : NULL,
                                  .combine_args = combine };
    MOX_TRY(plan->backend->experts(&run->queue, &args, error));
    for (int64_t i = 0; run->probe != NULL && i < n; i++)
        MOX_TRY(tell(run, &traced[i], &sides[i], error));
    return MOXIE_OK;
}
