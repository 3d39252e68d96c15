/* SPDX-License-Identifier: Apache-2.0
 *
 * family_write.c - config.json of a model from its sizes; and the layer configuration that follows from sizes and
 * formats alone, which the generator and the planner use without tensors.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/families/family_config.h"

/* Sets `key`; dots descend into objects, which are created as needed. Owns `value`. False when out of memory. */
static bool put(json_t *object, const char *key, json_t *value)
{
    const char *dot = strchr(key, '.');
    if (!dot)
        return json_object_set_new(object, key, value) == 0;
    char head[64];
    const size_t length = (size_t)(dot - key) < sizeof head - 1 ? (size_t)(dot - key) : sizeof head - 1;
    memcpy(head, key, length);
    head[length] = 0;
    if (!json_object_get(object, head) && json_object_set_new(object, head, json_object()) != 0) {
        json_decref(value);
        return false;
    }
    return put(json_object_get(object, head), dot + 1, value);
}

static bool put_int(json_t *object, const char *key, int64_t value)
{
    return !key || put(object, key, json_integer(value));
}

/* A float with the fewest decimals that give it back: 2.827f is written as 2.827. */
static json_t *shortest(float value)
{
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return json_real(strtod(text, NULL));
}

static bool put_norm(json_t *object, const mox_family *family, const mox_dims *dims)
{
    const char *key = family->key_norm[0];
    if (!key)
        return true;
    if (family->norm_is_order)
        return put(object, key, dims->norm_topk ? json_integer(dims->norm_order == 2 ? 2 : 1) : json_null());
    return put(object, key, json_boolean(dims->norm_topk || family->always_norm));
}

static bool put_sizes(json_t *object, const mox_family *family, const mox_dims *dims)
{
    bool fine = put_int(object, "num_hidden_layers", dims->layers) && put_int(object, "hidden_size", dims->hidden) &&
                put_int(object, family->key_experts[0], dims->experts) &&
                put_int(object, family->key_top_k[0], dims->top_k) &&
                put_int(object, family->key_intermediate[0], dims->intermediate);
    if (fine && dims->vocab > 0)
        fine = put_int(object, "vocab_size", dims->vocab);
    if (fine && family->key_shared[0] && dims->intermediate > 0 && dims->shared_intermediate >= 0)
        fine = put_int(object, family->key_shared[0],
                       family->shared_is_count ? dims->shared_intermediate / dims->intermediate
                                               : dims->shared_intermediate);
    if (fine && dims->expert_width > 0 && dims->expert_width != dims->hidden)
        fine = put_int(object, family->key_latent, dims->expert_width);
    return fine;
}

static bool put_routing(json_t *object, const mox_family *family, const mox_dims *dims)
{
    bool fine = put_norm(object, family, dims);
    if (fine && dims->n_group > 0)
        fine = put_int(object, "n_group", dims->n_group) && put_int(object, "topk_group", dims->topk_group);
    if (fine && family->key_scale[0] && dims->routed_scale != 0)
        fine = put(object, family->key_scale[0], shortest(dims->routed_scale));
    if (fine && dims->n_hash_layers > 0)
        fine = put_int(object, "num_hash_layers", dims->n_hash_layers);
    if (fine && family->key_logit_factor && dims->logit_factor != 0)
        fine = put(object, family->key_logit_factor, shortest(dims->logit_factor));
    if (fine && dims->swiglu_limit > 0)
        fine = put(object, "swiglu_limit", shortest(dims->swiglu_limit));
    if (fine && dims->swiglu_alpha > 0)
        fine = put(object, "swiglu_alpha", shortest(dims->swiglu_alpha));
    return fine;
}

static bool put_model(json_t *config, json_t *text, const mox_family *family, const mox_dims *dims,
                      const char *model_type)
{
    if (!put_sizes(text, family, dims) || !put_routing(text, family, dims))
        return false;
    if (family->write_config && !family->write_config(text, dims))
        return false;
    return json_object_set_new(config, "model_type", json_string(model_type)) == 0 &&
           json_object_set_new(config, "architectures", json_pack("[s]", family->architecture)) == 0 &&
           json_object_set_new(config, "torch_dtype", json_string("bfloat16")) == 0;
}

json_t *mox_family_config_json(const mox_family *family, const mox_dims *dims, const char *model_type)
{
    json_t *config = json_object();
    json_t *text = family->config_section ? json_object() : json_incref(config);
    bool fine =
        config && text && put_model(config, text, family, dims, model_type ? model_type : family->model_types[0]);
    if (fine && family->config_section)
        fine = put(config, family->config_section, json_incref(text));
    json_decref(text);
    if (fine)
        return config;
    json_decref(config);
    return NULL;
}

/* ---- layer configuration ---------------------------------------------------------------------- */

moxie_routing mox_family_routing(const mox_family *family, const mox_dims *dims, int64_t layer)
{
    moxie_routing route = family->route;
    if (!dims->norm_topk && !family->always_norm)
        route.norm = MOXIE_NORM_NONE, route.norm_eps = 0;
    else if (family->norm_is_order && dims->norm_order == 2)
        route.norm = MOXIE_NORM_ROOT_SQUARES;
    route.n_group = dims->n_group > 1 ? (int32_t)dims->n_group : 0;
    route.topk_group = dims->n_group > 1 ? (int32_t)dims->topk_group : 0;
    if (route.n_group == 0)
        route.group_score = 0, route.group_fill_zero = 0;
    route.scale = dims->routed_scale;
    route.softcap = dims->softcap;
    route.zero_experts = (int32_t)dims->zero_experts;
    route.zero_kind = dims->zero_kind;
    if (layer < dims->n_hash_layers)
        route.select = MOXIE_SELECT_TABLE;
    return route;
}

moxie_activation mox_family_activation(const mox_family *family, const mox_dims *dims)
{
    moxie_activation activation = family->activation;
    if (dims->swiglu_limit > 0 && activation.kind == MOXIE_ACT_SILU)
        activation.gate_limit = activation.up_limit = dims->swiglu_limit;
    if (dims->swiglu_alpha > 0 && activation.kind == MOXIE_ACT_SILU)
        activation.alpha = dims->swiglu_alpha;
    return activation;
}

void mox_family_shared_activation(const mox_family *family, moxie_layer_config *out)
{
    if (!family->shared_unclamped)
        return;
    out->has_shared_activation = 1;
    out->shared_activation = out->activation;
    out->shared_activation.gate_limit = out->shared_activation.up_limit = 0;
}

void mox_family_norms(const mox_family *family, int64_t hidden, moxie_layer_config *out)
{
    out->router_norm = family->router_norm;
    out->expert_norm = family->expert_norm;
    if (family->router_root)
        out->router_norm.factor = (float)(1 / sqrt((double)hidden));
}

void mox_layer_config_formats(const mox_family *family, const mox_dims *dims, const mox_hf_quant *routed,
                              const mox_hf_quant *shared, moxie_layer_config *out)
{
    const int64_t width = dims->expert_width > 0 ? dims->expert_width : dims->hidden;
    out->experts = dims->experts;
    out->top_k = dims->top_k;
    out->hidden = width;
    out->intermediate = dims->intermediate;
    out->router_width = dims->hidden;
    out->router_has_bias = family->router_bias_always;
    out->bias13 = out->bias2 = family->expert_bias;
    out->w13 = mox_hf_quant_weight(routed, width);
    out->w2 = mox_hf_quant_weight(routed, dims->intermediate);
    out->a13 = out->a2 = routed->act;
    /* In a latent layer the shared expert has another width and is not part of this layer. */
    if (dims->shared_intermediate <= 0 || width != dims->hidden)
        return;
    out->shared = (moxie_shared_config) { .intermediate = dims->shared_intermediate,
                                          .w13 = mox_hf_quant_weight(shared, dims->hidden),
                                          .w2 = mox_hf_quant_weight(shared, dims->shared_intermediate),
                                          .a13 = shared->act,
                                          .a2 = shared->act,
                                          .scale = dims->shared_scale,
                                          .has_gate = family->names.shared_expert_gate != NULL };
}

moxie_status mox_family_layer_config(const mox_family *family, const mox_dims *dims, const mox_hf_quant *routed,
                                     const mox_hf_quant *shared, int64_t layer, moxie_layer_config *out,
                                     moxie_error *error)
{
    MOX_FAIL_IF(dims->experts < 1 || dims->top_k < 1 || dims->hidden < 1 || dims->intermediate < 1, MOXIE_ERR_ARGUMENT,
                error, "%s: %lld experts, top-%lld, hidden %lld, intermediate %lld: all must be positive", family->id,
                (long long)dims->experts, (long long)dims->top_k, (long long)dims->hidden,
                (long long)dims->intermediate);
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    config.dtype = MOXIE_BF16;
    config.activation = mox_family_activation(family, dims);
    mox_family_shared_activation(family, &config);
    config.routing = mox_family_routing(family, dims, layer);
    mox_family_norms(family, dims->hidden, &config);
    mox_layer_config_formats(family, dims, routed, shared ? shared : routed, &config);
    *out = config;
    return MOXIE_OK;
}
