/* SPDX-License-Identifier: Apache-2.0
 *
 * test_model_features.c - checkpoints of families with a feature of their own, from files to the layer's output. The
 * expected numbers are the model code's formulas, evaluated plainly here on the tensors that the test wrote:
 *
 *     gemma4           the router's input is normed and scaled; it may be another one than the experts'
 *     ernie4_5_moe     use_bias: the shared expert's three projections have biases
 *     muse_spark       logits times a factor; each expert's result is normed before its weight multiplies it
 *     step3p7          limits of the activation by layer, another one for the shared expert
 *
 * Everything is F32, so only the roundings of fp32 sums lie between the two.
 */
#include "feature_rules.h"

/* down(act(gate, up)) as MuseSparkTextInputScaledRMSNorm norms it. */
static void norm_result(const float *weight, double eps, double *y)
{
    double squares = 0;
    for (int64_t h = 0; h < H; h++) {
        y[h] *= 1 + (double)weight[h];
        squares += y[h] * y[h];
    }
    for (int64_t h = 0; h < H; h++)
        y[h] /= sqrt(squares / H + eps);
}

/* ---- gemma4 -------------------------------------------------------------------------------------------- */

#define GEMMA "model.language_model.layers.3."

static void gemma_logits(const hand_checkpoint *c, const float *x, double eps, const results *r)
{
    for (int64_t t = 0; t < T; t++) {
        double squares = 0, row[H];
        for (int64_t k = 0; k < H; k++)
            squares += (double)x[t * H + k] * x[t * H + k];
        for (int64_t k = 0; k < H; k++)
            row[k] = x[t * H + k] * pow(squares / H + eps, -0.5) * of(c, GEMMA "router.scale")[k] * pow(H, -0.5);
        for (int64_t e = 0; e < E; e++)
            near((double)r->logits[t * E + e], dot(of(c, GEMMA "router.proj.weight") + e * H, row, H));
    }
}

/* softmax over the chosen logits, times per_expert_scale. */
static void gemma_weights(const hand_checkpoint *c, const results *r)
{
    for (int64_t t = 0; t < T; t++) {
        double sum = 0;
        for (int64_t j = 0; j < K; j++)
            sum += exp((double)r->logits[t * E + r->ids[t * K + j]]);
        for (int64_t j = 0; j < K; j++) {
            const int32_t e = r->ids[t * K + j];
            near((double)r->weights[t * K + j],
                 exp((double)r->logits[t * E + e]) / sum * of(c, GEMMA "router.per_expert_scale")[e]);
        }
    }
}

static void gemma_router(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8801) };
    hand_checkpoint c;
    hand_open(&c);
    add(&c, &rng, GEMMA "router.proj.weight", E, H, -1, 0, 2);
    add(&c, &rng, GEMMA "router.scale", H, -1, -1, 1, 0.4f);
    add(&c, &rng, GEMMA "router.per_expert_scale", E, -1, -1, 1, 0.2f);
    add(&c, &rng, GEMMA "experts.gate_up_proj", E, 2 * I, H, 0, 0.2f);
    add(&c, &rng, GEMMA "experts.down_proj", E, H, I, 0, 0.2f);
    const char *const configs[2] = { ",\"rms_norm_eps\":0.5", "" };
    float x[T * H], router_x[T * H];
    random_states(&rng, x);
    random_states(&rng, router_x);
    for (int i = 0; i < 4; i++) {
        char config[400];
        snprintf(config, sizeof config,
                 "{\"model_type\":\"gemma4\",\"dtype\":\"float32\",\"text_config\":{\"num_experts\":%d,"
                 "\"top_k_experts\":%d,\"hidden_size\":%d,\"moe_intermediate_size\":%d%s}}",
                 E, K, H, I, configs[i % 2]);
        hand_write(&c, config);
        hand_model m = hand_load(&c, 3, MOXIE_ACTIVATIONS_CHECKPOINT);
        moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
        moxie_error error = { 0 };
        assert_ok(mox_model_describe_layer(m.model, 0, &info, &error), &error);
        assert_non_null(strstr(info.outside, "the router reads the residual (router_hidden)"));
        expert experts[E];
        for (int64_t e = 0; e < E; e++)
            experts[e] = (expert) { .gate = of(&c, GEMMA "experts.gate_up_proj") + e * 2 * I * H,
                                    .up = of(&c, GEMMA "experts.gate_up_proj") + (e * 2 + 1) * I * H,
                                    .down = of(&c, GEMMA "experts.down_proj") + e * H * I,
                                    .n = I,
                                    .gelu = true };
        results r;
        const double eps = i % 2 ? (double)1e-6f : 0.5;
        run(&m, i < 2 ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, x, i < 3 ? router_x : NULL, &r);
        gemma_logits(&c, i < 3 ? router_x : x, eps, &r);
        gemma_weights(&c, &r);
        check_output(&r, x, experts, NULL);
        hand_unload(&m);
    }
    /* Without its scale the router is another one. */
    hand_remove(&c, GEMMA "router.scale");
    hand_write(&c, "{\"model_type\":\"gemma4\",\"text_config\":{\"num_experts\":4,\"top_k_experts\":2,"
                   "\"hidden_size\":24,\"moe_intermediate_size\":10}}");
    moxie_error error = { 0 };
    assert_int_equal(hand_try(&c, 3, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "router.scale is absent"));
    hand_close(&c);
}

/* ---- muse_spark ---------------------------------------------------------------------------------------- */

#define MUSE "model.language_model.layers.0.mlp."

static void check_muse(const hand_checkpoint *c, const float *x, const float *router_x, double factor, double eps,
                       const results *r)
{
    for (int64_t t = 0; t < T; t++) {
        double wide[WIDE], row[H], y[H] = { 0 };
        for (int64_t k = 0; k < WIDE; k++)
            wide[k] = router_x[t * WIDE + k];
        for (int64_t e = 0; e < E; e++)
            near((double)r->logits[t * E + e], dot(of(c, MUSE "gate.weight") + e * WIDE, wide, WIDE) * factor);
        for (int64_t k = 0; k < H; k++)
            row[k] = x[t * H + k];
        for (int64_t j = 0; j < K; j++) {
            const int32_t e = r->ids[t * K + j];
            const expert one = { .gate = of(c, MUSE "experts.gate_up_proj") + e * 2 * I * H,
                                 .up = of(c, MUSE "experts.gate_up_proj") + (e * 2 + 1) * I * H,
                                 .down = of(c, MUSE "experts.down_proj") + e * H * I,
                                 .n = I };
            double own[H] = { 0 };
            add_expert(&one, row, 1, own);
            norm_result(of(c, MUSE "experts.post_expert_norm.weight"), eps, own);
            for (int64_t k = 0; k < H; k++)
                y[k] += r->weights[t * K + j] * own[k];
        }
        for (int64_t k = 0; k < H; k++)
            near((double)r->output[t * H + k], y[k]);
    }
}

static void muse_spark(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8804) };
    hand_checkpoint c;
    hand_open(&c);
    add(&c, &rng, MUSE "gate.weight", E, WIDE, -1, 0, 0.5f);
    add(&c, &rng, MUSE "gate.e_score_correction_bias", E, -1, -1, 0, 0.1f);
    add(&c, &rng, MUSE "experts.gate_up_proj", E, 2 * I, H, 0, 0.2f);
    add(&c, &rng, MUSE "experts.down_proj", E, H, I, 0, 0.2f);
    add(&c, &rng, MUSE "experts.post_expert_norm.weight", H, -1, -1, 0, 0.3f);
    static const char *const keys[2] = { "", ",\"output_multiplier\":0.5,\"post_norm_eps\":0.25" };
    float x[T * H], router_x[T * WIDE];
    random_states(&rng, x);
    for (int64_t i = 0; i < T * WIDE; i++)
        router_x[i] = test_normal(&rng);
    for (int i = 0; i < 4; i++) {
        char config[400];
        results r;
        snprintf(
            config, sizeof config,
            "{\"model_type\":\"muse_spark\",\"dtype\":\"float32\",\"text_config\":{\"num_local_experts\":%d,"
            "\"num_experts_per_tok\":%d,\"hidden_size\":%d,\"moe_hidden_size\":%d,\"moe_intermediate_size\":%d%s}}",
            E, K, WIDE, H, I, keys[i % 2]);
        hand_write(&c, config);
        hand_model m = hand_load(&c, 0, MOXIE_ACTIVATIONS_CHECKPOINT);
        run(&m, i < 2 ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, x, router_x, &r);
        check_muse(&c, x, router_x, i % 2 ? 0.5 : 0.1767766952966369, i % 2 ? 0.25 : 1e-8, &r);
        hand_unload(&m);
    }
    hand_close(&c);
}

/* ---- separate experts and a shared one ----------------------------------------------------------------- */

#define ERNIE "model.layers.1.mlp."

static void shared_biases(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\":\"ernie4_5_moe\",\"dtype\":\"float32\",\"use_bias\":true,\"moe_num_experts\":4,\"moe_k\":2,"
        "\"hidden_size\":24,\"moe_intermediate_size\":10,\"moe_num_shared_experts\":1}";
    test_rng rng = { test_seed(8802) };
    moxie_error error = { 0 };
    separate s;
    hand_open(&s.c);
    add(&s.c, &rng, ERNIE "gate.weight", E, H, -1, 0, 0.3f);
    add(&s.c, &rng, ERNIE "moe_statics.e_score_correction_bias", 1, E, -1, 0, 0.1f);
    for (int e = 0; e < E; e++) {
        char root[64];
        snprintf(root, sizeof root, ERNIE "experts.%d", e);
        add_three(&s.c, &rng, root, I, 0.2f);
        s.routed[e] = three(&s.c, root, I);
    }
    add_three(&s.c, &rng, ERNIE "shared_experts", I, 0.2f);
    s.shared = three(&s.c, ERNIE "shared_experts", I);
    load_and_check(&s, 1, config, &rng); /* no bias at all */
    add(&s.c, &rng, ERNIE "shared_experts.down_proj.bias", H, -1, -1, 0, 1);
    s.shared.down_bias = of(&s.c, ERNIE "shared_experts.down_proj.bias");
    load_and_check(&s, 1, config, &rng); /* of W2 only */
    add(&s.c, &rng, ERNIE "shared_experts.gate_proj.bias", I, -1, -1, 0, 1);
    hand_write(&s.c, config);
    assert_int_equal(hand_try(&s.c, 1, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "up_proj.bias does not"));
    add(&s.c, &rng, ERNIE "shared_experts.up_proj.bias", I, -1, -1, 0, 1);
    s.shared.gate_bias = of(&s.c, ERNIE "shared_experts.gate_proj.bias");
    s.shared.up_bias = of(&s.c, ERNIE "shared_experts.up_proj.bias");
    load_and_check(&s, 1, config, &rng);
    hand_close(&s.c);
}

/* ---- limits -------------------------------------------------------------------------------------------- */

static void limits_by_layer(void **state)
{
    (void)state;
    static const double want[5][2] = { { 0, 0 }, { 0.5, 0 }, { 0, 0.75 }, { 0.5, 0.75 }, { 0, 0 } };
    test_rng rng = { test_seed(8803) };
    for (int layer = 0; layer < 5; layer++) {
        char name[80];
        separate s;
        hand_open(&s.c);
        snprintf(name, sizeof name, "model.layers.%d.moe.gate.weight", layer);
        add(&s.c, &rng, name, E, H, -1, 0, 0.3f);
        static const char *const stacks[3] = { "gate_proj", "up_proj", "down_proj" };
        const float *data[3];
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "model.layers.%d.moe.%s.weight", layer, stacks[i]);
            add(&s.c, &rng, name, E, i < 2 ? I : H, i < 2 ? H : I, 0, 0.5f);
            data[i] = of(&s.c, name);
        }
        for (int64_t e = 0; e < E; e++)
            s.routed[e] = (expert) { .gate = data[0] + e * I * H,
                                     .up = data[1] + e * I * H,
                                     .down = data[2] + e * H * I,
                                     .n = I,
                                     .limit = want[layer][0] };
        snprintf(name, sizeof name, "model.layers.%d.share_expert", layer);
        add_three(&s.c, &rng, name, S, 0.5f);
        s.shared = three(&s.c, name, S);
        s.shared.limit = want[layer][1];
        load_and_check(&s, layer,
                       "{\"model_type\":\"step3p7\",\"dtype\":\"float32\",\"moe_num_experts\":4,\"moe_top_k\":2,"
                       "\"hidden_size\":24,\"moe_intermediate_size\":10,\"share_expert_dim\":14,"
                       "\"swiglu_limits\":[0.0,0.5,null,0.5],\"swiglu_limits_shared\":[null,0.0,0.75,0.75]}",
                       &rng);
        hand_close(&s.c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(gemma_router), cmocka_unit_test(muse_spark),
                                        cmocka_unit_test(shared_biases), cmocka_unit_test(limits_by_layer) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
