/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of every family: what is read from the releases' own keys, what is written and read back, and what is
 * rejected, in which words. The texts are the releases' files, cut to what the layer needs.
 */
#include "test_support.h"

#include "ckpt/families/family_config.h"
#include "ckpt/model/model.h"

typedef struct config_case {
    const char *text, *family;
    int64_t layer;
    mox_dims dims; /* shared_intermediate, groups, ... as expected */
    int32_t score, select, weight, norm, act;
    float alpha, gate_limit;
} config_case;

#define SOFTMAX MOXIE_SCORE_SOFTMAX
#define SIGMOID MOXIE_SCORE_SIGMOID
#define SIZES(e, k, h, i, s, x)                                                                                        \
    .experts = e, .top_k = k, .hidden = h, .intermediate = i, .shared_intermediate = s, .expert_width = x

/* clang-format off */
static const config_case configs[] = {
    { "{\"model_type\":\"gpt_oss\",\"num_local_experts\":128,\"num_experts_per_tok\":4,\"experts_per_token\":4,"
      "\"hidden_size\":2880,\"intermediate_size\":2880,\"hidden_act\":\"silu\",\"swiglu_limit\":7.0,\"torch_dtype\":"
      "\"bfloat16\"}",
      "gpt-oss", 0,
      { SIZES(128, 4, 2880, 2880, 0, 2880), .routed_scale = 1, .swiglu_limit = 7 },
      MOXIE_SCORE_LOGIT, MOXIE_SELECT_TOPK, MOXIE_WEIGHT_SOFTMAX_SELECTED, 0, MOXIE_ACT_SILU, 1.702f, 7 },
    { "{\"model_type\":\"deepseek_v3\",\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"hidden_size\":7168,"
      "\"moe_intermediate_size\":2048,\"intermediate_size\":18432,\"n_shared_experts\":1,\"n_group\":8,\"topk_group\":4,"
      "\"routed_scaling_factor\":2.5,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\","
      "\"hidden_act\":\"silu\",\"num_hidden_layers\":61,\"vocab_size\":129280}",
      "deepseek-v3", 3,
      { SIZES(256, 8, 7168, 2048, 2048, 7168), .n_group = 8, .topk_group = 4, .routed_scale = 2.5f, .norm_topk = true,
        .layers = 61, .vocab = 129280 },
      SIGMOID, 0, 0, MOXIE_NORM_SUM_PLUS_EPS, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"deepseek_v2\",\"n_routed_experts\":64,\"num_experts_per_tok\":6,\"hidden_size\":2048,"
      "\"moe_intermediate_size\":1408,\"n_shared_experts\":2,\"n_group\":1,\"topk_group\":1,\"norm_topk_prob\":false,"
      "\"routed_scaling_factor\":1.0,\"scoring_func\":\"softmax\",\"topk_method\":\"greedy\"}",
      "deepseek-v2", 1,
      { SIZES(64, 6, 2048, 1408, 2816, 2048), .n_group = 1, .topk_group = 1, .routed_scale = 1 },
      SOFTMAX, 0, 0, MOXIE_NORM_NONE, MOXIE_ACT_SILU, 0, 0 },
    /* "greedy" ignores groups of any number */
    { "{\"model_type\":\"deepseek_v2\",\"n_routed_experts\":64,\"num_experts_per_tok\":6,\"hidden_size\":2048,"
      "\"moe_intermediate_size\":1408,\"n_group\":8,\"topk_group\":3,\"topk_method\":\"greedy\"}",
      "deepseek-v2", 1,
      { SIZES(64, 6, 2048, 1408, MOX_SHARED_UNKNOWN, 2048), .routed_scale = 1 },
      SOFTMAX, 0, 0, MOXIE_NORM_NONE, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"kimi_k25\",\"text_config\":{\"model_type\":\"kimi_k2\",\"n_routed_experts\":384,\"top_k\":50,"
      "\"num_experts_per_tok\":8,\"hidden_size\":7168,\"moe_intermediate_size\":2048,\"n_shared_experts\":1,\"n_group\":1,"
      "\"topk_group\":1,\"routed_scaling_factor\":2.827,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\"}}",
      "kimi-k2.5", 1,
      { SIZES(384, 8, 7168, 2048, 2048, 7168), .n_group = 1, .topk_group = 1, .routed_scale = 2.827f,
        .norm_topk = true },
      SIGMOID, 0, 0, MOXIE_NORM_SUM_PLUS_EPS, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"deepseek_v4\",\"n_routed_experts\":256,\"num_experts_per_tok\":6,\"hidden_size\":4096,"
      "\"moe_intermediate_size\":2048,\"n_shared_experts\":1,\"routed_scaling_factor\":1.5,\"norm_topk_prob\":true,"
      "\"scoring_func\":\"sqrtsoftplus\",\"num_hash_layers\":3,\"swiglu_limit\":10.0,\"vocab_size\":129280}",
      "deepseek-v4", 2,
      { SIZES(256, 6, 4096, 2048, 2048, 4096), .routed_scale = 1.5f, .norm_topk = true, .n_hash_layers = 3,
        .swiglu_limit = 10, .vocab = 129280 },
      MOXIE_SCORE_SQRTSOFTPLUS, MOXIE_SELECT_TABLE, 0, MOXIE_NORM_SUM_PLUS_EPS, MOXIE_ACT_SILU, 0, 10 },
    { "{\"model_type\":\"deepseek_v4\",\"n_routed_experts\":256,\"num_experts_per_tok\":6,\"hidden_size\":4096,"
      "\"moe_intermediate_size\":2048,\"n_shared_experts\":1,\"routed_scaling_factor\":1.5,\"norm_topk_prob\":true,"
      "\"num_hash_layers\":3,\"swiglu_limit\":10.0}",
      "deepseek-v4", 3,
      { SIZES(256, 6, 4096, 2048, 2048, 4096), .routed_scale = 1.5f, .norm_topk = true, .n_hash_layers = 3,
        .swiglu_limit = 10 },
      MOXIE_SCORE_SQRTSOFTPLUS, MOXIE_SELECT_TOPK, 0, MOXIE_NORM_SUM_PLUS_EPS, MOXIE_ACT_SILU, 0, 10 },
    { "{\"model_type\":\"qwen3_moe\",\"num_experts\":128,\"num_experts_per_tok\":8,\"hidden_size\":2048,"
      "\"moe_intermediate_size\":768,\"intermediate_size\":6144,\"norm_topk_prob\":true,\"mlp_only_layers\":[],"
      "\"decoder_sparse_step\":1,\"shared_expert_intermediate_size\":0}",
      "qwen3-moe", 0,
      { SIZES(128, 8, 2048, 768, 0, 2048), .routed_scale = 1, .norm_topk = true },
      SOFTMAX, 0, 0, MOXIE_NORM_SUM, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"olmoe\",\"num_experts\":64,\"num_experts_per_tok\":8,\"hidden_size\":2048,"
      "\"intermediate_size\":1024,\"norm_topk_prob\":false}",
      "olmoe", 0,
      { SIZES(64, 8, 2048, 1024, 0, 2048), .routed_scale = 1 },
      SOFTMAX, 0, 0, MOXIE_NORM_NONE, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"qwen3_5_moe\",\"text_config\":{\"num_experts\":256,\"num_experts_per_tok\":8,"
      "\"hidden_size\":2048,\"moe_intermediate_size\":512,\"shared_expert_intermediate_size\":512}}",
      "qwen3.5-moe", 0,
      { SIZES(256, 8, 2048, 512, 512, 2048), .routed_scale = 1, .norm_topk = true },
      SOFTMAX, 0, 0, MOXIE_NORM_SUM, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"mixtral\",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"hidden_size\":4096,"
      "\"intermediate_size\":14336}",
      "mixtral", 0,
      { SIZES(8, 2, 4096, 14336, 0, 4096), .routed_scale = 1, .norm_topk = true },
      SOFTMAX, 0, 0, MOXIE_NORM_SUM, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"phimoe\",\"num_local_experts\":16,\"num_experts_per_tok\":2,\"hidden_size\":4096,"
      "\"intermediate_size\":6400,\"router_jitter_noise\":0.01}",
      "phi-moe", 0,
      { SIZES(16, 2, 4096, 6400, 0, 4096), .routed_scale = 1 },
      MOXIE_SCORE_LOGIT, MOXIE_SELECT_SPARSEMIXER, 0, MOXIE_NORM_NONE, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"llama4\",\"text_config\":{\"model_type\":\"llama4_text\",\"num_local_experts\":16,"
      "\"num_experts_per_tok\":1,\"hidden_size\":5120,\"intermediate_size\":8192,\"intermediate_size_mlp\":16384}}",
      "llama4", 0,
      { SIZES(16, 1, 5120, 8192, 8192, 5120), .routed_scale = 1 },
      MOXIE_SCORE_LOGIT, 0, MOXIE_WEIGHT_SIGMOID_SELECTED, MOXIE_NORM_NONE, MOXIE_ACT_SILU, 0, 0 },
    /* three Nemotron files contain Python's Infinity */
    { "{\"model_type\":\"nemotron_h\",\"n_routed_experts\":512,\"num_experts_per_tok\":22,\"hidden_size\":4096,"
      "\"moe_intermediate_size\":2688,\"moe_latent_size\":1024,\"n_shared_experts\":1,"
      "\"moe_shared_expert_intermediate_size\":5376,\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":5.0,"
      "\"norm_topk_prob\":true,\"mlp_hidden_act\":\"relu2\",\"time_step_limit\":[0.0, Infinity]}",
      "nemotron-h", 1,
      { SIZES(512, 22, 4096, 2688, 5376, 1024), .n_group = 1, .topk_group = 1, .routed_scale = 5, .norm_topk = true },
      SIGMOID, 0, 0, MOXIE_NORM_SUM_PLUS_EPS, MOXIE_ACT_RELU2_NO_MUL, 0, 0 },
    { "{\"model_type\":\"glm_moe_dsa\",\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"hidden_size\":6144,"
      "\"moe_intermediate_size\":2048,\"n_shared_experts\":1,\"n_group\":1,\"topk_group\":1,"
      "\"routed_scaling_factor\":2.5,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\"}",
      "glm-moe-dsa", 3,
      { SIZES(256, 8, 6144, 2048, 2048, 6144), .n_group = 1, .topk_group = 1, .routed_scale = 2.5f, .norm_topk = true },
      SIGMOID, 0, 0, MOXIE_NORM_SUM_PLUS_EPS, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"mimo_v2_flash\",\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"hidden_size\":4096,"
      "\"moe_intermediate_size\":2048,\"n_shared_experts\":null,\"n_group\":1,\"topk_group\":1,"
      "\"routed_scaling_factor\":null,\"norm_topk_prob\":true,\"moe_layer_freq\":[0,1,1],\"scoring_func\":\"sigmoid\"}",
      "mimo-v2", 1,
      { SIZES(256, 8, 4096, 2048, 0, 4096), .n_group = 1, .topk_group = 1, .routed_scale = 1, .norm_topk = true },
      SIGMOID, 0, 0, MOXIE_NORM_SUM_PLUS_EPS, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"minimax_m2\",\"num_local_experts\":256,\"num_experts_per_tok\":8,\"hidden_size\":3072,"
      "\"intermediate_size\":1536,\"scoring_func\":\"sigmoid\",\"use_routing_bias\":true,\"use_mtp\":true}",
      "minimax-m2", 0,
      { SIZES(256, 8, 3072, 1536, 0, 3072), .routed_scale = 1, .norm_topk = true },
      SIGMOID, 0, 0, MOXIE_NORM_SUM, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"minimax_m3\",\"text_config\":{\"num_local_experts\":128,\"num_experts_per_tok\":4,"
      "\"hidden_size\":6144,\"intermediate_size\":3072,\"n_shared_experts\":1,\"routed_scaling_factor\":2.0,"
      "\"hidden_act\":\"swigluoai\",\"swiglu_limit\":7.0}}",
      "minimax-m3", 3,
      { SIZES(128, 4, 6144, 3072, 3072, 6144), .routed_scale = 2, .norm_topk = true, .swiglu_limit = 7 },
      SIGMOID, 0, 0, MOXIE_NORM_SUM, MOXIE_ACT_SILU, 1.702f, 7 },
    { "{\"model_type\":\"gemma4\",\"text_config\":{\"enable_moe_block\":true,\"num_experts\":128,\"top_k_experts\":8,"
      "\"hidden_size\":2816,\"moe_intermediate_size\":704,\"intermediate_size\":2112,"
      "\"hidden_activation\":\"gelu_pytorch_tanh\"}}",
      "gemma4", 0,
      { SIZES(128, 8, 2816, 704, 0, 2816), .routed_scale = 1, .norm_topk = true },
      SOFTMAX, 0, 0, MOXIE_NORM_SUM, MOXIE_ACT_GELU_TANH, 0, 0 },
    { "{\"model_type\":\"ernie4_5_moe\",\"moe_num_experts\":64,\"moe_k\":6,\"hidden_size\":2560,"
      "\"moe_intermediate_size\":1536,\"moe_num_shared_experts\":2,\"moe_norm_min\":1e-12}",
      "ernie-4.5", 1,
      { SIZES(64, 6, 2560, 1536, 3072, 2560), .routed_scale = 1, .norm_topk = true },
      SOFTMAX, 0, 0, MOXIE_NORM_MAX_SUM_EPS, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"hunyuan_v1_moe\",\"num_experts\":64,\"moe_topk\":[8,4],\"hidden_size\":4096,"
      "\"moe_intermediate_size\":[3072,1024],\"num_shared_expert\":[1,2]}",
      "hunyuan", 1,
      { SIZES(64, 4, 4096, 1024, 2048, 4096), .routed_scale = 1, .norm_topk = true },
      SOFTMAX, 0, 0, MOXIE_NORM_MAX_SUM_EPS, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"granitemoe\",\"num_local_experts\":32,\"num_experts_per_tok\":8,\"hidden_size\":1024,"
      "\"intermediate_size\":512}",
      "granite", 0,
      { SIZES(32, 8, 1024, 512, MOX_SHARED_UNKNOWN, 1024), .routed_scale = 1 },
      MOXIE_SCORE_LOGIT, 0, MOXIE_WEIGHT_SOFTMAX_SELECTED, MOXIE_NORM_NONE, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"dbrx\",\"d_model\":6144,\"top_k\":50,\"ffn_config\":{\"moe_num_experts\":16,\"moe_top_k\":4,"
      "\"ffn_hidden_size\":10752,\"ffn_act_fn\":{\"name\":\"silu\"},\"moe_normalize_expert_weights\":1}}",
      "dbrx", 0,
      { SIZES(16, 4, 6144, 10752, 0, 6144), .routed_scale = 1, .norm_topk = true },
      SOFTMAX, 0, 0, MOXIE_NORM_SUM, MOXIE_ACT_SILU, 0, 0 },
    { "{\"model_type\":\"kimi_k3\",\"text_config\":{\"num_experts\":896,\"num_experts_per_token\":16,"
      "\"hidden_size\":7168,\"routed_expert_hidden_size\":3584,\"moe_intermediate_size\":3072,\"num_shared_experts\":2,"
      "\"num_expert_group\":1,\"moe_renormalize\":true,\"moe_router_activation_func\":\"sigmoid\","
      "\"routed_scaling_factor\":1.0,\"hidden_act\":\"situ\",\"activation_situ_beta\":4.0,"
      "\"activation_situ_linear_beta\":25.0}}",
      "kimi-k3", 1,
      { SIZES(896, 16, 7168, 3072, 6144, 3584), .n_group = 1, .topk_group = 1, .routed_scale = 1, .norm_topk = true },
      SIGMOID, 0, 0, MOXIE_NORM_SUM_PLUS_EPS, MOXIE_ACT_SITU, 4, 0 },
    { "{\"model_type\":\"step3p5\",\"moe_num_experts\":288,\"moe_top_k\":8,\"hidden_size\":4096,"
      "\"moe_intermediate_size\":1280,\"share_expert_dim\":1280,\"moe_router_scaling_factor\":3.0,"
      "\"norm_expert_weight\":true,\"swiglu_limits\":[0,7],\"swiglu_limits_shared\":[0,7]}",
      "step", 1,
      { SIZES(288, 8, 4096, 1280, 1280, 4096), .routed_scale = 3, .norm_topk = true },
      SIGMOID, 0, 0, MOXIE_NORM_SUM_PLUS_EPS, MOXIE_ACT_SWIGLU_STEP, 0, 7 },
};
/* clang-format on */

static void same_dims(const mox_dims *got, const mox_dims *want)
{
    assert_int_equal(got->experts, want->experts);
    assert_int_equal(got->top_k, want->top_k);
    assert_int_equal(got->hidden, want->hidden);
    assert_int_equal(got->intermediate, want->intermediate);
    assert_int_equal(got->shared_intermediate, want->shared_intermediate);
    assert_int_equal(got->expert_width, want->expert_width);
    assert_int_equal(got->n_group, want->n_group);
    assert_int_equal(got->topk_group, want->topk_group);
    assert_int_equal(got->n_hash_layers, want->n_hash_layers);
    assert_int_equal(got->norm_topk, want->norm_topk);
    assert_true(got->routed_scale == want->routed_scale);
    assert_true(got->swiglu_limit == want->swiglu_limit);
    assert_true(got->swiglu_alpha == want->swiglu_alpha);
}

static void configs_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        const config_case *want = &configs[i];
        moxie_error error = { 0 };
        json_t *config;
        const mox_family *family;
        const char *type;
        mox_dims dims;
        moxie_layer_config layer;
        print_message("%s\n", want->family);
        assert_ok(mox_json_parse(want->text, strlen(want->text), true, "config.json", &config, &error), &error);
        assert_ok(mox_config_family(config, "config.json", &family, &type, &error), &error);
        assert_string_equal(family->id, want->family);
        assert_ok(mox_config_layer(family, config, "config.json", want->layer, &dims, &layer, &error), &error);
        same_dims(&dims, &want->dims);
        assert_int_equal(layer.routing.score, want->score);
        assert_int_equal(layer.routing.select, want->select);
        assert_int_equal(layer.routing.weight, want->weight);
        assert_int_equal(layer.routing.norm, want->norm);
        assert_int_equal(layer.routing.on_input, strcmp(want->family, "llama4") == 0);
        assert_int_equal(layer.routing.n_group, want->dims.n_group > 1 ? want->dims.n_group : 0);
        assert_true(layer.routing.scale == want->dims.routed_scale);
        assert_int_equal(layer.activation.kind, want->act);
        assert_true(layer.activation.alpha == want->alpha);
        assert_true(layer.activation.gate_limit == want->gate_limit);
        assert_true(layer.activation.up_limit == want->gate_limit);
        assert_int_equal(layer.dtype, MOXIE_BF16);
        assert_ok(mox_model_config_check_text(want->text, strlen(want->text), &error), &error);
        json_decref(config);
    }
}

/* What is written is read back: sizes of every family, odd factors included. */
static void configs_are_written(void **state)
{
    (void)state;
    for (int32_t f = 0; mox_family_at(f); f++) {
        const mox_family *family = mox_family_at(f);
        print_message("%s\n", family->id);
        const bool shared = family->key_shared[0] != NULL;
        const bool llama = strcmp(family->id, "llama4") == 0;
        const bool groups = family->default_n_group != 0 || family->default_topk_method;
        const moxie_activation *act = &family->activation;
        const mox_dims want = { .layers = 9,
                                .experts = 32,
                                .top_k = 2,
                                .hidden = 256,
                                .intermediate = 128,
                                .shared_intermediate = !shared ? 0
                                                       : llama ? 128
                                                               : 256,
                                .expert_width = family->key_latent ? 64 : 256,
                                .vocab = 1000,
                                .n_hash_layers = family->names.table ? 3 : 0,
                                .n_group = groups ? 4 : 0,
                                .topk_group = groups ? 2 : 0,
                                .routed_scale = family->key_scale[0] ? 2.827f : 1,
                                .norm_topk = !family->norm_unclear,
                                .swiglu_limit = act->kind == MOXIE_ACT_SILU && act->gate_limit > 0 ? 6.5f : 0,
                                .swiglu_alpha = act->kind == MOXIE_ACT_SILU && act->alpha > 0 ? 1.25f : 0 };
        moxie_error error = { 0 };
        mox_dims got;
        moxie_layer_config layer;
        const mox_family *found;
        const char *type;
        json_t *config = mox_family_config_json(family, &want, NULL);
        assert_non_null(config);
        if (family->default_topk_method)
            assert_int_equal(json_object_set_new(config, "topk_method", json_string("group_limited_greedy")), 0);
        assert_ok(mox_config_family(config, "config.json", &found, &type, &error), &error);
        assert_ptr_equal(found, family);
        assert_ok(mox_config_layer(family, config, "config.json", 5, &got, &layer, &error), &error);
        mox_dims expect = want;
        expect.norm_topk = family->always_norm || (family->key_norm[0] && !family->norm_unclear);
        same_dims(&got, &expect);
        assert_int_equal(got.layers, 9);
        json_decref(config);
    }
}

static const struct {
    const char *text;
    moxie_status code;
    const char *says;
} bad_config[] = {
    { "{\"model_type\":\"llama\"}", MOXIE_ERR_UNSUPPORTED, "info --support" },
    { "{}", MOXIE_ERR_UNSUPPORTED, "(none)" },
    { "{\"model_type\":7}", MOXIE_ERR_FORMAT, "model_type" },
    { "{\"model_type\":\"olmoe\"}", MOXIE_ERR_FORMAT, "num_experts is missing" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":1000000000,\"num_experts_per_tok\":2}", MOXIE_ERR_UNSUPPORTED,
      "num_experts is 1000000000; the limit is 1024" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":-4}", MOXIE_ERR_FORMAT, "num_experts is -4" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":\"8\"}", MOXIE_ERR_FORMAT, "num_experts is a string" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":[]}", MOXIE_ERR_FORMAT, "num_experts is an empty" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":4,\"num_experts_per_tok\":5,\"intermediate_size\":8,"
      "\"hidden_size\":8}",
      MOXIE_ERR_FORMAT, "num_experts_per_tok is 5, but there are only 4 experts" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":64,\"num_experts_per_tok\":40}", MOXIE_ERR_UNSUPPORTED,
      "num_experts_per_tok is 40; the limit is 32" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":4,\"num_experts_per_tok\":2,\"intermediate_size\":8,"
      "\"hidden_size\":99999999999}",
      MOXIE_ERR_UNSUPPORTED, "hidden_size is 99999999999" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":4,\"num_experts_per_tok\":2,\"intermediate_size\":8,"
      "\"hidden_size\":8,\"hidden_act\":\"tanhshrink\"}",
      MOXIE_ERR_UNSUPPORTED, "tanhshrink" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":4,\"num_experts_per_tok\":2,\"intermediate_size\":8,"
      "\"hidden_size\":8,\"norm_topk_prob\":1}",
      MOXIE_ERR_FORMAT, "norm_topk_prob" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":4,\"num_experts_per_tok\":2,\"intermediate_size\":8,"
      "\"hidden_size\":8,\"scoring_func\":\"cosine\"}",
      MOXIE_ERR_UNSUPPORTED, "cosine" },
    { "{\"model_type\":\"deepseek_v3\",\"n_routed_experts\":10,\"num_experts_per_tok\":2,"
      "\"moe_intermediate_size\":8,\"hidden_size\":8,\"n_group\":4,\"topk_group\":2}",
      MOXIE_ERR_FORMAT, "4 groups" },
    { "{\"model_type\":\"deepseek_v3\",\"n_routed_experts\":16,\"num_experts_per_tok\":6,"
      "\"moe_intermediate_size\":8,\"hidden_size\":8,\"n_group\":4,\"topk_group\":1}",
      MOXIE_ERR_FORMAT, "4 groups" },
    { "{\"model_type\":\"deepseek_v3\",\"n_routed_experts\":16,\"num_experts_per_tok\":6,"
      "\"moe_intermediate_size\":8,\"hidden_size\":8,\"n_shared_experts\":1000000}",
      MOXIE_ERR_FORMAT, "n_shared_experts is 1000000" },
    { "{\"model_type\":\"dbrx\",\"d_model\":8,\"ffn_config\":{\"moe_num_experts\":4,\"moe_top_k\":2,"
      "\"ffn_hidden_size\":8,\"moe_normalize_expert_weights\":3}}",
      MOXIE_ERR_UNSUPPORTED, "norms of order 1 and 2" },
    { "{\"model_type\":\"step3p5\",\"moe_num_experts\":8,\"moe_top_k\":2,\"hidden_size\":8,"
      "\"moe_intermediate_size\":8,\"share_expert_dim\":8,\"swiglu_limits\":7,\"swiglu_limits_shared\":-16}",
      MOXIE_ERR_FORMAT, "swiglu_limits_shared is -16" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":4,\"num_experts_per_tok\":2,\"intermediate_size\":8,"
      "\"hidden_size\":8,\"torch_dtype\":\"float8_e4m3fn\"}",
      MOXIE_ERR_UNSUPPORTED, "torch_dtype is \"float8_e4m3fn\"; the hidden states may be bfloat16, float16" },
    { "{\"model_type\":\"olmoe\",\"num_experts\":4,\"num_experts_per_tok\":2,\"intermediate_size\":8,"
      "\"hidden_size\":8,\"dtype\":\"bf16\\u0007\"}",
      MOXIE_ERR_UNSUPPORTED, "dtype is \"bf16\\x07\"; the hidden" },
    { "{\"model_type\":\"olmoe\",", MOXIE_ERR_FORMAT, "" },
};

static void bad_configs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_config / sizeof bad_config[0]; i++) {
        moxie_error error = { 0 };
        print_message("%s\n", bad_config[i].text);
        assert_int_equal(mox_model_config_check_text(bad_config[i].text, strlen(bad_config[i].text), &error),
                         bad_config[i].code);
        if (!strstr(error.text, bad_config[i].says))
            fail_msg("\"%s\" does not say \"%s\"", error.text, bad_config[i].says);
        assert_non_null(strstr(error.file, "config.json"));
    }
}

/* The name of the routing method of a family, and its routing struct, must mean the same. */
static void recipes_match_their_names(void **state)
{
    (void)state;
    for (int32_t f = 0; mox_family_at(f); f++) {
        const mox_family *family = mox_family_at(f);
        moxie_routing named;
        moxie_error error = { 0 };
        assert_ok(moxie_routing_by_name(family->routing, &named, &error), &error);
        print_message("%s %s\n", family->id, family->routing);
        assert_int_equal(named.score, family->route.score);
        assert_int_equal(named.select, family->route.select);
        assert_int_equal(named.weight, family->route.weight);
        assert_int_equal(named.on_input, family->route.on_input);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_are_read),
        cmocka_unit_test(configs_are_written),
        cmocka_unit_test(bad_configs),
        cmocka_unit_test(recipes_match_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
