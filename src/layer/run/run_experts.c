/* SPDX-License-Identifier: Apache-2.0
 *
 * run_experts.c - the experts of one kind in one pass, stage by stage:
 *
 *     x -> quant_act -> a13 -> expert_gemm w13 -> h -> glu -> act -> quant_act -> a2 -> expert_gemm w2 -> y [pairs, H]
 *
 * The same code runs routed experts (pairs grouped by slot) and the shared expert (one slot, pair t is token t), on
 * every back end. The number of pairs is offsets[slots], which only the back end reads: on a GPU it is device memory.
 *
 * A kernel for W13 that fuses the activation writes a2 itself; then glu and the second quant_act have no kernel. What
 * adapters change is computed before its sums, and the kernel adds it.
 *
 * In a traced run such a kernel also stores h and act, and activations in another form than F32 are quantized a second
 * time to F32, so that a check can compare them.
 */
#include "layer/run/run_experts.h"

#include "base/sizes.h"
#include "layer/plan/plan_product.h"
#include "layer/run/ranks_device.h"
#include "layer/run/run_adapters.h"
#include "layer/run/run_tp.h"
#include "layer/weights/layer_arrays.h"

/* ---- the pass ------------------------------------------------------------------------------------ */

/* The activations with pointers into the workspace. */
static mox_activations place(const mox_run *run, const mox_activations *shape, const mox_activations_space *space)
{
    mox_activations a = *shape;
    a.data = run->space + space->values;
    if (a.scale_cols == 0)
        return a;
    a.scales = (float *)(run->space + space->scales);
    a.global = a.global_kind != MOXIE_GLOBAL_NONE ? (float *)(run->space + space->global) : NULL;
    return a;
}

static void place_all(const mox_run *run, mox_expert_pass *pass)
{
    const mox_expert_space *space = &pass->experts->space;
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        const mox_activations_form *form = &pass->experts->form[p];
        pass->a[p] = place(run, &form->shape, &space->a[p]);
        if (form->reads_hidden)
            pass->a[p].data = (void *)(uintptr_t)pass->x;
        pass->traced[p] = place(run, &pass->experts->traced[p], &space->traced[p]);
    }
    pass->traced[MOX_W13].rows = pass->rows13;
    pass->traced[MOX_W2].rows = pass->pairs;
    pass->h = (float *)(run->space + space->h);
    pass->act = (float *)(run->space + space->act);
    pass->y = (float *)(run->space + space->y);
    if (pass->kind == MOX_ROUTED)
        pass->y += run->slots.first_pair * run->plan->config.hidden;
}

static mox_expert_pass routed_pass(const mox_run *run)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const mox_run_slots *slots = &run->slots;
    const mox_expert_plan *experts = &plan->experts[MOX_ROUTED];
    const bool on_input = plan->config.routing.on_input != 0;
    const bool by_pair = mox_run_has_row_per_pair(run);
    const int64_t pairs = run->tokens * plan->config.top_k;
    int64_t *token_of = MOX_RUN_AT(run, int64_t, token_of);
    const float *pair_scale13 = (const float *)(run->space + experts->space.pair_scale[MOX_W13]);
    const float *pair_scale2 = (const float *)(run->space + experts->space.pair_scale[MOX_W2]);
    return (mox_expert_pass) {
        .kind = MOX_ROUTED,
        .experts = experts,
        .slots = slots->end - slots->first,
        .pairs = pairs,
        .records = slots->records + slots->first,
        .offsets = run->permutation.offsets + slots->first,
        .expert_of = slots->expert_of + slots->first,
        .x = mox_run_hidden(run),
        .rows13 = by_pair ? pairs : run->tokens,
        .source = by_pair ? token_of : NULL,
        .act_row = by_pair ? NULL : token_of,
        .row_weight = on_input ? MOX_RUN_AT(run, float, row_weight) : NULL,
        .pair_scale = { by_pair ? pair_scale13 : NULL, pair_scale2 },
        .static_scale = { layer->slots > 0 ? layer->static_scale[MOX_W13].resolved[0] : 0 },
    };
}

static mox_expert_pass shared_pass(const mox_run *run)
{
    const moxie_layer *layer = run->plan->layer;
    return (mox_expert_pass) {
        .kind = MOX_SHARED_EXPERT,
        .experts = &run->plan->experts[MOX_SHARED_EXPERT],
        .slots = 1,
        .pairs = run->tokens,
        .records = (const void *const *)&layer->shared_record,
        .offsets = MOX_RUN_AT(run, int64_t, shared_offsets),
        .x = mox_run_hidden(run),
        .rows13 = run->tokens,
        .static_scale = { layer->shared_static_scale[MOX_W13], layer->shared_static_scale[MOX_W2] },
    };
}

/* ---- activations --------------------------------------------------------------------------------- */

static mox_quant_act_args quantizer(const mox_run *run, const mox_expert_pass *pass, mox_projection p)
{
    const moxie_quant *quant = &pass->experts->act[p];
    const bool quantized = !mox_quant_is_none(quant);
    return (mox_quant_act_args) {
        .quant = *quant,
        .rule = quantized ? mox_act_quant_rule(quant) : 0,
        .cols = pass->a[p].cols,
        .row_scale = pass->pair_scale[p],
        .static_scale = pass->static_scale[p],
        .amax = mox_act_quant_needs_amax(quant) ? MOX_RUN_AT(run, uint32_t, amax) : NULL,
        .table = quantized ? mox_layer_table(run->plan->layer, quant->element) : NULL,
        .codes = MOX_RUN_AT(run, uint8_t, codes),
        .row_scratch = MOX_RUN_AT(run, float, row),
    };
}

/* The rows in which this rank looks for the magnitude. A row of a token may be on many ranks or on none, so ranks look
 * at their own tokens; rows of pairs are each on one. */
static mox_quant_act_args looked_at(const mox_run *run, mox_projection p, const mox_quant_act_args *args)
{
    mox_quant_act_args rows = *args;
    if (p == MOX_W13 && args->source == NULL) {
        rows.x = run->own->args.hidden;
        rows.max_rows = run->own->args.tokens;
    }
    return rows;
}

static moxie_status join_on_host(const mox_run *run, mox_quant_act_args *args, const mox_quant_act_args *rows,
                                 float *amax, moxie_error *error)
{
    moxie_comm *comm = run->plan->ranks->comm;
    mox_comm_request request;
    *amax = mox_quant_act_amax(rows);
    args->batch_amax = amax;
    const mox_phase before = mox_run_enter(run, MOX_PHASE_EXCHANGE);
    MOX_TRY(mox_comm_start_allreduce(comm, amax, 1, MOXIE_COMM_MAX_F32, &request, error));
    return mox_run_back(run, before, mox_comm_wait(comm, request, error));
}

static moxie_status join_on_device(const mox_run *run, const mox_kernel *kernel, mox_quant_act_args *args,
                                   mox_quant_act_args *rows, moxie_error *error)
{
    rows->finds_amax = true;
    MOX_TRY(run->plan->backend->quantize(&run->queue, kernel, rows, error));
    const mox_phase before = mox_run_enter(run, MOX_PHASE_EXCHANGE);
    return mox_run_back(run, before, mox_ranks_join_amax(run, args->amax, &args->maxima, &args->maxima_count, error));
}

/* One scale covers the tokens of all ranks: finds its magnitude together. *amax is memory for it on the host. */
static moxie_status join_amax(const mox_run *run, mox_projection p, const mox_kernel *kernel, mox_quant_act_args *args,
                              float *amax, moxie_error *error)
{
    mox_quant_act_args rows = looked_at(run, p, args);
    if (run->plan->backend->on_device)
        return join_on_device(run, kernel, args, &rows, error);
    return join_on_host(run, args, &rows, amax, error);
}

/* Makes the activations that the product reads, and in a traced run the same as F32. */
static moxie_status make_activations(const mox_run *run, const mox_expert_pass *pass, mox_projection p,
                                     mox_quant_act_args *args, moxie_error *error)
{
    const mox_backend *b = run->plan->backend;
    const mox_kernel *kernel = pass->experts->kernels.quant[p];
    float amax;
    args->out = pass->a[p];
    if (args->amax != NULL && run->own != NULL)
        MOX_TRY(join_amax(run, p, kernel, args, &amax, error));
    if (!pass->experts->form[p].reads_hidden)
        MOX_TRY(b->quantize(&run->queue, kernel, args, error));
    if (run->probe == NULL || args->out.kind == MOX_ACTIVATIONS_F32)
        return MOXIE_OK;
    args->out = pass->traced[p];
    return b->quantize(&run->queue, kernel, args, error);
}

static moxie_status quantize(const mox_run *run, const mox_expert_pass *pass, mox_projection p,
                             mox_quant_act_args *args, moxie_error *error)
{
    const mox_phase before = mox_run_enter(run, MOX_PHASE_GATHER);
    return mox_run_back(run, before, make_activations(run, pass, p, args, error));
}

/* True when a device may quantize the hidden states while permute still runs. With one row per token, and no weights or
 * scales of pairs, quantizing does not need permute's results. Permute started after all earlier kernels had ended, so
 * the memory of these activations is free. The shared expert's activations must wait, because they use the memory of
 * the routed experts'. */
static bool is_early(const mox_expert_pass *pass)
{
    return pass->kind == MOX_ROUTED && pass->source == NULL && pass->row_weight == NULL &&
           pass->pair_scale[MOX_W13] == NULL;
}

static moxie_status quantize13(const mox_run *run, const mox_expert_pass *pass, moxie_error *error)
{
    mox_quant_act_args args = quantizer(run, pass, MOX_W13);
    args.x = pass->x;
    args.x_dtype = run->plan->config.dtype;
    args.round_to = MOXIE_F32;
    args.max_rows = pass->rows13;
    args.rows = pass->source != NULL ? &run->permutation.offsets[run->slots.count] : NULL;
    args.source = pass->source;
    args.row_weight = pass->row_weight;
    args.early = is_early(pass);
    args.coded = run->coded;
    MOX_FAIL_IF(pass->experts->form[MOX_W13].reads_hidden && (uintptr_t)pass->x % 16 != 0, MOXIE_ERR_ARGUMENT, error,
                "hidden is %p; on a device this plan reads it 16 bytes at a time: align it to 16 bytes", pass->x);
    return quantize(run, pass, MOX_W13, &args, error);
}

/* The rows of the experts at hand alone: those of earlier windows (run_fetch.h) are quantized already. On a device the
 * host does not know where they begin. */
static int64_t skip_earlier_rows(const mox_run *run, mox_expert_pass *window)
{
    const int64_t first = run->plan->backend->on_device ? 0 : window->offsets[0];
    mox_activations *a = &window->a[MOX_W2];
    if (first == 0)
        return 0;
    a->values += first * a->stride;
    a->scales = a->scales != NULL ? a->scales + first * a->scale_cols : NULL;
    a->global = a->global != NULL ? a->global + first : NULL;
    window->act += first * a->cols;
    if (window->pair_scale[MOX_W2] != NULL)
        window->pair_scale[MOX_W2] += first;
    return first;
}

static moxie_status quantize2(const mox_run *run, const mox_expert_pass *all, moxie_error *error)
{
    if (all->experts->kernels.quant[MOX_W2] == NULL)
        return MOXIE_OK;
    mox_expert_pass window = *all;
    const mox_expert_pass *pass = &window;
    const int64_t skipped = skip_earlier_rows(run, &window);
    mox_quant_act_args args = quantizer(run, pass, MOX_W2);
    args.x = pass->act;
    args.x_dtype = MOXIE_F32;
    args.round_to = run->plan->config.dtype;
    args.max_rows = skipped > 0 ? pass->offsets[pass->slots] - skipped : pass->pairs;
    args.rows = skipped > 0 ? NULL : &pass->offsets[pass->slots];
    return quantize(run, pass, MOX_W2, &args, error);
}

/* ---- activation ------------------------------------------------------------------------------------ */

static mox_glu_args activation(const mox_run *run, const mox_expert_pass *pass)
{
    const bool own = pass->kind == MOX_SHARED_EXPERT && run->plan->config.has_shared_activation;
    return (mox_glu_args) { .activation = own ? pass->experts->activation : run->plan->layer->arrays.activation,
                            .slots = pass->slots,
                            .offsets = pass->offsets,
                            .expert_of = pass->expert_of,
                            .max_pairs = pass->pairs,
                            .h = pass->h,
                            .intermediate = mox_shape_rows13(&pass->experts->shape),
                            .out = pass->act };
}

static moxie_status activate(const mox_run *run, const mox_expert_pass *pass, moxie_error *error)
{
    const mox_kernel *kernel = pass->experts->kernels.glu;
    const mox_glu_args args = activation(run, pass);
    if (kernel == NULL || pass->pairs == 0)
        return MOXIE_OK;
    const mox_phase before = mox_run_enter(run, MOX_PHASE_ACTIVATION);
    return mox_run_back(run, before, run->plan->backend->activate(&run->queue, kernel, &args, error));
}

/* ---- adapters -------------------------------------------------------------------------------------- */

static bool is_adapted(const mox_run *run, const mox_expert_pass *pass)
{
    return pass->kind == MOX_ROUTED && run->adapted;
}

/* Memory for what adapters change, where W13's kernel adds it; NULL: it is added to the kernel's result. */
static float *change_of(const mox_run *run, const mox_expert_pass *pass)
{
    const bool fuses = run->plan->backend->fuses(pass->experts->kernels.product[MOX_W13]) != 0;
    return fuses ? (float *)(run->space + pass->experts->space.change) : NULL;
}

/* Adds the tokens' adapters to a product's result, where its kernel has not. */
static moxie_status adapt(const mox_run *run, const mox_expert_pass *pass, mox_projection p, moxie_error *error)
{
    const bool first = p == MOX_W13;
    if (!is_adapted(run, pass) || (first && change_of(run, pass) != NULL))
        return MOXIE_OK;
    const mox_lora_args args =
        mox_run_lora_args(run, p, first ? pass->x : (const void *)pass->act, first ? pass->h : pass->y);
    return run->plan->backend->lora(&run->queue, pass->experts->kernels.lora, &args, error);
}

/* ---- products -------------------------------------------------------------------------------------- */

/* Arguments of a product: what the plan fixes, and the pointers of this run. */
static mox_expert_gemm_args product(const mox_run *run, const mox_expert_pass *pass, mox_projection p, uint32_t fuses)
{
    const moxie_plan *plan = run->plan;
    const moxie_layer *layer = plan->layer;
    const bool first = p == MOX_W13, routed = pass->kind == MOX_ROUTED;
    const moxie_quant *weight = first ? &pass->experts->shape.w13 : &pass->experts->shape.w2;
    mox_expert_gemm_args args = mox_plan_product(plan, pass->kind, p, pass->slots, run->tokens);
    args.records = pass->records;
    args.record_bytes = routed ? run->slots.record_bytes : layer->shared_bytes;
    args.table = mox_layer_table(layer, weight->element);
    args.scale_table = mox_layer_table(layer, weight->scale);
    args.offsets = pass->offsets;
    args.ids = routed ? run->ids + run->first * plan->config.top_k : NULL;
    args.slot_of = run->slots.slot_of;
    if (first)
        args.act_row = pass->experts->form[p].reads_hidden && pass->source != NULL ? pass->source : pass->act_row;
    args.a = &pass->a[p];
    args.out = !first ? pass->y : fuses & MOX_FUSES_ACT ? pass->act : pass->h;
    args.scratch = run->space + plan->space.product;
    return args;
}

/* Runs a kernel for W13 that goes on to the activation. It adds what adapters change, and leaves what those of W2 read.
 * While it waits for adapters, its work list and its tokens are made, and weights are on their way. */
static moxie_status multiply_adapted(const mox_run *run, const mox_expert_pass *pass, mox_expert_gemm_args *args,
                                     moxie_error *error)
{
    const mox_backend *b = run->plan->backend;
    const mox_kernel *kernel = pass->experts->kernels.product[MOX_W13];
    float *change = change_of(run, pass);
    mox_lora_args lora = mox_run_lora_args(run, MOX_W13, pass->x, change);
    lora.writes = true;
    args->part = MOX_PRODUCT_TOKENS;
    MOX_TRY(b->product(&run->queue, kernel, args, error));
    MOX_TRY(b->lora(&run->queue, pass->experts->kernels.lora, &lora, error));
    args->part = MOX_PRODUCT_SUMS;
    args->change = change;
    args->kept_act = b->fuses(kernel) & MOX_FUSES_ACT ? NULL : pass->act;
    return b->product(&run->queue, kernel, args, error);
}

static moxie_status multiply(const mox_run *run, const mox_expert_pass *pass, mox_projection p, moxie_error *error)
{
    const mox_backend *b = run->plan->backend;
    const mox_kernel *kernel = pass->experts->kernels.product[p];
    const uint32_t fuses = b->fuses(kernel);
    const mox_glu_args glu = activation(run, pass);
    mox_expert_gemm_args args = product(run, pass, p, fuses);
    if (args.n_out == 0 ||
        args.max_pairs == 0) /* a tensor parallel rank without rows of this matrix, or without tokens */
        return MOXIE_OK;
    if (fuses != 0) {
        args.glu = &glu;
        args.next = &pass->a[MOX_W2];
    }
    if (fuses != 0 && run->probe != NULL)
        args.trace = (mox_product_trace) { .h = pass->h,
                                           .act = pass->act,
                                           .next = pass->traced[MOX_W2].values,
                                           .next_scales = pass->traced[MOX_W2].scales,
                                           .next_stride = pass->traced[MOX_W2].stride };
    const mox_phase before = mox_run_enter(run, p == MOX_W13 ? MOX_PHASE_W13 : MOX_PHASE_W2);
    return mox_run_back(run, before,
                        fuses != 0 && is_adapted(run, pass) ? multiply_adapted(run, pass, &args, error)
                                                            : b->product(&run->queue, kernel, &args, error));
}

/* The same with the part of an expert's rows that this tensor parallel rank has. */
static moxie_status run_part(const mox_run *run, mox_expert_pass *pass, moxie_error *error)
{
    float *const act = pass->act, *const y = pass->y;
    const int64_t pairs = pass->kind == MOX_ROUTED ? mox_ranks_pairs(run) : pass->pairs;
    pass->act = MOX_RUN_AT(run, float, tp_act);
    pass->y = MOX_RUN_AT(run, float, tp_y);
    MOX_TRY(quantize13(run, pass, error));
    MOX_TRY(multiply(run, pass, MOX_W13, error));
    MOX_TRY(adapt(run, pass, MOX_W13, error));
    MOX_TRY(activate(run, pass, error));
    MOX_TRY(mox_run_tp_gather(run, pass->kind, MOX_W13, pairs, pass->act, act, error));
    pass->act = act;
    MOX_TRY(quantize2(run, pass, error));
    MOX_TRY(multiply(run, pass, MOX_W2, error));
    MOX_TRY(adapt(run, pass, MOX_W2, error));
    if (pass->kind == MOX_SHARED_EXPERT || !mox_run_tp_gathers_y(run))
        return MOXIE_OK;
    return mox_run_tp_gather(run, MOX_ROUTED, MOX_W2, pairs, pass->y, y, error);
}

/* From W13's activations to act. */
static moxie_status run_first(const mox_run *run, const mox_expert_pass *pass, moxie_error *error)
{
    MOX_TRY(multiply(run, pass, MOX_W13, error));
    MOX_TRY(adapt(run, pass, MOX_W13, error));
    MOX_TRY(mox_run_probe(run, MOX_STAGE_GEMM13, pass, error));
    MOX_TRY(activate(run, pass, error));
    return mox_run_probe(run, MOX_STAGE_GLU, pass, error);
}

static moxie_status run_second(const mox_run *run, const mox_expert_pass *pass, moxie_error *error)
{
    MOX_TRY(multiply(run, pass, MOX_W2, error));
    MOX_TRY(adapt(run, pass, MOX_W2, error));
    return mox_run_probe(run, MOX_STAGE_GEMM2, pass, error);
}

moxie_status mox_run_experts(mox_run *run, mox_expert_kind kind, uint32_t parts, moxie_error *error)
{
    mox_expert_pass pass = kind == MOX_ROUTED ? routed_pass(run) : shared_pass(run);
    place_all(run, &pass);
    if (pass.experts->shape.cut)
        return run_part(run, &pass, error);
    if (parts & MOX_EXPERTS_INPUT) {
        MOX_TRY(quantize13(run, &pass, error));
        MOX_TRY(mox_run_probe(run, MOX_STAGE_QUANT13, &pass, error));
    }
    if (parts & MOX_EXPERTS_FIRST)
        MOX_TRY(run_first(run, &pass, error));
    if (parts & MOX_EXPERTS_REQUANTIZE) {
        MOX_TRY(quantize2(run, &pass, error));
        MOX_TRY(mox_run_probe(run, MOX_STAGE_QUANT2, &pass, error));
    }
    return parts & MOX_EXPERTS_SECOND ? run_second(run, &pass, error) : MOXIE_OK;
}
