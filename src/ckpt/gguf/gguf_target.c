/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_target.c - a family's layers as GGUF files have them (gguf_target.h).
 */
#include "ckpt/gguf/gguf_target.h"

#include <stdio.h>
#include <string.h>

#include "ckpt/families/family_config.h"
#include "ckpt/families/layer_difference.h"
#include "ckpt/gguf/gguf_family.h"
#include "ckpt/gguf/gguf_formats.h"
#include "ckpt/gguf/gguf_keys.h"
#include "format/block.h"

enum { GATING_SOFTMAX = 1, GATING_SIGMOID, GATING_SOFTMAX_CHOSEN, GATING_SQRTSOFTPLUS };

static const struct {
    const char *family, *model_type, *architecture;
} families[] = {
#define MOX_GGUF_FAMILY(family, model_type, architecture) { family, model_type, architecture },
#include "ckpt/gguf/gguf_families.def"
#undef MOX_GGUF_FAMILY
};

const char *mox_gguf_architecture_of(const mox_family *family, const char *model_type)
{
    const char *type = model_type ? model_type : family->model_types[0];
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].family, family->id) == 0 &&
            (!families[i].model_type || strcmp(families[i].model_type, type) == 0))
            return families[i].architecture;
    return NULL;
}

bool mox_gguf_family_row(int32_t i, const char **family, const char **model_type, const char **architecture)
{
    if (i < 0 || (size_t)i >= sizeof families / sizeof families[0])
        return false;
    *family = families[i].family;
    *model_type = families[i].model_type;
    *architecture = families[i].architecture;
    return true;
}

/* ---- what a layer computes --------------------------------------------------------------------------- */

/* What the model has and no GGUF file can say, or else what its layers compute otherwise; NULL: nothing. */
static const char *difference(const mox_gguf_target *t, const moxie_layer_config *source,
                              const moxie_layer_config *file)
{
    if (t->dims.expert_width > 0 && t->dims.expert_width != t->dims.hidden)
        return "experts of another width than the model";
    if ((t->dims.logit_factor != 0 && t->dims.logit_factor != 1) ||
        (t->dims.shared_scale != 0 && t->dims.shared_scale != 1))
        return "a factor of logits, or of the shared expert";
    return mox_layer_difference(source, file);
}

moxie_status mox_gguf_target_config(const mox_gguf_target *t, int64_t layer, moxie_layer_config *out,
                                    moxie_error *error)
{
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    mox_dims dims;
    moxie_dtype type[2];
    MOX_TRY(mox_config_layer(t->family, t->config, "metadata", layer, &dims, &config, error));
    const int64_t width = t->dims.hidden;
    MOX_TRY(mox_gguf_recipe_type(t->recipe, MOX_TENSOR_UP, width, layer, t->dims.layers, &type[0], error));
    MOX_TRY(
        mox_gguf_recipe_type(t->recipe, MOX_TENSOR_DOWN, t->dims.intermediate, layer, t->dims.layers, &type[1], error));
    const mox_hf_quant *read[2];
    for (int i = 0; i < 2; i++)
        read[i] = mox_block_of(type[i]) ? mox_gguf_format(type[i], false) : mox_gguf_stored(type[i]);
    dims.shared_intermediate = t->dims.shared_intermediate;
    mox_layer_config_formats(t->family, &dims, read[0], mox_gguf_stored(MOXIE_BF16), &config);
    config.w2 = mox_hf_quant_weight(read[1], dims.intermediate);
    config.router_has_bias = t->has_router_bias;
    config.bias13 = config.bias2 = t->has_expert_bias;
    *out = config;
    return MOXIE_OK;
}

moxie_status mox_gguf_target_check(const mox_gguf_target *t, int64_t layer, const moxie_layer_config *source,
                                   moxie_error *error)
{
    moxie_layer_config file = MOXIE_LAYER_CONFIG_INIT;
    MOX_TRY(mox_gguf_target_config(t, layer, &file, error));
    const char *found = difference(t, source, &file);
    MOX_FAIL_IF(found, MOXIE_ERR_UNSUPPORTED, error,
                "layer %lld: llama.cpp's architecture %s has no place for %s as the model has it; write a directory of "
                "safetensors instead",
                (long long)layer, t->architecture, found);
    return MOXIE_OK;
}

/* ---- metadata ---------------------------------------------------------------------------------------- */

static bool put(json_t *metadata, const char *architecture, const char *key, json_t *value)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", architecture, key);
    return value && json_object_set_new(metadata, full, value) == 0;
}

static int gating_of(const mox_gguf_target *t, const moxie_routing *route)
{
    if (strcmp(t->architecture, "gpt-oss") == 0)
        return GATING_SOFTMAX_CHOSEN;
    switch (mox_routing_form_of(route).score) {
    case MOXIE_SCORE_SIGMOID: return GATING_SIGMOID;
    case MOXIE_SCORE_SQRTSOFTPLUS: return GATING_SQRTSOFTPLUS;
    default: return GATING_SOFTMAX;
    }
}

static bool put_routing(const mox_gguf_target *t, const moxie_routing *route)
{
    const mox_routing_form form = mox_routing_form_of(route);
    json_t *m = t->metadata;
    const char *a = t->architecture;
    const int gating = gating_of(t, route);
    bool fine = put(m, a, "expert_gating_func", json_integer(gating));
    if (gating != GATING_SOFTMAX_CHOSEN)
        fine = fine && put(m, a, "expert_weights_norm", json_boolean(form.normalised));
    if (form.scale != 1)
        fine = fine && put(m, a, "expert_weights_scale", json_real((double)form.scale));
    if (form.n_group > 1)
        fine = fine && put(m, a, "expert_group_count", json_integer(form.n_group)) &&
               put(m, a, "expert_group_used_count", json_integer(form.topk_group));
    return fine;
}

static bool put_sizes(const mox_gguf_target *t)
{
    const mox_dims *d = &t->dims;
    json_t *m = t->metadata;
    const char *a = t->architecture;
    bool fine =
        put(m, a, "block_count", json_integer(d->layers)) && put(m, a, "embedding_length", json_integer(d->hidden)) &&
        put(m, a, "feed_forward_length", json_integer(d->intermediate)) &&
        put(m, a, "expert_count", json_integer(d->experts)) && put(m, a, "expert_used_count", json_integer(d->top_k)) &&
        put(m, a, "expert_feed_forward_length", json_integer(d->intermediate));
    if (d->shared_intermediate > 0)
        fine = fine && put(m, a, "expert_shared_feed_forward_length", json_integer(d->shared_intermediate));
    return fine;
}

/* Last, as when the experts of a GGUF file are quantized: the same layers give the same bytes. */
static bool put_types(const mox_gguf_target *t)
{
    json_object_del(t->metadata, "general.file_type");
    json_object_del(t->metadata, "general.quantization_version");
    return json_object_set_new(t->metadata, "general.file_type", json_integer(t->recipe->file_type)) == 0 &&
           json_object_set_new(t->metadata, "general.quantization_version", json_integer(2)) == 0;
}

static moxie_status make_metadata(mox_gguf_target *t, const moxie_layer_config *source, moxie_error *error)
{
    t->metadata = json_pack("{s:s, s:s}", "general.architecture", t->architecture, "general.type", "model");
    MOX_FAIL_IF(!t->metadata || !put_sizes(t) || !put_routing(t, &source->routing) || !put_types(t), MOXIE_ERR_MEMORY,
                error, "no memory for metadata");
    const char *name;
    return mox_gguf_family(t->metadata, "metadata", &t->arena, &t->config, &t->family, &name, error);
}

moxie_status mox_gguf_target_add_keys(mox_gguf_target *t, const json_t *config, moxie_error *error)
{
    MOX_FAIL_IF(!mox_gguf_keys_to_metadata(t->architecture, config, t->metadata) || !put_types(t), MOXIE_ERR_MEMORY,
                error, "no memory for metadata");
    return MOXIE_OK;
}

/* ---- its life ---------------------------------------------------------------------------------------- */

moxie_status mox_gguf_target_open(const mox_family *family, const char *model_type, const mox_dims *dims,
                                  const moxie_layer_config *source, bool has_correction, const mox_gguf_recipe *recipe,
                                  mox_gguf_target *out, moxie_error *error)
{
    *out = (mox_gguf_target) { .architecture = mox_gguf_architecture_of(family, model_type),
                               .recipe = recipe,
                               .dims = *dims,
                               .has_correction = has_correction,
                               .has_router_bias = source->router_has_bias != 0,
                               .has_expert_bias = source->bias13 != 0 || source->bias2 != 0 };
    MOX_FAIL_IF(!out->architecture, MOXIE_ERR_UNSUPPORTED, error,
                "models of %s (family %s) have no architecture in GGUF files that moxie knows; write a directory of "
                "safetensors instead",
                model_type ? model_type : family->model_types[0], family->id);
    MOX_TRY(make_metadata(out, source, error));
    out->has_shared_gate = out->family->names.shared_expert_gate != NULL;
    return MOXIE_OK;
}

void mox_gguf_target_close(mox_gguf_target *t)
{
    json_decref(t->metadata);
    json_decref(t->config);
    mox_arena_free(&t->arena);
    *t = (mox_gguf_target) { 0 };
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

typedef struct listing {
    const mox_gguf_target *target;
    int64_t layer;
    moxie_status (*visit)(void *user, const mox_tensor_spec *spec, moxie_error *error);
    void *user;
    moxie_error *error;
} listing;

static moxie_status name_spec(const listing *l, const char *name, const char *suffix, mox_tensor_spec *spec)
{
    MOX_FAIL_IF(!mox_expand_name(spec->name, sizeof spec->name, l->target->family->prefixes[0], name, l->layer, -1) ||
                    strlen(spec->name) + strlen(suffix) >= sizeof spec->name,
                MOXIE_ERR_ARGUMENT, l->error, "the name of %s in layer %lld is too long", name, (long long)l->layer);
    strcat(spec->name, suffix);
    return MOXIE_OK;
}

static moxie_status plain(const listing *l, const char *name, const char *suffix, mox_tensor_kind kind, int64_t a,
                          int64_t b)
{
    mox_tensor_spec spec = { .dtype = MOXIE_F32, .rank = b > 0 ? 2 : 1, .shape = { a, b }, .kind = kind, .expert = -1 };
    MOX_TRY(name_spec(l, name, suffix, &spec));
    return l->visit(l->user, &spec, l->error);
}

static moxie_status matrix(const listing *l, const char *name, mox_tensor_kind kind, moxie_dtype dtype, int64_t n,
                           int64_t k, int64_t stacked)
{
    const mox_hf_quant *format = mox_gguf_stored(dtype);
    if (!name)
        return MOXIE_OK;
    mox_tensor_spec spec = { .dtype = dtype,
                             .rank = stacked > 0 ? 3 : 2,
                             .shape = { stacked > 0 ? stacked : n, stacked > 0 ? n : k, stacked > 0 ? k : 0 },
                             .kind = kind,
                             .part = &format->parts[0],
                             .format = format,
                             .expert = -1,
                             .rows = n,
                             .cols = k,
                             .stacked = stacked };
    MOX_TRY(name_spec(l, name, ".weight", &spec));
    return l->visit(l->user, &spec, l->error);
}

static moxie_status routed(const listing *l, const char *name, mox_tensor_kind kind, int64_t n, int64_t k)
{
    const mox_gguf_target *t = l->target;
    moxie_dtype dtype;
    MOX_TRY(mox_gguf_recipe_type(t->recipe, kind, k, l->layer, t->dims.layers, &dtype, l->error));
    return matrix(l, name, kind, dtype, n, k, t->dims.experts);
}

static moxie_status router(const listing *l)
{
    const mox_gguf_target *t = l->target;
    const mox_names *names = &t->family->names;
    const int64_t e = t->dims.experts;
    MOX_TRY(plain(l, names->router, "", MOX_TENSOR_ROUTER, e, t->dims.hidden));
    if (t->has_router_bias)
        MOX_TRY(plain(l, names->router_bias, "", MOX_TENSOR_ROUTER_BIAS, e, 0));
    return t->has_correction ? plain(l, names->correction_bias, "", MOX_TENSOR_CORRECTION_BIAS, e, 0) : MOXIE_OK;
}

static moxie_status experts(const listing *l)
{
    const mox_gguf_target *t = l->target;
    const mox_names *names = &t->family->names;
    const int64_t e = t->dims.experts, h = t->dims.hidden, i = t->dims.intermediate;
    MOX_TRY(routed(l, names->gate, MOX_TENSOR_GATE, i, h));
    MOX_TRY(routed(l, names->up, MOX_TENSOR_UP, i, h));
    MOX_TRY(routed(l, names->down, MOX_TENSOR_DOWN, h, i));
    if (!t->has_expert_bias)
        return MOXIE_OK;
    if (names->gate)
        MOX_TRY(plain(l, names->gate, ".bias", MOX_TENSOR_GATE_BIAS, e, i));
    MOX_TRY(plain(l, names->up, ".bias", MOX_TENSOR_UP_BIAS, e, i));
    return plain(l, names->down, ".bias", MOX_TENSOR_DOWN_BIAS, e, h);
}

moxie_status mox_gguf_target_list(const mox_gguf_target *t, int64_t layer, moxie_dtype shared,
                                  moxie_status (*visit)(void *user, const mox_tensor_spec *spec, moxie_error *error),
                                  void *user, moxie_error *error)
{
    const listing l = { t, layer, visit, user, error };
    const mox_names *names = &t->family->names;
    const int64_t h = t->dims.hidden, s = t->dims.shared_intermediate;
    MOX_TRY(router(&l));
    MOX_TRY(experts(&l));
    if (s <= 0)
        return MOXIE_OK;
    MOX_TRY(matrix(&l, names->shared_gate, MOX_TENSOR_SHARED_GATE, shared, s, h, 0));
    MOX_TRY(matrix(&l, names->shared_up, MOX_TENSOR_SHARED_UP, shared, s, h, 0));
    MOX_TRY(matrix(&l, names->shared_down, MOX_TENSOR_SHARED_DOWN, shared, h, s, 0));
    return t->has_shared_gate ? plain(&l, names->shared_expert_gate, "", MOX_TENSOR_SHARED_EXPERT_GATE, h, 0)
                              : MOXIE_OK;
}
