/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of quantization configurations that nothing reads: none in what exporters write, and an added one is found at
 * every level of every dialect.
 */
#include "test_support.h"

#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/formats/quant_keys.h"
#include "ckpt/json.h"

/* The keys of a configuration, joined by spaces. */
static const char *keys_of(const json_t *config)
{
    static char text[1024];
    mox_arena arena = { 0 };
    const char **keys;
    int64_t count;
    moxie_error error = { 0 };
    size_t used = 0;
    assert_ok(mox_quant_unread_keys(config, &arena, &keys, &count, &error), &error);
    text[0] = 0;
    for (int64_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "", keys[i]);
    mox_arena_free(&arena);
    return text;
}

static const char *keys_in(const char *text)
{
    json_t *config = NULL;
    moxie_error error = { 0 };
    assert_ok(mox_json_parse(text, strlen(text), true, "config.json", &config, &error), &error);
    const char *keys = keys_of(config);
    json_decref(config);
    return keys;
}

static void written_configs_have_none(void **state)
{
    (void)state;
    static const char *const ignore[] = { "lm_head", "re:.*gate$" };
    for (int32_t i = 0; mox_hf_quant_at(i); i++) {
        const mox_hf_quant *format = mox_hf_quant_at(i);
        if (!format->write_config)
            continue;
        json_t *config = format->write_config(format, ignore, 2);
        print_message("%s\n", format->id);
        assert_string_equal(keys_of(config), "");
        if (strcmp(format->method, "ascend") != 0) {
            json_object_set_new(config, "mystery_scale", json_real(2));
            assert_string_equal(keys_of(config), "mystery_scale");
        }
        json_decref(config);
    }
}

/* clang-format off */
static const struct {
    const char *config, *keys;
} cases[] = {
    { "{}", "" },
    { "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,"
      "\"type\":\"int\",\"mystery\":1},\"input_activations\":{\"num_bits\":8,\"clip\":2},\"twist\":true}},\"ignore\":[]}",
      "config_groups.*.weights.mystery config_groups.*.input_activations.clip config_groups.*.twist" },
    /* per-layer numbers of experts, rotations, sparsity: known to exist, and not read */
    { "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{},\"moe_sparsity_config\":{\"method\":\"prune\"},"
      "\"transform_config\":{\"config_groups\":{\"R1\":{\"type\":\"hadamard\"}}},\"sparsity_config\":{}}",
      "moe_sparsity_config transform_config" },
    { "{\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{"
      "\"model.layers.0.mlp.experts\":{\"quant_algo\":\"NVFP4\",\"group_size\":16,\"lora_rank\":32},"
      "\"model.layers.1.mlp.experts\":{\"quant_algo\":\"NVFP4\",\"group_size\":16,\"lora_rank\":32}}}",
      "quantized_layers.*.lora_rank" },
    { "{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":{\"dtype\":\"fp4\"},\"output_tensors\":{\"dtype\":\"fp8_e4m3\"},"
      "\"bias\":null},\"layer_type_quant_config\":{\"Linear\":{}},\"algo_config\":[{\"name\":\"rotation\"}]}",
      "global_quant_config.output_tensors layer_type_quant_config algo_config" },
    { "{\"quant_method\":\"gptq\",\"bits\":4,\"rotation\":\"hadamard\",\"meta\":{\"anything\":1},\"dynamic\":{\"+:.*up.*\":"
      "{\"bits\":8,\"wobble\":1}}}",
      "rotation dynamic.*.wobble" },
    { "{\"quant_method\":\"awq\",\"bits\":4,\"zero_point\":true,\"activation\":{\"bits\":8}}", "activation" },
    /* a key of another method */
    { "{\"quant_method\":\"fp8\",\"bits\":4,\"fmt\":\"e4m3\",\"store_dtype\":null}", "bits" },
    { "{\"quant_method\":\"no such\",\"bits\":4}", "bits" },
};
/* clang-format on */

static void unread_keys_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        print_message("%s\n", cases[i].config);
        assert_string_equal(keys_in(cases[i].config), cases[i].keys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_configs_have_none),
        cmocka_unit_test(unread_keys_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
