/* SPDX-License-Identifier: Apache-2.0
 *
 * family.c - families.def as a table, its shorthands, and the few family rules that are code.
 */
#include <stdio.h>
#include <string.h>

#include "ckpt/families/family_config.h"

#define MODEL          "model.layers.{L}."
#define MODEL_LANGUAGE "model.language_model.layers.{L}."
#define LANGUAGE_MODEL "language_model.model.layers.{L}."
/* a language model saved without its head */
#define BARE "layers.{L}."

#define EXPERTS_PROJ(root)                                                                                             \
    .gate = root ".{e}.gate_proj", .up = root ".{e}.up_proj", .down = root ".{e}.down_proj",                           \
    .fused_gate_up = root ".gate_up_proj", .fused_down = root ".down_proj"
#define EXPERTS_MERGED(root) .fused_gate_up = root ".gate_up_proj", .fused_down = root ".down_proj"
#define EXPERTS_W(root)      .gate = root ".{e}.w1", .up = root ".{e}.w3", .down = root ".{e}.w2"
#define SHARED(root)         .shared_gate = root ".gate_proj", .shared_up = root ".up_proj", .shared_down = root ".down_proj"
#define NAMES_DEEPSEEK                                                                                                 \
    {                                                                                                                  \
        .router = "mlp.gate.weight", .correction_bias = "mlp.gate.e_score_correction_bias",                            \
        EXPERTS_PROJ("mlp.experts"), SHARED("mlp.shared_experts")                                                      \
    }

#define KEYS_TOK_MOE      .key_top_k = { "num_experts_per_tok" }, .key_intermediate = { "moe_intermediate_size" }
#define KEYS_TOK_DENSE    .key_top_k = { "num_experts_per_tok" }, .key_intermediate = { "intermediate_size" }
#define KEYS_SHARED_COUNT .key_shared = { "n_shared_experts" }, .shared_is_count = true
#define KEYS_SCALE        .key_scale = { "routed_scaling_factor" }
#define KEYS_DEEPSEEK                                                                                                  \
    .key_experts = { "n_routed_experts", "num_local_experts", "num_experts" }, KEYS_TOK_MOE, KEYS_SHARED_COUNT,        \
    KEYS_SCALE, .key_norm = { "norm_topk_prob" }
/* Defaults of routed_scaling_factor, n_group and topk_group. */
#define DEFAULTS_GROUPS(scale, n, topk) .default_scale = scale, .default_n_group = n, .default_topk_group = topk

#define ROUTE_RENORMALIZE                                                                                              \
    {                                                                                                                  \
        .score = MOXIE_SCORE_LOGIT, .weight = MOXIE_WEIGHT_SOFTMAX_SELECTED                                            \
    }
#define ROUTE_SOFTMAX_NORM                                                                                             \
    {                                                                                                                  \
        .score = MOXIE_SCORE_SOFTMAX, .norm = MOXIE_NORM_SUM                                                           \
    }
#define ROUTE_SIGMOID_SUM                                                                                              \
    {                                                                                                                  \
        .score = MOXIE_SCORE_SIGMOID, .norm = MOXIE_NORM_SUM                                                           \
    }
/* Only DeepSeek-V2's router sets the selection keys of dropped groups to 0. Those of sigmoid routers become -inf. */
#define ROUTE_SOFTMAX_GROUPS                                                                                           \
    {                                                                                                                  \
        .score = MOXIE_SCORE_SOFTMAX, .norm = MOXIE_NORM_SUM_PLUS_EPS, .norm_eps = 1e-20f,                             \
        .group_score = MOXIE_GROUP_MAX, .group_fill_zero = 1                                                           \
    }
#define ROUTE_DEEPSEEK                                                                                                 \
    {                                                                                                                  \
        .score = MOXIE_SCORE_SIGMOID, .norm = MOXIE_NORM_SUM_PLUS_EPS, .norm_eps = 1e-20f                              \
    }

/* Entry `layer` of a list of limits. No list, no entry, null and 0 mean no limit: 0. */
static moxie_status layer_limit(const json_t *config, const char *key, int64_t layer, const char *file, double *out,
                                moxie_error *error)
{
    const json_t *list = mox_config_find(config, key);
    *out = 0;
    if (json_is_array(list) && (uint64_t)layer >= json_array_size(list))
        return MOXIE_OK;
    return mox_config_real(config, key, layer, 0, file, out, error);
}

/* Step clamps silu(g) and u in the layers that a list in its config names. */
static moxie_status adjust_step(const json_t *config, const char *file, mox_dims *dims, int64_t layer,
                                moxie_layer_config *out, moxie_error *error)
{
    double limit, shared;
    MOX_TRY(layer_limit(config, "swiglu_limits", layer, file, &limit, error));
    MOX_TRY(layer_limit(config, "swiglu_limits_shared", layer, file, &shared, error));
    if (out->activation.kind != MOXIE_ACT_SILU)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                             "hidden_act: in step models, only silu is the same in every library");
    if (limit > 0)
        out->activation =
            (moxie_activation) { .kind = MOXIE_ACT_SWIGLU_STEP, .gate_limit = (float)limit, .up_limit = (float)limit };
    if (dims->shared_intermediate != 0 && (limit > 0 || shared > 0) && limit != shared)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                             "layer %lld: swiglu_limits %g for the routed experts but swiglu_limits_shared %g; a layer "
                             "has one activation here, so run the shared expert outside the layer",
                             (long long)layer, limit, shared);
    return MOXIE_OK;
}

/* ERNIE's experts for text and for images differ in width, and a list has both. The layer is that of text tokens. */
static moxie_status adjust_ernie_vl(const json_t *config, const char *file, mox_dims *dims, int64_t layer,
                                    moxie_layer_config *out, moxie_error *error)
{
    const int64_t widest = dims->intermediate;
    (void)layer, (void)out;
    MOX_TRY(mox_config_int(config, "moe_intermediate_size", 0, 0, file, &dims->intermediate, error));
    if (dims->intermediate < 1 || dims->intermediate > 1 << 24)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1,
                             "moe_intermediate_size starts with %lld, expected 1 to %d", (long long)dims->intermediate,
                             1 << 24);
    if (dims->shared_intermediate > 0)
        dims->shared_intermediate = dims->shared_intermediate / widest * dims->intermediate;
    return MOXIE_OK;
}

static bool write_step(json_t *config, const mox_dims *dims)
{
    (void)dims;
    return json_object_set_new(config, "use_moe_router_bias", json_true()) == 0 &&
           json_object_set_new(config, "moe_router_activation", json_string("sigmoid")) == 0;
}

static bool write_deepseek_v4(json_t *config, const mox_dims *dims)
{
    (void)dims;
    return json_object_set_new(config, "topk_method", json_string("noaux_tc")) == 0;
}

static bool write_gemma4(json_t *config, const mox_dims *dims)
{
    (void)dims;
    return json_object_set_new(config, "enable_moe_block", json_true()) == 0 &&
           json_object_set_new(config, "hidden_activation", json_string("gelu_pytorch_tanh")) == 0;
}

#define MOX_FAMILY(...) { __VA_ARGS__ },
static const mox_family families[] = {
#include "ckpt/families/families.def"
};

const mox_family *mox_family_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof families / sizeof families[0] ? &families[i] : NULL;
}

const mox_family *mox_family_by_id(const char *id)
{
    for (int32_t i = 0; mox_family_at(i); i++)
        if (strcmp(families[i].id, id) == 0)
            return &families[i];
    return NULL;
}

const mox_family *mox_family_by_model_type(const char *model_type)
{
    for (int32_t i = 0; mox_family_at(i); i++)
        for (int s = 0; s < MOX_MAX_SPELLINGS && families[i].model_types[s]; s++)
            if (strcmp(families[i].model_types[s], model_type) == 0)
                return &families[i];
    return NULL;
}

/* Appends `text` with {L} and {e} replaced; false when it does not fit or a number is missing. */
static bool append(char *buffer, size_t size, size_t *used, const char *text, int64_t layer, int64_t expert)
{
    while (*text) {
        int n;
        if (text[0] == '{' && (text[1] == 'L' || text[1] == 'e') && text[2] == '}') {
            const int64_t number = text[1] == 'L' ? layer : expert;
            if (number < 0)
                return false;
            n = snprintf(buffer + *used, size - *used, "%lld", (long long)number);
            text += 3;
        } else {
            n = snprintf(buffer + *used, size - *used, "%c", *text++);
        }
        if (n < 0 || (size_t)n >= size - *used)
            return false;
        *used += (size_t)n;
    }
    return true;
}

bool mox_expand_name(char *buffer, size_t size, const char *prefix, const char *name, int64_t layer, int64_t expert)
{
    size_t used = 0;
    return append(buffer, size, &used, prefix, layer, expert) && append(buffer, size, &used, name, layer, expert);
}
