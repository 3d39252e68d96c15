/* SPDX-License-Identifier: Apache-2.0
 *
 * preset.c - presets.def as a table, and which layers of a preset are mixtures of experts: all from first_layer on,
 * every layer_step-th, or those with the letter E in hybrid_override_pattern.
 */
#include <string.h>

#include "base/sizes.h"
#include "ckpt/families/tables.h"

typedef struct preset_entry {
    const char *config;
    mox_preset preset;
} preset_entry;

#define FP8_INTO_NVFP4_AWQ .formats = { "fp8-block", "nvfp4-modelopt", "awq" }, .n_native = 3

#define NO_LIST       ",\"quantization_config\":{\"modules_to_not_convert\":null}"
#define NO_LIST_UE8M0 ",\"quantization_config\":{\"modules_to_not_convert\":null,\"scale_fmt\":\"ue8m0\"}"
#define DEEPSEEK_V3_CONFIG                                                                                             \
    "\"hidden_act\":\"silu\",\"first_k_dense_replace\":3,\"moe_layer_freq\":1,\"intermediate_size\":18432,"            \
    "\"num_nextn_predict_layers\":1,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"ep_size\":1"
#define DEEPSEEK_V3_DIMS                                                                                               \
    .first_layer = 3,                                                                                                  \
    .dims = { .layers = 58,                                                                                            \
              .experts = 256,                                                                                          \
              .top_k = 8,                                                                                              \
              .hidden = 7168,                                                                                          \
              .intermediate = 2048,                                                                                    \
              .shared_intermediate = 2048,                                                                             \
              .vocab = 129280,                                                                                         \
              .n_group = 8,                                                                                            \
              .topk_group = 4,                                                                                         \
              .routed_scale = 2.5f,                                                                                    \
              .norm_topk = true },                                                                                     \
    .native_bytes_per_layer = 11277041664
#define KIMI_K2_CONFIG                                                                                                 \
    "\"hidden_act\":\"silu\",\"first_k_dense_replace\":1,\"moe_layer_freq\":1,\"intermediate_size\":18432,"            \
    "\"num_nextn_predict_layers\":0,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"ep_size\":1"
#define KIMI_K2_INT4                                                                                                   \
    ",\"quantization_config\":{\"ignore\":[\"lm_head\",\"re:.*self_attn.*\",\"re:.*shared_experts.*\","                \
    "\"re:.*mlp\\\\.(gate|up|gate_up|down)_proj.*\"]}"
#define KIMI_K2_DIMS                                                                                                   \
    .first_layer = 1, .dims = { .layers = 60,                                                                          \
                                .experts = 384,                                                                        \
                                .top_k = 8,                                                                            \
                                .hidden = 7168,                                                                        \
                                .intermediate = 2048,                                                                  \
                                .shared_intermediate = 2048,                                                           \
                                .vocab = 163840,                                                                       \
                                .n_group = 1,                                                                          \
                                .topk_group = 1,                                                                       \
                                .routed_scale = 2.827f,                                                                \
                                .norm_topk = true }
#define QWEN_FORMATS .formats = { "bf16", "fp8-block-bf16", "gptq", "awq", "nvfp4-modelopt", "nvfp4-ct" }, .n_native = 6

#define MOX_PRESET(config_, ...) { config_, { __VA_ARGS__ } },
static const preset_entry presets[] = {
#include "ckpt/families/presets.def"
#include "ckpt/families/presets_2026.def"
};

const mox_preset *mox_preset_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof presets / sizeof presets[0] ? &presets[i].preset : NULL;
}

const mox_preset *mox_preset_by_name(const char *name)
{
    for (int32_t i = 0; mox_preset_at(i); i++)
        if (strcmp(presets[i].preset.name, name) == 0)
            return &presets[i].preset;
    return NULL;
}

const char *mox_preset_config_text(const mox_preset *preset)
{
    for (int32_t i = 0; mox_preset_at(i); i++)
        if (&presets[i].preset == preset)
            return presets[i].config;
    return "{}";
}

int64_t mox_preset_layer(const mox_preset *preset, int64_t i)
{
    static const char key[] = "\"hybrid_override_pattern\":\"";
    const char *pattern = strstr(mox_preset_config_text(preset), key);
    if (!pattern)
        return preset->first_layer + i * mox_max_i64(preset->layer_step, 1);
    pattern += strlen(key);
    int64_t layer = 0;
    for (int64_t found = 0; pattern[layer] != '"'; layer++)
        if (pattern[layer] == 'E' && found++ == i)
            break;
    return layer;
}
