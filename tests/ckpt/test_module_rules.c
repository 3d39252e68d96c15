/* SPDX-License-Identifier: Apache-2.0
 *
 * Which part of a quantization configuration holds for a module, as compressed-tensors, Model Optimizer, Quark and
 * GPTQModel choose it; and the activations that experts get where attention's group comes first.
 */
#include "test_support.h"

#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/formats/module_rules.h"
#include "ckpt/json.h"

#define EXPERT "model.layers.3.mlp.experts.0."
#define UP     EXPERT "up_proj"

static json_t *parse(const char *text)
{
    json_t *json = NULL;
    moxie_error error = { 0 };
    assert_ok(mox_json_parse(text, strlen(text), true, "config.json", &json, &error), &error);
    return json;
}

#define CT(groups)           "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{" groups "}}"
#define GROUP(name, targets) "\"" name "\":{\"id\":\"" name "\",\"targets\":[" targets "]}"
#define MIXED(layers)                                                                                                  \
    "{\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{" layers "}}"
#define QUARK(layers)                                                                                                  \
    "{\"quant_method\":\"quark\",\"global_quant_config\":{\"id\":\"all\"},\"layer_quant_config\":{" layers "}}"
#define GPTQ(rules) "{\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{" rules "}}"

typedef struct choice_case {
    const char *config, *module;
    bool stacked;
    const char *id; /* of what is chosen; NULL: the configuration itself; "-": nothing */
} choice_case;

/* clang-format off */
static const choice_case choices[] = {
    { CT(GROUP("a", "\"Linear\"")), UP, false, "a" },
    /* names before patterns before classes, whatever the order of the groups */
    { CT(GROUP("a", "\"Linear\"") "," GROUP("b", "\"re:.*experts.*\"")), UP, false, "b" },
    { CT(GROUP("a", "\"re:.*experts.*\"") "," GROUP("b", "\"" UP "\"")), UP, false, "b" },
    { CT(GROUP("a", "\"re:.*self_attn.*\"") "," GROUP("b", "\"Linear\"")), UP, false, "b" },
    { CT(GROUP("a", "\"re:.*self_attn.*\"")), UP, false, "-" },
    /* patterns in the order of their text */
    { CT(GROUP("a", "\"re:.*up_proj\"") "," GROUP("b", "\"re:.*experts.*\"")), UP, false, "b" },
    /* a target in two groups belongs to the later one */
    { CT(GROUP("a", "\"Linear\"") "," GROUP("b", "\"Linear\"")), UP, false, "b" },
    /* re.match begins at the start of the name; names are whole */
    { CT(GROUP("a", "\"re:experts\"") "," GROUP("b", "\"up_proj\"")), UP, false, "-" },
    { CT(GROUP("a", "\"re:.*(gate|up)_proj$\"") "," GROUP("b", "\"re:.*down_proj$\"")), EXPERT "down_proj", false, "b" },
    { CT(GROUP("a", "\"re:model.language_model.layers.*experts.*\"")), "language_model.model.layers.0.mlp.experts.0.up_proj",
      false, "a" },
    /* a stacked tensor is its expert 0 */
    { CT(GROUP("a", "\"re:.*experts\\\\.0\\\\.gate_proj\"")), "model.layers.3.mlp.experts.gate_up_proj", true, "a" },
    { CT(GROUP("a", "\"Conv2d\"")), UP, false, "-" },
    { CT(""), UP, false, "-" },
    { "{\"quant_method\":\"compressed-tensors\"}", UP, false, NULL },
    { MIXED("\"" UP "\":{\"id\":\"a\"}"), UP, false, "a" },
    { MIXED("\"" UP "\":{\"id\":\"a\"},\"" EXPERT "down_proj\":{\"id\":\"b\"}"), EXPERT "down_proj", false, "b" },
    { MIXED("\"model.layers.3.mlp.experts\":{\"id\":\"a\"}"), UP, false, "a" },
    { MIXED("\"model.layers.30.mlp.experts\":{\"id\":\"a\"}"), UP, false, "-" },
    { MIXED("\"model.layers.3.mlp.experts.1.up_proj\":{\"id\":\"a\"}"), UP, false, "-" },
    { MIXED("\"model.layers.3.mlp.experts.0.gate_proj\":{\"id\":\"a\"}"), "model.layers.3.mlp.experts.gate_up_proj", true, "a" },
    { "{\"quant_method\":\"fp8\",\"moe_quant_algo\":\"NVFP4\",\"quant_algo\":\"MIXED_PRECISION\"}", UP, false, NULL },
    { QUARK("\"*self_attn*\":{\"id\":\"a\"},\"*experts*\":{\"id\":\"b\"},\"*up_proj\":{\"id\":\"c\"}"), UP, false, "b" },
    { QUARK("\"*experts\":{\"id\":\"b\"}"), UP, false, NULL },
    { QUARK("\"" UP "\":{\"id\":\"a\"}"), UP, false, "a" },
    { QUARK("\"re:.*experts\":{\"id\":\"a\"}"), UP, false, NULL }, /* fullmatch */
    { GPTQ("\"-:.*attn.*\":{},\"+:.*experts.*\":{\"id\":\"a\"},\".*up_proj\":{\"id\":\"b\"}"), UP, false, "a" },
    { GPTQ("\".*up_proj\":{\"id\":\"b\"}"), UP, false, "b" },
    { GPTQ("\"-:.*experts.*\":{},\"+:.*up_proj\":{\"id\":\"b\"}"), UP, false, NULL },
    { "{\"quant_method\":\"fp8\"}", UP, false, NULL },
};
/* clang-format on */

static void chosen_as_the_libraries_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        const choice_case *want = &choices[i];
        json_t *config = parse(want->config);
        mox_arena arena = { 0 };
        mox_module_rules rules;
        mox_module_choice got;
        moxie_error error = { 0 };
        print_message("%s %s\n", want->config, want->module);
        assert_ok(mox_module_rules_create(config, &arena, &rules, &error), &error);
        assert_ok(mox_module_rules_choose(&rules, want->module, want->stacked, &got, &error), &error);
        assert_int_equal(got.absent, want->id && strcmp(want->id, "-") == 0);
        if (want->id && !got.absent)
            assert_string_equal(json_string_value(json_object_get(got.selected, "id")), want->id);
        else
            assert_null(got.selected);
        mox_arena_free(&arena);
        json_decref(config);
    }
}

static void refused_by_name(void **state)
{
    (void)state;
    json_t *config = parse(CT(GROUP("a", "\"re:(?<=x).*\"") "," GROUP("b", "\"" EXPERT "down_proj\"")));
    mox_arena arena = { 0 };
    mox_module_rules rules;
    mox_module_choice got;
    moxie_error error = { 0 };
    assert_ok(mox_module_rules_create(config, &arena, &rules, &error), &error);
    assert_int_equal(mox_module_rules_choose(&rules, UP, false, &got, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "re:(?<=x).*"));
    assert_non_null(strstr(error.text, "look-behind"));
    /* A name is tried before. */
    assert_ok(mox_module_rules_choose(&rules, EXPERT "down_proj", false, &got, &error), &error);
    mox_arena_free(&arena);
    json_decref(config);
}

/* ---- activations --------------------------------------------------------------------------------- */

#define SIDE(bits, type, strategy, dynamic, more)                                                                      \
    "{\"num_bits\":" bits ",\"type\":\"" type "\",\"strategy\":\"" strategy "\",\"dynamic\":" dynamic                  \
    ",\"symmetric\":true" more "}"
#define WEIGHTS_AND(name, targets, weights, inputs)                                                                    \
    "\"" name "\":{\"targets\":[" targets "],\"weights\":" weights ",\"input_activations\":" inputs "}"
#define ATTENTION "\"re:.*self_attn.*\""
#define REST      "\"re:.*mlp.*\""
#define W8        SIDE("8", "int", "channel", "false", "")
#define W4        SIDE("4", "int", "channel", "false", "")
#define F8        SIDE("8", "float", "channel", "false", "")
#define F4(more)  SIDE("4", "float", "group", "false", ",\"group_size\":32" more)
#define A8        SIDE("8", "int", "token", "true", "")
#define AF8       SIDE("8", "float", "token", "true", "")
#define AF4       SIDE("4", "float", "group", "true", ",\"group_size\":32")
#define MX        ",\"group_size\":32,\"scale_dtype\":\"torch.uint8\""

typedef struct act_case {
    const char *config, *format;
    moxie_quant act;
    const char *problem; /* a part of it */
} act_case;

#define FP8_TOKEN                                                                                                      \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1                                \
    }
#define FP8_GROUP(scale_, cols)                                                                                        \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = scale_, .group_rows = 1, .group_cols = cols                                 \
    }
#define INT8_TOKEN                                                                                                     \
    {                                                                                                                  \
        .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1                                     \
    }

/* clang-format off */
#define QUARK_INPUTS(inputs)                                                                                           \
    "{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":{\"dtype\":\"fp8_e4m3\"},\"input_tensors\":" inputs "}}"
static const act_case acts[] = {
    { QUARK_INPUTS("null"), "fp8-channel", { 0 }, NULL },
    { QUARK_INPUTS("{\"dtype\":\"fp8_e4m3\",\"qscheme\":\"per_channel\",\"is_dynamic\":true}"), "fp8-channel", FP8_TOKEN, NULL },
    { QUARK_INPUTS("{\"dtype\":\"fp8_e4m3\",\"qscheme\":\"per_tensor\",\"is_dynamic\":false}"), "fp8-tensor",
      { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = -1, .group_cols = -1, .is_static = 1 }, NULL },
    { QUARK_INPUTS("null"), "fp8-tensor", { 0 }, NULL },
    { QUARK_INPUTS("{\"dtype\":\"fp8_e5m2\"}"), "fp8-channel", { 0 }, "dtype" },
    { QUARK_INPUTS("{\"dtype\":\"int8\",\"qscheme\":\"per_token\",\"is_dynamic\":true,\"symmetric\":false}"), "int8-w8a8", { 0 }, "asymmetric" },
    /* Attention's group has the same bits and comes first. */
    { CT(WEIGHTS_AND("a", ATTENTION, W8, A8) "," WEIGHTS_AND("b", REST, W8, "null")), "int8-w8a8", { 0 }, NULL },
    { CT(WEIGHTS_AND("a", ATTENTION, W8, "null") "," WEIGHTS_AND("b", REST, W8, A8)), "int8-w8a8", INT8_TOKEN, NULL },
    { CT(WEIGHTS_AND("a", ATTENTION, F8, AF8) "," WEIGHTS_AND("b", REST, F8, "null")), "fp8-channel", { 0 }, NULL },
    { CT(WEIGHTS_AND("a", ATTENTION, F4(""), AF4) "," WEIGHTS_AND("b", REST, F4(""), "null")), "mxfp4-ct", { 0 }, NULL },
    { CT(WEIGHTS_AND("a", ATTENTION, F8, AF8) "," WEIGHTS_AND("b", REST, F8, SIDE("8", "float", "group", "true", ",\"group_size\":128"))),
      "fp8-block-ct", FP8_GROUP(MOXIE_F32, 128), NULL },
    /* A kv-cache or activation-only group is about no weights. */
    { CT(WEIGHTS_AND("a", "\"Linear\"", "null", A8)), "int8-w8a8", { 0 }, "has no weights" },
    { CT(WEIGHTS_AND("a", ATTENTION, F8, AF8)), "fp8-channel", { 0 }, "no target" },
    { CT(WEIGHTS_AND("a", REST, W8, A8)), "fp8-channel", { 0 }, "another type" },
    { CT(WEIGHTS_AND("a", REST, F8, AF8)), "nvfp4-ct", { 0 }, "another type" },
    { CT("\"W8A8\":[\"Linear\"]"), "int8-w8a8", { 0 }, "names a scheme" },
    /* MXFP4: the scale of compressed-tensors rounds the largest magnitude up from 1.75 on. */
    { CT(WEIGHTS_AND("a", REST, F4(""), AF4)), "mxfp4-ct",
      { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_rows = 1, .group_cols = 32, .rule = MOXIE_RULE_QUARK_EVEN }, NULL },
    { CT(WEIGHTS_AND("a", REST, F4(""), SIDE("8", "float", "group", "true", ",\"group_size\":128"))), "mxfp4-ct",
      FP8_GROUP(MOXIE_F32, 128), NULL },
    { CT(WEIGHTS_AND("a", REST, F4(""), SIDE("8", "float", "group", "true", MX))), "mxfp4-ct", FP8_GROUP(MOXIE_F8_E8M0, 32), NULL },
    { CT(WEIGHTS_AND("a", REST, SIDE("6", "float", "group", "false", MX), SIDE("8", "float", "group", "true", MX))), "mxfp6-ct",
      FP8_GROUP(MOXIE_F8_E8M0, 32), NULL },
    /* 4-bit integers in int8, with fp8 activations */
    { CT(WEIGHTS_AND("a", REST, W4, AF8)), "int8-afp8", FP8_TOKEN, NULL },
    { CT(WEIGHTS_AND("a", REST, W4, A8)), "int8-w8a8-group", INT8_TOKEN, NULL },
    /* asymmetric activations, and others without a quantizer */
    { CT(WEIGHTS_AND("a", REST, W8, "{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"token\",\"dynamic\":true,\"symmetric\":false}")),
      "int8-w8a8", { 0 }, "asymmetric" },
    { CT(WEIGHTS_AND("a", REST, W8, SIDE("8", "int", "channel", "false", ""))), "int8-w8a8", { 0 }, "static scales" },
    { CT(WEIGHTS_AND("a", REST, W8, SIDE("4", "int", "token", "true", ""))), "int8-w8a8", { 0 }, "4-bit integers" },
    { CT(WEIGHTS_AND("a", REST, SIDE("6", "float", "group", "false", MX), SIDE("6", "float", "group", "true", MX))), "mxfp6-ct",
      { 0 }, "no quantizer" },
    { MIXED("\"" UP "\":{\"quant_algo\":\"W4A16_NVFP4\"},\"x\":{\"quant_algo\":\"NVFP4\"}"), "nvfp4-modelopt", { 0 }, NULL },
    { MIXED("\"x\":{\"quant_algo\":\"NVFP4\"}"), "nvfp4-modelopt",
      { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_rows = 1, .group_cols = 16, .global = 1, .is_static = 1 },
      "no quant_algo" },
    { MIXED("\"" UP "\":{\"quant_algo\":\"FP8_PB_WO\",\"group_size\":128}"), "fp8-block-modelopt", FP8_GROUP(MOXIE_F32, 128), NULL },
    { "{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":{\"dtype\":\"fp4\"},\"input_tensors\":{\"dtype\":\"fp4\","
      "\"group_size\":32}},\"layer_quant_config\":{\"*experts*\":{\"weight\":{\"dtype\":\"fp4\"},\"input_tensors\":null}}}",
      "mxfp4-quark", { 0 }, NULL },
};
/* clang-format on */

static void activations_of_the_experts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        const act_case *want = &acts[i];
        json_t *config = parse(want->config);
        mox_arena arena = { 0 };
        mox_module_rules rules;
        mox_module_choice choice;
        moxie_error error = { 0 };
        mox_hf_quant format = *mox_hf_quant_by_id(want->format);
        print_message("%s %s\n", want->format, want->config);
        assert_ok(mox_module_rules_create(config, &arena, &rules, &error), &error);
        assert_ok(mox_module_rules_choose(&rules, UP, false, &choice, &error), &error);
        json_t *own = mox_module_rules_config(&rules, &choice);
        assert_true(format.resolve(own, NULL, &format) || want->act.element == MOXIE_DTYPE_NONE);
        if (want->problem) {
            assert_non_null(format.act_problem);
            assert_non_null(strstr(format.act_problem, want->problem));
        } else {
            assert_null(format.act_problem);
            assert_memory_equal(&format.act, &want->act, sizeof format.act);
        }
        json_decref(own);
        mox_arena_free(&arena);
        json_decref(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen_as_the_libraries_do),
        cmocka_unit_test(refused_by_name),
        cmocka_unit_test(activations_of_the_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
