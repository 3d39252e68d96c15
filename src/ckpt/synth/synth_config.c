/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_config.c - config.json of a synthetic checkpoint:
 *
 *     the family's keys with the (reduced) numbers             mox_family_config_json
 *     + the preset's own keys                                  presets.def, fitted to the number of layers
 *     + quantization_config as the format's tools write it     hf_quant.def, with the modules left alone
 */
#include "ckpt/synth/synth_config.h"

#include <string.h>

#include "base/memory.h"

/* Modules that are not quantized: the router of each layer, the shared expert where its format is plain, the head. */
typedef struct ignored {
    mox_arena arena;
    const char **names;
    int64_t count;
    bool failed;
} ignored;

static void ignore_module(ignored *list, const mox_family *family, int64_t layer, const char *name)
{
    static const char weight[] = ".weight";
    char buffer[256];
    if (!name)
        return;
    if (!mox_expand_name(buffer, sizeof buffer, family->prefixes[0], name, layer, 0)) {
        list->failed = true;
        return;
    }
    uint64_t length = strlen(buffer);
    if (length > strlen(weight) && strcmp(buffer + length - strlen(weight), weight) == 0)
        length -= strlen(weight);
    const char *copy = mox_arena_strndup(&list->arena, buffer, length);
    list->failed = list->failed || !copy;
    list->names[list->count++] = copy;
}

static bool list_ignored(const mox_synth_model *m, ignored *list)
{
    const mox_names *names = &m->family->names;
    list->names = mox_arena_calloc(&list->arena, (uint64_t)m->layers * 5 + 1, sizeof *list->names);
    if (!list->names)
        return false;
    const bool shared = m->dims.shared_intermediate > 0 && mox_quant_is_plain(&m->shared->weight);
    for (int64_t i = 0; i < m->layers; i++) {
        const int64_t layer = mox_preset_layer(m->preset, i);
        ignore_module(list, m->family, layer, names->router);
        ignore_module(list, m->family, layer, names->shared_expert_gate);
        ignore_module(list, m->family, layer, shared ? names->shared_gate : NULL);
        ignore_module(list, m->family, layer, shared ? names->shared_up : NULL);
        ignore_module(list, m->family, layer, shared ? names->shared_down : NULL);
    }
    list->names[list->count++] = "lm_head";
    return !list->failed;
}

/* quantization_config with the list of modules that are not quantized; NULL when out of memory. */
static json_t *quantization_config(const mox_synth_model *m)
{
    ignored list = { 0 };
    json_t *config = NULL;
    if (list_ignored(m, &list))
        config = m->routed->write_config(m->routed, list.names, list.count);
    mox_arena_free(&list.arena);
    return config;
}

/* An empty list stands for one 0 or 1 per layer. A pattern is cut behind the last layer written. */
static bool fit_to_layers(const mox_synth_model *m, json_t *extra)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(extra, next, key, value)
    {
        if (json_is_array(value) && json_array_size(value) == 0) {
            for (int64_t layer = 0, i = 0; layer < m->dims.layers; layer++) {
                const bool mixture = i < m->layers && mox_preset_layer(m->preset, i) == layer;
                i += mixture;
                if (json_array_append_new(value, json_integer(mixture)) != 0)
                    return false;
            }
        } else if (strcmp(key, "hybrid_override_pattern") == 0) {
            json_t *pattern = json_stringn(json_string_value(value), (size_t)m->dims.layers);
            if (json_object_set_new(extra, key, pattern) != 0)
                return false;
        }
    }
    return true;
}

/* Merges the keys of `own` over those of `config`; null removes a key. */
static bool merge(json_t *config, json_t *own)
{
    const char *key;
    json_t *value;
    void *next;
    if (json_object_update(config, own) != 0)
        return false;
    json_object_foreach_safe(config, next, key, value)
    {
        if (json_is_null(json_object_get(own, key)))
            json_object_del(config, key);
    }
    return true;
}

/* Adds the keys of the preset to `section`, and quantization_config there or at the top level, where the release has
 * it. */
static bool add_keys(const mox_synth_model *m, json_t *extra, json_t *section, json_t *top)
{
    json_t *own = json_incref(json_object_get(extra, "quantization_config"));
    json_object_del(extra, "quantization_config");
    bool fine = fit_to_layers(m, extra) && json_object_update_recursive(section, extra) == 0;
    if (fine && m->routed->write_config) {
        json_t *quantization = quantization_config(m);
        fine = quantization != NULL;
        if (fine && own && strcmp(m->routed->id, m->preset->formats[0]) == 0)
            fine = merge(quantization, own);
        fine = fine && json_object_set(own ? section : top, "quantization_config", quantization) == 0;
        json_decref(quantization);
    }
    json_decref(own);
    return fine;
}

/* The object at a path whose dots descend; the config itself when `path` is NULL, NULL when there is none. */
static json_t *section_of(json_t *config, const char *path)
{
    char head[64];
    while (config && path) {
        const size_t length = strcspn(path, ".");
        if (length >= sizeof head)
            return NULL;
        memcpy(head, path, length);
        head[length] = 0;
        config = json_object_get(config, head);
        path = path[length] ? path + length + 1 : NULL;
    }
    return config;
}

moxie_status mox_synth_config(const mox_synth_model *model, json_t **out, moxie_error *error)
{
    json_t *config = mox_family_config_json(model->family, &model->dims, model->preset->model_type);
    json_t *section = section_of(config, model->family->config_section);
    const char *text = mox_preset_config_text(model->preset);
    json_t *extra = NULL;
    const moxie_status status = mox_json_parse(text, strlen(text), false, "presets.def", &extra, error);
    const bool fine = status == MOXIE_OK && section && add_keys(model, extra, section, config);
    json_decref(extra);
    if (fine) {
        *out = config;
        return MOXIE_OK;
    }
    json_decref(config);
    return status != MOXIE_OK ? status : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for config.json");
}
