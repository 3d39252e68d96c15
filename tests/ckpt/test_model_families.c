/* SPDX-License-Identifier: Apache-2.0
 *
 * test_model_families.c - checkpoints of families whose tensors or routing differ from all others', from files to the
 * layer's output. The expected numbers are the model code's formulas, evaluated plainly here on the tensors that the
 * test wrote:
 *
 *     hy_v4              limits clamp the routed experts' inputs of silu, not the shared expert's
 *     smallthinker       sigmoids, or a softmax, of the chosen logits; a relu gate; the router reads other states
 *     ernie4_5_vl_moe    as released: the router is [H, E], experts of images are numbered on, the bias has two rows
 *     cohere2_moe        the mean of the routed sum and the shared expert
 *     dbrx               weights divided by the root of their squares
 *     qwen4_exp          hyper-connections beside the block belong to the model
 *
 * Everything is F32, so only the roundings of fp32 sums lie between the two.
 */
#include "feature_rules.h"

/* The K largest keys of a token are the chosen ones, in this order; ties do not occur. */
static void check_ids(const double *keys, const int32_t *ids)
{
    for (int j = 0; j < K; j++) {
        int better = 0;
        for (int e = 0; e < E; e++)
            better += keys[e] > keys[ids[j]];
        assert_int_equal(better, j);
    }
}

static double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

/* Logits [E] of a token. `router` is [E, H], or [H, E] when `turned`. */
static void logits_of(const float *router, bool turned, const float *x, double *out)
{
    for (int e = 0; e < E; e++) {
        out[e] = 0;
        for (int h = 0; h < H; h++)
            out[e] += (double)(turned ? router[h * E + e] : router[e * H + h]) * (double)x[h];
    }
}

/* ---- hy_v4 ------------------------------------------------------------------------------------------------ */

#define HY "model.layers.1.mlp."

/* HYV4TopkRouter: sigmoid, chosen with the bias, divided by the sum, times the factor. */
static void check_hy_weights(const hand_checkpoint *c, const float *x, const results *r)
{
    const float *bias = of(c, HY "gate.e_score_correction_bias");
    for (int t = 0; t < T; t++) {
        double score[E], key[E], sum = 0;
        logits_of(of(c, HY "gate.weight"), false, x + t * H, score);
        for (int e = 0; e < E; e++) {
            score[e] = sigmoid(score[e]);
            key[e] = score[e] + (double)bias[e];
        }
        check_ids(key, r->ids + t * K);
        for (int j = 0; j < K; j++)
            sum += score[r->ids[t * K + j]];
        for (int j = 0; j < K; j++)
            near((double)r->weights[t * K + j], score[r->ids[t * K + j]] / sum * 2.827);
    }
}

static void hy_v4(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8811) };
    float x[T * H];
    hand_checkpoint c;
    hand_open(&c);
    add(&c, &rng, HY "gate.weight", E, H, -1, 0, 0.3f);
    add(&c, &rng, HY "gate.e_score_correction_bias", E, -1, -1, 0, 0.1f);
    add(&c, &rng, HY "experts.gate_up_proj", E, 2 * I, H, 0, 0.5f);
    add(&c, &rng, HY "experts.down_proj", E, H, I, 0, 0.2f);
    add_three(&c, &rng, HY "shared_experts", I, 0.5f);
    /* of the hyper-connections, as released and as transformers saves them */
    add(&c, &rng, "model.layers.1.hc_pre.hc_mlp_layer.hc_fn", 4, -1, -1, 0, 1);
    add(&c, &rng, "model.layers.1.hc_mlp_layer.hc_scale", 4, -1, -1, 0, 1);
    add(&c, &rng, "model.layers.1.ffn_hc.fn", 4, -1, -1, 0, 1);
    random_states(&rng, x);
    hand_write(&c, "{\"model_type\":\"hy_v4\",\"dtype\":\"float32\",\"n_routed_experts\":4,\"num_experts_per_tok\":2,"
                   "\"hidden_size\":24,\"moe_intermediate_size\":10,\"n_shared_experts\":1,\"swiglu_limit\":0.75}");
    hand_model m = hand_load(&c, 1, MOXIE_ACTIVATIONS_CHECKPOINT);
    expert experts[E], shared = three(&c, HY "shared_experts", I);
    for (int64_t e = 0; e < E; e++)
        experts[e] = (expert) { .gate = of(&c, HY "experts.gate_up_proj") + e * 2 * I * H,
                                .up = of(&c, HY "experts.gate_up_proj") + (e * 2 + 1) * I * H,
                                .down = of(&c, HY "experts.down_proj") + e * H * I,
                                .n = I,
                                .clamp = 0.75 };
    for (int b = 0; b < 2; b++) {
        results r;
        run(&m, b ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, x, NULL, &r);
        check_hy_weights(&c, x, &r);
        check_output(&r, x, experts, &shared);
    }
    hand_unload(&m);
    hand_close(&c);
}

/* ---- smallthinker ----------------------------------------------------------------------------------------- */

#define SMALL "model.layers.0.block_sparse_moe."

/* SmallThinkerMoeBlock: the largest logits, then a softmax over them, or sigmoids divided by their sum. */
static void check_small_weights(const hand_checkpoint *c, bool softmax, const float *router_x, const results *r)
{
    for (int t = 0; t < T; t++) {
        double logit[E], value[K], sum = 0;
        logits_of(of(c, SMALL "primary_router.weight"), false, router_x + t * H, logit);
        check_ids(logit, r->ids + t * K);
        for (int j = 0; j < K; j++) {
            value[j] = softmax ? exp(logit[r->ids[t * K + j]]) : sigmoid(logit[r->ids[t * K + j]]);
            sum += value[j];
        }
        for (int j = 0; j < K; j++)
            near((double)r->weights[t * K + j], value[j] / sum);
    }
}

static void smallthinker(void **state)
{
    (void)state;
    static const char *const projection[3] = { "gate", "up", "down" };
    static const char *const keys[3] = { ",\"moe_primary_router_apply_softmax\":true",
                                         ",\"moe_primary_router_apply_softmax\":false", "" };
    test_rng rng = { test_seed(8812) };
    float x[T * H], router_x[T * H];
    expert experts[E];
    hand_checkpoint c;
    hand_open(&c);
    add(&c, &rng, SMALL "primary_router.weight", E, H, -1, 0, 0.3f);
    for (int e = 0; e < E; e++) {
        const float *data[3];
        for (int p = 0; p < 3; p++) {
            char name[96];
            snprintf(name, sizeof name, SMALL "experts.%d.%s.weight", e, projection[p]);
            add(&c, &rng, name, p < 2 ? I : H, p < 2 ? H : I, -1, 0, 0.3f);
            data[p] = of(&c, name);
        }
        experts[e] = (expert) { .gate = data[0], .up = data[1], .down = data[2], .n = I, .relu = true };
    }
    random_states(&rng, x);
    random_states(&rng, router_x);
    for (int i = 0; i < 6; i++) {
        char config[400];
        results r;
        snprintf(config, sizeof config,
                 "{\"model_type\":\"smallthinker\",\"dtype\":\"float32\",\"moe_num_primary_experts\":%d,"
                 "\"moe_num_active_primary_experts\":%d,\"hidden_size\":%d,\"moe_ffn_hidden_size\":%d%s}",
                 E, K, H, I, keys[i % 3]);
        hand_write(&c, config);
        hand_model m = hand_load(&c, 0, MOXIE_ACTIVATIONS_CHECKPOINT);
        run(&m, i < 3 ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, x, router_x, &r);
        check_small_weights(&c, i % 3 == 0, router_x, &r);
        check_output(&r, x, experts, NULL);
        hand_unload(&m);
    }
    hand_close(&c);
}

/* ---- ernie4_5_vl_moe -------------------------------------------------------------------------------------- */

#define VL "model.layers.1.mlp."
#define VL_CONFIG                                                                                                      \
    "{\"model_type\":\"ernie4_5_vl_moe\",\"dtype\":\"float32\",\"moe_num_experts\":[4,4],\"moe_k\":2,"                 \
    "\"hidden_size\":24,\"moe_intermediate_size\":[10,5],\"moe_num_shared_experts\":1}"

/* Ernie4_5_VLMoeSparseMoeBlock for text: softmax, chosen with the bias, divided by the sum. */
static void check_vl_weights(const hand_checkpoint *c, const float *x, const results *r)
{
    const float *bias = of(c, VL "moe_statics.e_score_correction_bias");
    for (int t = 0; t < T; t++) {
        double score[E], key[E], all = 0, sum = 0;
        logits_of(of(c, VL "gate.weight"), true, x + t * H, score);
        for (int e = 0; e < E; e++)
            all += score[e] = exp(score[e]);
        for (int e = 0; e < E; e++) {
            score[e] /= all;
            key[e] = score[e] + (double)bias[e];
        }
        check_ids(key, r->ids + t * K);
        for (int j = 0; j < K; j++)
            sum += score[r->ids[t * K + j]];
        for (int j = 0; j < K; j++)
            near((double)r->weights[t * K + j], score[r->ids[t * K + j]] / sum);
    }
}

static void ernie_as_released(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8813) };
    float x[T * H];
    expert experts[E];
    hand_checkpoint c;
    moxie_error error = { 0 };
    hand_open(&c);
    add(&c, &rng, VL "gate.weight", H, E, -1, 0, 0.3f);
    add(&c, &rng, VL "gate.weight_1", H, E, -1, 0, 0.3f);
    add(&c, &rng, VL "moe_statics.e_score_correction_bias", 2, E, -1, 0, 0.2f);
    for (int e = 0; e < 2 * E; e++) {
        char root[64];
        snprintf(root, sizeof root, VL "experts.%d", e);
        add_three(&c, &rng, root, e < E ? I : I / 2, 0.2f);
        if (e < E)
            experts[e] = three(&c, root, I);
    }
    add_three(&c, &rng, VL "shared_experts", I, 0.2f);
    const expert shared = three(&c, VL "shared_experts", I);
    random_states(&rng, x);
    hand_write(&c, VL_CONFIG);
    hand_model m = hand_load(&c, 1, MOXIE_ACTIVATIONS_CHECKPOINT);
    for (int b = 0; b < 2; b++) {
        results r;
        run(&m, b ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, x, NULL, &r);
        check_vl_weights(&c, x, &r);
        check_output(&r, x, experts, &shared);
    }
    hand_unload(&m);
    /* what is no expert of images is still refused */
    add(&c, &rng, VL "experts.0.mystery.weight", 4, -1, -1, 0, 1);
    hand_write(&c, VL_CONFIG);
    assert_int_equal(hand_try(&c, 1, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "experts.0.mystery.weight"));
    hand_close(&c);
}

/* The names of transformers: the experts of images are modules of their own. */
static void ernie_as_saved(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8814) };
    hand_checkpoint c;
    hand_open(&c);
#define SAVED "model.language_model.layers.1.mlp."
    static const char *const kinds[2] = { SAVED "text_moe", SAVED "vision_moe" };
    for (int i = 0; i < 2; i++) {
        add(&c, &rng, join(kinds[i], ".gate.weight"), E, H, -1, 0, 0.3f);
        add(&c, &rng, join(kinds[i], ".gate.moe_statics.e_score_correction_bias"), 1, E, -1, 0, 0.2f);
        add(&c, &rng, join(kinds[i], ".experts.gate_up_proj"), E, 2 * I / (i + 1), H, 0, 0.2f);
        add(&c, &rng, join(kinds[i], ".experts.down_proj"), E, H, I / (i + 1), 0, 0.2f);
    }
    hand_write(&c, "{\"model_type\":\"ernie4_5_vl_moe\",\"dtype\":\"float32\",\"moe_num_experts\":4,\"moe_k\":2,"
                   "\"hidden_size\":24,\"moe_intermediate_size\":[10,5],\"moe_num_shared_experts\":0}");
    hand_model m = hand_load(&c, 1, MOXIE_ACTIVATIONS_CHECKPOINT);
    assert_int_equal(m.config->intermediate, I);
    assert_ptr_not_equal(m.weights->router.codes.data, NULL);
    hand_unload(&m);
    hand_close(&c);
}

/* ---- cohere2_moe ------------------------------------------------------------------------------------------ */

#define COMMAND "model.layers.2.mlp."

/* Cohere2MoeSparseMoeBlock: (routed + shared) / 2, where the weights are a softmax over the chosen logits. */
static void check_mean(const float *router, const float *x, const expert *routed, const expert *shared,
                       const results *r)
{
    for (int t = 0; t < T; t++) {
        double logit[E], value[K], row[H], y[H] = { 0 }, sum = 0;
        logits_of(router, false, x + t * H, logit);
        check_ids(logit, r->ids + t * K);
        for (int j = 0; j < K; j++)
            sum += value[j] = exp(logit[r->ids[t * K + j]]);
        for (int k = 0; k < H; k++)
            row[k] = x[t * H + k];
        for (int j = 0; j < K; j++)
            add_expert(&routed[r->ids[t * K + j]], row, value[j] / sum, y);
        add_expert(shared, row, 1, y);
        for (int k = 0; k < H; k++)
            near((double)r->output[t * H + k], y[k] / 2);
    }
}

static void mean_with_the_shared_expert(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8816) };
    float x[T * H];
    expert experts[E];
    hand_checkpoint c;
    hand_open(&c);
    add(&c, &rng, COMMAND "gate.weight", E, H, -1, 0, 0.3f);
    for (int e = 0; e < E; e++) {
        char root[64];
        snprintf(root, sizeof root, COMMAND "experts.%d", e);
        add_three(&c, &rng, root, I, 0.2f);
        experts[e] = three(&c, root, I);
    }
    add_three(&c, &rng, COMMAND "shared_experts", 2 * I, 0.2f);
    const expert shared = three(&c, COMMAND "shared_experts", 2 * I);
    random_states(&rng, x);
    /* the configuration class's strategy when the key is absent is the mean, too */
    static const char *const keys[2] = { ",\"shared_expert_combination_strategy\":\"average\"", "" };
    for (int i = 0; i < 4; i++) {
        char config[300];
        results r;
        snprintf(config, sizeof config,
                 "{\"model_type\":\"cohere2_moe\",\"dtype\":\"float32\",\"num_experts\":%d,\"num_experts_per_tok\":%d,"
                 "\"hidden_size\":%d,\"intermediate_size\":%d,\"num_shared_experts\":2%s}",
                 E, K, H, I, keys[i % 2]);
        hand_write(&c, config);
        hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
        run(&m, i < 2 ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, x, NULL, &r);
        check_mean(of(&c, COMMAND "gate.weight"), x, experts, &shared, &r);
        hand_unload(&m);
    }
    hand_close(&c);
}

/* ---- dbrx ------------------------------------------------------------------------------------------------- */

#define DBRX "transformer.blocks.0.ffn."

/* DbrxFFN: softmax over all, the largest, divided by torch.norm(p) of them. */
static void check_dbrx_weights(const float *router, int order, const float *x, const results *r)
{
    for (int t = 0; t < T; t++) {
        double logit[E], all = 0, norm = 0;
        logits_of(router, false, x + t * H, logit);
        check_ids(logit, r->ids + t * K);
        for (int e = 0; e < E; e++)
            all += exp(logit[e]);
        for (int j = 0; j < K; j++)
            norm += pow(exp(logit[r->ids[t * K + j]]) / all, order);
        for (int j = 0; j < K; j++)
            near((double)r->weights[t * K + j], exp(logit[r->ids[t * K + j]]) / all / (order == 2 ? sqrt(norm) : norm));
    }
}

static void norms_of_dbrx(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8817) };
    float x[T * H];
    expert experts[E];
    hand_checkpoint c;
    hand_open(&c);
    add(&c, &rng, DBRX "router.layer.weight", E, H, -1, 0, 0.3f);
    add(&c, &rng, DBRX "experts.mlp.w1", E * I, H, -1, 0, 0.2f);
    add(&c, &rng, DBRX "experts.mlp.v1", E * I, H, -1, 0, 0.2f);
    add(&c, &rng, DBRX "experts.mlp.w2", E * I, H, -1, 0, 0.2f);
    float down[E][H * I]; /* w2 is [I, H] for each expert */
    for (int e = 0; e < E; e++) {
        for (int i = 0; i < I * H; i++)
            down[e][i % H * I + i / H] = of(&c, DBRX "experts.mlp.w2")[e * I * H + i];
        experts[e] = (expert) { .gate = of(&c, DBRX "experts.mlp.w1") + e * I * H,
                                .up = of(&c, DBRX "experts.mlp.v1") + e * I * H,
                                .down = down[e],
                                .n = I };
    }
    random_states(&rng, x);
    for (int i = 0; i < 4; i++) {
        char config[300];
        results r;
        snprintf(config, sizeof config,
                 "{\"model_type\":\"dbrx\",\"dtype\":\"float32\",\"d_model\":%d,\"ffn_config\":{\"moe_num_experts\":%d,"
                 "\"moe_top_k\":%d,\"ffn_hidden_size\":%d,\"moe_normalize_expert_weights\":%d}}",
                 H, E, K, I, 1 + i % 2);
        hand_write(&c, config);
        hand_model m = hand_load(&c, 0, MOXIE_ACTIVATIONS_CHECKPOINT);
        run(&m, i < 2 ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, x, NULL, &r);
        check_dbrx_weights(of(&c, DBRX "router.layer.weight"), 1 + i % 2, x, &r);
        check_output(&r, x, experts, NULL);
        hand_unload(&m);
    }
    hand_close(&c);
}

/* ---- qwen4_exp -------------------------------------------------------------------------------------------- */

static void hyper_connections_are_outside(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8815) };
    hand_checkpoint c;
    moxie_error error = { 0 };
    hand_open(&c);
#define NEXT "model.language_model.layers.0."
    add(&c, &rng, NEXT "mlp.gate.weight", E, H, -1, 0, 0.3f);
    add(&c, &rng, NEXT "mlp.experts.gate_up_proj", E, 2 * I, H, 0, 0.2f);
    add(&c, &rng, NEXT "mlp.experts.down_proj", E, H, I, 0, 0.2f);
    add(&c, &rng, NEXT "mlp_hyper_connection.linear_layer.weight", 4, H, -1, 0, 1);
    static const char config[] =
        "{\"model_type\":\"qwen4_exp\",\"dtype\":\"float32\",\"text_config\":{\"model_type\":\"qwen4_exp_text\","
        "\"num_experts\":4,\"num_experts_per_tok\":2,\"hidden_size\":24,\"moe_intermediate_size\":10}}";
    hand_write(&c, config);
    hand_model m = hand_load(&c, 0, MOXIE_ACTIVATIONS_CHECKPOINT);
    hand_unload(&m);
    add(&c, &rng, NEXT "mlp_mystery.weight", 4, H, -1, 0, 1);
    hand_write(&c, config);
    assert_int_equal(hand_try(&c, 0, &error), MOXIE_ERR_UNSUPPORTED);
    hand_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hy_v4),
        cmocka_unit_test(smallthinker),
        cmocka_unit_test(ernie_as_released),
        cmocka_unit_test(ernie_as_saved),
        cmocka_unit_test(mean_with_the_shared_expert),
        cmocka_unit_test(norms_of_dbrx),
        cmocka_unit_test(hyper_connections_are_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
