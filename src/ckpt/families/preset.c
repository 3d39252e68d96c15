/* SPDX-License-Identifier: Apache-2.0
 *
 * preset.c - presets.def as a table, the layers of a preset, and a preset cut down to what a caller wants.
 *
 * Which layers of a model are mixtures: all from first_layer on, every layer_step-th, or where its
 * hybrid_override_pattern has the letter E.
 */
#include <string.h>

#include "base/sizes.h"
#include "ckpt/synth/synth.h"

typedef struct preset_row {
    const char *config;
    mox_preset preset;
} preset_row;

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
static const preset_row rows[] = {
#include "ckpt/families/presets.def"
};

const mox_preset *mox_preset_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof rows[0] ? &rows[i].preset : NULL;
}

const mox_preset *mox_preset_by_name(const char *name)
{
    for (int32_t i = 0; mox_preset_at(i); i++)
        if (strcmp(rows[i].preset.name, name) == 0)
            return &rows[i].preset;
    return NULL;
}

const char *mox_preset_config_text(const mox_preset *preset)
{
    for (int32_t i = 0; mox_preset_at(i); i++)
        if (&rows[i].preset == preset)
            return rows[i].config;
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

/* ---- a preset, reduced --------------------------------------------------------------------------- */

/* An unknown format: the error lists them all, for --list shows only what was released. */
static moxie_status no_such_format(const char *id, const mox_preset *preset, moxie_error *error)
{
    char known[640] = "", escaped[64];
    size_t used = 0;
    const mox_hf_quant *row;
    for (int32_t i = 0; (row = mox_hf_quant_at(i)) != NULL && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, " %s", row->id);
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "there is no format \"%s\"; %s was released as %s, all formats are:%s",
                    mox_escape(escaped, sizeof escaped, id), preset->name, preset->formats[0], known);
}

static moxie_status choose_formats(const char *format, mox_synth_model *m, moxie_error *error)
{
    const char *id = format ? format : m->preset->formats[0];
    m->routed = mox_hf_quant_by_id(id);
    if (!m->routed)
        return no_such_format(id, m->preset, error);
    m->shared = m->routed;
    if (m->preset->shared_format && !mox_quant_is_plain(&m->routed->weight))
        m->shared = mox_hf_quant_by_id(m->preset->shared_format);
    MOX_FAIL_IF(!m->shared, MOXIE_ERR_UNSUPPORTED, error, "preset %s: its shared expert's format %s has no row",
                m->preset->name, m->preset->shared_format);
    return MOXIE_OK;
}

static moxie_status reduce_layers(int64_t layers, mox_synth_model *m, moxie_error *error)
{
    MOX_FAIL_IF(layers < 0 || layers > m->preset->dims.layers, MOXIE_ERR_ARGUMENT, error,
                "%lld layers were asked for; %s has %lld with experts: give 1 to %lld", (long long)layers,
                m->preset->name, (long long)m->preset->dims.layers, (long long)m->preset->dims.layers);
    m->layers = layers > 0 ? layers : m->preset->dims.layers;
    m->dims.layers = mox_preset_layer(m->preset, m->layers - 1) + 1;
    return MOXIE_OK;
}

static moxie_status reduce_experts(int64_t experts, mox_synth_model *m, moxie_error *error)
{
    if (experts == 0)
        return MOXIE_OK;
    const mox_dims *d = &m->preset->dims;
    MOX_FAIL_IF(experts < d->top_k || experts > MOXIE_MAX_EXPERTS, MOXIE_ERR_ARGUMENT, error,
                "%lld expert%s asked for; %s chooses %lld a token, so give %lld to %d", (long long)experts,
                experts == 1 ? " was" : "s were", m->preset->name, (long long)d->top_k, (long long)d->top_k,
                MOXIE_MAX_EXPERTS);
    if (d->n_group > 1) {
        /* A group is scored by its two best experts, and the groups kept must hold top_k. */
        const int64_t least = mox_max_i64(2, mox_ceil_div(d->top_k, d->topk_group));
        MOX_FAIL_IF(experts % d->n_group != 0 || experts / d->n_group < least, MOXIE_ERR_ARGUMENT, error,
                    "%lld experts do not fill the %lld groups of %s; give a multiple of %lld, %lld at least",
                    (long long)experts, (long long)d->n_group, m->preset->name, (long long)d->n_group,
                    (long long)(least * d->n_group));
    }
    m->dims.experts = experts;
    return MOXIE_OK;
}

/* Shared width and latent width keep their ratio to the sizes that change. */
static moxie_status reduce_sizes(int64_t hidden, int64_t intermediate, mox_synth_model *m, moxie_error *error)
{
    const mox_dims *d = &m->preset->dims;
    const int64_t limit = INT64_C(1) << 24;
    MOX_FAIL_IF(hidden < 0 || intermediate < 0 || hidden > limit || intermediate > limit, MOXIE_ERR_ARGUMENT, error,
                "hidden %lld and intermediate %lld must be from 1 to %lld, 0 for the real size", (long long)hidden,
                (long long)intermediate, (long long)limit);
    m->dims.hidden = hidden > 0 ? hidden : d->hidden;
    m->dims.intermediate = intermediate > 0 ? intermediate : d->intermediate;
    m->dims.shared_intermediate = m->dims.intermediate * d->shared_intermediate / d->intermediate;
    const int64_t width = d->expert_width > 0 ? d->expert_width : d->hidden;
    MOX_FAIL_IF(m->dims.hidden * width % d->hidden != 0, MOXIE_ERR_ARGUMENT, error,
                "hidden %lld: the experts of %s are %lld wide for %lld, give a multiple of %lld", (long long)hidden,
                m->preset->name, (long long)width, (long long)d->hidden, (long long)(d->hidden / width));
    m->dims.expert_width = m->dims.hidden * width / d->hidden;
    return MOXIE_OK;
}

moxie_status mox_synth_resolve(const char *preset, const moxie_synth_options *options, mox_synth_model *out,
                               moxie_error *error)
{
    const moxie_synth_options defaults = MOXIE_SYNTH_OPTIONS_INIT;
    const moxie_synth_options *o = options ? options : &defaults;
    mox_synth_model m = { .preset = mox_preset_by_name(preset), .seed = o->seed };
    char shown[96];
    MOX_FAIL_IF(!m.preset, MOXIE_ERR_ARGUMENT, error, "there is no preset \"%s\"; `moxie synth --list` shows them",
                mox_escape(shown, sizeof shown, preset));
    m.dims = m.preset->dims;
    m.family = mox_family_by_id(m.preset->family);
    MOX_FAIL_IF(!m.family, MOXIE_ERR_UNSUPPORTED, error, "preset %s: its family %s has no row", preset,
                m.preset->family);
    MOX_TRY(choose_formats(o->format, &m, error));
    MOX_TRY(reduce_layers(o->layers, &m, error));
    MOX_TRY(reduce_experts(o->experts, &m, error));
    MOX_TRY(reduce_sizes(o->hidden, o->intermediate, &m, error));
    *out = m;
    return MOXIE_OK;
}
