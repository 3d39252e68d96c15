/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of 2026: every field that config.json decides, for texts as the releases have them; keys whose meaning a
 * layer cannot compute, and the words that refuse them; checkpoints by hand with what older families do not have
 * (routers with rows of zero experts, a second bias). Expected values come from the model code that each case names.
 */
#include "hand_rules.h"

#include "ckpt/families/family_config.h"

#define SIGMOID MOXIE_SCORE_SIGMOID
#define SOFTMAX MOXIE_SCORE_SOFTMAX
#define PLUS    MOXIE_NORM_SUM_PLUS_EPS

typedef struct want_layer {
    const char *text, *family;
    int64_t layer, experts, top_k, hidden, intermediate, shared;
    int32_t score, weight, norm;
    float eps, scale;
    int32_t n_group, topk_group, fill_zero, zero_experts;
    float softcap;
    int32_t act;
    float limit;
} want_layer;

/* clang-format off */
static const want_layer layers[] = {
    /* longcat_flash/modeling_longcat_flash.py: LongcatFlashTopkRouter: softmax + bias, no normalisation, times 6 */
    { "{\"model_type\":\"longcat_flash\",\"n_routed_experts\":512,\"zero_expert_num\":256,\"zero_expert_type\":\"identity\","
      "\"num_layers\":28,\"hidden_size\":6144,\"ffn_hidden_size\":12288,\"expert_ffn_hidden_size\":2048,\"moe_topk\":12,"
      "\"routed_scaling_factor\":6.0}",
      "longcat-flash", 3, 512, 12, 6144, 2048, 0, SOFTMAX, 0, MOXIE_NORM_NONE, 0, 6, .zero_experts = 256 },
    /* its configuration class: 256 zero experts and factor 6 when the keys are absent */
    { "{\"model_type\":\"longcat_flash\",\"n_routed_experts\":512,\"hidden_size\":6144,\"expert_ffn_hidden_size\":2048,"
      "\"moe_topk\":12}",
      "longcat-flash", 3, 512, 12, 6144, 2048, 0, SOFTMAX, 0, MOXIE_NORM_NONE, 0, 6, .zero_experts = 256 },
    /* poolside/Laguna-XS.2-FP8 config.json; laguna/modeling_laguna.py: LagunaTopKRouter, LagunaSparseMoeBlock */
    { "{\"model_type\":\"laguna\",\"hidden_size\":2048,\"intermediate_size\":8192,\"num_experts\":256,"
      "\"num_experts_per_tok\":8,\"moe_intermediate_size\":512,\"shared_expert_intermediate_size\":512,"
      "\"moe_apply_router_weight_on_input\":false,\"moe_routed_scaling_factor\":2.5,\"torch_dtype\":\"bfloat16\"}",
      "laguna", 1, 256, 8, 2048, 512, 512, SIGMOID, 0, MOXIE_NORM_SUM, 0, 2.5f },
    { "{\"model_type\":\"laguna\",\"hidden_size\":2048,\"num_experts\":256,\"num_experts_per_tok\":8,"
      "\"moe_intermediate_size\":512,\"shared_expert_intermediate_size\":512,\"moe_router_logit_softcapping\":30.0}",
      "laguna", 1, 256, 8, 2048, 512, 512, SIGMOID, 0, MOXIE_NORM_SUM, 0, 1, .softcap = 30 },
    /* hy_v3/modeling_hy_v3.py: HYV3TopKRouter; vLLM models/hy_v3.py reads expert_hidden_dim and route_norm */
    { "{\"model_type\":\"hy_v3\",\"num_experts\":192,\"num_experts_per_tok\":8,\"num_shared_experts\":1,"
      "\"expert_hidden_dim\":1536,\"hidden_size\":4096,\"router_scaling_factor\":2.826,\"route_norm\":true,"
      "\"moe_router_enable_expert_bias\":true,\"moe_router_use_sigmoid\":true,\"enable_moe_fp32_combine\":false}",
      "hy-v3", 1, 192, 8, 4096, 1536, 1536, SIGMOID, 0, PLUS, 1e-20f, 2.826f },
    { "{\"model_type\":\"hy_v3\",\"num_experts\":192,\"num_experts_per_tok\":8,\"moe_intermediate_size\":1536,"
      "\"hidden_size\":4096,\"num_shared_experts\":1}",
      "hy-v3", 1, 192, 8, 4096, 1536, 1536, SIGMOID, 0, PLUS, 1e-20f, 2.826f },
    /* inclusionAI/Ling-mini-2.0 and Ling-lite-1.5, both "bailing_moe"; vLLM models/bailing_moe.py: BailingMoE */
    { "{\"model_type\":\"bailing_moe\",\"hidden_size\":2048,\"intermediate_size\":5120,\"moe_intermediate_size\":512,"
      "\"moe_shared_expert_intermediate_size\":512,\"num_shared_experts\":1,\"num_experts\":256,\"num_experts_per_tok\":8,"
      "\"n_group\":8,\"topk_group\":4,\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,\"score_function\":\"sigmoid\","
      "\"moe_router_enable_expert_bias\":true}",
      "bailing-moe", 1, 256, 8, 2048, 512, 512, SIGMOID, 0, PLUS, 1e-20f, 2.5f, 8, 4 },
    { "{\"model_type\":\"bailing_moe\",\"hidden_size\":2048,\"intermediate_size\":1408,\"moe_intermediate_size\":1408,"
      "\"num_experts\":64,\"num_shared_experts\":2,\"norm_topk_prob\":true,\"num_experts_per_tok\":6}",
      "bailing-moe", 1, 64, 6, 2048, 1408, 2816, SOFTMAX, 0, PLUS, 1e-20f, 1 },
    /* inclusionAI/Ling-3.0-flash; bailing_hybrid/modeling_bailing_hybrid.py: BailingHybridTopkRouter */
    { "{\"model_type\":\"bailing_hybrid\",\"hidden_size\":2560,\"num_experts\":512,\"num_experts_per_tok\":8,"
      "\"num_shared_experts\":1,\"moe_intermediate_size\":768,\"moe_shared_expert_intermediate_size\":768,"
      "\"routed_scaling_factor\":2.5,\"norm_topk_prob\":true,\"n_group\":8,\"topk_group\":4,"
      "\"expert_swiglu_limit_list\":[0,0,0,4],\"share_expert_swiglu_limit_list\":[0,0,0,4]}",
      "bailing-hybrid", 2, 512, 8, 2560, 768, 768, SIGMOID, 0, PLUS, 1e-20f, 2.5f, 8, 4 },
    /* the layer that the lists clamp: vLLM models/bailing_moe_v3.py: routed experts clamp the inputs of silu, the
     * shared expert its result (SwigluStepAndMul) */
    { "{\"model_type\":\"bailing_hybrid\",\"hidden_size\":2560,\"num_experts\":512,\"num_experts_per_tok\":8,"
      "\"num_shared_experts\":1,\"moe_intermediate_size\":768,\"n_group\":8,\"topk_group\":4,"
      "\"routed_scaling_factor\":2.5,\"expert_swiglu_limit_list\":[0,null,0,4],\"share_expert_swiglu_limit_list\":[0,0,0,4]}",
      "bailing-hybrid", 3, 512, 8, 2560, 768, 768, SIGMOID, 0, PLUS, 1e-20f, 2.5f, 8, 4, .limit = 4 },
    /* past the end of a list there is no limit; absent keys: the configuration class has 8 groups, 4 and 2.5 */
    { "{\"model_type\":\"bailing_hybrid\",\"hidden_size\":2560,\"num_experts\":512,\"num_experts_per_token\":8,"
      "\"moe_intermediate_size\":768,\"num_shared_experts\":2,\"expert_swiglu_limit_list\":[4]}",
      "bailing-hybrid", 3, 512, 8, 2560, 768, 1536, SIGMOID, 0, PLUS, 1e-20f, 2.5f, 8, 4 },
    /* mistral4/modeling_mistral4.py: Mistral4TopkRouter */
    { "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral4\",\"n_routed_experts\":128,"
      "\"num_experts_per_tok\":4,\"hidden_size\":4096,\"moe_intermediate_size\":2048,\"n_shared_experts\":1,\"n_group\":4,"
      "\"topk_group\":2,\"norm_topk_prob\":true,\"routed_scaling_factor\":1.0}}",
      "mistral4", 0, 128, 4, 4096, 2048, 2048, SOFTMAX, 0, PLUS, 1e-20f, 1, 4, 2, MOXIE_FILL_ZERO_KEY },
    /* cohere2_moe/modeling_cohere2_moe.py: Cohere2MoeTopKRouter, both ways */
    { "{\"model_type\":\"cohere2_moe\",\"num_experts\":8,\"num_experts_per_tok\":2,\"hidden_size\":64,"
      "\"intermediate_size\":32,\"num_shared_experts\":0}",
      "cohere2-moe", 0, 8, 2, 64, 32, 0, MOXIE_SCORE_LOGIT, MOXIE_WEIGHT_SOFTMAX_SELECTED, 0, 0, 1 },
    { "{\"model_type\":\"cohere2_moe\",\"num_experts\":8,\"num_experts_per_tok\":2,\"hidden_size\":64,"
      "\"intermediate_size\":32,\"num_shared_experts\":2,\"expert_selection_fn\":\"sigmoid\","
      "\"shared_expert_combination_strategy\":\"sum\"}",
      "cohere2-moe", 0, 8, 2, 64, 32, 64, MOXIE_SCORE_LOGIT, MOXIE_WEIGHT_SIGMOID_SELECTED, MOXIE_NORM_SUM, 0, 1 },
    /* vLLM models/arctic.py: ArcticMoE.local_moe_fused */
    { "{\"model_type\":\"arctic\",\"num_local_experts\":128,\"num_experts_per_tok\":2,\"hidden_size\":7168,"
      "\"intermediate_size\":4864,\"moe_layer_frequency\":2,\"use_residual\":true}",
      "arctic", 1, 128, 2, 7168, 4864, 0, SOFTMAX, 0, MOXIE_NORM_SUM, 0, 1 },
    /* the model's configuration class; vLLM models/openpangu.py: OpenPanguMoE */
    { "{\"model_type\":\"pangu_ultra_moe\",\"hidden_size\":7680,\"moe_intermediate_size\":2048,\"num_shared_experts\":1,"
      "\"num_routed_experts\":256,\"num_experts_per_tok\":8,\"routed_scaling_factor\":2.5,\"norm_topk_prob\":true}",
      "openpangu", 3, 256, 8, 7680, 2048, 2048, SIGMOID, 0, MOXIE_NORM_SUM, 0, 2.5f },
    /* aria/modeling_aria.py: AriaTextTopKRouter */
    { "{\"model_type\":\"aria\",\"text_config\":{\"model_type\":\"aria_text\",\"moe_num_experts\":64,\"moe_topk\":6,"
      "\"moe_num_shared_experts\":2,\"hidden_size\":2560,\"intermediate_size\":1664}}",
      "aria", 0, 64, 6, 2560, 1664, 3328, MOXIE_SCORE_LOGIT, MOXIE_WEIGHT_SOFTMAX_SELECTED, 0, 0, 1 },
    /* deepseek-ai/DeepSeek-V4.1-Flash config.json; vLLM models/deepseek_v4/nvidia/model.py: DeepseekV4MoE */
    { "{\"model_type\":\"deepseek_v41\",\"text_config\":{\"model_type\":\"deepseek_v41_text\",\"hidden_size\":5120,"
      "\"moe_intermediate_size\":2304,\"n_routed_experts\":384,\"n_shared_experts\":1,\"num_experts_per_tok\":6,"
      "\"scoring_func\":\"sqrtsoftplus\",\"topk_method\":\"noaux_tc\",\"norm_topk_prob\":true,\"routed_scaling_factor\":1.5,"
      "\"swiglu_limit\":10.0},\"vision_config\":{\"num_hidden_layers\":32}}",
      "deepseek-v4.1", 0, 384, 6, 5120, 2304, 2304, MOXIE_SCORE_SQRTSOFTPLUS, 0, PLUS, 1e-20f, 1.5f, .limit = 10 },
    /* zai-org/GLM-5.3-Flash config.json; glm5_next/modeling_glm5_next.py: Glm5NextTextTopkRouter */
    { "{\"model_type\":\"glm5_next\",\"text_config\":{\"model_type\":\"glm5_next_text\",\"hidden_size\":4096,"
      "\"moe_intermediate_size\":2048,\"n_routed_experts\":288,\"n_shared_experts\":1,\"num_experts_per_tok\":8,"
      "\"routed_scaling_factor\":2.5,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"norm_topk_prob\":true,"
      "\"n_group\":1,\"topk_group\":1,\"swiglu_limit\":10.0}}",
      "glm5-next", 3, 288, 8, 4096, 2048, 2048, SIGMOID, 0, PLUS, 1e-20f, 2.5f, .limit = 10 },
    /* its configuration class: factor 2.5 and limit 10 when the keys are absent */
    { "{\"model_type\":\"glm5_next_text\",\"hidden_size\":4096,\"moe_intermediate_size\":2048,\"n_routed_experts\":288,"
      "\"n_shared_experts\":1,\"num_experts_per_tok\":8}",
      "glm5-next", 3, 288, 8, 4096, 2048, 2048, SIGMOID, 0, PLUS, 1e-20f, 2.5f, .limit = 10 },
    /* sarvam_moe/configuration_sarvam_moe.py and sarvam_mla's, with the keys of the original files (attribute_map) */
    { "{\"model_type\":\"sarvam_moe\",\"num_experts\":128,\"num_experts_per_tok\":6,\"hidden_size\":4096,"
      "\"moe_intermediate_size\":1024,\"num_shared_experts\":1,\"score_function\":\"sigmoid\"}",
      "sarvam", 1, 128, 6, 4096, 1024, 1024, SIGMOID, 0, PLUS, 1e-20f, 2.5f },
    { "{\"model_type\":\"sarvam_mla\",\"n_routed_experts\":128,\"num_experts_per_tok\":8,\"hidden_size\":4096,"
      "\"moe_intermediate_size\":2048,\"n_shared_experts\":1,\"n_group\":16,\"topk_group\":2}",
      "sarvam", 1, 128, 8, 4096, 2048, 2048, SIGMOID, 0, PLUS, 1e-20f, 2.5f, 16, 2 },
    /* axk1/modeling_axk1.py: AXK1TopkRouter, with the defaults of its configuration class */
    { "{\"model_type\":\"axk1\",\"n_routed_experts\":192,\"num_experts_per_tok\":8,\"hidden_size\":7168,"
      "\"moe_intermediate_size\":2048,\"n_shared_experts\":1}",
      "axk1", 1, 192, 8, 7168, 2048, 2048, SIGMOID, 0, PLUS, 1e-20f, 2.5f, 8, 4 },
    /* kolibri1/modeling_kolibri1.py: Kolibri1TopKRouter, with the defaults of its configuration class */
    { "{\"model_type\":\"kolibri1\",\"num_local_experts\":384,\"num_experts_per_tok\":6,\"hidden_size\":2560,"
      "\"moe_intermediate_size\":512,\"shared_expert_intermediate_size\":512}",
      "kolibri", 0, 384, 6, 2560, 512, 512, MOXIE_SCORE_LOGIT, MOXIE_WEIGHT_SIGMOID_SELECTED, MOXIE_NORM_NONE, 0, 1 },
    { "{\"model_type\":\"kolibri1\",\"num_experts\":384,\"num_experts_per_tok\":6,\"hidden_size\":2560,"
      "\"moe_intermediate_size\":512,\"shared_expert_intermediate_size\":512,\"norm_topk_prob\":true}",
      "kolibri", 0, 384, 6, 2560, 512, 512, MOXIE_SCORE_LOGIT, MOXIE_WEIGHT_SIGMOID_SELECTED, MOXIE_NORM_SUM, 0, 1 },
    /* mistral_large4/modeling_mistral_large4.py: MistralLarge4TextTopkRouter */
    { "{\"model_type\":\"mistral_large4\",\"text_config\":{\"model_type\":\"mistral_large4_text\","
      "\"n_routed_experts\":128,\"num_experts_per_tok\":4,\"hidden_size\":6144,\"moe_intermediate_size\":6144,"
      "\"n_shared_experts\":1,\"n_group\":4,\"topk_group\":2,\"norm_topk_prob\":false}}",
      "mistral-large4", 1, 128, 4, 6144, 6144, 6144, SOFTMAX, 0, PLUS, 1e-20f, 1, 4, 2, MOXIE_FILL_ZERO_KEY },
    /* dots3_note/configuration_dots3_note.py: Dots3NoteTextConfig; without a width, the tensors tell it */
    { "{\"model_type\":\"dots3_note\",\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"hidden_size\":5120,"
      "\"moe_intermediate_size\":1536,\"n_shared_experts\":2,\"moe_shared_expert_intermediate_size\":1024}",
      "dots3-note", 1, 256, 8, 5120, 1536, 2048, SIGMOID, 0, PLUS, 1e-20f, 1 },
    { "{\"model_type\":\"dots3_note\",\"text_config\":{\"model_type\":\"dots3_note_text\",\"n_routed_experts\":256,"
      "\"num_experts_per_tok\":8,\"hidden_size\":5120,\"moe_intermediate_size\":1536,\"n_shared_experts\":1,"
      "\"shared_experts_intermediate_size\":1024,\"n_group\":4,\"topk_group\":2}}",
      "dots3-note", 1, 256, 8, 5120, 1536, 1024, SIGMOID, 0, PLUS, 1e-20f, 1, 4, 2 },
    { "{\"model_type\":\"dots3_note\",\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"hidden_size\":5120,"
      "\"moe_intermediate_size\":1536,\"n_shared_experts\":1}",
      "dots3-note", 1, 256, 8, 5120, 1536, MOX_SHARED_UNKNOWN, SIGMOID, 0, PLUS, 1e-20f, 1 },
    /* openai_privacy_filter/modeling_openai_privacy_filter.py: OpenAIPrivacyFilterTopKRouter */
    { "{\"model_type\":\"openai_privacy_filter\",\"num_local_experts\":128,\"num_experts_per_tok\":4,"
      "\"hidden_size\":640,\"intermediate_size\":640}",
      "privacy-filter", 0, 128, 4, 640, 640, 0, MOXIE_SCORE_LOGIT, MOXIE_WEIGHT_SOFTMAX_SELECTED, MOXIE_NORM_NONE, 0, 1,
      .limit = 7 },
    /* jetmoe/modeling_jetmoe.py: JetMoeTopKGating */
    { "{\"model_type\":\"jetmoe\",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"hidden_size\":2048,"
      "\"intermediate_size\":5632,\"activation_function\":\"gelu\"}",
      "jetmoe", 0, 8, 2, 2048, 5632, 0, MOXIE_SCORE_LOGIT, MOXIE_WEIGHT_SOFTMAX_SELECTED, MOXIE_NORM_NONE, 0, 1,
      .act = MOXIE_ACT_GELU_ERF },
    /* Qwen3.8-Flash-Next; qwen4_exp/modeling_qwen4_exp.py: Qwen4ExpTextTopKRouter */
    { "{\"model_type\":\"qwen4_exp\",\"text_config\":{\"model_type\":\"qwen4_exp_text\",\"hidden_size\":2560,"
      "\"num_experts\":512,\"num_experts_per_tok\":10,\"moe_intermediate_size\":640,"
      "\"shared_expert_intermediate_size\":640}}",
      "qwen4-exp", 0, 512, 10, 2560, 640, 640, SOFTMAX, 0, MOXIE_NORM_SUM, 0, 1 },
    /* mellum/modeling_mellum.py: MellumTopKRouter */
    { "{\"model_type\":\"mellum\",\"num_local_experts\":64,\"num_experts_per_tok\":8,\"hidden_size\":2304,"
      "\"moe_intermediate_size\":896}",
      "mellum", 0, 64, 8, 2304, 896, 0, SOFTMAX, 0, MOXIE_NORM_SUM, 0, 1 },
    /* exaone_moe/modeling_exaone_moe.py: ExaoneMoeTopkRouter, with the defaults of its configuration class */
    { "{\"model_type\":\"exaone_moe\",\"num_experts\":64,\"num_experts_per_tok\":8,\"hidden_size\":1024,"
      "\"moe_intermediate_size\":512,\"num_shared_experts\":2}",
      "exaone-moe", 1, 64, 8, 1024, 512, 1024, SIGMOID, 0, PLUS, 1e-20f, 2.5f },
    /* flint/modeling_flint.py: FlintTopKRouter */
    { "{\"model_type\":\"flint\",\"num_experts\":256,\"num_experts_per_tok\":6,\"hidden_size\":1024,"
      "\"moe_intermediate_size\":512,\"shared_expert_intermediate_size\":1024}",
      "flint", 0, 256, 6, 1024, 512, 1024, SIGMOID, 0, MOXIE_NORM_SUM, 0, 1 },
    /* beam/modeling_beam.py: BeamTopKRouter, with the defaults of its configuration class */
    { "{\"model_type\":\"beam\",\"num_experts\":256,\"num_experts_per_tok\":8,\"hidden_size\":1024,"
      "\"moe_intermediate_size\":512}",
      "beam", 0, 256, 8, 1024, 512, 0, SIGMOID, 0, PLUS, 1e-20f, 2.5f, 8, 4 },
};
/* clang-format on */

static void same_layer(const want_layer *want, const mox_dims *dims, const moxie_layer_config *got)
{
    const moxie_routing *r = &got->routing;
    assert_int_equal(dims->experts, want->experts);
    assert_int_equal(dims->top_k, want->top_k);
    assert_int_equal(dims->hidden, want->hidden);
    assert_int_equal(dims->intermediate, want->intermediate);
    assert_int_equal(dims->shared_intermediate, want->shared);
    assert_int_equal(r->select, MOXIE_SELECT_TOPK);
    assert_int_equal(r->score, want->score);
    assert_int_equal(r->weight, want->weight);
    assert_int_equal(r->norm, want->norm);
    assert_true(r->norm_eps == want->eps);
    assert_true(r->scale == want->scale);
    assert_int_equal(r->n_group, want->n_group);
    assert_int_equal(r->topk_group, want->topk_group);
    assert_int_equal(r->group_score, MOXIE_GROUP_TOP2_SUM);
    assert_int_equal(r->group_fill_zero, want->fill_zero);
    assert_int_equal(r->zero_experts, want->zero_experts);
    assert_int_equal(r->zero_kind, MOXIE_ZERO_IDENTITY);
    assert_true(r->softcap == want->softcap);
    assert_int_equal(r->on_input, 0);
    assert_int_equal(got->activation.kind, want->act);
    assert_true(got->activation.gate_limit == want->limit);
    assert_true(got->activation.up_limit == want->limit);
}

static void configs_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        const want_layer *want = &layers[i];
        moxie_error error = { 0 };
        json_t *config;
        const mox_family *family;
        const char *type;
        mox_dims dims;
        moxie_layer_config layer;
        print_message("%s\n", want->text);
        assert_ok(mox_json_parse(want->text, strlen(want->text), true, "config.json", &config, &error), &error);
        assert_ok(mox_config_family(config, "config.json", &family, &type, &error), &error);
        assert_string_equal(family->id, want->family);
        assert_ok(mox_config_layer(family, config, "config.json", want->layer, &dims, &layer, &error), &error);
        same_layer(want, &dims, &layer);
        json_decref(config);
    }
}

/* Ling-3.0-flash: some layers clamp the shared expert alone, some also the routed ones, by another formula. */
static void limits_of_ling(void **state)
{
    (void)state;
    static const char text[] = "{\"model_type\":\"bailing_hybrid\",\"num_experts\":16,\"hidden_size\":8,"
                               "\"moe_intermediate_size\":8,\"num_experts_per_tok\":2,\"num_shared_experts\":1,"
                               "\"expert_swiglu_limit_list\":[0,0,4],\"share_expert_swiglu_limit_list\":[null,5,4]}";
    static const float limits[4][2] = { { 0, 0 }, { 0, 5 }, { 4, 4 }, { 0, 0 } };
    moxie_error error = { 0 };
    json_t *config;
    assert_ok(mox_json_parse(text, strlen(text), true, "config.json", &config, &error), &error);
    for (int i = 0; i < 4; i++) {
        mox_dims dims;
        moxie_layer_config got;
        assert_ok(mox_config_layer(mox_family_by_id("bailing-hybrid"), config, "config.json", i, &dims, &got, &error),
                  &error);
        assert_true(got.activation.kind == MOXIE_ACT_SILU && got.activation.gate_limit == limits[i][0]);
        assert_true(got.activation.up_limit == limits[i][0]);
        assert_int_equal(got.has_shared_activation, limits[i][1] > 0);
        assert_int_equal(got.shared_activation.kind, limits[i][1] > 0 ? MOXIE_ACT_SWIGLU_STEP : MOXIE_ACT_SILU);
        assert_true(got.shared_activation.gate_limit == limits[i][1] && got.shared_activation.up_limit == limits[i][1]);
    }
    json_decref(config);
}

/* AriaExperts has silu, AriaSharedExpertsMLP has hidden_act. */
static void activations_of_aria(void **state)
{
    (void)state;
    static const char text[] = "{\"model_type\":\"aria_text\",\"moe_num_experts\":8,\"moe_topk\":2,\"hidden_size\":8,"
                               "\"intermediate_size\":8,\"moe_num_shared_experts\":1,\"hidden_act\":\"gelu\"}";
    moxie_error error = { 0 };
    moxie_layer_config got;
    mox_dims dims;
    json_t *config;
    assert_ok(mox_json_parse(text, strlen(text), true, "config.json", &config, &error), &error);
    assert_ok(mox_config_layer(mox_family_by_id("aria"), config, "config.json", 0, &dims, &got, &error), &error);
    assert_int_equal(got.activation.kind, MOXIE_ACT_SILU);
    assert_int_equal(got.has_shared_activation, 1);
    assert_int_equal(got.shared_activation.kind, MOXIE_ACT_GELU_ERF);
    json_decref(config);
}

#define LONGCAT                                                                                                        \
    "{\"model_type\":\"longcat_flash\",\"n_routed_experts\":4,\"hidden_size\":8,\"expert_ffn_hidden_size\":8,"         \
    "\"moe_topk\":2,"
#define LAGUNA                                                                                                         \
    "{\"model_type\":\"laguna\",\"num_experts\":4,\"hidden_size\":8,\"moe_intermediate_size\":8,"                      \
    "\"num_experts_per_tok\":2,"
#define LING                                                                                                           \
    "{\"model_type\":\"bailing_hybrid\",\"num_experts\":16,\"hidden_size\":8,\"moe_intermediate_size\":8,"             \
    "\"num_experts_per_tok\":2,\"num_shared_experts\":1,"
#define SMALL                                                                                                          \
    "{\"model_type\":\"smallthinker\",\"moe_num_primary_experts\":4,\"moe_num_active_primary_experts\":2,"             \
    "\"hidden_size\":8,\"moe_ffn_hidden_size\":8"
#define COHERE                                                                                                         \
    "{\"model_type\":\"cohere2_moe\",\"num_experts\":4,\"hidden_size\":8,\"intermediate_size\":8,"                     \
    "\"num_experts_per_tok\":2,\"num_shared_experts\":1"

static const struct {
    const char *text;
    moxie_status code;
    const char *says;
} refused[] = {
    { LONGCAT "\"zero_expert_type\":\"drop\"}", MOXIE_ERR_UNSUPPORTED, "zero_expert_type is \"drop\"" },
    { LONGCAT "\"zero_expert_num\":-1}", MOXIE_ERR_FORMAT, "zero_expert_num is -1" },
    { LONGCAT "\"zero_expert_num\":1021}", MOXIE_ERR_FORMAT, "zero_expert_num is 1021" },
    { LONGCAT "\"norm_topk_prob\":true}", MOXIE_ERR_UNSUPPORTED, "norm_topk_prob is true" },
    { LAGUNA "\"moe_apply_router_weight_on_input\":true}", MOXIE_ERR_UNSUPPORTED, "moe_apply_router_weight_on_input" },
    { LAGUNA "\"moe_router_use_sigmoid\":false}", MOXIE_ERR_UNSUPPORTED, "moe_router_use_sigmoid is false" },
    { LAGUNA "\"norm_topk_prob\":false}", MOXIE_ERR_UNSUPPORTED, "norm_topk_prob is false" },
    { "{\"model_type\":\"hy_v3\",\"num_experts\":4,\"num_experts_per_tok\":2,\"expert_hidden_dim\":8,\"hidden_size\":8,"
      "\"moe_router_use_sigmoid\":false}",
      MOXIE_ERR_UNSUPPORTED, "moe_router_use_sigmoid is false" },
    { "{\"model_type\":\"hy_v3\",\"num_experts\":4,\"num_experts_per_tok\":2,\"expert_hidden_dim\":8,\"hidden_size\":8,"
      "\"moe_intermediate_size\":16}",
      MOXIE_ERR_FORMAT, "expert_hidden_dim is 8, but moe_intermediate_size is 16" },
    { LING "\"score_function\":\"cosine\"}", MOXIE_ERR_UNSUPPORTED, "score_function is \"cosine\"" },
    { LING "\"score_function\":\"softmax\"}", MOXIE_ERR_UNSUPPORTED, "score_function is \"softmax\"" },
    { LING "\"moe_router_enable_routed_scaling\":false}", MOXIE_ERR_UNSUPPORTED, "moe_router_enable_routed_scaling" },
    { "{\"model_type\":\"bailing_hybrid\",\"num_experts\":10,\"hidden_size\":8,\"moe_intermediate_size\":8,"
      "\"num_experts_per_tok\":2}",
      MOXIE_ERR_FORMAT, "10 experts" },
    { "{\"model_type\":\"bailing_moe\",\"num_experts\":16,\"hidden_size\":8,\"moe_intermediate_size\":8,"
      "\"num_experts_per_tok\":2,\"n_group\":4,\"topk_group\":2}",
      MOXIE_ERR_UNSUPPORTED, "n_group is 4 with score_function softmax" },
    { COHERE ",\"shared_expert_combination_strategy\":\"product\"}", MOXIE_ERR_UNSUPPORTED,
      "shared_expert_combination_strategy is \"product\"" },
    { COHERE ",\"expert_selection_fn\":\"relu\"}", MOXIE_ERR_UNSUPPORTED, "expert_selection_fn is \"relu\"" },
    { "{\"model_type\":\"inkling_mm_model\",\"text_config\":{\"model_type\":\"inkling_text\"}}", MOXIE_ERR_UNSUPPORTED,
      "\"inkling_mm_model\" is refused: its router also scores the shared experts" },
    { "{\"model_type\":\"inkling2\"}", MOXIE_ERR_UNSUPPORTED, "\"inkling2\" is refused: its experts cap the gate" },
    { "{\"model_type\":\"inkling2_loop\"}", MOXIE_ERR_UNSUPPORTED, "\"inkling2_loop\" is refused: its experts cap" },
    { "{\"model_type\":\"zaya\"}", MOXIE_ERR_UNSUPPORTED, "\"zaya\" is refused: its router is an MLP" },
    { "{\"model_type\":\"doge\"}", MOXIE_ERR_UNSUPPORTED, "\"doge\" is refused: its experts are single rows" },
    { "{\"model_type\":\"switch_transformers\"}", MOXIE_ERR_UNSUPPORTED, "is refused: its experts drop the tokens" },
    { "{\"model_type\":\"nllb-moe\"}", MOXIE_ERR_UNSUPPORTED, "is refused: its experts drop the tokens" },
    { SMALL ",\"moe_enable_secondary_experts\":true}", MOXIE_ERR_UNSUPPORTED, "no secondary experts" },
    { SMALL ",\"moe_shared_primary_experts\":1}", MOXIE_ERR_UNSUPPORTED, "no shared experts" },
    { SMALL ",\"moe_primary_router_apply_softmax\":1}", MOXIE_ERR_FORMAT, "neither true nor false" },
    { "{\"model_type\":\"grok-1\"}", MOXIE_ERR_UNSUPPORTED, "gelu" },
};

static void what_is_not_understood_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        moxie_error error = { 0 };
        print_message("%s\n", refused[i].text);
        assert_int_equal(mox_model_config_check_text(refused[i].text, strlen(refused[i].text), &error),
                         refused[i].code);
        if (!strstr(error.text, refused[i].says))
            fail_msg("\"%s\" does not say \"%s\"", error.text, refused[i].says);
    }
}

/* ---- checkpoints --------------------------------------------------------------------------------- */

static void add_experts(hand_checkpoint *c, const char *root, const char *const names[3])
{
    char name[128];
    for (int e = 0; e < 2; e++)
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%s.%d.%s.weight", root, e, names[i]);
            hand_add2(c, name, MOXIE_BF16, i < 2 ? 8 : 16, i < 2 ? 16 : 8);
        }
}

static const char *const w132[3] = { "w1", "w3", "w2" };

#define LONGCAT_LAYER "model.layers.3.mlp."

/* LongcatFlashExperts: gate_up_proj has rows for zero experts, so transformers saves gate and up of them. Only theirs
 * are not missed. */
static void gates_of_zero_experts_are_not_read(void **state)
{
    (void)state;
    static const char *const names[] = { LONGCAT_LAYER "experts.2.gate_proj.weight",
                                         LONGCAT_LAYER "experts.4.up_proj.weight",
                                         LONGCAT_LAYER "experts.5.up_proj.weight" };
    for (int i = 0; i < 3; i++) {
        hand_checkpoint c;
        moxie_error error = { 0 };
        hand_open(&c);
        hand_add2(&c, LONGCAT_LAYER "router.classifier.weight", MOXIE_F32, 5, 16);
        hand_add2(&c, LONGCAT_LAYER "router.e_score_correction_bias", MOXIE_F32, 5, -1);
        add_experts(&c, LONGCAT_LAYER "experts", projections);
        hand_add2(&c, names[i], MOXIE_BF16, 8, 16);
        hand_write(&c, "{\"model_type\":\"longcat_flash\",\"n_routed_experts\":2,\"moe_topk\":2,\"hidden_size\":16,"
                       "\"expert_ffn_hidden_size\":8,\"zero_expert_num\":3}");
        assert_int_equal(hand_try(&c, 3, &error), i < 2 ? MOXIE_OK : MOXIE_ERR_UNSUPPORTED);
        assert_true(i < 2 || strstr(error.text, names[i]));
        hand_close(&c);
    }
}

/* LongcatFlashTopkRouter: 2 experts, 3 zero experts: 5 rows and 5 entries. */
static void routers_have_rows_of_zero_experts(void **state)
{
    (void)state;
    for (int64_t rows = 5; rows >= 2; rows -= 3) {
        hand_checkpoint c;
        moxie_error error = { 0 };
        hand_open(&c);
        hand_add2(&c, "model.layers.3.mlp.router.classifier.weight", MOXIE_F32, rows, 16);
        float *bias = hand_add2(&c, "model.layers.3.mlp.router.e_score_correction_bias", MOXIE_F32, 5, -1);
        for (int i = 0; i < 5; i++)
            bias[i] = (float)i / 4;
        add_experts(&c, "model.layers.3.mlp.experts", projections);
        hand_write(&c, "{\"model_type\":\"longcat_flash\",\"n_routed_experts\":2,\"moe_topk\":2,\"hidden_size\":16,"
                       "\"expert_ffn_hidden_size\":8,\"zero_expert_num\":3}");
        if (rows == 5) {
            hand_model m = hand_load(&c, 3, MOXIE_ACTIVATIONS_CHECKPOINT);
            assert_int_equal(m.config->experts, 2);
            assert_int_equal(m.config->routing.zero_experts, 3);
            assert_int_equal(m.weights->router.codes.rows, 5);
            for (int i = 0; i < 5; i++)
                assert_true(m.config->routing.bias[i] == (float)i / 4);
            hand_unload(&m);
        } else {
            assert_int_equal(hand_try(&c, 3, &error), MOXIE_ERR_MISMATCH);
            assert_non_null(strstr(error.text, "[5, 16]"));
        }
        hand_close(&c);
    }
}

/* DeepseekV4MoE: with vision_config, every router has bias and bias_vl. */
static void image_tokens_have_a_bias_of_their_own(void **state)
{
    (void)state;
    for (int with = 0; with < 2; with++) {
        hand_checkpoint c;
        moxie_error error = { 0 };
        hand_open(&c);
        hand_add2(&c, "layers.3.ffn.gate.weight", MOXIE_F32, 2, 16);
        float *bias = hand_add2(&c, "layers.3.ffn.gate.bias", MOXIE_F32, 2, -1);
        bias[0] = 1, bias[1] = 2;
        if (with) {
            bias = hand_add2(&c, "layers.3.ffn.gate.bias_vl", MOXIE_F32, 2, -1);
            bias[0] = 3, bias[1] = 4;
        }
        add_experts(&c, "layers.3.ffn.experts", w132);
        hand_write(&c, "{\"model_type\":\"deepseek_v41\",\"text_config\":{\"n_routed_experts\":2,\"hidden_size\":16,"
                       "\"num_experts_per_tok\":2,\"moe_intermediate_size\":8,\"routed_scaling_factor\":1.5},"
                       "\"vision_config\":{\"num_hidden_layers\":32}}");
        if (with) {
            hand_model m = hand_load(&c, 3, MOXIE_ACTIVATIONS_CHECKPOINT);
            assert_true(m.config->routing.bias[0] == 1 && m.config->routing.bias[1] == 2);
            assert_true(m.config->routing.bias_alt[0] == 3 && m.config->routing.bias_alt[1] == 4);
            hand_unload(&m);
        } else {
            assert_int_equal(hand_try(&c, 3, &error), MOXIE_ERR_FORMAT);
            assert_non_null(strstr(error.text, "layers.3.ffn.gate.bias_vl is absent"));
        }
        hand_close(&c);
    }
}

/* DeepSeek-V4-Flash-Vision: image tokens do not take the table of a hash layer. */
static void a_table_may_have_a_second_bias(void **state)
{
    (void)state;
    hand_checkpoint c;
    hand_open(&c);
    hand_add2(&c, "layers.0.ffn.gate.weight", MOXIE_F32, 2, 16);
    hand_add2(&c, "layers.0.ffn.gate.tid2eid", MOXIE_I64, 4, 1);
    float *bias = hand_add2(&c, "layers.0.ffn.gate.bias_vl", MOXIE_F32, 2, -1);
    bias[0] = 3, bias[1] = 4;
    add_experts(&c, "layers.0.ffn.experts", w132);
    hand_write(&c,
               "{\"model_type\":\"deepseek_v4\",\"n_routed_experts\":2,\"hidden_size\":16,\"num_experts_per_tok\":1,"
               "\"moe_intermediate_size\":8,\"num_hash_layers\":1,\"vision_n_layers\":32,"
               "\"routed_scaling_factor\":1.5}");
    hand_model m = hand_load(&c, 0, MOXIE_ACTIVATIONS_CHECKPOINT);
    assert_int_equal(m.config->routing.select, MOXIE_SELECT_TABLE);
    assert_int_equal(m.config->routing.table_rows, 4);
    assert_true(m.config->routing.bias_alt[0] == 3 && m.config->routing.bias_alt[1] == 4);
    hand_unload(&m);
    hand_close(&c);
}

/* Routers whose code always has the bias: without it the choice would be another one. */
static void an_absent_bias_is_refused(void **state)
{
    (void)state;
    hand_checkpoint c;
    moxie_error error = { 0 };
    hand_open(&c);
    hand_add2(&c, "model.layers.1.mlp.gate.weight", MOXIE_F32, 2, 16);
    add_experts(&c, "model.layers.1.mlp.experts", projections);
    hand_write(&c, "{\"model_type\":\"laguna\",\"num_experts\":2,\"num_experts_per_tok\":1,\"hidden_size\":16,"
                   "\"moe_intermediate_size\":8}");
    assert_int_equal(hand_try(&c, 1, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "e_score_correction_bias is absent"));
    hand_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_are_read),
        cmocka_unit_test(limits_of_ling),
        cmocka_unit_test(activations_of_aria),
        cmocka_unit_test(what_is_not_understood_is_refused),
        cmocka_unit_test(gates_of_zero_experts_are_not_read),
        cmocka_unit_test(routers_have_rows_of_zero_experts),
        cmocka_unit_test(image_tokens_have_a_bias_of_their_own),
        cmocka_unit_test(a_table_may_have_a_second_bias),
        cmocka_unit_test(an_absent_bias_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
