/* SPDX-License-Identifier: Apache-2.0
 *
 * small_layer.h - fills the fixture of test_layer.h with a layer of stated formats and parts. Numbers are random; the
 * fixture's own test_layer_make() makes formats and parts random, too.
 *
 *     spec -> config, weights -> args of `tokens` tokens: hidden, and ids with weights, or logits, or neither (router)
 */
#ifndef SMALL_LAYER_H
#define SMALL_LAYER_H

#include <math.h>

#include "test_layer.h"

/* How the batch says which experts a token gets. */
typedef enum small_choice { SMALL_IDS, SMALL_LOGITS, SMALL_ROUTER } small_choice;

typedef struct small_spec {
    const test_weight_quant *weight, *weight2; /* of W13; of W2, NULL: the same */
    const test_act_quant *act;
    moxie_dtype dtype;
    int64_t experts, top_k, hidden, intermediate, tokens;
    bool bias, shared, shared_gate, router, on_input;
    small_choice choice;
} small_spec;

static inline const test_weight_quant *small_weight2(const small_spec *spec)
{
    return spec->weight2 != NULL ? spec->weight2 : spec->weight;
}

static inline moxie_layer_config small_config(const small_spec *spec)
{
    moxie_layer_config c = MOXIE_LAYER_CONFIG_INIT;
    moxie_error error;
    c.dtype = spec->dtype;
    c.experts = spec->experts;
    c.top_k = spec->top_k;
    c.hidden = spec->hidden;
    c.intermediate = spec->intermediate;
    c.bias13 = c.bias2 = spec->bias;
    c.w13 = spec->weight->quant;
    c.w2 = small_weight2(spec)->quant;
    c.a13 = c.a2 = spec->act->quant;
    c.router_width = spec->router ? spec->hidden : 0;
    if (spec->shared) {
        c.shared.intermediate = spec->intermediate;
        c.shared.w13 = c.w13;
        c.shared.w2 = c.w2;
        c.shared.a13 = c.shared.a2 = c.a13;
        c.shared.bias13 = c.shared.bias2 = spec->bias;
        c.shared.has_gate = spec->shared_gate;
    }
    assert_ok(moxie_routing_by_name("renormalize", &c.routing, &error), &error);
    c.routing.on_input = spec->on_input;
    return c;
}

static inline void small_weights(test_layer *t, test_rng *rng, const small_spec *spec)
{
    const test_expert_spec expert = { .hidden = spec->hidden,
                                      .intermediate = spec->intermediate,
                                      .gated = true,
                                      .bias13 = spec->bias,
                                      .bias2 = spec->bias,
                                      .w13 = spec->weight,
                                      .w2 = small_weight2(spec),
                                      .a13 = spec->act,
                                      .a2 = spec->act };
    t->owners = calloc((size_t)spec->experts + 1, sizeof *t->owners);
    t->experts = calloc((size_t)spec->experts, sizeof *t->experts);
    for (int64_t e = 0; e < spec->experts; e++) {
        test_expert_make(&t->owners[e], rng, &expert);
        t->experts[e] = t->owners[e].view;
    }
    t->weights = (moxie_weights)MOXIE_WEIGHTS_INIT;
    t->weights.n_experts = spec->experts;
    t->weights.experts = t->experts;
    if (spec->shared) {
        test_expert_make(&t->owners[spec->experts], rng, &expert);
        t->weights.shared = &t->owners[spec->experts].view;
    }
    const int64_t rows = spec->experts + 1;
    float *plain = test_layer_own(t, (size_t)(rows * spec->hidden) * sizeof *plain);
    for (int64_t i = 0; i < rows * spec->hidden; i++)
        plain[i] = test_normal(rng) / sqrtf((float)spec->hidden);
    if (spec->router)
        t->weights.router.codes = mox_grid_dense(plain, MOXIE_F32, spec->experts, spec->hidden);
    if (spec->shared && spec->shared_gate)
        t->weights.shared_gate.codes = mox_grid_dense(plain + spec->experts * spec->hidden, MOXIE_F32, 1, spec->hidden);
}

static inline void small_batch(test_layer *t, test_rng *rng, const small_spec *spec)
{
    const int64_t choices = spec->tokens * spec->top_k, scores = spec->tokens * spec->experts;
    int32_t *ids = test_layer_own(t, (size_t)choices * sizeof *ids);
    float *weights = test_layer_own(t, (size_t)choices * sizeof *weights);
    float *logits = test_layer_own(t, (size_t)scores * sizeof *logits);
    void *hidden = test_layer_own(t, (size_t)(spec->tokens * spec->hidden * mox_dtype_bytes(spec->dtype)));
    test_fill_activations(rng, spec->dtype, hidden, spec->tokens * spec->hidden);
    test_fill_activations(rng, MOXIE_F32, logits, scores);
    for (int64_t i = 0; i < choices; i++) {
        ids[i] = (int32_t)test_range(rng, test_below(rng, 20) == 0 ? -1 : 0, spec->experts - 1);
        weights[i] = test_uniform(rng);
    }
    t->args = (moxie_run_args)MOXIE_RUN_ARGS_INIT;
    t->args.tokens = spec->tokens;
    t->args.hidden = hidden;
    t->args.ids = spec->choice == SMALL_IDS ? ids : NULL;
    t->args.weights = spec->choice == SMALL_IDS ? weights : NULL;
    t->args.logits = spec->choice == SMALL_LOGITS ? logits : NULL;
    t->args.output = test_layer_own(t, (size_t)(spec->tokens * spec->hidden * mox_dtype_bytes(spec->dtype)));
}

/* The numbers, without a plan: call test_layer_plan() next. Free with test_layer_free(). */
static inline void small_layer_make(test_layer *out, test_rng *rng, const small_spec *spec)
{
    memset(out, 0, sizeof *out);
    out->config = small_config(spec);
    small_weights(out, rng, spec);
    small_batch(out, rng, spec);
    snprintf(out->text, sizeof out->text, "%s x %s, %s, H %lld I %lld E %lld K %lld", spec->weight->name,
             spec->act->name, moxie_dtype_name(spec->dtype), (long long)spec->hidden, (long long)spec->intermediate,
             (long long)spec->experts, (long long)spec->top_k);
}

#endif
