/* SPDX-License-Identifier: Apache-2.0
 *
 * workspace.c - assigns offsets to the buffers of a run: a pure function of the plan.
 *
 *     | ranks | batch | indices, scratch | y routed | y shared | fused buffers | routed experts' buffers |
 *                                                                      | shared expert's buffers |    same memory
 *
 * Every buffer begins at the back end's alignment. Routed and shared experts that are not fused run one after the
 * other, so their buffers use the same memory. Only the results y of both live until combine. Buffers of traced runs
 * come last.
 */
#include "layer/plan/workspace.h"

#include "backend/host/host_backend.h"
#include "base/carver.h"
#include "base/sizes.h"
#include "layer/plan/plan_fetch.h"
#include "layer/plan/plan_product.h"
#include "layer/plan/plan_ranks.h"
#include "layer/plan/plan_tp.h"
#include "layer/weights/record_source.h"

static uint64_t carve(mox_carver *c, int64_t rows, int64_t cols, uint64_t element)
{
    uint64_t row_bytes = 0;
    const bool fits = mox_mul_u64((uint64_t)cols, element, &row_bytes);
    return mox_carve_offset(c, (uint64_t)rows, fits ? row_bytes : MOX_CARVED_TOO_MUCH);
}

/* Workers with scratch in the workspace. Kernels of a device have theirs in registers and shared memory. */
static int64_t host_workers(const moxie_plan *plan)
{
    return plan->backend->on_device ? 0 : plan->executor.workers;
}

/* ---- experts, stage by stage ---------------------------------------------------------------------- */

static mox_activations_space carve_form(mox_carver *c, const mox_activations_form *f)
{
    mox_activations_space space = { 0 };
    if (!f->reads_hidden)
        space.values = carve(c, f->shape.rows, f->shape.stride, (uint64_t)f->element_bytes);
    if (f->shape.scale_cols > 0) {
        space.scales = carve(c, f->shape.rows, f->scales_per_row, sizeof(float));
        space.global = carve(c, f->shape.rows, 1, sizeof(float));
    }
    return space;
}

static uint64_t carve_h(mox_carver *c, const mox_expert_plan *e)
{
    return carve(c, e->max_pairs, e->n13, sizeof(float));
}

static uint64_t carve_act(mox_carver *c, const mox_expert_plan *e)
{
    return carve(c, e->max_pairs, e->shape.intermediate, sizeof(float));
}

/* Stage by stage, f32 activations are quantized by a kernel of their own, or read by adapters of W2. */
static bool stores_act(const mox_expert_plan *e)
{
    return e->kernels.quant[MOX_W2] != NULL || e->kernels.lora != NULL;
}

/* All buffers but y, which lives longer. */
static void carve_experts(mox_carver *c, mox_expert_plan *e)
{
    mox_expert_space *s = &e->space;
    s->a[MOX_W13] = carve_form(c, &e->form[MOX_W13]);
    s->pair_scale[MOX_W13] = carve(c, e->max_rows, 1, sizeof(float));
    if (e->kernels.glu != NULL)
        s->h = carve_h(c, e);
    if (e->kernels.glu == NULL && e->kernels.lora != NULL)
        s->change = carve_h(c, e);
    if (stores_act(e))
        s->act = carve_act(c, e);
    s->a[MOX_W2] = carve_form(c, &e->form[MOX_W2]);
    s->pair_scale[MOX_W2] = carve(c, e->max_pairs, 1, sizeof(float));
}

/* Fused experts keep the f32 activations for what comes between the products. */
static bool keeps_act(const mox_expert_plan *e)
{
    return !mox_quant_is_none(&e->act[MOX_W2]) || e->kernels.lora != NULL || e->shape.cut;
}

/* Buffers of results that only a traced run stores. */
static void carve_traces(mox_carver *c, mox_expert_plan *e)
{
    mox_expert_space *s = &e->space;
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        const mox_activations_form f = { .shape = e->traced[p],
                                         .element_bytes = sizeof(float),
                                         .scales_per_row = e->traced[p].scale_cols };
        const bool stored = !e->fused && e->form[p].shape.kind == MOX_ACTIVATIONS_F32;
        s->traced[p] = stored ? s->a[p] : carve_form(c, &f);
    }
    if (e->fused || e->kernels.glu == NULL)
        s->h = carve_h(c, e);
    if (e->fused ? !keeps_act(e) : !stores_act(e))
        s->act = carve_act(c, e);
}

/* ---- fused experts -------------------------------------------------------------------------------- */

static mox_fused_space carve_fused_activations(mox_carver *c, const mox_fused_product *product, int64_t pairs)
{
    mox_fused_space space = { 0 };
    space.data = carve(c, pairs, (int64_t)product->row_bytes, 1);
    carve(c, 1, MOX_PANEL_OVERREAD_BYTES, 1);
    if (product->scaling == MOX_ACT_GROUPED)
        space.scales = carve(c, pairs, product->groups, sizeof(float));
    if (product->scaling == MOX_ACT_BY_ROW)
        space.row_scale = carve(c, pairs, 1, sizeof(float));
    if (product->act.global != MOXIE_GLOBAL_NONE)
        space.global = carve(c, pairs, 1, sizeof(float));
    return space;
}

static void carve_fused(mox_carver *c, mox_expert_plan *e)
{
    for (int p = MOX_W13; p <= MOX_W2; p++)
        e->fused_space[p] = carve_fused_activations(c, &e->fused_product[p], e->max_pairs);
    if (keeps_act(e))
        e->space.act = carve_act(c, e);
}

static void carve_fused_scratch(mox_carver *c, moxie_plan *plan)
{
    const mox_fused_product *products[2 * MOX_EXPERT_KINDS];
    int64_t n = 0;
    for (int k = 0; k < MOX_EXPERT_KINDS; k++)
        if (plan->experts[k].fused) {
            products[n++] = &plan->experts[k].fused_product[MOX_W13];
            products[n++] = &plan->experts[k].fused_product[MOX_W2];
        }
    if (n == 0)
        return;
    plan->space.fused_items = carve(c, plan->config.experts + 1, 1, sizeof(mox_fused_item));
    plan->space.fused_scratch_bytes = mox_fused_scratch(products, n);
    plan->space.fused_scratch = carve(c, plan->executor.workers, 1, plan->space.fused_scratch_bytes);
}

/* ---- the whole workspace -------------------------------------------------------------------------- */

static void carve_batch(mox_carver *c, moxie_plan *plan)
{
    const moxie_layer_config *config = &plan->config;
    const int64_t t = plan->max_tokens, workers = host_workers(plan);
    const int64_t candidates = mox_config_candidates(config);
    const bool gate = plan->kernels.shared_gate != NULL;
    mox_workspace *s = &plan->space;
    if (plan->kernels.router_norm != NULL)
        s->router_x = carve(c, t, config->router_width, sizeof(float));
    if (config->router_width > 0)
        s->logits = carve(c, t, candidates, sizeof(float));
    s->ids = carve(c, t, config->top_k, sizeof(int32_t));
    s->weights = carve(c, t, config->top_k, sizeof(float));
    s->topk_row = carve(c, workers, candidates, sizeof(float));
    s->dense_x = carve(c, workers * MOX_ROUTE_TOKENS, mox_max_i64(config->router_width, gate ? config->hidden : 0),
                       sizeof(float));
    if (gate)
        s->shared_weight = carve(c, t, 1, sizeof(float));
    if (config->routing.select == MOXIE_SELECT_CUSTOM)
        s->topk_logits = carve(c, t, config->experts, sizeof(float));
}

/* Scratch of the products that are not fused. They run one at a time, so the largest is enough. */
static uint64_t product_scratch(const moxie_plan *plan)
{
    const mox_target target = { .device = plan->backend->on_device ? &plan->device.features : NULL };
    uint64_t max_bytes = 0;
    for (int k = 0; k < MOX_EXPERT_KINDS; k++)
        for (int p = MOX_W13; p <= MOX_W2 && plan->experts[k].kernels.layout != NULL && !plan->experts[k].fused; p++) {
            const mox_expert_gemm_problem problem = mox_plan_problem(plan, (mox_expert_kind)k, (mox_projection)p);
            const uint64_t bytes = plan->backend->product_scratch(&target, plan->experts[k].kernels.product[p],
                                                                  &problem, k == MOX_ROUTED ? plan->config.experts : 1,
                                                                  plan->experts[k].max_pairs, plan->executor.workers);
            max_bytes = bytes > max_bytes ? bytes : max_bytes;
        }
    return max_bytes;
}

/* The permutation and scratch of a pass. */
static void carve_pass_scratch(mox_carver *c, moxie_plan *plan)
{
    const moxie_layer_config *config = &plan->config;
    const int64_t workers = host_workers(plan), pairs = plan->experts[MOX_ROUTED].max_pairs;
    int64_t max_cols = mox_max_i64(config->hidden, config->intermediate);
    if (mox_plan_has_shared(plan))
        max_cols = mox_max_i64(max_cols, config->shared.intermediate);
    mox_workspace *s = &plan->space;
    s->offsets = carve(c, config->experts + 1, 1, sizeof(int64_t));
    s->pair_at = carve(c, pairs, 1, sizeof(int64_t));
    s->position = carve(c, pairs, 1, sizeof(int64_t));
    s->token_of = carve(c, pairs, 1, sizeof(int64_t));
    s->row_weight = carve(c, pairs, 1, sizeof(float));
    s->shared_offsets = carve(c, 2, 1, sizeof(int64_t));
    s->counts = carve(c, 1, 1, plan->backend->permute_scratch(pairs, config->experts));
    s->amax = carve(c, 1, 1, sizeof(uint32_t));
    s->codes = carve(c, workers, max_cols, 1);
    s->row = carve(c, workers, max_cols, sizeof(float));
    s->product_bytes = product_scratch(plan);
    s->product = carve(c, 1, 1, s->product_bytes);
}

/* The workspace of a GPU has what kernels read; what the host needs is the plan's (plan_fetch.h). */
static void carve_windows(mox_carver *c, moxie_plan *plan)
{
    const int64_t experts = plan->config.experts, pairs = plan->experts[MOX_ROUTED].max_pairs;
    const int64_t slots = plan->layer->device_source->max_slots;
    mox_workspace *s = &plan->space;
    s->fetch_slot_of = carve(c, experts, 1, sizeof(int32_t));
    s->fetch_tables = carve(c, 1, 1, mox_fetch_tables_of(experts, slots).bytes);
    s->fetch_offsets = carve(c, slots + 1, 1, sizeof(int64_t));
    s->fetch_pair_at = carve(c, pairs, 1, sizeof(int64_t));
    s->fetch_position = carve(c, pairs, 1, sizeof(int64_t));
}

static void carve_fetch(mox_carver *c, moxie_plan *plan)
{
    if (plan->layer != NULL && plan->layer->device_source != NULL)
        carve_windows(c, plan);
    const int64_t experts = plan->config.experts;
    mox_workspace *s = &plan->space;
    if (plan->layer == NULL || plan->layer->source == NULL)
        return;
    s->fetch_session = carve(c, 1, 1, plan->layer->source->session_bytes);
    s->fetch_experts = carve(c, experts, 1, sizeof(int32_t));
    s->fetch_slot_of = carve(c, experts, 1, sizeof(int32_t));
    s->fetch_expert_of = carve(c, experts, 1, sizeof(int64_t));
    s->fetch_place_of = carve(c, experts, 1, sizeof(int32_t));
    s->fetch_records = carve(c, experts, 1, sizeof(void *));
    for (int p = MOX_W13; p <= MOX_W2; p++)
        s->fetch_scale[p] = carve(c, experts, 1, sizeof(float));
}

static void carve_adapters(mox_carver *c, moxie_plan *plan)
{
    const moxie_layer_config *config = &plan->config;
    const int64_t pairs = plan->experts[MOX_ROUTED].max_pairs, rank = plan->max_adapter_rank;
    if (rank == 0)
        return;
    if (!plan->backend->on_device)
        plan->space.adapter_of = carve(c, pairs, 1, sizeof(int32_t));
    plan->space.lora_u13 = carve(c, pairs, 2 * rank, sizeof(float));
    plan->space.lora_u2 = carve(c, pairs, rank, sizeof(float));
    plan->space.lora_scratch = carve(
        c, 1, 1,
        plan->backend->lora_scratch(pairs, mox_max_i64(config->hidden, config->intermediate), plan->executor.workers));
}

static void carve_pass(mox_carver *c, moxie_plan *plan)
{
    const bool shared = mox_plan_has_shared(plan);
    carve_pass_scratch(c, plan);
    for (int k = 0; k < (shared ? MOX_EXPERT_KINDS : 1); k++)
        plan->experts[k].space.y = carve(c, plan->experts[k].max_pairs, plan->config.hidden, sizeof(float));
    if (plan->kernels.expert_norm != NULL)
        plan->space.normed = carve(c, plan->experts[MOX_ROUTED].max_pairs, plan->config.hidden, sizeof(float));
    if (plan->tp_cut != MOX_TP_WHOLE || plan->shared_cut != MOX_TP_WHOLE)
        mox_tp_carve(c, plan);
    carve_fetch(c, plan);
    carve_adapters(c, plan);
    carve_fused_scratch(c, plan);
    for (int k = 0; k < MOX_EXPERT_KINDS; k++)
        if (plan->experts[k].fused)
            carve_fused(c, &plan->experts[k]);
    const uint64_t same_memory = c->used;
    uint64_t end = same_memory;
    for (int k = 0; k < (shared ? MOX_EXPERT_KINDS : 1); k++)
        if (!plan->experts[k].fused) {
            c->used = same_memory;
            carve_experts(c, &plan->experts[k]);
            end = c->used > end ? c->used : end;
        }
    c->used = end;
}

moxie_status mox_workspace_assign(moxie_plan *plan, moxie_error *error)
{
    mox_carver c = mox_offset_carver(plan->backend->align);
    mox_plan_ranks_carve(plan, &c);
    carve_batch(&c, plan);
    carve_pass(&c, plan);
    plan->space.bytes = c.used;
    for (int k = 0; k < (mox_plan_has_shared(plan) ? MOX_EXPERT_KINDS : 1); k++)
        carve_traces(&c, &plan->experts[k]);
    MOX_FAIL_IF(c.used > INT64_MAX, MOXIE_ERR_MEMORY, error,
                "the workspace for %lld tokens does not fit in 64 bits: lower max_tokens", (long long)plan->max_tokens);
    plan->space.traced_bytes = c.used;
    return MOXIE_OK;
}
