/* SPDX-License-Identifier: Apache-2.0
 *
 * run_fused.c - fills in the arguments of the back end's span `experts` (cpu/fused) for one pass, and runs it.
 *
 *     permutation, records, workspace -> parts (routed, shared) -> span -> y, output
 *
 * In a traced run the span also stores the results of the stages inside. The probe sees them when the span is done.
 */
#include "layer/run/run_fused.h"

#include "base/executor.h"
#include "base/sizes.h"
#include "layer/run/run_adapters.h"
#include "layer/run/run_tp.h"

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

/* The arguments that routed and shared experts fill in the same way. */
static mox_fused_part part_of(const mox_run *run, const mox_expert_plan *e)
{
    const bool stores_act = run->probe != NULL || !mox_quant_is_none(&e->act[MOX_W2]);
    return (mox_fused_part) { .shape = &e->shape,
                              .activation = &e->activation,
                              .glu = (const mox_glu_kernel *)e->kernels.glu,
                              .first = &e->fused_product[MOX_W13],
                              .second = &e->fused_product[MOX_W2],
                              .a13 = activations_of(run, &e->fused_product[MOX_W13], &e->fused_space[MOX_W13]),
                              .a2 = activations_of(run, &e->fused_product[MOX_W2], &e->fused_space[MOX_W2]),
                              .act = stores_act ? at(run, e->space.act) : NULL,
                              .y = at(run, e->space.y) };
}

/* Arguments of family lora for both products, by mox_projection. */
static void add_adapters(const mox_run *run, mox_lora_args lora[2], mox_fused_part *part)
{
    const mox_expert_plan *e = &run->plan->experts[MOX_ROUTED];
    if (!run->adapted)
        return;
    part->act = at(run, e->space.act);
    lora[MOX_W13] = mox_run_lora_args(run, MOX_W13, mox_run_hidden(run), NULL);
    lora[MOX_W2] = mox_run_lora_args(run, MOX_W2, part->act, NULL);
    part->lora = (const mox_lora_kernel *)e->kernels.lora;
    part->lora13 = &lora[MOX_W13];
    part->lora2 = &lora[MOX_W2];
}

static mox_fused_part routed_part(const mox_run *run)
{
    const moxie_plan *plan = run->plan;
    const mox_run_slots *slots = &run->slots;
    const int64_t top_k = plan->config.top_k;
    mox_fused_part part = part_of(run, &plan->experts[MOX_ROUTED]);
    part.slots = slots->end - slots->first;
    part.pairs = run->permutation.offsets[slots->end];
    part.records = slots->records + slots->first;
    part.offsets = run->permutation.offsets + slots->first;
    part.expert_of = slots->expert_of + slots->first;
    part.per_token = top_k;
    part.position = run->permutation.position;
    part.row_weight = plan->config.routing.on_input ? run->weights + run->first * top_k : NULL;
    part.static_scale13 = slots->static_scale[MOX_W13] + slots->first;
    part.static_scale2 = slots->static_scale[MOX_W2] + slots->first;
    part.by_pair = mox_run_has_row_per_pair(run);
    return part;
}

static mox_fused_part shared_part(const mox_run *run)
{
    const moxie_layer *layer = run->plan->layer;
    mox_fused_part part = part_of(run, &run->plan->experts[MOX_SHARED_EXPERT]);
    part.slots = 1;
    part.pairs = run->tokens;
    part.records = (const void *const *)&layer->shared_record;
    part.offsets = MOX_RUN_AT(run, int64_t, shared_offsets);
    part.per_token = 1;
    part.static_scale13 = &layer->shared_static_scale[MOX_W13];
    part.static_scale2 = &layer->shared_static_scale[MOX_W2];
    return part;
}

/* ---- the trace ------------------------------------------------------------------------------------ */

/* One kind of expert in a traced run: the F32 copies of its activations, by mox_projection. */
typedef struct traced_part {
    mox_expert_kind kind;
    mox_activations trace[2];
} traced_part;

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

/* Asks the span to store the results of the stages inside. */
static void add_trace(const mox_run *run, traced_part *traced, mox_fused_part *part)
{
    const mox_expert_plan *e = &run->plan->experts[traced->kind];
    for (int p = MOX_W13; p <= MOX_W2; p++)
        traced->trace[p] = place_trace(run, e, (mox_projection)p, part->pairs);
    part->trace13 = &traced->trace[MOX_W13];
    part->trace2 = &traced->trace[MOX_W2];
    part->h = at(run, e->space.h);
}

/* Copies activations that were not quantized into their trace, from where the kernel read them. */
static void read_back(const mox_fused_part *part, bool second, const mox_activations *trace)
{
    if (trace->scales != NULL)
        return;
    for (int64_t p = 0; p < part->pairs; p++)
        mox_fused_activations_row(part, second, p, trace->values + p * trace->stride);
}

/* Calls the probe for every stage of one kind of expert. */
static moxie_status call_probe(const mox_run *run, const traced_part *traced, const mox_fused_part *part,
                               moxie_error *error)
{
    static const mox_stage stages[] = { MOX_STAGE_QUANT13, MOX_STAGE_GEMM13, MOX_STAGE_GLU, MOX_STAGE_QUANT2,
                                        MOX_STAGE_GEMM2 };
    const mox_expert_pass pass = { .kind = traced->kind,
                                   .experts = &run->plan->experts[traced->kind],
                                   .slots = part->slots,
                                   .pairs = part->pairs,
                                   .records = part->records,
                                   .offsets = part->offsets,
                                   .expert_of = part->expert_of,
                                   .rows13 = part->pairs,
                                   .traced = { traced->trace[MOX_W13], traced->trace[MOX_W2] },
                                   .h = part->h,
                                   .act = part->act,
                                   .y = part->y };
    read_back(part, false, part->trace13);
    read_back(part, true, part->trace2);
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        MOX_TRY(mox_run_probe(run, stages[i], &pass, error));
    return MOXIE_OK;
}

/* ---- the call ------------------------------------------------------------------------------------ */

/* Lists by node serve workers whose nodes are those that the layer was spread over. */
static int32_t nodes_of(const moxie_plan *plan)
{
    return mox_executor_nodes(&plan->executor) == plan->layer->nodes ? plan->layer->nodes : 1;
}

static mox_fused_args args_of(const mox_run *run, const mox_fused_part *parts, int64_t n)
{
    const moxie_plan *plan = run->plan;
    return (mox_fused_args) { .parts = parts,
                              .n_parts = n,
                              .tokens = run->tokens,
                              .x = mox_run_hidden(run),
                              .dtype = plan->config.dtype,
                              .coded = run->coded,
                              .items = at(run, plan->space.fused_items),
                              .scratch = at(run, plan->space.fused_scratch),
                              .scratch_bytes = plan->space.fused_scratch_bytes,
                              .nodes = nodes_of(plan),
                              .clocks = plan->clocks };
}

/* The span's phase of a part alone. */
static moxie_status run_phase(const mox_run *run, const mox_fused_part *part, mox_fused_phases phases,
                              moxie_error *error)
{
    mox_fused_args args = args_of(run, part, 1);
    args.phases = phases;
    const mox_phase before = mox_run_enter(run, MOX_PHASE_GATHER);
    return mox_run_back(run, before, run->plan->backend->experts(&run->queue, &args, error));
}

moxie_status mox_run_fused_rows(mox_run *run, mox_expert_kind kind, moxie_error *error)
{
    const mox_expert_plan *e = &run->plan->experts[kind];
    mox_fused_part part = kind == MOX_ROUTED ? routed_part(run) : shared_part(run);
    part.act = at(run, e->space.act);
    mox_lora_args lora[2];
    if (kind == MOX_ROUTED)
        add_adapters(run, lora, &part);
    part.own_act = MOX_RUN_AT(run, float, tp_act);
    part.y = MOX_RUN_AT(run, float, tp_y);
    MOX_TRY(run_phase(run, &part, MOX_FUSED_FIRST, error));
    MOX_TRY(mox_run_tp_gather(run, kind, MOX_W13, part.pairs, part.own_act, part.act, error));
    MOX_TRY(run_phase(run, &part, MOX_FUSED_SECOND, error));
    if (kind == MOX_SHARED_EXPERT || !mox_run_tp_gathers_y(run))
        return MOXIE_OK;
    return mox_run_tp_gather(run, kind, MOX_W2, part.pairs, part.y, at(run, e->space.y), error);
}

moxie_status mox_run_fused(mox_run *run, bool routed, bool shared, const mox_combine_args *combine, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    traced_part traced[MOX_EXPERT_KINDS];
    mox_fused_part parts[MOX_EXPERT_KINDS];
    mox_lora_args lora[2];
    int64_t n = 0;
    if (routed) {
        traced[n].kind = MOX_ROUTED;
        parts[n] = routed_part(run);
        add_adapters(run, lora, &parts[n++]);
    }
    if (shared) {
        traced[n].kind = MOX_SHARED_EXPERT;
        parts[n++] = shared_part(run);
    }
    for (int64_t i = 0; run->probe != NULL && i < n; i++)
        add_trace(run, &traced[i], &parts[i]);
    mox_fused_args args = args_of(run, parts, n);
    args.combine = combine != NULL ? (const mox_combine_kernel *)plan->kernels.combine : NULL;
    args.combine_args = combine;
    const mox_phase before = mox_run_enter(run, MOX_PHASE_GATHER);
    MOX_TRY(plan->backend->experts(&run->queue, &args, error));
    mox_run_enter(run, before);
    for (int64_t i = 0; run->probe != NULL && i < n; i++)
        MOX_TRY(call_probe(run, &traced[i], &parts[i], error));
    return MOXIE_OK;
}
