/* SPDX-License-Identifier: Apache-2.0
 *
 * fused_problem.h - the experts of one small pass for test_fused.c: one setting for each path through the fused
 * experts (formats, shapes, where activation scales go, the shared expert, weights on the input), and from each the
 * records, tokens and permutation.
 */
#ifndef FUSED_PROBLEM_H
#define FUSED_PROBLEM_H

#include "check_support.h"

#include "cpu/fused/fused.h"
#include "route/route.h"

enum { FUSED_EXPERTS = 5, FUSED_TOP_K = 3, FUSED_SLOTS = 4 }; /* expert 2 is another rank's */

typedef struct fused_setting {
    const char *name, *weights, *acts13, *acts2;
    int64_t hidden, intermediate, tokens;
    int32_t kind; /* moxie_act_kind */
    bool bias, shared, on_input, given_differ;
    moxie_dtype dtype;
} fused_setting;

static const fused_setting fused_settings[] = {
    { "plain", "mxfp4", "none", "none", 96, 80, 21, MOXIE_ACT_SILU, true, false, false, false, MOXIE_BF16 },
    { "shared", "bf16", "none", "none", 65, 17, 9, MOXIE_ACT_SILU, true, true, false, false, MOXIE_BF16 },
    { "on input", "int4 words g32", "none", "none", 64, 48, 10, MOXIE_ACT_GELU_TANH, false, true, true, false,
      MOXIE_BF16 },
    { "ungated", "mxfp8", "none", "none", 33, 47, 13, MOXIE_ACT_RELU2_NO_MUL, true, false, false, false, MOXIE_BF16 },
    { "many rows", "mxfp6 e3m2", "none", "none", 64, 96, 301, MOXIE_ACT_SILU, false, true, false, false, MOXIE_BF16 },
    { "one token", "mxfp4", "none", "none", 128, 64, 1, MOXIE_ACT_SILU, true, true, false, false, MOXIE_BF16 },
    { "no token", "mxfp4", "none", "none", 64, 64, 0, MOXIE_ACT_SILU, true, true, false, false, MOXIE_BF16 },
    { "f16", "mxfp4", "none", "none", 96, 80, 21, MOXIE_ACT_SILU, true, true, false, false, MOXIE_F16 },
    { "f32 on input", "mxfp4", "none", "none", 50, 70, 12, MOXIE_ACT_SILU, true, false, true, false, MOXIE_F32 },
    { "groups", "fp8 block 128x128", "fp8 1x128", "fp8 1x128", 200, 300, 20, MOXIE_ACT_SILU, false, true, false, false,
      MOXIE_BF16 },
    { "by row", "fp8 per channel", "fp8 token", "fp8 token", 72, 40, 35, MOXIE_ACT_SILU, true, true, false, false,
      MOXIE_F16 },
    { "folded", "mxfp8", "mxfp8", "mxfp8", 70, 40, 18, MOXIE_ACT_SILU, false, true, true, false, MOXIE_BF16 },
    { "globals", "nvfp4 multiply", "nvfp4 multiply", "nvfp4 multiply", 80, 48, 19, MOXIE_ACT_SILU, true, true, false,
      true, MOXIE_BF16 },
    { "static", "fp8 per tensor", "fp8 tensor static", "fp8 tensor static", 64, 112, 140, MOXIE_ACT_SWIGLU_STEP, true,
      false, true, true, MOXIE_BF16 },
    { "second alone", "mxfp4", "none", "mxfp8", 64, 80, 33, MOXIE_ACT_SILU, false, true, false, false, MOXIE_BF16 },
    { "int8", "int8 per channel", "int8 token away", "int8 token away", 130, 70, 40, MOXIE_ACT_SILU, true, true, false,
      false, MOXIE_BF16 },
    /* Past the caches: both products' rows are larger than those of one or two workers, not of more. */
    { "large rows", "mxfp4", "none", "none", 1040, 32, 301, MOXIE_ACT_SILU, true, false, false, false, MOXIE_BF16 },
    { "large int8", "int8 per channel", "int8 token away", "int8 token away", 1984, 32, 301, MOXIE_ACT_SILU, false,
      false, false, false, MOXIE_BF16 },
};
enum { FUSED_SETTINGS = sizeof fused_settings / sizeof fused_settings[0] };

/* One kind of expert. */
typedef struct fused_kind {
    test_expert experts[FUSED_SLOTS];
    const void *records[FUSED_SLOTS];
    float given13[FUSED_SLOTS], given2[FUSED_SLOTS];
    int64_t slots, pairs, per_token;
    const int64_t *offsets, *expert_of, *position;
    int64_t *token_of;
    mox_fused_product first, second;
} fused_kind;

typedef struct fused_problem {
    const fused_setting *set;
    mox_record_shape shape;
    moxie_quant act13, act2;
    moxie_activation activation;
    const mox_expert_gemm_kernel *row;
    const mox_glu_kernel *glu;
    void *x;
    float *weights; /* [tokens, FUSED_TOP_K] */
    int64_t offsets[FUSED_SLOTS + 1], whole[2];
    int64_t *pair_at, *position;
    fused_kind kinds[2]; /* routed, shared */
    int n_kinds;
    check_buffers buffers, records;
} fused_problem;

/* ---- making it -------------------------------------------------------------------------------------------- */

static inline mox_expert_gemm_problem fused_product_problem(const fused_problem *f, mox_projection projection)
{
    const bool first = projection == MOX_W13;
    return (mox_expert_gemm_problem) { .shape = &f->shape,
                                       .projection = projection,
                                       .weight = first ? &f->shape.w13 : &f->shape.w2,
                                       .act = first ? &f->act13 : &f->act2,
                                       .dtype = f->set->dtype };
}

static inline void fused_make_kind(fused_problem *f, fused_kind *k, test_rng *rng, const test_expert_spec *spec,
                                   int64_t slots)
{
    moxie_error error;
    uint64_t bytes;
    assert_true(mox_layout_panel16.record_bytes(&f->shape, &bytes));
    k->slots = slots;
    for (int64_t s = 0; s < slots; s++) {
        void *record = check_buffer(&f->records, bytes);
        test_expert_make(&k->experts[s], rng, spec);
        assert_ok(mox_record_pack(&mox_layout_panel16, &f->shape, s, &k->experts[s].view, record, &error), &error);
        k->records[s] = record;
        k->given13[s] = k->experts[s].view.a13_scale * (f->set->given_differ ? 1.0f + 0.25f * (float)s : 1.0f);
        k->given2[s] = k->experts[s].view.a2_scale * (f->set->given_differ ? 1.0f + 0.5f * (float)s : 1.0f);
    }
}

/* Every third token has only one expert. Some choices are no expert, or another rank's. */
static inline void fused_make_choice(fused_problem *f, test_rng *rng)
{
    static const int32_t slot_of[FUSED_EXPERTS] = { 3, 0, -1, 1, 2 };
    static const int64_t expert_of[FUSED_SLOTS] = { 1, 3, 4, 0 };
    const int64_t tokens = f->set->tokens;
    int32_t *ids = check_buffer(&f->buffers, (size_t)(tokens * FUSED_TOP_K) * sizeof *ids);
    for (int64_t i = 0; i < tokens * FUSED_TOP_K; i++)
        ids[i] = i / FUSED_TOP_K % 3 == 0 ? 4 : (int32_t)test_range(rng, -1, FUSED_EXPERTS);
    f->pair_at = check_buffer(&f->buffers, (size_t)(tokens * FUSED_TOP_K) * sizeof *f->pair_at);
    f->position = check_buffer(&f->buffers, (size_t)(tokens * FUSED_TOP_K) * sizeof *f->position);
    f->weights = check_buffer(&f->buffers, (size_t)(tokens * FUSED_TOP_K) * sizeof *f->weights);
    for (int64_t i = 0; i < tokens * FUSED_TOP_K; i++)
        f->weights[i] = test_uniform(rng);
    mox_permutation out = { f->offsets, f->pair_at, f->position };
    mox_permute(ids, tokens, FUSED_TOP_K, FUSED_EXPERTS, slot_of, FUSED_SLOTS, &out);
    fused_kind *routed = &f->kinds[0], *shared = &f->kinds[1];
    f->whole[1] = tokens;
    routed->offsets = f->offsets;
    routed->expert_of = expert_of;
    routed->position = f->position;
    routed->pairs = f->offsets[FUSED_SLOTS];
    routed->per_token = FUSED_TOP_K;
    shared->offsets = f->whole;
    shared->pairs = tokens;
    shared->per_token = 1;
    for (int i = 0; i < 2; i++) {
        fused_kind *k = &f->kinds[i];
        k->token_of = check_buffer(&f->buffers, (size_t)k->pairs * sizeof *k->token_of);
        for (int64_t p = 0; p < k->pairs; p++)
            k->token_of[p] = i == 0 ? f->pair_at[p] / FUSED_TOP_K : p;
    }
}

static inline void fused_set_up(fused_problem *f, const fused_setting *set)
{
    const test_act_quant *act13 = test_act_quant_named(set->acts13), *act2 = test_act_quant_named(set->acts2);
    const test_expert_spec spec = { .hidden = set->hidden,
                                    .intermediate = set->intermediate,
                                    .gated = mox_activation_is_gated(set->kind),
                                    .bias13 = set->bias,
                                    .bias2 = set->bias,
                                    .w13 = test_weight_quant_named(set->weights),
                                    .w2 = test_weight_quant_named(set->weights),
                                    .a13 = act13,
                                    .a2 = act2 };
    test_rng rng = { test_seed(600) };
    memset(f, 0, sizeof *f);
    f->set = set;
    f->shape = test_record_shape(&spec);
    f->act13 = act13->quant;
    f->act2 = act2->quant;
    f->activation = (moxie_activation) { .kind = set->kind, .alpha = 1.25f, .gate_limit = 3.0f };
    f->glu = mox_glu_at(0);
    for (int32_t i = 0; !check_machine_has(&f->glu->base); i++)
        f->glu = mox_glu_at(i);
    f->n_kinds = set->shared ? 2 : 1;
    fused_make_kind(f, &f->kinds[0], &rng, &spec, FUSED_SLOTS);
    fused_make_kind(f, &f->kinds[1], &rng, &spec, 1);
    fused_make_choice(f, &rng);
    f->x = check_buffer(&f->buffers, (size_t)(set->tokens * set->hidden * mox_dtype_bytes(set->dtype)));
    test_fill_activations(&rng, set->dtype, f->x, set->tokens * set->hidden);
}

static inline void fused_tear_down(fused_problem *f)
{
    for (int i = 0; i < 2; i++)
        for (int s = 0; s < FUSED_SLOTS; s++)
            test_expert_free(&f->kinds[i].experts[s]);
    check_buffers_free(&f->buffers);
    check_buffers_free(&f->records);
}

#endif
