/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layer.c - random whole layers (test_layer.h).
 */
#include "test_layer.h"

#include <math.h>

#include "base/sizes.h"
#include "layer/config/config.h"

/* ---- helpers ------------------------------------------------------------------------------------------- */

static bool one_in(test_rng *rng, uint64_t n)
{
    return test_below(rng, n) == 0;
}

void *test_layer_own(test_layer *layer, size_t bytes)
{
    assert_true(layer->n_blocks < TEST_LAYER_BLOCKS);
    void *data = test_guarded(bytes);
    layer->blocks[layer->n_blocks].data = data;
    layer->blocks[layer->n_blocks++].bytes = bytes;
    return data;
}

static float *random_floats(test_layer *layer, test_rng *rng, int64_t count, float low, float high)
{
    float *values = test_layer_own(layer, (size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = low + (high - low) * 0.5f * (test_uniform(rng) + 1.0f);
    return values;
}

static moxie_dtype any_float(test_rng *rng)
{
    static const moxie_dtype dtypes[] = { MOXIE_BF16, MOXIE_F16, MOXIE_F32 };
    return dtypes[test_below(rng, 3)];
}

/* Numbers that share a block of the weights; else 1. */
static int64_t block_of(const test_layer_limits *limits)
{
    const moxie_quant *weight = limits->weight != NULL ? &limits->weight->quant : NULL;
    return weight != NULL && mox_quant_is_block(weight) ? mox_block_of(weight->element)->weights : 1;
}

/* Mostly small, so that many layers are tried. Now and then up to the largest; for tensor cores in most cases. */
static int64_t any_size(test_rng *rng, const test_layer_limits *limits)
{
    const int64_t largest = limits->largest > 0 ? limits->largest : 300;
    const bool fast = limits->mma || limits->decoded || limits->decoded_acts || limits->to_fp8 || limits->blocks;
    const bool whole = one_in(rng, 8) || (fast && !one_in(rng, 3));
    const int64_t size = test_range(rng, 1, whole ? largest : mox_min_i64(largest, one_in(rng, 2) ? 70 : 24));
    return mox_ceil_div(limits->short_groups && !one_in(rng, 6) ? (size + 31) / 32 * 32 : size, block_of(limits)) *
           block_of(limits);
}

/* A plain float matrix [rows, cols] of about 1/sqrt(cols). */
static moxie_matrix plain_matrix(test_layer *layer, test_rng *rng, int64_t rows, int64_t cols, bool bias)
{
    const moxie_dtype dtype = any_float(rng);
    const size_t bytes = mox_dense_bytes(dtype, rows, cols);
    moxie_matrix m = { .codes = mox_grid_dense(test_layer_own(layer, bytes), dtype, rows, cols) };
    const double size = 2.0 / sqrt((double)cols);
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < cols; k++)
            mox_grid_store(&m.codes, n, k, moxie_encode(dtype, (float)(size * (double)test_normal(rng))));
    if (bias)
        m.bias = mox_grid_dense(random_floats(layer, rng, rows, -0.5f, 0.5f), MOXIE_F32, rows, 1);
    return m;
}

/* ---- configuration ------------------------------------------------------------------------------------- */

moxie_layer_config test_config(void)
{
    moxie_layer_config c = MOXIE_LAYER_CONFIG_INIT;
    c.dtype = MOXIE_BF16;
    c.experts = 8;
    c.top_k = 2;
    c.hidden = 64;
    c.intermediate = 32;
    c.w13 = (moxie_quant) { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32 };
    c.w2 = (moxie_quant) { .element = MOXIE_BF16 };
    c.routing.weight = MOXIE_WEIGHT_SOFTMAX_SELECTED;
    return c;
}

moxie_layer_config test_config_of(int64_t hidden, int64_t intermediate, moxie_quant weight)
{
    moxie_layer_config c = test_config();
    c.hidden = hidden;
    c.intermediate = intermediate;
    c.w13 = c.w2 = weight;
    return c;
}

static void make_activation(test_layer *layer, test_rng *rng)
{
    moxie_activation *a = &layer->config.activation;
    const int64_t experts = layer->config.experts;
    a->kind = one_in(rng, 3) ? MOXIE_ACT_SILU : test_act_kinds[test_below(rng, TEST_ACT_KINDS)];
    a->alpha = one_in(rng, 2) ? 0.0f : 1.702f;
    a->beta = one_in(rng, 2) ? 0.0f : 1.0f;
    a->gate_limit = one_in(rng, 2) ? 0.0f : 0.75f;
    a->up_limit = one_in(rng, 2) ? 0.0f : 0.5f;
    if (one_in(rng, 5))
        a->expert_alpha = random_floats(layer, rng, experts, 0.5f, 2.0f);
    if (one_in(rng, 5))
        a->expert_beta = random_floats(layer, rng, experts, 0.0f, 1.0f);
    if (one_in(rng, 5))
        a->expert_limit = random_floats(layer, rng, experts, 0.3f, 3.0f);
}

/* Rotates: token t takes experts t, t+1, ... with weights by its first logits. */
static int rotate(void *user, int64_t tokens, const float *logits, int32_t *ids, float *weights)
{
    const moxie_layer_config *c = user;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < c->top_k; j++) {
            ids[t * c->top_k + j] = (int32_t)((t + j) % mox_config_candidates(c));
            weights[t * c->top_k + j] = 0.25f + 0.125f * logits[t * mox_config_candidates(c) + j];
        }
    return 0;
}

static void make_table(test_layer *layer, test_rng *rng)
{
    moxie_routing *r = &layer->config.routing;
    const int64_t top_k = layer->config.top_k;
    r->table_rows = 16;
    int32_t *table = test_layer_own(layer, (size_t)(r->table_rows * top_k) * sizeof *table);
    for (int64_t i = 0; i < r->table_rows * top_k; i++)
        table[i] = (int32_t)test_range(rng, 0, mox_config_candidates(&layer->config) - 1);
    r->table = table;
}

static void make_groups(test_layer *layer, test_rng *rng, bool per_group)
{
    moxie_routing *r = &layer->config.routing;
    const int64_t experts = mox_config_candidates(&layer->config), top_k = layer->config.top_k;
    for (int32_t n = 4; n >= 2; n--)
        if (experts % n == 0) {
            r->n_group = n;
            if (per_group && top_k % n == 0 && top_k / n <= experts / n && one_in(rng, 2)) {
                r->topk_per_group = (int32_t)(top_k / n);
                return;
            }
            r->topk_group = (int32_t)mox_min_i64(n, mox_ceil_div(top_k * n, experts) + (int64_t)test_below(rng, 2));
            r->group_score = (int32_t)test_below(rng, 2);
            r->group_fill_zero = r->score != MOXIE_SCORE_LOGIT && one_in(rng, 2);
            return;
        }
}

/* What few layers have. */
static void make_features(test_layer *layer, test_rng *rng)
{
    moxie_routing *r = &layer->config.routing;
    const bool scored = r->select == MOXIE_SELECT_TOPK || r->select == MOXIE_SELECT_TABLE;
    if ((scored || r->select == MOXIE_SELECT_CUSTOM) && one_in(rng, 2)) {
        r->zero_experts = (int32_t)test_range(rng, 1, 6);
        r->zero_kind = one_in(rng, 4) ? MOXIE_ZERO_NULL : MOXIE_ZERO_IDENTITY;
    }
    if (scored && one_in(rng, 3))
        r->softcap = 0.5f + fabsf(test_uniform(rng));
    if (scored && one_in(rng, 3))
        r->bias_alt = random_floats(layer, rng, mox_config_candidates(&layer->config), -0.5f, 0.5f);
}

static const char *const methods[] = { "default",      "renormalize", "renormalize_naive", "deepseek_v3",
                                       "llama4",       "topk",        "sigmoid",           "sigmoid_renorm",
                                       "topk_sigmoid", "minimax2",    "deepseek_v4",       "hash",
                                       "sparsemixer",  "custom",      "sim_uniform",       "sim_normal" };
enum { N_METHODS = sizeof methods / sizeof methods[0], N_PLAIN_METHODS = N_METHODS - 3 };

static const char *make_routing(test_layer *layer, test_rng *rng, const test_layer_limits *limits)
{
    moxie_layer_config *c = &layer->config;
    moxie_routing *r = &c->routing;
    moxie_error error;
    const char *method = methods[test_below(rng, limits->plain_routing ? N_PLAIN_METHODS : N_METHODS)];
    if (strcmp(method, "sparsemixer") == 0 && c->top_k != 2)
        method = "renormalize";
    assert_ok(moxie_routing_by_name(method, r, &error), &error);
    r->on_input = r->on_input || one_in(rng, 8);
    if (limits->features)
        make_features(layer, rng);
    const int64_t candidates = mox_config_candidates(c);
    if (r->select == MOXIE_SELECT_CUSTOM) {
        r->custom = rotate;
        r->custom_user = c;
        return method;
    }
    r->seed = test_u64(rng);
    r->scale = one_in(rng, 3) ? 2.5f : 0.0f;
    r->round_weights_bf16 = one_in(rng, 4);
    if (one_in(rng, 5))
        r->per_expert_scale = random_floats(layer, rng, candidates, 0.5f, 1.5f);
    if (r->select == MOXIE_SELECT_TABLE)
        make_table(layer, rng);
    if (r->select == MOXIE_SELECT_TOPK && one_in(rng, 3))
        r->bias = random_floats(layer, rng, candidates, -0.5f, 0.5f);
    if (r->select == MOXIE_SELECT_TOPK && one_in(rng, 3))
        make_groups(layer, rng, limits->features);
    if (r->select <= MOXIE_SELECT_SPARSEMIXER)
        r->round_logits_bf16 = one_in(rng, 4);
    return method;
}

/* ---- weights ------------------------------------------------------------------------------------------- */

/* Calibrated scales differ between experts; experts that saw no data have none. */
static void vary_given(test_rng *rng, moxie_expert *experts, int64_t count)
{
    const bool vary = one_in(rng, 2), drop = one_in(rng, 3);
    for (int64_t e = 0; e < count && vary; e++) {
        experts[e].a13_scale *= 1.0f + 0.5f * test_uniform(rng);
        experts[e].a2_scale *= 1.0f + 0.5f * test_uniform(rng);
        if (drop && e > 0 && one_in(rng, 2))
            experts[e].a13_scale = experts[e].a2_scale = 0.0f;
    }
}

/* Its own function in one of three layers. */
static void make_shared_activation(test_layer *layer, test_rng *rng)
{
    moxie_layer_config *c = &layer->config;
    c->has_shared_activation = one_in(rng, 3);
    if (c->has_shared_activation)
        c->shared_activation = (moxie_activation) { .kind = test_act_kinds[test_below(rng, TEST_ACT_KINDS)],
                                                    .gate_limit = one_in(rng, 2) ? 0.0f : 0.625f,
                                                    .up_limit = one_in(rng, 2) ? 0.0f : 0.375f };
}

static void make_shared(test_layer *layer, test_rng *rng, const test_layer_limits *limits, test_expert_spec spec)
{
    moxie_shared_config *s = &layer->config.shared;
    spec.w13 = test_layer_any_weight(rng, limits, layer->config.dtype);
    spec.w2 = limits->down != NULL ? limits->down : test_layer_any_weight(rng, limits, layer->config.dtype);
    spec.a13 = test_layer_any_act(rng, limits, spec.w13);
    spec.a2 = test_layer_any_act(rng, limits, spec.w2);
    spec.intermediate = s->intermediate = any_size(rng, limits);
    s->w13 = spec.w13->quant;
    s->w2 = spec.w2->quant;
    s->a13 = spec.a13->quant;
    s->a2 = spec.a2->quant;
    s->bias13 = one_in(rng, 3);
    s->bias2 = one_in(rng, 3);
    spec.bias13 = s->bias13 != 0;
    spec.bias2 = s->bias2 != 0;
    if (layer->config.has_shared_activation)
        spec.gated = moxie_act_is_gated(layer->config.shared_activation.kind);
    test_expert *owner = &layer->owners[layer->config.experts];
    test_expert_make(owner, rng, &spec);
    layer->weights.shared = &owner->view;
    s->has_gate = one_in(rng, 2);
    s->scale = layer->config.intermediate % 2 ? 0.0f : 0.5f; /* no draw: what is drawn after this stays the same */
    if (s->has_gate)
        layer->weights.shared_gate = plain_matrix(layer, rng, 1, layer->config.hidden, false);
}

static void make_weights(test_layer *layer, test_rng *rng, const test_layer_limits *limits)
{
    moxie_layer_config *c = &layer->config;
    test_expert_spec spec = { .hidden = c->hidden,
                              .intermediate = c->intermediate,
                              .gated = moxie_act_is_gated(c->activation.kind),
                              .w13 = test_layer_any_weight(rng, limits, c->dtype),
                              .w2 =
                                  limits->down != NULL ? limits->down : test_layer_any_weight(rng, limits, c->dtype) };
    spec.a13 = test_layer_any_act(rng, limits, spec.w13);
    spec.a2 = test_layer_any_act(rng, limits, spec.w2);
    spec.fill = one_in(rng, 10) ? TEST_FILL_ZERO : one_in(rng, 10) ? TEST_FILL_NAN : TEST_FILL_RANDOM;
    c->bias13 = one_in(rng, 3);
    c->bias2 = one_in(rng, 3);
    spec.bias13 = c->bias13 != 0;
    spec.bias2 = c->bias2 != 0;
    c->w13 = spec.w13->quant;
    c->w2 = spec.w2->quant;
    c->a13 = spec.a13->quant;
    c->a2 = spec.a2->quant;
    layer->owners = calloc((size_t)c->experts + 1, sizeof *layer->owners);
    layer->experts = calloc((size_t)c->experts, sizeof *layer->experts);
    for (int64_t e = 0; e < c->experts; e++) {
        test_expert_make(&layer->owners[e], rng, &spec);
        layer->experts[e] = layer->owners[e].view;
    }
    vary_given(rng, layer->experts, c->experts);
    layer->weights = (moxie_weights)MOXIE_WEIGHTS_INIT;
    layer->weights.n_experts = c->experts;
    layer->weights.experts = layer->experts;
    if (one_in(rng, 3)) {
        make_shared_activation(layer, rng);
        make_shared(layer, rng, limits, spec);
    }
    if (c->router_width > 0)
        layer->weights.router = plain_matrix(layer, rng, mox_config_candidates(c), c->router_width, c->router_has_bias);
    snprintf(layer->text, sizeof layer->text, "H %lld I %lld E %lld K %lld, w13 %s, w2 %s, a13 %s, a2 %s, fill %s",
             (long long)c->hidden, (long long)c->intermediate, (long long)c->experts, (long long)c->top_k,
             spec.w13->name, spec.w2->name, spec.a13->name, spec.a2->name, test_fill_names[spec.fill]);
}

/* ---- batch --------------------------------------------------------------------------------------------- */

/* Now and then an id that must be skipped, or one expert twice. */
static void make_choice(test_layer *layer, test_rng *rng)
{
    const moxie_layer_config *c = &layer->config;
    const int64_t choices = layer->args.tokens * c->top_k;
    int32_t *ids = test_layer_own(layer, (size_t)choices * sizeof *ids);
    for (int64_t i = 0; i < choices; i++) {
        ids[i] = (int32_t)test_range(rng, 0, mox_config_candidates(c) - 1);
        if (one_in(rng, 10))
            ids[i] = one_in(rng, 2) ? -1 : (int32_t)mox_config_candidates(c);
    }
    layer->args.ids = ids;
    layer->args.weights = random_floats(layer, rng, choices, -0.5f, 1.0f);
}

static void *activations(test_layer *layer, test_rng *rng, moxie_dtype dtype, int64_t count)
{
    void *x = test_layer_own(layer, (size_t)(count * mox_dtype_bytes(dtype)));
    test_fill_activations(rng, dtype, x, count);
    return x;
}

/* A byte for each token, about a third of them not 0. */
static const uint8_t *marks(test_layer *layer, test_rng *rng)
{
    uint8_t *bytes = test_layer_own(layer, (size_t)layer->args.tokens);
    for (int64_t t = 0; t < layer->args.tokens; t++)
        bytes[t] = one_in(rng, 3) ? (uint8_t)test_range(rng, 1, 255) : 0;
    return bytes;
}

static void make_batch(test_layer *layer, test_rng *rng, const test_layer_limits *limits)
{
    const moxie_layer_config *c = &layer->config;
    moxie_run_args *a = &layer->args;
    *a = (moxie_run_args)MOXIE_RUN_ARGS_INIT;
    a->tokens = limits->tokens >= 0 ? limits->tokens
                : one_in(rng, 20)   ? test_range(rng, 250, 300)
                                    : test_range(rng, 0, 20);
    a->hidden = activations(layer, rng, c->dtype, a->tokens * c->hidden);
    if (c->router_width > 0 && (c->router_width != c->hidden || one_in(rng, 4)))
        a->router_hidden = activations(layer, rng, c->dtype, a->tokens * c->router_width);
    if (one_in(rng, 3)) {
        make_choice(layer, rng);
    } else if (c->router_width == 0 || one_in(rng, 3)) {
        a->logits_dtype = any_float(rng);
        a->logits = activations(layer, rng, a->logits_dtype, a->tokens * mox_config_candidates(c));
    }
    if (limits->features && a->ids == NULL) {
        a->padding = one_in(rng, 2) ? marks(layer, rng) : NULL;
        a->bias_choice = c->routing.bias_alt != NULL && !one_in(rng, 4) ? marks(layer, rng) : NULL;
    }
    if (c->routing.select == MOXIE_SELECT_TABLE) {
        int32_t *token_ids = test_layer_own(layer, (size_t)a->tokens * sizeof *token_ids);
        for (int64_t t = 0; t < a->tokens; t++)
            token_ids[t] = (int32_t)test_range(rng, 0, c->routing.table_rows - 1);
        a->token_ids = token_ids;
    }
    a->output = test_layer_own(layer, test_layer_output_bytes(layer));
}

/* ---- norms --------------------------------------------------------------------------------------------- */

static moxie_row_norm make_norm(test_layer *layer, test_rng *rng, int64_t cols, moxie_matrix *weight)
{
    moxie_row_norm norm = { .kind = one_in(rng, 2) ? MOXIE_ROW_NORM_RMS : MOXIE_ROW_NORM_RMS_WEIGHTED,
                            .has_weight = !one_in(rng, 3),
                            .eps = one_in(rng, 2) ? 1e-6f : 1e-5f,
                            .weight_add = one_in(rng, 2) ? 1.0f : 0.0f,
                            .factor = one_in(rng, 2) ? 0.0f : 0.25f };
    if (norm.has_weight)
        *weight = plain_matrix(layer, rng, 1, cols, false);
    return norm;
}

static void make_norms(test_layer *layer, test_rng *rng)
{
    moxie_layer_config *c = &layer->config;
    if (c->router_width > 0 && one_in(rng, 3))
        c->router_norm = make_norm(layer, rng, c->router_width, &layer->weights.router_norm);
    if (one_in(rng, 4))
        c->expert_norm = make_norm(layer, rng, c->hidden, &layer->weights.expert_norm);
}

/* ---- the layer ----------------------------------------------------------------------------------------- */

void test_layer_make(test_layer *out, test_rng *rng, const test_layer_limits *limits)
{
    memset(out, 0, sizeof *out);
    out->config = (moxie_layer_config)MOXIE_LAYER_CONFIG_INIT;
    moxie_layer_config *c = &out->config;
    do
        c->dtype = any_float(rng);
    while (((limits->mma || limits->decoded || limits->short_groups) && c->dtype == MOXIE_F32) ||
           (limits->blocks && c->dtype != MOXIE_BF16) ||
           (limits->decoded && limits->weight != NULL && !test_layer_decodes_to(&limits->weight->quant, c->dtype)));
    c->experts = limits->experts > 0 ? limits->experts : test_range(rng, 1, one_in(rng, 10) ? 40 : 9);
    c->top_k = test_range(rng, 1, mox_min_i64(c->experts, one_in(rng, 10) ? MOXIE_MAX_TOP_K : 4));
    if (limits->top_k > 0)
        c->top_k = limits->top_k;
    c->hidden = any_size(rng, limits);
    c->intermediate = any_size(rng, limits);
    if (limits->wide) {
        c->hidden = test_range(rng, 1, 40);
        c->intermediate = 128 * test_range(rng, 1, 4);
    }
    if (limits->wide && block_of(limits) > 1) {
        c->hidden = block_of(limits);
        c->intermediate = block_of(limits) * test_range(rng, 3, 7);
    }
    const int64_t block = block_of(limits);
    c->hidden = limits->hidden > 0 ? mox_ceil_div(limits->hidden, block) * block : c->hidden;
    c->intermediate = limits->intermediate > 0 ? mox_ceil_div(limits->intermediate, block) * block : c->intermediate;
    c->router_width = one_in(rng, 3) ? 0 : one_in(rng, 4) ? any_size(rng, limits) : c->hidden;
    c->router_has_bias = c->router_width > 0 && one_in(rng, 2);
    if (!limits->no_parallel && one_in(rng, 3)) {
        c->ep_size = (int32_t)test_range(rng, 1, 4);
        c->ep_rank = (int32_t)test_below(rng, (uint64_t)c->ep_size);
        c->ep_map = (int32_t)test_below(rng, 2);
    }
    make_activation(out, rng);
    const char *method = make_routing(out, rng, limits);
    make_weights(out, rng, limits);
    make_batch(out, rng, limits);
    make_norms(out, rng);
    c->round_results = limits->rounds && c->dtype != MOXIE_F32 && c->hidden % 2 == 0; /* no draw, as above */
    const size_t used = strlen(out->text);
    snprintf(out->text + used, sizeof out->text - used,
             ", activation %d, routing %s%s, norms %d %d, %s%s, T %lld, shared %lld, ep %d/%d", c->activation.kind,
             method, c->routing.on_input ? " on input" : "", c->router_norm.kind, c->expert_norm.kind,
             moxie_dtype_name(c->dtype), c->round_results ? " results" : "", (long long)out->args.tokens,
             (long long)c->shared.intermediate, c->ep_rank, c->ep_size);
}

void test_layer_free(test_layer *layer)
{
    test_layer_discard(layer);
    for (int i = 0; i < layer->n_blocks; i++)
        test_guarded_free(layer->blocks[i].data, layer->blocks[i].bytes);
    for (int64_t e = 0; e <= layer->config.experts; e++)
        test_expert_free(&layer->owners[e]);
    free(layer->owners);
    free(layer->experts);
    memset(layer, 0, sizeof *layer);
}
