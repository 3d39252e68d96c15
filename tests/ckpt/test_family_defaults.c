/* SPDX-License-Identifier: Apache-2.0
 *
 * test_family_defaults.c - keys of config.json that are absent, null, spelled otherwise, or contradict another:
 *     absent      what the model's configuration class in transformers 5.23 says, by hand, for every model_type
 *     dropped     a config with all keys, and the same without one: equal, or refused
 *     null        what the model's code does with None: a value, or refused
 *     spellings   attribute_map of the class: every spelling is read, two that differ are refused
 */
#include "test_support.h"

#include "ckpt/families/family_config.h"

/* ---- absent ----------------------------------------------------------------------------------------- */

#define QWEN    "\"hidden_size\":64,\"num_experts\":16,\"num_experts_per_tok\":4,\"moe_intermediate_size\":32"
#define OLMOE   "\"hidden_size\":64,\"num_experts\":16,\"num_experts_per_tok\":4,\"intermediate_size\":32"
#define MIXTRAL "\"hidden_size\":64,\"num_local_experts\":16,\"num_experts_per_tok\":4,\"intermediate_size\":32"
#define DEEP    "\"hidden_size\":64,\"n_routed_experts\":16,\"num_experts_per_tok\":4,\"moe_intermediate_size\":32"
#define ERNIE   "\"hidden_size\":64,\"moe_num_experts\":16,\"moe_k\":4,\"moe_intermediate_size\":32"
#define KIMI    "\"hidden_size\":64,\"num_experts\":16,\"num_experts_per_token\":4,\"moe_intermediate_size\":32"
#define K3      ",\"num_expert_group\":1,\"routed_scaling_factor\":1"
#define GEMMA   "\"hidden_size\":64,\"num_experts\":16,\"top_k_experts\":4,\"moe_intermediate_size\":32"
#define DBRX    "\"d_model\":64,\"ffn_config\":{\"moe_num_experts\":16,\"moe_top_k\":4,\"ffn_hidden_size\":32}"
#define LONGCAT "\"hidden_size\":64,\"n_routed_experts\":16,\"moe_topk\":4,\"expert_ffn_hidden_size\":32"
#define ARIA    "\"hidden_size\":64,\"moe_num_experts\":16,\"moe_topk\":4,\"intermediate_size\":32"
#define MUSE    "\"hidden_size\":64,\"num_local_experts\":16,\"num_experts_per_tok\":4,\"moe_intermediate_size\":32"
#define SMALL                                                                                                          \
    "\"hidden_size\":64,\"moe_num_primary_experts\":16,\"moe_num_active_primary_experts\":4,\"moe_ffn_hidden_size\":"  \
    "32"
#define STEP "\"hidden_size\":64,\"n_routed_experts\":16,\"num_experts_per_tok\":4,\"moe_intermediate_size\":32"

enum { LOGIT = MOXIE_SCORE_LOGIT, SOFTMAX = MOXIE_SCORE_SOFTMAX, SIGMOID = MOXIE_SCORE_SIGMOID };
enum { NONE = MOXIE_NORM_NONE, PLUS_EPS = MOXIE_NORM_SUM_PLUS_EPS, SUM = MOXIE_NORM_SUM };
enum { SILU = MOXIE_ACT_SILU, UNKNOWN = MOX_SHARED_UNKNOWN };

/* Of a model_type whose config.json has sizes only. scale 0: the layer is refused. */
static const struct {
    const char *model_type, *sizes;
    int32_t score, norm;
    float eps, scale;
    int32_t n_group, topk_group, shared, act;
    float alpha, beta, limit;
} absent[] = {
    { "gpt_oss", MIXTRAL, LOGIT, NONE, 0, 1, 0, 0, 0, SILU, 1.702f, 1, 7 },
    { "qwen3_moe", QWEN, SOFTMAX, NONE, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "qwen3_omni_moe", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "qwen3_omni_moe_thinker", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "qwen3_omni_moe_text", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "qwen3_vl_moe", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "qwen3_vl_moe_text", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "qwen2_moe", QWEN, SOFTMAX, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "qwen3_next", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "qwen3_5_moe", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "qwen3_5_moe_text", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "olmoe", OLMOE, SOFTMAX, NONE, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "flex_olmo", OLMOE, SOFTMAX, NONE, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "mixtral", MIXTRAL, SOFTMAX, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "minimax", MIXTRAL, SOFTMAX, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "phimoe", MIXTRAL, LOGIT, NONE, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "minimax_m2", MIXTRAL, SIGMOID, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "minimax_m3", MIXTRAL, SIGMOID, SUM, 0, 2, 0, 0, UNKNOWN, SILU, 1.702f, 1, 7 },
    { "minimax_m3_vl", MIXTRAL, SIGMOID, SUM, 0, 2, 0, 0, UNKNOWN, SILU, 1.702f, 1, 7 },
    { "minimax_m3_text", MIXTRAL, SIGMOID, SUM, 0, 2, 0, 0, UNKNOWN, SILU, 1.702f, 1, 7 },
    { "minimax_m3_vl_text", MIXTRAL, SIGMOID, SUM, 0, 2, 0, 0, UNKNOWN, SILU, 1.702f, 1, 7 },
    { "deepseek_v2", DEEP, SOFTMAX, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "deepseek_ocr2", DEEP, SOFTMAX, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "deepseek_ocr2_text", DEEP, SOFTMAX, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "unlimited_ocr", DEEP, SOFTMAX, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "unlimited_ocr_text", DEEP, SOFTMAX, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "deepseek_v3", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 8, 4, UNKNOWN, SILU, 0, 0, 0 },
    { "deepseek_v32", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 8, 4, UNKNOWN, SILU, 0, 0, 0 },
    { "kimi_k2", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 8, 4, UNKNOWN, SILU, 0, 0, 0 },
    { "kimi_k25", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 8, 4, UNKNOWN, SILU, 0, 0, 0 },
    { "deepseek_v4", DEEP, MOXIE_SCORE_SQRTSOFTPLUS, PLUS_EPS, 1e-20f, 1.5f, 0, 0, UNKNOWN, SILU, 0, 0, 10 },
    { "glm4_moe", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "glm4v_moe", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "glm4v_moe_text", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "glm4_moe_lite", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 1.8f, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "glm_moe_dsa", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "mimo_v2_flash", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "mimo_v2", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "step3p5", STEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "step3p7", STEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "step3p5_text", STEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "step3p7_text", STEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "nemotron_h", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, MOXIE_ACT_RELU2_NO_MUL, 0, 0, 0 },
    { "kimi_k3", KIMI, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "kimi_linear", KIMI, SIGMOID, PLUS_EPS, 1e-20f, 2.446f, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "llama4", MIXTRAL, LOGIT, NONE, 0, 1, 0, 0, 32, SILU, 0, 0, 0 },
    { "llama4_text", MIXTRAL, LOGIT, NONE, 0, 1, 0, 0, 32, SILU, 0, 0, 0 },
    { "ernie4_5_moe", ERNIE, SOFTMAX, MOXIE_NORM_MAX_SUM_EPS, 1e-12f, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "ernie4_5_vl_moe", ERNIE, SOFTMAX, MOXIE_NORM_MAX_SUM_EPS, 1e-12f, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "ernie4_5_vl_moe_text", ERNIE, SOFTMAX, MOXIE_NORM_MAX_SUM_EPS, 1e-12f, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "hunyuan_v1_moe", OLMOE, SOFTMAX, MOXIE_NORM_MAX_SUM_EPS, 0x1p-23f, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "hunyuan", OLMOE, SOFTMAX, MOXIE_NORM_MAX_SUM_EPS, 0x1p-23f, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "gemma4", GEMMA, SOFTMAX, SUM, 0, 1, 0, 0, 0, MOXIE_ACT_GELU_TANH, 0, 0, 0 },
    { "gemma4_text", GEMMA, SOFTMAX, SUM, 0, 1, 0, 0, 0, MOXIE_ACT_GELU_TANH, 0, 0, 0 },
    { "diffusion_gemma", GEMMA, SOFTMAX, SUM, 0, 1, 0, 0, 0, MOXIE_ACT_GELU_TANH, 0, 0, 0 },
    { "diffusion_gemma_text", GEMMA, SOFTMAX, SUM, 0, 1, 0, 0, 0, MOXIE_ACT_GELU_TANH, 0, 0, 0 },
    { "granitemoe", MIXTRAL, LOGIT, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "granitemoeshared", MIXTRAL, LOGIT, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "granitemoehybrid", MIXTRAL, LOGIT, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "granitemoe_swa", MIXTRAL, LOGIT, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "dbrx", DBRX, SOFTMAX, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "jamba", OLMOE, SOFTMAX, NONE, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "dots1", DEEP, SIGMOID, NONE, 0, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "solar_open", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "lfm2_moe", QWEN, SIGMOID, PLUS_EPS, 1e-6f, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "afmoe", QWEN, SIGMOID, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "muse_spark", MUSE, SIGMOID, PLUS_EPS, 1e-15f, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "muse_spark_text", MUSE, SIGMOID, PLUS_EPS, 1e-15f, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "longcat_flash", LONGCAT, SOFTMAX, NONE, 0, 6, 0, 0, 0, SILU, 0, 0, 0 },
    { "longcat_flash_ngram", LONGCAT, SOFTMAX, NONE, 0, 6, 0, 0, 0, SILU, 0, 0, 0 },
    { "laguna", QWEN, SIGMOID, SUM, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "hy_v3", QWEN, SIGMOID, PLUS_EPS, 1e-20f, 2.826f, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    /* no class in transformers: vLLM reads the key, and without it Ling 1's softmax */
    { "bailing_moe", QWEN, SOFTMAX, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "bailing_moe_v2", QWEN, SOFTMAX, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "bailing_moe_linear", QWEN, SOFTMAX, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "bailing_hybrid", QWEN, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 8, 4, UNKNOWN, SILU, 0, 0, 0 },
    { "mistral4", DEEP, SOFTMAX, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "hy_v4", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.827f, 1, 1, UNKNOWN, SILU, 0, 0, 10 },
    { "hy_v4_vl", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.827f, 1, 1, UNKNOWN, SILU, 0, 0, 10 },
    { "hy_v4_vl_text", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.827f, 1, 1, UNKNOWN, SILU, 0, 0, 10 },
    { "smallthinker", SMALL, LOGIT, SUM, 0, 1, 0, 0, 0, MOXIE_ACT_RELU, 0, 0, 0 },
    { "cohere2_moe", OLMOE, LOGIT, NONE, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "arctic", MIXTRAL, SOFTMAX, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "pangu_ultra_moe", DEEP, SIGMOID, SUM, 0, 2.5f, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "aria", ARIA, LOGIT, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "aria_text", ARIA, LOGIT, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    /* no class in transformers: the factor must be there */
    { "deepseek_v41", DEEP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "deepseek_v41_text", DEEP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
    { "glm5_next", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 1, 1, UNKNOWN, SILU, 0, 0, 10 },
    { "glm5_next_text", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 1, 1, UNKNOWN, SILU, 0, 0, 10 },
    { "lara_mini", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "axk2", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "sarvam_moe", QWEN, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "sarvam_mla", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "axk1", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 8, 4, UNKNOWN, SILU, 0, 0, 0 },
    { "kolibri1", QWEN, LOGIT, NONE, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "mistral_large4", DEEP, SOFTMAX, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "mistral_large4_text", DEEP, SOFTMAX, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "dots3_note", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "dots3_note_text", DEEP, SIGMOID, PLUS_EPS, 1e-20f, 1, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "openai_privacy_filter", MIXTRAL, LOGIT, NONE, 0, 1, 0, 0, 0, SILU, 1.702f, 1, 7 },
    { "jetmoe", MIXTRAL, LOGIT, NONE, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "qwen4_exp", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "qwen4_exp_text", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "mellum", QWEN, SOFTMAX, SUM, 0, 1, 0, 0, 0, SILU, 0, 0, 0 },
    { "exaone_moe", QWEN, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 1, 1, UNKNOWN, SILU, 0, 0, 0 },
    { "flint", QWEN, SIGMOID, SUM, 0, 1, 0, 0, UNKNOWN, SILU, 0, 0, 0 },
    { "beam", QWEN, SIGMOID, PLUS_EPS, 1e-20f, 2.5f, 8, 4, 0, SILU, 0, 0, 0 },
};
#define N_ABSENT (sizeof absent / sizeof absent[0])

typedef struct result {
    mox_dims dims;
    moxie_layer_config layer;
    moxie_error error;
} result;

static moxie_status read_json(const json_t *config, result *out)
{
    const mox_family *family;
    const char *type;
    memset(out, 0, sizeof *out);
    const moxie_status status = mox_config_family(config, "config.json", &family, &type, &out->error);
    return status == MOXIE_OK ? mox_config_layer(family, config, "config.json", 1, &out->dims, &out->layer, &out->error)
                              : status;
}

/* The layer of a config.json with this model_type, sizes and further keys. */
static moxie_status read_text(const char *model_type, const char *sizes, const char *more, result *out)
{
    char text[900];
    json_t *config;
    moxie_error error = { 0 };
    snprintf(text, sizeof text, "{\"model_type\":\"%s\",%s%s}", model_type, sizes, more);
    assert_ok(mox_json_parse(text, strlen(text), true, "config.json", &config, &error), &error);
    const moxie_status status = read_json(config, out);
    json_decref(config);
    return status;
}

static void absent_keys_take_the_class_defaults(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ABSENT; i++) {
        result got;
        const moxie_status status = read_text(absent[i].model_type, absent[i].sizes, "", &got);
        print_message("%s\n", absent[i].model_type);
        if (absent[i].scale == 0) {
            assert_int_equal(status, MOXIE_ERR_FORMAT);
            assert_non_null(strstr(got.error.text, "is missing"));
            continue;
        }
        assert_ok(status, &got.error);
        assert_int_equal(got.layer.routing.score, absent[i].score);
        assert_int_equal(got.layer.routing.norm, absent[i].norm);
        assert_true(got.layer.routing.norm_eps == absent[i].eps);
        assert_true(got.layer.routing.scale == absent[i].scale);
        assert_int_equal(got.dims.n_group, absent[i].n_group);
        assert_int_equal(got.dims.topk_group, absent[i].topk_group);
        assert_int_equal(got.layer.routing.n_group, absent[i].n_group > 1 ? absent[i].n_group : 0);
        assert_int_equal(got.dims.shared_intermediate, absent[i].shared);
        assert_int_equal(got.dims.intermediate, 32);
        assert_int_equal(got.dims.expert_width, 64);
        assert_int_equal(got.layer.activation.kind, absent[i].act);
        assert_true(got.layer.activation.alpha == absent[i].alpha && got.layer.activation.beta == absent[i].beta);
        assert_true(got.layer.activation.gate_limit == absent[i].limit);
        assert_true(got.layer.activation.up_limit == absent[i].limit);
        assert_true(got.layer.routing.jitter == (strcmp(absent[i].model_type, "phimoe") == 0 ? 0.01f : 0));
    }
}

static void every_model_type_is_here(void **state)
{
    (void)state;
    for (int32_t f = 0; mox_family_at(f); f++)
        for (int s = 0; s < MOX_MAX_SPELLINGS && mox_family_at(f)->model_types[s]; s++) {
            bool found = false;
            for (size_t i = 0; i < N_ABSENT; i++)
                found = found || strcmp(absent[i].model_type, mox_family_at(f)->model_types[s]) == 0;
            if (!found)
                fail_msg("the defaults of %s are not listed here", mox_family_at(f)->model_types[s]);
        }
}

/* The routers of DeepSeek-V2 and Mistral 4 set the keys of dropped groups to 0; in all others they become -inf. */
static void dropped_groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ABSENT; i++) {
        result got;
        const bool v2 = strcmp(mox_family_by_model_type(absent[i].model_type)->id, "deepseek-v2") == 0;
        /* Ling's softmax has no groups */
        if ((absent[i].n_group == 0 && !v2) || strncmp(absent[i].model_type, "bailing_moe", 11) == 0)
            continue;
        assert_ok(read_text(absent[i].model_type, absent[i].sizes,
                            v2 ? ",\"n_group\":4,\"topk_group\":2,\"topk_method\":\"group_limited_greedy\""
                               : ",\"n_group\":4,\"topk_group\":2",
                            &got),
                  &got.error);
        assert_int_equal(got.layer.routing.n_group, 4);
        const bool key = strncmp(absent[i].model_type, "mistral", 7) == 0 || strcmp(absent[i].model_type, "axk2") == 0;
        assert_int_equal(got.layer.routing.group_fill_zero, v2 ? MOXIE_FILL_ZERO : key ? MOXIE_FILL_ZERO_KEY : 0);
    }
}

/* ---- dropped ---------------------------------------------------------------------------------------- */

/* 0 in dims.swiglu_limit stands for the family's value, so the activations are compared. */
static bool same_but_shared(const result *a, const result *b)
{
    const mox_dims *x = &a->dims, *y = &b->dims;
    const moxie_routing *r = &a->layer.routing, *q = &b->layer.routing;
    const moxie_activation *g = &a->layer.activation, *h = &b->layer.activation;
    const bool shared = x->shared_intermediate == y->shared_intermediate || x->shared_intermediate == UNKNOWN;
    return shared && x->experts == y->experts && x->top_k == y->top_k && x->hidden == y->hidden &&
           x->intermediate == y->intermediate && x->expert_width == y->expert_width && r->score == q->score &&
           r->norm == q->norm && r->norm_eps == q->norm_eps && r->scale == q->scale && r->jitter == q->jitter &&
           r->n_group == q->n_group && r->topk_group == q->topk_group && g->kind == h->kind && g->alpha == h->alpha &&
           g->beta == h->beta && g->gate_limit == h->gate_limit && g->up_limit == h->up_limit;
}

/* Keys that say how many layers, words or routed-by-table layers there are: the tensors say it too. */
static bool is_count(const char *key)
{
    static const char *const keys[] = { "num_hidden_layers", "vocab_size", "num_hash_layers" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return strcmp(key, "moe_latent_size") == 0 || strcmp(key, "routed_expert_hidden_size") == 0;
}

/* Drops each key of `section` in turn. Without score_function, Ling 1 and 2 score by softmax (absent[]). */
static void drop_each(const mox_family *family, const json_t *config, json_t *section, const result *whole)
{
    const bool ling = strcmp(family->id, "bailing-moe") == 0;
    const char *key;
    json_t *value;
    json_t *keys = json_copy(section);
    json_object_foreach(keys, key, value)
    {
        result got;
        if (is_count(key) || (ling && strcmp(key, "score_function") == 0) || json_is_object(value) ||
            strcmp(key, "model_type") == 0)
            continue;
        json_object_del(section, key);
        if (read_json(config, &got) == MOXIE_OK && !same_but_shared(&got, whole))
            fail_msg("without %s, the layer is another one", key);
        assert_int_equal(json_object_set(section, key, value), 0);
    }
    json_decref(keys);
}

/* A config with the default of every key: without any one of them, nothing changes, or the layer is refused. */
static void dropping_a_default_changes_nothing(void **state)
{
    (void)state;
    for (int32_t f = 0; mox_family_at(f); f++) {
        const mox_family *family = mox_family_at(f);
        const bool groups = family->default_n_group > 0;
        const moxie_activation *act = &family->activation;
        /* the class of Command A+ has none by default */
        const bool shared = family->names.shared_down && strcmp(family->id, "cohere2-moe") != 0;
        const bool swiglu = act->kind == MOXIE_ACT_SILU;
        const mox_dims dims = { .layers = 4,
                                .experts = 16,
                                .top_k = 4,
                                .hidden = 64,
                                .intermediate = 32,
                                .shared_intermediate = shared ? 32 : 0,
                                .expert_width = 64,
                                .vocab = 100,
                                .n_group = groups ? family->default_n_group : 0,
                                .topk_group = groups ? family->default_topk_group : 0,
                                .routed_scale = family->key_scale[0] ? family->default_scale : 1,
                                .norm_topk = family->default_norm || family->always_norm,
                                .swiglu_limit = swiglu ? act->gate_limit : 0,
                                .swiglu_alpha = swiglu ? act->alpha : 0 };
        result whole;
        json_t *config = mox_family_config_json(family, &dims, NULL);
        print_message("%s\n", family->id);
        if (family->key_scale[0] && family->default_scale == 0)
            assert_int_equal(json_object_set_new(config, family->key_scale[0], json_real(1)), 0);
        if (family->default_n_group == MOX_REQUIRED)
            assert_int_equal(json_object_set_new(config, "n_group", json_integer(1)), 0);
        assert_ok(read_json(config, &whole), &whole.error);
        json_t *thinker = json_object_get(config, "thinker_config");
        json_t *section = json_object_get(thinker ? thinker : config, "text_config");
        drop_each(family, config, section ? section : config, &whole);
        if (json_object_get(config, "ffn_config"))
            drop_each(family, config, json_object_get(config, "ffn_config"), &whole);
        json_decref(config);
    }
}

/* ---- null, contradictions, spellings ---------------------------------------------------------------- */

static const struct {
    const char *model_type, *sizes, *more;
    moxie_status code;
    const char *says;
} refused[] = {
    { "deepseek_v3", DEEP, ",\"routed_scaling_factor\":null", MOXIE_ERR_UNSUPPORTED, "routed_scaling_factor is null" },
    { "deepseek_v3", DEEP, ",\"routed_scaling_factor\":0", MOXIE_ERR_FORMAT, "routed_scaling_factor is 0" },
    { "glm4_moe", DEEP, ",\"n_group\":null", MOXIE_ERR_UNSUPPORTED, "n_group is null" },
    { "axk2", DEEP, ",\"n_group\":4,\"topk_group\":null", MOXIE_ERR_UNSUPPORTED, "topk_group is null" },
    { "deepseek_v3", DEEP, ",\"topk_group\":null", MOXIE_ERR_UNSUPPORTED, "topk_group is null" },
    { "kimi_linear", KIMI, ",\"num_expert_group\":null", MOXIE_ERR_UNSUPPORTED, "num_expert_group is null" },
    { "kimi_k3", KIMI, K3 ",\"hidden_act\":\"situ\",\"activation_situ_beta\":4", MOXIE_ERR_FORMAT, "linear_beta" },
    { "kimi_k3", KIMI, K3 ",\"hidden_act\":\"situ\",\"activation_situ_linear_beta\":25", MOXIE_ERR_FORMAT,
      "situ_beta" },
    { "kimi_k3", KIMI, K3 ",\"activation_situ_beta\":4,\"activation_situ_linear_beta\":25", MOXIE_ERR_FORMAT,
      "hidden_act" },
    { "gpt_oss", MIXTRAL, ",\"swiglu_limit\":null", MOXIE_ERR_UNSUPPORTED, "swiglu_limit is null" },
    { "deepseek_v4", DEEP, ",\"swiglu_limit\":0", MOXIE_ERR_UNSUPPORTED, "swiglu_limit is 0" },
    { "gpt_oss", MIXTRAL, ",\"swiglu_alpha\":-1", MOXIE_ERR_UNSUPPORTED, "swiglu_alpha is -1" },
    { "qwen3_moe", QWEN, ",\"swiglu_limit\":7", MOXIE_ERR_UNSUPPORTED, "qwen3-moe model has none" },
    { "deepseek_v4", DEEP, ",\"swiglu_alpha\":1.5", MOXIE_ERR_UNSUPPORTED, "deepseek-v4 model has none" },
    { "qwen3_moe", QWEN, ",\"n_group\":4,\"topk_group\":2", MOXIE_ERR_UNSUPPORTED, "no groups of experts" },
    { "deepseek_v3", DEEP, ",\"topk_method\":\"greedy\"", MOXIE_ERR_UNSUPPORTED, "topk_method is \"greedy\"" },
    { "deepseek_v2", DEEP, ",\"n_group\":4,\"topk_group\":2,\"topk_method\":\"noaux_tc\"", MOXIE_ERR_UNSUPPORTED,
      "expected \"greedy\" or \"group_limited_greedy\"" },
    { "deepseek_v2", DEEP, ",\"n_group\":4,\"topk_method\":\"group_limited_greedy\"", MOXIE_ERR_FORMAT,
      "4 groups with 0 selected" },
    { "deepseek_v2", DEEP, ",\"topk_method\":\"group_limited_greedy\"", MOXIE_ERR_FORMAT, "n_group is missing" },
    { "deepseek_v2", DEEP, ",\"n_group\":1,\"topk_method\":\"noaux_tc\"", MOXIE_ERR_UNSUPPORTED, "noaux_tc" },
    { "deepseek_v2", DEEP, ",\"topk_method\":null", MOXIE_ERR_UNSUPPORTED, "topk_method is null" },
    { "deepseek_v2", DEEP, ",\"norm_topk_prob\":true", MOXIE_ERR_UNSUPPORTED, "disagree" },
    { "qwen3_moe", QWEN, ",\"hidden_act\":null", MOXIE_ERR_UNSUPPORTED, "hidden_act is null" },
    { "step3p7", STEP, ",\"hidden_act\":\"gelu\"", MOXIE_ERR_UNSUPPORTED, "only silu" },
    { "deepseek_v4", DEEP, ",\"scoring_func\":null", MOXIE_ERR_UNSUPPORTED, "scoring_func is null" },
    { "ernie4_5_moe", ERNIE, ",\"moe_norm_min\":null", MOXIE_ERR_UNSUPPORTED, "moe_norm_min is null" },
    { "phimoe", MIXTRAL, ",\"router_jitter_noise\":null", MOXIE_ERR_UNSUPPORTED, "router_jitter_noise is null" },
    { "phimoe", MIXTRAL, ",\"router_jitter_noise\":0", MOXIE_ERR_UNSUPPORTED, "router_jitter_noise is 0" },
    { "deepseek_v4", DEEP, ",\"hidden_act\":\"gelu\"", MOXIE_ERR_UNSUPPORTED, "clamp the inputs" },
    { "qwen3_moe", QWEN, ",\"hidden_act\":\"swigluoai\"", MOXIE_ERR_UNSUPPORTED, "hidden_act is \"swigluoai\"" },
    { "qwen3_moe", QWEN, ",\"hidden_act\":\"quick_gelu\"", MOXIE_ERR_UNSUPPORTED, "quick_gelu" },
    { "qwen3_moe", QWEN, ",\"num_local_experts\":32", MOXIE_ERR_FORMAT,
      "num_experts is 16, but num_local_experts is 32" },
    { "step3p7", STEP, ",\"moe_top_k\":2", MOXIE_ERR_FORMAT, "they mean the same" },
    { "ernie4_5_vl_moe", "\"hidden_size\":64,\"moe_num_experts\":16,\"moe_k\":4,\"moe_intermediate_size\":[0,16]", "",
      MOXIE_ERR_FORMAT, "moe_intermediate_size starts with 0" },
};

static void nonsense_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        result got;
        const moxie_status status = read_text(refused[i].model_type, refused[i].sizes, refused[i].more, &got);
        print_message("%s %s\n", refused[i].model_type, refused[i].more);
        assert_int_equal(status, refused[i].code);
        if (!strstr(got.error.text, refused[i].says))
            fail_msg("\"%s\" does not say \"%s\"", got.error.text, refused[i].says);
    }
}

static void nulls_that_mean_something(void **state)
{
    (void)state;
    result got;
    assert_ok(read_text("mimo_v2_flash", DEEP, ",\"routed_scaling_factor\":null", &got), &got.error);
    assert_true(got.layer.routing.scale == 1);
    assert_ok(read_text("axk2", DEEP, ",\"n_group\":null,\"topk_group\":null", &got), &got.error);
    assert_int_equal(got.layer.routing.n_group, 0);
    assert_ok(read_text("deepseek_v2", DEEP, ",\"n_group\":null,\"topk_group\":null", &got), &got.error);
    assert_int_equal(got.layer.routing.n_group, 0);
    /* a family without groups does not read the key */
    assert_ok(read_text("hunyuan", OLMOE, ",\"n_group\":null,\"topk_group\":null", &got), &got.error);
    assert_int_equal(got.layer.routing.n_group, 0);
    assert_ok(read_text("deepseek_v3", DEEP, ",\"norm_topk_prob\":null", &got), &got.error);
    assert_int_equal(got.layer.routing.norm, MOXIE_NORM_NONE);
    assert_ok(read_text("deepseek_v3", DEEP, ",\"n_shared_experts\":null", &got), &got.error);
    assert_int_equal(got.dims.shared_intermediate, 0);
    assert_ok(read_text("step3p7", STEP, ",\"swiglu_limits\":null,\"share_expert_dim\":48", &got), &got.error);
    assert_true(got.layer.activation.kind == MOXIE_ACT_SILU && got.dims.shared_intermediate == 48);
    /* lists of limits: an entry, null, and an index past the end */
    assert_ok(read_text("step3p7", STEP, ",\"swiglu_limits\":[7,5],\"swiglu_limits_shared\":[7,5]", &got), &got.error);
    assert_true(got.layer.activation.kind == MOXIE_ACT_SWIGLU_STEP && got.layer.activation.up_limit == 5);
    assert_ok(read_text("step3p7", STEP, ",\"swiglu_limits\":[7,null]", &got), &got.error);
    assert_int_equal(got.layer.activation.kind, MOXIE_ACT_SILU);
    assert_ok(read_text("step3p7", STEP, ",\"swiglu_limits\":[7]", &got), &got.error);
    assert_int_equal(got.layer.activation.kind, MOXIE_ACT_SILU);
}

static void values_are_read(void **state)
{
    (void)state;
    result got;
    assert_ok(read_text("gpt_oss", MIXTRAL, ",\"swiglu_alpha\":1.25,\"swiglu_limit\":5", &got), &got.error);
    assert_true(got.layer.activation.alpha == 1.25f && got.layer.activation.beta == 1);
    assert_true(got.layer.activation.gate_limit == 5 && got.layer.activation.up_limit == 5);
    assert_ok(read_text("minimax_m3_vl", MIXTRAL, ",\"shared_intermediate_size\":48,\"swiglu_alpha\":2", &got),
              &got.error);
    assert_true(got.dims.shared_intermediate == 48 && got.layer.activation.alpha == 2);
    assert_ok(read_text("minimax_m3", MIXTRAL, ",\"n_shared_experts\":2", &got), &got.error);
    assert_int_equal(got.dims.shared_intermediate, 64);
    /* text first, images second; a shared expert is for both, in the width of the text's experts */
    assert_ok(read_text("ernie4_5_vl_moe",
                        "\"hidden_size\":64,\"moe_num_experts\":16,\"moe_k\":4,\"moe_intermediate_size\":[32,16]",
                        ",\"moe_num_shared_experts\":2", &got),
              &got.error);
    assert_true(got.dims.intermediate == 32 && got.dims.shared_intermediate == 64);
    /* DeepSeek-V4 normalises whatever the key says */
    assert_ok(read_text("deepseek_v4", DEEP, ",\"norm_topk_prob\":false", &got), &got.error);
    assert_int_equal(got.layer.routing.norm, MOXIE_NORM_SUM_PLUS_EPS);
    /* the thinker's section comes first */
    assert_ok(read_text("qwen3_omni_moe", "\"thinker_config\":{\"text_config\":{" QWEN "}}",
                        ",\"talker_config\":{\"text_config\":{\"num_experts\":4}}", &got),
              &got.error);
    assert_int_equal(got.dims.experts, 16);
}

/* attribute_map: the other spellings of the number of experts and of K, which transformers writes or accepts. */
static void spellings(void **state)
{
    (void)state;
    static const struct {
        const char *model_type, *sizes;
    } rows[] = {
        { "gpt_oss", OLMOE },    { "qwen3_moe", MIXTRAL }, { "qwen3_vl_moe", MIXTRAL }, { "olmoe", MIXTRAL },
        { "mixtral", OLMOE },    { "minimax", OLMOE },     { "minimax_m2", OLMOE },     { "minimax_m3_vl", OLMOE },
        { "deepseek_v2", QWEN }, { "hunyuan", MIXTRAL },   { "ernie4_5_moe", QWEN },    { "kimi_linear", QWEN },
        { "jamba", MIXTRAL },    { "flex_olmo", MIXTRAL },
    };
    static const char *const deep[] = { "deepseek_v3", "deepseek_v32",  "deepseek_v4",   "glm4_moe",   "glm4v_moe",
                                        "glm_moe_dsa", "glm4_moe_lite", "mimo_v2_flash", "nemotron_h", "dots1",
                                        "solar_open",  "step3p7",       "kimi_k2",       "kimi_linear" };
    result got;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        /* both names of the width: some have a dense width besides */
        const bool both = !strstr(rows[i].sizes, "moe_intermediate_size");
        print_message("%s\n", rows[i].model_type);
        assert_ok(read_text(rows[i].model_type, rows[i].sizes, both ? ",\"moe_intermediate_size\":32" : "", &got),
                  &got.error);
        assert_true(got.dims.experts == 16 && got.dims.top_k == 4 && got.dims.intermediate == 32);
    }
    for (size_t i = 0; i < sizeof deep / sizeof deep[0]; i++) {
        print_message("%s\n", deep[i]);
        assert_ok(read_text(deep[i], MIXTRAL, ",\"moe_intermediate_size\":32", &got), &got.error);
        assert_true(got.dims.experts == 16 && got.dims.top_k == 4);
    }
    assert_ok(read_text("kimi_linear", QWEN, ",\"n_group\":4,\"topk_group\":2,\"norm_topk_prob\":false", &got),
              &got.error);
    assert_true(got.layer.routing.n_group == 4 && got.layer.routing.norm == MOXIE_NORM_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_keys_take_the_class_defaults),
        cmocka_unit_test(every_model_type_is_here),
        cmocka_unit_test(dropped_groups),
        cmocka_unit_test(dropping_a_default_changes_nothing),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(nulls_that_mean_something),
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(spellings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
