/* SPDX-License-Identifier: Apache-2.0
 *
 * workspace.c - where each buffer of a run lies: a pure function of the plan.
 *
 * Every buffer begins on a cache line, on a GPU on MOX_DEVICE_ALIGN; the two lay out the same way, so that a copy of a
 * GPU's workspace can be looked at as a host's. Routed and shared experts that are not fused run one after the other,
 * so the buffers of the shared chain lie over those of the routed one; only the two results y live until combine.
 */
#include "base/sizes.h"
#include "cuda/permute/cuda_permute_args.h"
#include "layer/plan/device_operand.h"

#define ALIGN 64

/* Hands out offsets. `fits` turns false when a size leaves 64 bits, and stays so. */
typedef struct carver {
    uint64_t used, highest, align;
    bool fits;
} carver;

static uint64_t carve(carver *c, int64_t rows, int64_t cols, uint64_t element)
{
    uint64_t bytes = 0, end = 0;
    const uint64_t at = c->used;
    c->fits = c->fits && mox_mul_u64((uint64_t)rows, (uint64_t)cols, &bytes) && mox_mul_u64(bytes, element, &bytes) &&
              mox_align_u64(bytes, c->align, &bytes) && mox_add_u64(at, bytes, &end);
    c->used = end;
    c->highest = c->fits && end > c->highest ? end : c->highest;
    return at;
}

/* Workers that have scratch in the workspace: those of a device have it in registers. */
static int64_t host_workers(const moxie_plan *plan)
{
    return mox_device_is_host(&plan->device) ? plan->executor.workers : 0;
}

static mox_operand_space carve_operand(carver *c, const moxie_quant *quant, int64_t rows, int64_t cols)
{
    mox_operand_space space = { 0 };
    space.values = carve(c, rows, mox_ceil_div(cols, MOX_OPERAND_PAD) * MOX_OPERAND_PAD, sizeof(float));
    if (!mox_quant_is_none(quant)) {
        const int64_t groups = mox_ceil_div(cols, mox_act_group_cols(quant, cols));
        space.scales = carve(c, rows, groups, sizeof(float));
        space.global = carve(c, rows, 1, sizeof(float));
    }
    return space;
}

/* An operand that rows on a GPU read. */
static mox_operand_space carve_form(carver *c, const mox_device_form *f)
{
    mox_operand_space space = { 0 };
    if (!f->direct)
        space.values = carve(c, f->rows, f->stride, (uint64_t)f->element_bytes);
    if (f->scale_cols > 0) {
        space.scales = carve(c, f->rows, f->scale_room, sizeof(float));
        space.global = carve(c, f->rows, 1, sizeof(float));
    }
    return space;
}

static uint64_t carve_h(carver *c, const mox_expert_side *side)
{
    return carve(c, side->max_pairs, side->n13, sizeof(float));
}

static uint64_t carve_act(carver *c, const mox_expert_side *side)
{
    return carve(c, side->max_pairs, side->shape.intermediate, sizeof(float));
}

static void carve_device_experts(carver *c, const moxie_plan *plan, mox_expert_side *side)
{
    const mox_device_form first = mox_device_form_of(plan, side, MOX_W13),
                          second = mox_device_form_of(plan, side, MOX_W2);
    mox_expert_space *s = &side->space;
    s->a13 = carve_form(c, &first);
    s->given13 = carve(c, side->max_rows, 1, sizeof(float));
    if (side->cuda.glu != NULL)
        s->h = carve_h(c, side);
    if (side->cuda.quant2 != NULL)
        s->act = carve_act(c, side);
    s->a2 = carve_form(c, &second);
    s->given2 = carve(c, side->max_pairs, 1, sizeof(float));
}

/* All but y, which outlives the rest. */
static void carve_experts(carver *c, const moxie_plan *plan, mox_expert_side *side)
{
    if (!mox_device_is_host(&plan->device)) {
        carve_device_experts(c, plan, side);
        return;
    }
    const int64_t hidden = side->shape.hidden, intermediate = side->shape.intermediate;
    mox_expert_space *s = &side->space;
    s->a13 = carve_operand(c, &side->a13, side->max_rows, hidden);
    s->given13 = carve(c, side->max_rows, 1, sizeof(float));
    s->h = carve(c, side->max_pairs, side->n13, sizeof(float));
    s->act = carve(c, side->max_pairs, intermediate, sizeof(float));
    s->a2 = carve_operand(c, &side->a2, side->max_pairs, intermediate);
    s->given2 = carve(c, side->max_pairs, 1, sizeof(float));
}

/* What a run that is looked at leaves besides. */
static void carve_traces(carver *c, const moxie_plan *plan, mox_expert_side *side)
{
    const mox_device_form first = mox_device_form_of(plan, side, MOX_W13),
                          second = mox_device_form_of(plan, side, MOX_W2);
    const mox_device_form shown13 = mox_device_shown_form(&first), shown2 = mox_device_shown_form(&second);
    mox_expert_space *s = &side->space;
    s->shown13 = first.kind == MOX_CUDA_OPERAND_F32 ? s->a13 : carve_form(c, &shown13);
    s->shown2 = second.kind == MOX_CUDA_OPERAND_F32 ? s->a2 : carve_form(c, &shown2);
    if (side->cuda.glu == NULL)
        s->h = carve_h(c, side);
    if (side->cuda.quant2 == NULL)
        s->act = carve_act(c, side);
}

static mox_fused_space carve_fused_operand(carver *c, const mox_fused_product *product, int64_t pairs)
{
    mox_fused_space space = { 0 };
    space.data = carve(c, pairs, (int64_t)product->row_bytes, 1);
    carve(c, 1, MOX_PANEL_BEYOND, 1);
    if (product->scaling == MOX_ACT_GROUPED)
        space.scales = carve(c, pairs, product->groups, sizeof(float));
    if (product->scaling == MOX_ACT_BY_ROW)
        space.row_scale = carve(c, pairs, 1, sizeof(float));
    if (product->act.global != MOXIE_GLOBAL_NONE)
        space.global = carve(c, pairs, 1, sizeof(float));
    return space;
}

static void carve_fused(carver *c, mox_expert_side *side)
{
    side->fused13 = carve_fused_operand(c, &side->first, side->max_pairs);
    side->fused2 = carve_fused_operand(c, &side->second, side->max_pairs);
    if (!mox_quant_is_none(&side->a2))
        side->space.act = carve(c, side->max_pairs, side->shape.intermediate, sizeof(float));
}

static void carve_fused_tasks(carver *c, moxie_plan *plan)
{
    const mox_fused_product *products[2 * MOX_FUSED_SIDES];
    mox_expert_side *const sides[MOX_FUSED_SIDES] = { &plan->routed, &plan->shared };
    int64_t n = 0;
    for (int i = 0; i < MOX_FUSED_SIDES; i++)
        if (sides[i]->fused) {
            products[n++] = &sides[i]->first;
            products[n++] = &sides[i]->second;
        }
    if (n == 0)
        return;
    plan->space.fused_items = carve(c, plan->config.experts + 1, 1, sizeof(mox_fused_item));
    plan->space.fused_scratch_bytes = mox_fused_scratch(products, n);
    plan->space.fused_scratch = carve(c, plan->executor.workers, 1, plan->space.fused_scratch_bytes);
}

static void carve_batch(carver *c, moxie_plan *plan)
{
    const moxie_layer_config *config = &plan->config;
    const int64_t t = plan->max_tokens, workers = host_workers(plan);
    mox_workspace *s = &plan->space;
    if (config->router_width > 0)
        s->logits = carve(c, t, config->experts, sizeof(float));
    s->ids = carve(c, t, config->top_k, sizeof(int32_t));
    s->weights = carve(c, t, config->top_k, sizeof(float));
    s->topk_row = carve(c, workers, config->experts, sizeof(float));
    s->dense_x =
        carve(c, workers * MOX_ROUTE_TOKENS,
              mox_max_i64(config->router_width, mox_plan_has_shared_gate(plan) ? config->hidden : 0), sizeof(float));
    if (mox_plan_has_shared_gate(plan))
        s->shared_weight = carve(c, t, 1, sizeof(float));
    if (config->routing.select == MOXIE_SELECT_CUSTOM)
        s->topk_logits = carve(c, t, config->experts, sizeof(float));
}

static uint64_t gemm_scratch(const mox_expert_side *side, moxie_dtype dtype)
{
    const mox_expert_gemm_problem first = { &side->shape, MOX_W13, &side->shape.w13, &side->a13, dtype };
    const mox_expert_gemm_problem second = { &side->shape, MOX_W2, &side->shape.w2, &side->a2, dtype };
    const uint64_t a = mox_expert_gemm_scratch(side->rows.gemm13, &first);
    const uint64_t b = mox_expert_gemm_scratch(side->rows.gemm2, &second);
    return a > b ? a : b;
}

static uint64_t device_gemm_scratch(const moxie_plan *plan, const mox_expert_side *side)
{
    const moxie_dtype dtype = plan->config.dtype;
    const mox_expert_gemm_problem first = { &side->shape, MOX_W13, &side->shape.w13, &side->a13, dtype, &side->a2 };
    const mox_expert_gemm_problem second = { &side->shape, MOX_W2, &side->shape.w2, &side->a2, dtype };
    const mox_cuda_features *f = &plan->device.features;
    const int64_t slots = side == &plan->routed ? plan->config.experts : 1;
    if (side->rows.layout == NULL)
        return 0;
    const uint64_t a = side->cuda.gemm13->scratch_bytes(&first, f, slots, side->max_pairs);
    const uint64_t b = side->cuda.gemm2->scratch_bytes(&second, f, slots, side->max_pairs);
    return a > b ? a : b;
}

static void carve_device(carver *c, moxie_plan *plan)
{
    mox_workspace *s = &plan->space;
    const uint64_t routed = device_gemm_scratch(plan, &plan->routed), shared = device_gemm_scratch(plan, &plan->shared);
    s->gemm = carve(c, 1, 1, routed > shared ? routed : shared);
    s->counts =
        carve(c, mox_ceil_div(plan->routed.max_pairs, MOX_CUDA_PERMUTE_CHUNK), plan->config.experts, sizeof(int32_t));
    s->amax = carve(c, 1, 1, sizeof(uint32_t));
    s->shared_offsets = carve(c, 2, 1, sizeof(int64_t));
}

static void carve_pass(carver *c, moxie_plan *plan)
{
    const moxie_layer_config *config = &plan->config;
    const int64_t t = plan->pass_tokens, workers = host_workers(plan), pairs = plan->routed.max_pairs;
    const bool shared = plan->shared.rows.layout != NULL;
    mox_workspace *s = &plan->space;
    int64_t longest = mox_max_i64(config->hidden, config->intermediate);
    const bool host = mox_device_is_host(&plan->device);
    uint64_t scratch = plan->routed.fused || !host ? 0 : gemm_scratch(&plan->routed, config->dtype);
    if (shared) {
        const uint64_t other = plan->shared.fused || !host ? 0 : gemm_scratch(&plan->shared, config->dtype);
        longest = mox_max_i64(longest, config->shared.intermediate);
        scratch = other > scratch ? other : scratch;
    }
    s->offsets = carve(c, config->experts + 1, 1, sizeof(int64_t));
    s->pair_at = carve(c, pairs, 1, sizeof(int64_t));
    s->position = carve(c, pairs, 1, sizeof(int64_t));
    s->token_of = carve(c, pairs, 1, sizeof(int64_t));
    s->row_weight = carve(c, pairs, 1, sizeof(float));
    s->codes = carve(c, workers, longest, 1);
    s->row = carve(c, workers, longest, sizeof(float));
    s->gemm = carve(c, workers, 1, scratch);
    if (!host)
        carve_device(c, plan);
    plan->routed.space.y = carve(c, pairs, config->hidden, sizeof(float));
    if (shared)
        plan->shared.space.y = carve(c, t, config->hidden, sizeof(float));
    carve_fused_tasks(c, plan);
    if (plan->routed.fused)
        carve_fused(c, &plan->routed);
    if (plan->shared.fused)
        carve_fused(c, &plan->shared);
    const uint64_t overlaid = c->used;
    if (!plan->routed.fused)
        carve_experts(c, plan, &plan->routed);
    c->used = overlaid;
    if (shared && !plan->shared.fused)
        carve_experts(c, plan, &plan->shared);
}

moxie_status mox_plan_lay_out(moxie_plan *plan, moxie_error *error)
{
    const bool host = mox_device_is_host(&plan->device);
    carver c = { .fits = true, .align = host ? ALIGN : MOX_DEVICE_ALIGN };
    carve_batch(&c, plan);
    carve_pass(&c, plan);
    plan->space.bytes = c.used = c.highest;
    if (!host)
        carve_traces(&c, plan, &plan->routed);
    if (!host && plan->shared.rows.layout != NULL)
        carve_traces(&c, plan, &plan->shared);
    MOX_FAIL_IF(!c.fits || c.highest > INT64_MAX, MOXIE_ERR_MEMORY, error,
                "the workspace for %lld tokens does not fit in 64 bits: lower max_tokens", (long long)plan->max_tokens);
    plan->space.traced_bytes = c.highest;
    return MOXIE_OK;
}
