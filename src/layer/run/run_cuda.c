/* SPDX-License-Identifier: Apache-2.0
 *
 * run_cuda.c - a run on a GPU: the chain of run.c, enqueued on a stream through the launch table.
 *
 *     [dense router] -> topk, [dense shared gate]                      whole batch
 *     permute -> experts (routed, shared) -> combine                   passes of pass_tokens
 *
 * Everything that depends on the routing stays on the device: how many pairs there are, which slot they belong to. So
 * nothing here waits or allocates, and what is enqueued follows from the arguments alone.
 */
#include "base/sizes.h"
#include "layer/run/run.h"

#define AT(run, type, offset) ((type *)((run)->space + (run)->plan->space.offset))

/* A run with its stream; `run` comes first, since probes get it. */
typedef struct device_run {
    mox_run run;
    const mox_cuda_table *table;
    mox_cuda_stream stream;
    moxie_error *error;
} device_run;

static const mox_device_layer *layer_of(const device_run *d)
{
    return &d->run.plan->layer->on;
}

static moxie_status probe(const device_run *d, mox_stage stage, const mox_expert_pass *pass)
{
    return mox_run_probe(&d->run, stage, pass, d->error);
}

/* ---- routing ------------------------------------------------------------------------------------------ */

static moxie_status dense(const device_run *d, const mox_cuda_dense_row *row, mox_cuda_dense_args args)
{
    return d->table->dense[row->cuda.launcher](&args, d->stream, d->error);
}

static moxie_status run_router(const device_run *d, float *out)
{
    const moxie_plan *plan = d->run.plan;
    const moxie_layer_config *c = &plan->config;
    return dense(d, plan->rows.cuda.router,
                 (mox_cuda_dense_args) { .tokens = d->run.args.tokens,
                                         .rows = c->experts,
                                         .cols = c->router_width,
                                         .weight = layer_of(d)->router,
                                         .bias = layer_of(d)->router_bias,
                                         .x = mox_run_router_input(&d->run),
                                         .x_dtype = c->dtype,
                                         .out = out });
}

static moxie_status run_shared_gate(const device_run *d)
{
    const moxie_layer_config *c = &d->run.plan->config;
    return dense(d, d->run.plan->rows.cuda.shared_gate,
                 (mox_cuda_dense_args) { .tokens = d->run.args.tokens,
                                         .rows = 1,
                                         .cols = c->hidden,
                                         .weight = layer_of(d)->shared_gate,
                                         .x = d->run.args.hidden,
                                         .x_dtype = c->dtype,
                                         .logistic = 1,
                                         .out = AT(&d->run, float, shared_weight) });
}

/* Logits that were given, as f32 where the caller wants them. */
static moxie_status hand_on_logits(const device_run *d)
{
    const moxie_run_args *a = &d->run.args;
    const int64_t experts = d->run.plan->config.experts;
    if (a->logits_out == NULL || a->logits_out == d->run.logits)
        return MOXIE_OK;
    const mox_cuda_quant_act_args widen = { .x = d->run.logits,
                                            .x_dtype = d->run.logits_dtype,
                                            .round_to = MOXIE_F32,
                                            .max_rows = a->tokens,
                                            .cols = experts,
                                            .out = { .kind = MOX_CUDA_OPERAND_F32,
                                                     .cols = experts,
                                                     .stride = experts,
                                                     .values = a->logits_out,
                                                     .group_cols = experts } };
    return d->table->quant_act[d->run.plan->rows.cuda.widen->cuda.launcher](&widen, d->stream, d->error);
}

static moxie_status run_topk(device_run *d)
{
    const moxie_plan *plan = d->run.plan;
    const moxie_layer_config *c = &plan->config;
    const moxie_run_args *a = &d->run.args;
    int32_t *ids = a->ids_out != NULL ? a->ids_out : AT(&d->run, int32_t, ids);
    float *weights = a->weights_out != NULL ? a->weights_out : AT(&d->run, float, weights);
    const mox_cuda_topk_args args = { .routing = layer_of(d)->routing,
                                      .tokens = a->tokens,
                                      .experts = c->experts,
                                      .top_k = c->top_k,
                                      .logits = d->run.logits,
                                      .logits_dtype = d->run.logits_dtype,
                                      .token_ids = a->token_ids,
                                      .ids = ids,
                                      .weights = weights };
    MOX_TRY(d->table->topk[plan->rows.cuda.topk->cuda.launcher](&args, d->stream, d->error));
    d->run.ids = ids;
    d->run.weights = weights;
    return probe(d, MOX_STAGE_TOPK, NULL);
}

static moxie_status route(device_run *d)
{
    const moxie_run_args *a = &d->run.args;
    d->run.logits = a->logits;
    d->run.logits_dtype = a->logits_dtype;
    if (a->logits == NULL) {
        float *out = a->logits_out != NULL ? a->logits_out : AT(&d->run, float, logits);
        MOX_TRY(run_router(d, out));
        d->run.logits = out;
        d->run.logits_dtype = MOXIE_F32;
        MOX_TRY(probe(d, MOX_STAGE_ROUTER, NULL));
    }
    MOX_TRY(hand_on_logits(d));
    return run_topk(d);
}

/* A choice that was given, where the caller wants it back. */
static moxie_status hand_on_choice(const device_run *d)
{
    const moxie_run_args *a = &d->run.args;
    const uint64_t choices = (uint64_t)(a->tokens * d->run.plan->config.top_k);
    if (a->ids_out != NULL && a->ids_out != a->ids)
        MOX_TRY(d->table->copy(a->ids_out, a->ids, choices * sizeof *a->ids, d->stream, d->error));
    if (a->weights_out != NULL && a->weights != NULL && a->weights_out != a->weights)
        MOX_TRY(d->table->copy(a->weights_out, a->weights, choices * sizeof *a->weights, d->stream, d->error));
    return MOXIE_OK;
}

/* ---- one pass ------------------------------------------------------------------------------------------ */

static moxie_status begin_pass(device_run *d, int64_t first)
{
    mox_run *run = &d->run;
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const int64_t top_k = plan->config.top_k;
    run->first = first;
    run->tokens = mox_min_i64(plan->pass_tokens, run->args.tokens - first);
    run->permutation =
        (mox_permutation) { AT(run, int64_t, offsets), AT(run, int64_t, pair_at), AT(run, int64_t, position) };
    const bool by_pair = plan->config.routing.on_input || !layer->given13.uniform;
    const mox_cuda_permute_args args = {
        .ids = run->ids + first * top_k,
        .tokens = run->tokens,
        .top_k = top_k,
        .experts = plan->config.experts,
        .slots = layer->slots,
        .slot_of = layer->on.slot_of,
        .offsets = run->permutation.offsets,
        .pair_at = run->permutation.pair_at,
        .position = run->permutation.position,
        .shared_offsets = plan->shared.rows.layout != NULL ? AT(run, int64_t, shared_offsets) : NULL,
        .token_of = AT(run, int64_t, token_of),
        .counts = AT(run, int32_t, counts),
        .weights = run->weights != NULL ? run->weights + first * top_k : NULL,
        .row_weight = plan->config.routing.on_input ? AT(run, float, row_weight) : NULL,
        .slot_given13 = layer->on.given13,
        .slot_given2 = layer->on.given2,
        .given13 = by_pair ? (float *)(run->space + plan->routed.space.given13) : NULL,
        .given2 = (float *)(run->space + plan->routed.space.given2),
    };
    if (mox_plan_has_shared_gate(plan))
        run->shared_weight = AT(run, float, shared_weight) + first;
    return d->table->permute[plan->rows.cuda.permute->cuda.launcher](&args, d->stream, d->error);
}

static const void *hidden_of_pass(const mox_run *run)
{
    const moxie_layer_config *c = &run->plan->config;
    return (const char *)run->args.hidden + run->first * c->hidden * mox_dtype_bytes(c->dtype);
}

static moxie_status run_routed(device_run *d)
{
    mox_run *run = &d->run;
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const bool on_input = plan->config.routing.on_input != 0, by_pair = on_input || !layer->given13.uniform;
    const int64_t pairs = run->tokens * plan->config.top_k;
    mox_expert_pass pass = { .side = &plan->routed,
                             .slots = layer->slots,
                             .pairs = pairs,
                             .records = (const void *const *)layer->records,
                             .offsets = run->permutation.offsets,
                             .expert_of = layer->on.expert_of,
                             .x = hidden_of_pass(run),
                             .rows13 = by_pair ? pairs : run->tokens,
                             .source = by_pair ? AT(run, int64_t, token_of) : NULL,
                             .operand_row = by_pair ? NULL : AT(run, int64_t, token_of),
                             .row_weight = on_input ? AT(run, float, row_weight) : NULL,
                             .given13 = by_pair ? (float *)(run->space + plan->routed.space.given13) : NULL,
                             .given2 = (float *)(run->space + plan->routed.space.given2) };
    const float given13 = layer->slots > 0 ? layer->given13.resolved[0] : 0;
    return mox_device_experts(run, &pass, d->stream, given13, 0, d->error);
}

static moxie_status run_shared(device_run *d)
{
    mox_run *run = &d->run;
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const void *const record = layer->shared_record;
    mox_expert_pass pass = { .side = &plan->shared,
                             .slots = 1,
                             .pairs = run->tokens,
                             .records = &record,
                             .offsets = AT(run, int64_t, shared_offsets),
                             .x = hidden_of_pass(run),
                             .rows13 = run->tokens };
    return mox_device_experts(run, &pass, d->stream, layer->shared_given13, layer->shared_given2, d->error);
}

static moxie_status combine(device_run *d, const float *y, const int64_t *position)
{
    mox_run *run = &d->run;
    const mox_combine_args args = mox_run_combine_args(run, y, position);
    run->y = y;
    MOX_TRY(d->table->combine[run->plan->rows.cuda.combine->cuda.launcher](&args, d->stream, d->error));
    return probe(d, MOX_STAGE_COMBINE, NULL);
}

/* rows [T,K,H] of the pass: every pair is a token with one expert, and weighs one. */
static moxie_status scatter(const device_run *d, float *rows)
{
    const mox_run *run = &d->run;
    const moxie_layer_config *c = &run->plan->config;
    const mox_combine_args args = { .tokens = run->tokens * c->top_k,
                                    .top_k = 1,
                                    .hidden = c->hidden,
                                    .position = run->permutation.position,
                                    .y = run->y,
                                    .out = rows + run->first * c->top_k * c->hidden,
                                    .out_dtype = MOXIE_F32 };
    return d->table->combine[run->plan->rows.cuda.combine->cuda.launcher](&args, d->stream, d->error);
}

static moxie_status run_pass(device_run *d, bool whole)
{
    mox_run *run = &d->run;
    const moxie_plan *plan = run->plan;
    const bool shared = whole && plan->shared.rows.layout != NULL;
    run->y = (float *)(run->space + plan->routed.space.y);
    run->shared_y = shared ? (float *)(run->space + plan->shared.space.y) : NULL;
    if (shared && mox_plan_has_shared_gate(plan))
        MOX_TRY(probe(d, MOX_STAGE_SHARED_GATE, NULL));
    MOX_TRY(run_routed(d));
    if (shared)
        MOX_TRY(run_shared(d));
    return whole ? combine(d, run->y, run->permutation.position) : MOXIE_OK;
}

/* ---- the four calls ------------------------------------------------------------------------------------ */

static moxie_status run_whole(device_run *d)
{
    if (mox_plan_has_shared_gate(d->run.plan))
        MOX_TRY(run_shared_gate(d));
    MOX_TRY(d->run.ids == NULL ? route(d) : hand_on_choice(d));
    for (int64_t t = 0; t < d->run.args.tokens; t += d->run.plan->pass_tokens) {
        MOX_TRY(begin_pass(d, t));
        MOX_TRY(run_pass(d, true));
    }
    return MOXIE_OK;
}

static moxie_status run_experts(device_run *d, float *rows)
{
    for (int64_t t = 0; t < d->run.args.tokens; t += d->run.plan->pass_tokens) {
        MOX_TRY(begin_pass(d, t));
        MOX_TRY(run_pass(d, false));
        MOX_TRY(scatter(d, rows));
    }
    return MOXIE_OK;
}

static uint32_t needs_of(const moxie_plan *plan, mox_device_call call)
{
    const uint32_t weights = plan->config.routing.on_input ? MOX_NEEDS_WEIGHTS : 0;
    switch (call) {
    case MOX_DEVICE_RUN: return MOX_NEEDS_HIDDEN | MOX_NEEDS_OUTPUT | MOX_NEEDS_CHOICE;
    case MOX_DEVICE_ROUTE: return MOX_NEEDS_LOGITS | MOX_NEEDS_IDS_OUT;
    case MOX_DEVICE_EXPERTS: return MOX_NEEDS_HIDDEN | MOX_NEEDS_IDS | weights;
    default: return MOX_NEEDS_OUTPUT | MOX_NEEDS_IDS | (weights ? 0 : MOX_NEEDS_WEIGHTS);
    }
}

moxie_status mox_device_enqueue(const moxie_plan *plan, mox_device_call call, const moxie_run_args *args, float *rows,
                                mox_cuda_stream stream, const mox_probe *probe_of_caller, moxie_error *error)
{
    device_run d = { .table = plan->device.table, .stream = stream, .error = error };
    MOX_FAIL_IF(mox_device_is_host(&plan->device), MOXIE_ERR_ARGUMENT, error,
                "this plan runs on the host, and was given a stream: make its layer with backend cuda, or call "
                "moxie_plan_run");
    MOX_TRY(mox_run_begin(plan, args, needs_of(plan, call), &d.run, error));
    MOX_FAIL_IF((uintptr_t)d.run.args.workspace % MOX_DEVICE_ALIGN != 0, MOXIE_ERR_ARGUMENT, error,
                "workspace is %p; on a device it must be aligned to %d bytes", d.run.args.workspace, MOX_DEVICE_ALIGN);
    if (d.run.args.tokens == 0)
        return MOXIE_OK;
    MOX_TRY(d.table->use(plan->device.ordinal, error));
    d.run.probe = probe_of_caller;
    switch (call) {
    case MOX_DEVICE_RUN: return run_whole(&d);
    case MOX_DEVICE_ROUTE: return route(&d);
    case MOX_DEVICE_EXPERTS: return run_experts(&d, rows);
    default: d.run.tokens = d.run.args.tokens; return combine(&d, rows, NULL);
    }
}
