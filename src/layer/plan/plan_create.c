/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_create.c - makes a plan from a layer, or an explanation from a configuration alone (plan.h).
 *
 *     find the device -> select kernels -> which experts run fused -> tokens of a pass
 *                     -> order of the activations -> workspace
 */
#include "layer/plan/plan_create.h"

#include "base/sizes.h"
#include "layer/config/struct_size.h"
#include "layer/config/tp_slice.h"
#include "layer/plan/plan_fetch.h"
#include "layer/plan/plan_product.h"
#include "layer/plan/plan_ranks.h"
#include "layer/plan/plan_replay.h"
#include "layer/plan/plan_tp.h"
#include "layer/plan/workspace.h"

static bool depends_on_batch(const mox_expert_plan *experts)
{
    return mox_act_quant_needs_amax(&experts->act[MOX_W13]) || mox_act_quant_needs_amax(&experts->act[MOX_W2]);
}

static void set_experts(moxie_plan *plan)
{
    const moxie_layer_config *c = &plan->config;
    plan->experts[MOX_ROUTED] = (mox_expert_plan) { .shape = mox_tp_shape(c, plan->tp_cut), .act = { c->a13, c->a2 } };
    plan->experts[MOX_SHARED_EXPERT] =
        (mox_expert_plan) { .shape = mox_tp_shared_shape(c, plan->shared_cut), .act = { c->shared.a13, c->shared.a2 } };
    for (int k = 0; k < MOX_EXPERT_KINDS; k++) {
        mox_expert_plan *experts = &plan->experts[k];
        experts->kernels = plan->kernels.experts[k];
        experts->activation = *mox_config_activation(c, (mox_expert_kind)k);
        experts->n13 = mox_shape_rows13(&experts->shape) * (experts->shape.gated ? 2 : 1);
    }
}

/* Experts run fused when both products multiply panels: then W13's kernel can write the activations that W2's reads.
 * Of cut records each half of the span is; other ranks have the other activations. */
static void set_fused(moxie_plan *plan, mox_expert_kind kind)
{
    mox_expert_plan *experts = &plan->experts[kind];
    const mox_expert_gemm_problem first = mox_plan_problem(plan, kind, MOX_W13),
                                  second = mox_plan_problem(plan, kind, MOX_W2);
    const mox_expert_kernels *k = &experts->kernels;
    experts->fused =
        plan->backend->experts != NULL && k->glu != NULL && ((const mox_glu_kernel *)k->glu)->tile != NULL &&
        mox_fused_product_init(&experts->fused_product[MOX_W13], (const mox_expert_gemm_kernel *)k->product[0],
                               &first) &&
        mox_fused_product_init(&experts->fused_product[MOX_W2], (const mox_expert_gemm_kernel *)k->product[1], &second);
}

/* Workspace bytes of one token in a pass of fused experts. Tensor parallel ranks need the same number, since they go
 * through the same passes; so they count all columns of act. */
static int64_t fused_token_bytes(const moxie_plan *plan)
{
    const moxie_layer_config *c = &plan->config;
    const mox_fused_product *p = plan->experts[MOX_ROUTED].fused_product;
    const uint64_t act = plan->tp_cut == MOX_TP_SUMS ? (uint64_t)c->intermediate * sizeof(float) : p[MOX_W2].row_bytes;
    const uint64_t pair = p[MOX_W13].row_bytes + act + (uint64_t)c->hidden * sizeof(float);
    return plan->config.top_k * (int64_t)pair;
}

/* Workspace bytes of one token in a pass on a GPU. Kernels that fuse store y and 16-bit activations for both products;
 * others store the result of every stage in f32. */
static int64_t device_token_bytes(const moxie_plan *plan)
{
    const moxie_layer_config *c = &plan->config;
    if (plan->kernels.experts[MOX_ROUTED].quant[MOX_W2] == NULL)
        return c->top_k * (6 * c->hidden + 6 * c->intermediate);
    return c->top_k * (2 * c->hidden + 4 * c->intermediate) * (int64_t)sizeof(float);
}

static int64_t device_pass_bytes(const moxie_plan *plan)
{
    const int64_t eighth = (int64_t)(plan->device.features.memory_bytes / 8);
    return plan->tp_cut != MOX_TP_WHOLE
               ? MOX_DEVICE_PASS_BYTES
               : mox_min_i64(mox_max_i64(eighth, MOX_DEVICE_PASS_BYTES), MOX_DEVICE_MAX_PASS_BYTES);
}

static void set_pass(moxie_plan *plan)
{
    mox_expert_plan *routed = &plan->experts[MOX_ROUTED], *shared = &plan->experts[MOX_SHARED_EXPERT];
    const bool one_pass = depends_on_batch(routed) || (mox_plan_has_shared(plan) && depends_on_batch(shared));
    int64_t tokens = MOX_PASS_TOKENS;
    mox_plan_ranks_set_chunk(plan, one_pass);
    const int64_t max_tokens = mox_plan_max_pass(plan);
    if (routed->fused)
        tokens = mox_max_i64(tokens, MOX_PASS_BYTES / mox_max_i64(fused_token_bytes(plan), 1));
    tokens = mox_max_i64(tokens, mox_plan_ranks_min_pass(plan));
    if (plan->backend->on_device)
        tokens = mox_max_i64(tokens, device_pass_bytes(plan) / mox_max_i64(device_token_bytes(plan), 1));
    plan->pass_limit = tokens;
    plan->pass_tokens = one_pass ? max_tokens : mox_min_i64(max_tokens, tokens);
    mox_plan_ranks_fit_chunk(plan);
    routed->max_pairs = plan->pass_tokens * plan->config.top_k;
    /* Activations of W13 have a row a pair where their codes depend on the expert, else a row a token. An update of an
     * expert may make static scales differ, so there is always room for a row a pair. */
    const moxie_quant *a13 = &routed->act[MOX_W13];
    const bool by_pair =
        plan->config.routing.on_input || (!mox_quant_is_none(a13) && mox_act_quant_needs_static_scale(a13));
    routed->max_rows = by_pair ? routed->max_pairs : plan->pass_tokens;
    shared->max_pairs = shared->max_rows = mox_max_i64(plan->pass_tokens, mox_plan_shared_tokens(plan));
}

/* A token may choose one expert several times, so an expert may have all pairs of a pass. */
static void set_fused_scratch(moxie_plan *plan, mox_expert_kind kind)
{
    mox_expert_plan *experts = &plan->experts[kind];
    for (int p = MOX_W13; p <= MOX_W2 && experts->fused; p++) {
        const mox_expert_gemm_problem problem = mox_plan_problem(plan, kind, (mox_projection)p);
        const mox_expert_gemm_kernel *kernel = (const mox_expert_gemm_kernel *)experts->kernels.product[p];
        experts->fused_product[p].scratch_bytes = kernel->scratch_bytes(&problem);
    }
}

/* The order of both products' activations in memory, and their F32 copies in a trace. Fused experts trace a row a pair.
 */
static void set_forms(moxie_plan *plan, mox_expert_kind kind)
{
    mox_expert_plan *experts = &plan->experts[kind];
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        const mox_expert_gemm_problem product = mox_plan_problem(plan, kind, (mox_projection)p);
        const int64_t rows = p == MOX_W13 ? experts->max_rows : experts->max_pairs;
        const mox_form_problem problem = { .product = &product,
                                           .kernel = experts->kernels.product[p],
                                           .first = experts->kernels.product[MOX_W13],
                                           .max_rows = rows,
                                           .experts = kind == MOX_ROUTED ? plan->config.experts : 1,
                                           .has_row_weight = kind == MOX_ROUTED && plan->config.routing.on_input };
        experts->form[p] = plan->backend->form(&problem);
        experts->traced[p] = mox_activations_f32(product.act, experts->fused ? experts->max_pairs : rows,
                                                 mox_expert_gemm_cols(&product));
    }
}

/* A plan must run where its layer's records are. */
static moxie_status find_device(moxie_plan *plan, const moxie_options *options, moxie_error *error)
{
    static const char *const names[] = { "the host's memory", "a device's memory" };
    const moxie_layer *layer = plan->layer;
    MOX_TRY(mox_device_find(options, layer == NULL, &plan->device, error));
    if (layer == NULL)
        return MOXIE_OK;
    const bool wants = !mox_device_is_host(&plan->device), has = !mox_device_is_host(&layer->device);
    MOX_FAIL_IF(
        wants != has || plan->device.ordinal != layer->device.ordinal, MOXIE_ERR_MISMATCH, error,
        "the plan is to run in %s (device %d), but the layer's records are in %s (device %d): create the layer with "
        "the options of the plan",
        names[wants], (int)plan->device.ordinal, names[has], (int)layer->device.ordinal);
    plan->device = layer->device;
    return MOXIE_OK;
}

/* Everything that follows from the kernels. */
static moxie_status set_memory(moxie_plan *plan, moxie_error *error)
{
    const int kinds = plan->kernels.experts[MOX_SHARED_EXPERT].layout != NULL ? MOX_EXPERT_KINDS : 1;
    set_experts(plan);
    for (int k = 0; k < kinds; k++)
        set_fused(plan, (mox_expert_kind)k);
    set_pass(plan);
    for (int k = 0; k < kinds; k++) {
        set_fused_scratch(plan, (mox_expert_kind)k);
        set_forms(plan, (mox_expert_kind)k);
    }
    return mox_workspace_assign(plan, error);
}

static moxie_status check_adapters(const moxie_plan *plan, moxie_error *error)
{
    const char *remedy = "merge the adapter into the weights, or set max_adapter_rank to 0";
    if (plan->max_adapter_rank == 0)
        return MOXIE_OK;
    MOX_FAIL_IF(plan->tp_cut == MOX_TP_SUMS, MOXIE_ERR_UNSUPPORTED, error,
                "options.max_adapter_rank is %d, but in fast mode each of %d tensor parallel ranks has a part of the "
                "activations, and adapters need all of them: use exact mode, %s",
                (int)plan->max_adapter_rank, (int)plan->config.tp_size, remedy);
    return MOXIE_OK;
}

/* What a plan on a layer whose records a source fetches cannot have. */
static moxie_status check_source(const moxie_plan *plan, const moxie_options *options, moxie_error *error)
{
    if (plan->layer == NULL || plan->layer->device_source == NULL)
        return MOXIE_OK;
    const moxie_layer_config *c = &plan->config;
    MOX_FAIL_IF(mox_act_quant_needs_amax(&c->a13) || mox_act_quant_needs_amax(&c->a2), MOXIE_ERR_UNSUPPORTED, error,
                "activations have one scale for the whole batch, which experts that are computed one after the other "
                "cannot share on a GPU yet: run the store on the CPU, or the layer without a store");
    MOX_FAIL_IF(plan->max_adapter_rank != 0 && plan->layer->beside != NULL, MOXIE_ERR_UNSUPPORTED, error,
                "options.max_adapter_rank is %d, but experts that the CPU computes where they lie have no adapters: "
                "set it to 0, merge the adapter into the weights, or open the store without compute_where_it_lies",
                (int)plan->max_adapter_rank);
    MOX_FAIL_IF(options->comm != NULL, MOXIE_ERR_UNSUPPORTED, error,
                "options.comm is set, but a layer of a store does not exchange rows with other ranks on a GPU yet: set "
                "it to NULL, use the cpu back end, or open the layer's file without a store");
    return MOXIE_OK;
}

/* As the layer's records are cut, or would be. `of_file`: they are those of an expert file. */
static moxie_status find_cut(moxie_plan *plan, bool of_file, moxie_error *error)
{
    const bool host = mox_device_is_host(&plan->device);
    plan->tp_cut = plan->layer != NULL
                       ? plan->layer->tp_cut
                       : mox_tp_cut_of(&plan->config, host && !of_file ? plan->mode : MOXIE_MODE_EXACT, NULL);
    plan->shared_cut =
        plan->layer != NULL ? plan->layer->shared_cut : mox_tp_shared_cut(&plan->config, true, !host, NULL);
    MOX_FAIL_IF(plan->tp_cut == MOX_TP_SUMS && plan->mode != MOXIE_MODE_FAST, MOXIE_ERR_MISMATCH, error,
                "the layer was created in fast mode and has columns of W2, whose results are summed over ranks; the "
                "plan is to be exact: create the layer with the options of the plan");
    return MOXIE_OK;
}

static moxie_status make_clocks(moxie_plan *plan, moxie_error *error)
{
    const uint64_t workers = (uint64_t)plan->executor.workers;
    plan->clocks = mox_alloc_aligned(workers * sizeof(mox_clock), _Alignof(mox_clock));
    MOX_FAIL_IF(plan->clocks == NULL, MOXIE_ERR_MEMORY, error, "no memory for the clocks of %d workers",
                (int)plan->executor.workers);
    return MOXIE_OK;
}

static moxie_status begin(const moxie_options *options, moxie_options *read, moxie_plan **plan, moxie_error *error)
{
    MOX_TRY(mox_options_read(options, read, error));
    *plan = mox_calloc(1, sizeof **plan);
    MOX_FAIL_IF(*plan == NULL, MOXIE_ERR_MEMORY, error, "no memory for a plan");
    return MOXIE_OK;
}

/* `layer` may be NULL, and `layouts` too; `of_file` as in mox_plan_explain(). With a comm, other ranks wait for this
 * one's word even if it cannot make its plan. */
static moxie_status make(const moxie_layer *layer, const moxie_layer_config *config,
                         const mox_layout *const layouts[MOX_EXPERT_KINDS], bool of_file, const moxie_options *options,
                         moxie_plan **out, moxie_error *error)
{
    moxie_options read;
    moxie_plan *plan = NULL;
    const moxie_status begun = begin(options, &read, &plan, error);
    if (begun != MOXIE_OK) {
        moxie_comm *comm = mox_options_comm(options);
        return comm != NULL && layer != NULL ? mox_plan_ranks_agree(NULL, comm, begun, error) : begun;
    }
    plan->layer = layer;
    plan->config = *config;
    plan->backend = mox_backend_of((moxie_backend)read.backend);
    plan->executor = *read.executor;
    plan->mode = (moxie_mode)read.mode;
    plan->max_tokens = read.max_tokens;
    plan->max_adapter_rank = read.max_adapter_rank;
    moxie_status status = make_clocks(plan, error);
    if (status == MOXIE_OK)
        status = find_device(plan, &read, error);
    if (status == MOXIE_OK)
        status = find_cut(plan, of_file, error);
    if (status == MOXIE_OK)
        status = check_adapters(plan, error);
    if (status == MOXIE_OK)
        status = check_source(plan, &read, error);
    if (status == MOXIE_OK)
        status = mox_select(config, &read, &plan->device, plan->tp_cut, plan->shared_cut, layouts, &plan->kernels,
                            &plan->steps, error);
    if (status == MOXIE_OK)
        status = mox_plan_ranks_create(plan, &read, error);
    if (status == MOXIE_OK)
        status = set_memory(plan, error);
    if (status == MOXIE_OK)
        status = mox_plan_fetch_create(plan, error);
    if (status == MOXIE_OK)
        status = mox_plan_replay_create(plan, &read, error);
    if (status == MOXIE_OK)
        status = mox_tp_check(plan, error);
    if (status == MOXIE_OK)
        status = mox_plan_ranks_pin(plan, error);
    if (status == MOXIE_OK)
        status = mox_tp_add_steps(plan, error);
    if (status == MOXIE_OK)
        status = mox_plan_ranks_allocate_refusal(plan, error);
    if (read.comm != NULL && layer != NULL) {
        status = mox_plan_ranks_agree(plan, read.comm, status, error);
        if (status == MOXIE_OK)
            status = mox_workspace_assign(plan, error);
    }
    if (status == MOXIE_OK)
        status = mox_plan_ranks_add_steps(plan, error);
    if (status != MOXIE_OK) {
        mox_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return MOXIE_OK;
}

moxie_status mox_plan_create(const moxie_layer *layer, const moxie_options *options, moxie_plan **out,
                             moxie_error *error)
{
    return make(layer, &layer->config, layer->layouts, false, options, out, error);
}

/* An explanation for the cpu back end may be for another processor than this one. */
static moxie_status explain_there(const moxie_layer_config *config, const mox_layout *const layouts[MOX_EXPERT_KINDS],
                                  bool of_file, const moxie_options *options, moxie_plan **out, moxie_error *error)
{
    moxie_options there;
    MOX_TRY(mox_options_read(options, &there, error));
    const bool cpu = there.backend == MOXIE_BACKEND_AUTO || there.backend == MOXIE_BACKEND_CPU;
    const mox_cpu_features *processor = cpu ? mox_cpu_usual(there.device) : NULL;
    if (processor != NULL)
        there.device = NULL;
    mox_cpu_assume(processor);
    const moxie_status status = make(NULL, config, layouts, of_file, &there, out, error);
    mox_cpu_assume(NULL);
    return status;
}

moxie_status mox_plan_explain(const moxie_layer_config *config, const mox_layout *const layouts[MOX_EXPERT_KINDS],
                              bool of_file, const moxie_options *options, moxie_plan **out, moxie_error *error)
{
    /* A routing table is data, like weights: an explanation does not need it. */
    static const int32_t any_table[MOXIE_MAX_TOP_K];
    moxie_layer_config read, checked;
    MOX_TRY(mox_struct_read(config, &read, MOX_STRUCT(moxie_layer_config), error));
    if (read.routing.select == MOXIE_SELECT_TABLE && read.routing.table == NULL) {
        read.routing.table = any_table;
        read.routing.table_rows = 1;
    }
    MOX_TRY(mox_config_read(&read, &checked, error));
    return explain_there(&checked, layouts, of_file, options, out, error);
}

void mox_plan_destroy(moxie_plan *plan)
{
    if (plan == NULL)
        return;
    mox_steps_free(&plan->steps);
    mox_plan_ranks_destroy(plan);
    mox_plan_fetch_destroy(plan->fetch);
    mox_plan_replay_destroy(plan->replay);
    mox_free(plan->clocks);
    mox_free(plan);
}
