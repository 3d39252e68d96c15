/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c - makes a plan from a layer, or an explanation from a configuration alone.
 */
#include "layer/plan/plan.h"

#include "base/sizes.h"
#include "layer/plan/device_operand.h"
#include "layer/config/struct_size.h"

static bool depends_on_batch(const mox_expert_side *side)
{
    return mox_act_quant_needs_amax(&side->a13) || mox_act_quant_needs_amax(&side->a2);
}

static void set_sides(moxie_plan *plan)
{
    const moxie_layer_config *c = &plan->config;
    plan->routed = (mox_expert_side) { .rows = plan->rows.routed,
                                       .cuda = plan->rows.cuda.routed,
                                       .shape = mox_config_routed_shape(c),
                                       .a13 = c->a13,
                                       .a2 = c->a2,
                                       .activation = c->activation };
    plan->shared = (mox_expert_side) { .rows = plan->rows.shared,
                                       .cuda = plan->rows.cuda.shared,
                                       .shape = mox_config_shared_shape(c),
                                       .a13 = c->shared.a13,
                                       .a2 = c->shared.a2,
                                       .activation = c->activation };
}

/* Both products read panels, so a pair of them can hand activations on without a stage between. */
static void set_fused(moxie_plan *plan, mox_expert_side *side)
{
    const moxie_dtype dtype = plan->config.dtype;
    const mox_expert_gemm_problem first = { &side->shape, MOX_W13, &side->shape.w13, &side->a13, dtype };
    const mox_expert_gemm_problem second = { &side->shape, MOX_W2, &side->shape.w2, &side->a2, dtype };
    side->fused = side->rows.glu != NULL && side->rows.glu->tile != NULL &&
                  mox_fused_product_init(&side->first, side->rows.gemm13, &first) &&
                  mox_fused_product_init(&side->second, side->rows.gemm2, &second);
}

/* Bytes that a token needs in a pass of fused experts. */
static int64_t token_bytes(const moxie_plan *plan)
{
    const mox_expert_side *r = &plan->routed;
    const uint64_t pair = r->first.row_bytes + r->second.row_bytes + (uint64_t)plan->config.hidden * sizeof(float);
    return plan->config.top_k * (int64_t)pair;
}

/* Bytes that a token needs in a pass on a GPU: every stage of its pairs, or of fused rows y, both operands in 16 bits
 * and the activation. */
static int64_t device_token_bytes(const moxie_plan *plan)
{
    const moxie_layer_config *c = &plan->config;
    if (mox_device_fuses(&plan->routed))
        return c->top_k * (6 * c->hidden + 6 * c->intermediate);
    return c->top_k * (2 * c->hidden + 4 * c->intermediate) * (int64_t)sizeof(float);
}

static void set_pass(moxie_plan *plan)
{
    const bool shared = plan->shared.rows.layout != NULL;
    const bool whole = depends_on_batch(&plan->routed) || (shared && depends_on_batch(&plan->shared));
    int64_t most = MOX_PASS_TOKENS;
    if (plan->routed.fused)
        most = mox_max_i64(most, MOX_PASS_BYTES / mox_max_i64(token_bytes(plan), 1));
    if (!mox_device_is_host(&plan->device))
        most = mox_max_i64(most, MOX_DEVICE_PASS_BYTES / mox_max_i64(device_token_bytes(plan), 1));
    plan->pass_tokens = whole ? plan->max_tokens : mox_min_i64(plan->max_tokens, most);

    mox_expert_side *r = &plan->routed, *s = &plan->shared;
    r->max_pairs = plan->pass_tokens * plan->config.top_k;
    r->n13 = r->shape.intermediate * (r->shape.gated ? 2 : 1);
    /* One row a pair where the codes depend on the expert; whether its experts' scales differ may change with
     * every update, so the space is always for the worst case. */
    const bool by_pair =
        plan->config.routing.on_input || (!mox_quant_is_none(&r->a13) && mox_act_quant_needs_given(&r->a13));
    r->max_rows = by_pair ? r->max_pairs : plan->pass_tokens;
    s->max_pairs = s->max_rows = plan->pass_tokens;
    s->n13 = s->shape.intermediate * (s->shape.gated ? 2 : 1);
}

/* A plan runs where its layer's records are. */
static moxie_status find_device(moxie_plan *plan, const moxie_options *options, moxie_error *error)
{
    static const char *const names[] = { "the host's memory", "a device's memory" };
    const moxie_layer *layer = plan->layer;
    MOX_TRY(mox_device_find(options, layer == NULL, &plan->device, error));
    if (layer == NULL)
        return MOXIE_OK;
    const bool wants = !mox_device_is_host(&plan->device), has = !mox_device_is_host(&layer->on.device);
    MOX_FAIL_IF(
        wants != has || plan->device.ordinal != layer->on.device.ordinal, MOXIE_ERR_MISMATCH, error,
        "the plan is to run in %s (device %d), the layer's records are in %s (device %d): create the layer with "
        "the options of the plan",
        names[wants], (int)plan->device.ordinal, names[has], (int)layer->on.device.ordinal);
    plan->device = layer->on.device;
    return MOXIE_OK;
}

/* `layer` may be NULL. */
static moxie_status make(const moxie_layer *layer, const moxie_layer_config *config, const moxie_options *options,
                         moxie_plan **out, moxie_error *error)
{
    moxie_options read;
    MOX_TRY(mox_options_read(options, &read, error));
    moxie_plan *plan = mox_calloc(1, sizeof *plan);
    MOX_FAIL_IF(plan == NULL, MOXIE_ERR_MEMORY, error, "no memory for a plan");
    plan->layer = layer;
    plan->config = *config;
    plan->executor = *read.executor;
    plan->max_tokens = read.max_tokens;
    moxie_status status = find_device(plan, &read, error);
    if (status == MOXIE_OK)
        status = mox_select(config, &read, &plan->device, layer != NULL ? layer->routed_layout : NULL,
                            layer != NULL ? layer->shared_layout : NULL, &plan->rows, &plan->steps, error);
    if (status == MOXIE_OK) {
        set_sides(plan);
        set_fused(plan, &plan->routed);
        set_fused(plan, &plan->shared);
        set_pass(plan);
        status = mox_plan_lay_out(plan, error);
    }
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
    return make(layer, &layer->config, options, out, error);
}

moxie_status mox_plan_explain(const moxie_layer_config *config, const moxie_options *options, moxie_plan **out,
                              moxie_error *error)
{
    /* A routing table is data like weights: a configuration may be explained without it. */
    static const int32_t any_table[MOXIE_MAX_TOP_K];
    moxie_layer_config read, checked;
    MOX_TRY(mox_struct_read(config, &read, sizeof read, "moxie_layer_config", error));
    if (read.routing.select == MOXIE_SELECT_TABLE && read.routing.table == NULL) {
        read.routing.table = any_table;
        read.routing.table_rows = 1;
    }
    MOX_TRY(mox_config_read(&read, &checked, error));
    return make(NULL, &checked, options, out, error);
}

void mox_plan_destroy(moxie_plan *plan)
{
    if (plan == NULL)
        return;
    mox_steps_free(&plan->steps);
    mox_free(plan);
}
