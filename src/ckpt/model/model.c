/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c - opens a checkpoint directory: config.json, the quantization configuration wherever it is, the shards, the
 * MoE layers. Contradictions that do not prevent loading become warnings.
 *
 * Exclusion lists of quantization configurations are unreliable: some name containers, some nothing at all. So a module
 * that is excluded but stored quantized gives a warning, and the tensors decide.
 */
#include "ckpt/model/model.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/sizes.h"
#include "ckpt/families/config_keys.h"
#include "ckpt/safetensors/file.h"
#include "ckpt/formats/ct_presets.h"
#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/formats/quant_keys.h"
#include "ckpt/gguf/gguf_family.h"
#include "ckpt/gguf/gguf_header.h"
#include "ckpt/model/model_scan.h"
#include "ckpt/no_model.h"

/* nvidia/MiniMax-M3-NVFP4's config.json has 3 MB. */
#define CONFIG_LIMIT ((uint64_t)64 << 20)
/* More warnings only repeat each other. */
#define MAX_WARNINGS 64

static moxie_status no_memory(moxie_error *error)
{
    return mox_fail(MOXIE_ERR_MEMORY, error, "no memory to open a model");
}

static char *path_of(moxie_model *model, const char *dir, const char *name)
{
    return mox_arena_printf(&model->arena, "%s/%s", dir, name);
}

static moxie_status load_config(moxie_model *model, const char *dir, moxie_error *error)
{
    model->config_path = path_of(model, dir, "config.json");
    const char *params = path_of(model, dir, "params.json");
    if (!model->config_path || !params)
        return no_memory(error);
    /* A dangling link counts as absent; mox_no_model() reports it. */
    const bool absent = access(model->config_path, F_OK) != 0 && errno != EACCES;
    if (absent && access(params, F_OK) == 0)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, params, -1,
                             "a checkpoint in Mistral's own layout (params.json, no config.json); use the release in "
                             "Hugging Face layout");
    if (absent)
        return mox_no_model(dir, error);
    MOX_TRY(mox_json_load(model->config_path, CONFIG_LIMIT, true, &model->config, error));
    return mox_config_family(model->config, model->config_path, &model->family, &model->model_type, error);
}

/* Model Optimizer's list of layers may be in its own file alone. */
static bool is_incomplete(const json_t *quant_config)
{
    const char *algorithm = json_string_value(json_object_get(quant_config, "quant_algo"));
    return algorithm && strcmp(algorithm, "MIXED_PRECISION") == 0 && !json_object_get(quant_config, "moe_quant_algo") &&
           !json_object_get(quant_config, "quantized_layers");
}

static moxie_status load_quant_config(moxie_model *model, const char *dir, moxie_error *error)
{
    static const char *const names[] = { "hf_quant_config.json", "quantize_config.json" };
    const json_t *own = mox_quant_config_find(model->config);
    const int files = !own ? 2 : is_incomplete(own) ? 1 : 0;
    model->quant_config = own;
    if (own && !mox_ct_expand_presets(mox_json_iterable(own)))
        return no_memory(error);
    for (int i = 0; i < files && model->quant_config == own; i++) {
        const char *path = path_of(model, dir, names[i]);
        if (!path)
            return no_memory(error);
        if (!mox_file_exists(path))
            continue;
        MOX_TRY(mox_json_load(path, CONFIG_LIMIT, true, &model->quant_file, error));
        model->quant_config = mox_quant_config_from_file(model->quant_file);
        if (!model->quant_config) {
            model->quant_config = own;
            json_decref(model->quant_file);
            model->quant_file = NULL;
        }
    }
    return MOXIE_OK;
}

/* ---- GGUF ----------------------------------------------------------------------------------------- */

static moxie_status open_gguf(moxie_model *model, const char *path, const moxie_model_options *options,
                              moxie_error *error)
{
    model->gguf = true;
    model->config_path = mox_arena_printf(&model->arena, "%s", path);
    if (!model->config_path)
        return no_memory(error);
    MOX_TRY(mox_tensor_set_open_gguf(path, options->no_mmap != 0, &model->set, error));
    return mox_gguf_family(mox_tensor_set_gguf(model->set), path, &model->arena, &model->config, &model->family,
                           &model->model_type, error);
}

static moxie_status open_directory(moxie_model *model, const char *dir, const moxie_model_options *options,
                                   moxie_error *error)
{
    MOX_TRY(load_config(model, dir, error));
    MOX_TRY(load_quant_config(model, dir, error));
    if (options->tensors)
        return mox_tensor_set_of_tensors("tensors in memory", options->tensors, options->n_tensors, &model->set, error);
    return mox_tensor_set_open_dir(dir, options->no_mmap != 0, &model->set, error);
}

/* ---- warnings ----------------------------------------------------------------------------------- */

static bool warn(moxie_model *model, const char *text)
{
    if (text && model->n_warnings < MAX_WARNINGS)
        model->warnings[model->n_warnings++] = text;
    return text != NULL;
}

/* Name of the first matrix of a layer, per expert or stacked. NULL: there is none. */
static const char *first_matrix(const moxie_model *model, const mox_layer_place *place, bool stacked, char *buffer,
                                size_t size)
{
    const mox_names *names = place->other ? &model->family->other_names : &model->family->names;
    const char *name = stacked ? names->fused_gate_up : names->up;
    return name && mox_expand_name(buffer, size, model->family->prefixes[place->prefix], name, place->layer, 0) ? buffer
                                                                                                                : NULL;
}

static const mox_file_tensor *find_plain(const moxie_model *model, const char *name)
{
    char full[300];
    const mox_file_tensor *tensor = mox_tensor_set_find(model->set, name);
    if (tensor || strlen(name) + sizeof ".weight" > sizeof full)
        return tensor;
    strcpy(full, name);
    return mox_tensor_set_find(model->set, strcat(full, ".weight"));
}

/* True when the first matrix of the layer is not stored as plain floats. */
static bool is_packed(const moxie_model *model, const mox_layer_place *place)
{
    for (int stacked = 0; stacked < 2; stacked++) {
        char name[256];
        const mox_file_tensor *tensor =
            first_matrix(model, place, stacked, name, sizeof name) ? find_plain(model, name) : NULL;
        if (tensor)
            return tensor->view.dtype != MOXIE_BF16 && tensor->view.dtype != MOXIE_F16 &&
                   tensor->view.dtype != MOXIE_F32;
    }
    return true; /* .qweight, _blocks, ... */
}

static bool warn_layer(moxie_model *model, const mox_layer_place *place)
{
    char name[256];
    if (!is_packed(model, place) || !first_matrix(model, place, false, name, sizeof name) ||
        !mox_quant_config_excludes(model->quant_config, name))
        return true;
    return warn(
        model,
        mox_arena_printf(
            &model->arena,
            "%s is excluded from quantization by the configuration, but its tensors are quantized; the tensors decide",
            name));
}

static moxie_status warn_quant_keys(moxie_model *model, moxie_error *error)
{
    const char **keys;
    int64_t count;
    MOX_TRY(mox_quant_unread_keys(model->quant_config, &model->arena, &keys, &count, error));
    for (int64_t i = 0; i < count; i++)
        if (!warn(model, mox_arena_printf(&model->arena,
                                          "the quantization config has the key %s, which is not read; the numbers may "
                                          "be meant otherwise",
                                          keys[i])))
            return no_memory(error);
    return MOXIE_OK;
}

static moxie_status collect_warnings(moxie_model *model, moxie_error *error)
{
    model->warnings = mox_arena_calloc(&model->arena, MAX_WARNINGS, sizeof *model->warnings);
    if (!model->warnings)
        return no_memory(error);
    for (int64_t i = 0; i < mox_tensor_set_warnings(model->set); i++)
        warn(model, mox_tensor_set_warning(model->set, i));
    MOX_TRY(warn_quant_keys(model, error));
    bool fine = true;
    for (int64_t i = 0; fine && model->quant_config && i < model->n_places; i++)
        fine = warn_layer(model, &model->places[i]);
    if (!model->gguf && !model->quant_config && is_packed(model, &model->places[0]))
        fine = warn(model,
                    mox_arena_printf(&model->arena, "no quantization_config in config.json, hf_quant_config.json or "
                                                    "quantize_config.json: activations are assumed to be quantized as "
                                                    "is usual for the format of the tensors"));
    return fine ? MOXIE_OK : no_memory(error);
}

static moxie_status collect_unread_keys(moxie_model *model, moxie_error *error)
{
    int64_t *layers = mox_arena_calloc(&model->arena, (uint64_t)model->n_places, sizeof *layers);
    if (!layers)
        return no_memory(error);
    for (int64_t i = 0; i < model->n_places; i++)
        layers[i] = model->places[i].layer;
    return mox_config_unread_keys(model->family, model->config, layers, model->n_places, &model->arena,
                                  &model->unread_keys, &model->n_unread_keys, error);
}

/* ---- open and close ----------------------------------------------------------------------------- */

static moxie_status open_parts(moxie_model *model, const char *dir, const moxie_model_options *options,
                               moxie_error *error)
{
    model->activations = (moxie_activations_choice)options->activations;
    MOX_FAIL_IF(model->activations < MOXIE_ACTIVATIONS_CHECKPOINT || model->activations > MOXIE_ACTIVATIONS_GGML,
                MOXIE_ERR_ARGUMENT, error, "activations %d is no moxie_activations_choice", (int)model->activations);
    model->experts_only = options->experts_only != 0;
    model->allow_unread = options->allow_unread != 0;
    MOX_FAIL_IF(options->n_tensors < 0, MOXIE_ERR_ARGUMENT, error, "n_tensors is %lld", (long long)options->n_tensors);
    bool gguf = false;
    if (!options->tensors)
        MOX_TRY(mox_find_gguf_file(dir, &gguf, error));
    MOX_FAIL_IF(model->activations == MOXIE_ACTIVATIONS_GGML && !gguf, MOXIE_ERR_ARGUMENT, error,
                "%s is no GGUF file: activations as ggml quantizes them are for those; ask for the checkpoint's own",
                dir);
    MOX_TRY(gguf ? open_gguf(model, dir, options, error) : open_directory(model, dir, options, error));
    MOX_TRY(mox_model_scan(model, error));
    MOX_TRY(collect_unread_keys(model, error));
    return collect_warnings(model, error);
}

moxie_status mox_model_open(const char *dir, const moxie_model_options *options, moxie_model **out, moxie_error *error)
{
    moxie_model *model = mox_alloc(sizeof *model);
    if (!model)
        return no_memory(error);
    const moxie_status status = open_parts(model, dir, options, error);
    if (status == MOXIE_OK)
        *out = model;
    else
        mox_model_close(model);
    return status;
}

void mox_model_close(moxie_model *model)
{
    if (!model)
        return;
    mox_tensor_set_close(model->set);
    json_decref(model->config);
    json_decref(model->quant_file);
    mox_arena_free(&model->arena);
    mox_free(model);
}

void mox_model_get_info(const moxie_model *model, moxie_model_info *info)
{
    *info = (moxie_model_info) { .family = model->family->id,
                                 .model_type = model->model_type,
                                 .quant_method = model->gguf ? "gguf" : mox_quant_config_method(model->quant_config),
                                 .n_layers = model->n_places,
                                 .n_tensors = mox_tensor_set_count(model->set),
                                 .n_files = mox_tensor_set_files(model->set),
                                 .tensor_bytes = mox_tensor_set_bytes(model->set),
                                 .n_warnings = model->n_warnings,
                                 .n_unread_keys = model->n_unread_keys };
}

const char *mox_model_unread_key(const moxie_model *model, int64_t i)
{
    return i >= 0 && i < model->n_unread_keys ? model->unread_keys[i] : NULL;
}

const char *mox_model_warning(const moxie_model *model, int64_t i)
{
    return i >= 0 && i < model->n_warnings ? model->warnings[i] : NULL;
}
