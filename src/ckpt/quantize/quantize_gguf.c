/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_gguf.c - all of a checkpoint as one GGUF file (quantize_gguf.h):
 *
 *     check: architecture, types -> OUT.partial -> a sealed file for each layer (quantize_blocks.c)
 *           -> quantize_gguf_file.c: one GGUF file of them -> is it read as what it should be? -> OUT
 */
#include "ckpt/quantize/quantize_gguf.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <moxie/moxie_version.h>

#include "base/whole_file.h"
#include "ckpt/gguf/gguf_header.h"
#include "ckpt/gguf/gguf_tokenizer.h"
#include "ckpt/model/model.h"
#include "ckpt/quantize/quantize_gguf_file.h"
#include "ckpt/quantize/quantize_plain.h"
#include "ckpt/quantize/quantize_resume.h"

/* ---- what is asked ----------------------------------------------------------------------------------- */

static moxie_status check_options(const mox_gguf_job *j, const char *out, moxie_error *error)
{
    struct stat info;
    MOX_FAIL_IF(j->options->scales != MOXIE_SCALES_PLAIN && j->options->scales != MOXIE_SCALES_MSE, MOXIE_ERR_ARGUMENT,
                error, "options.scales is %d; GGUF types have plain scales or those of least mean square error",
                (int)j->options->scales);
    if (stat(out, &info) == 0)
        return mox_fail_file(MOXIE_ERR_IO, error, out, -1, "it exists already; name a new file, or remove this one");
    return MOXIE_OK;
}

/* ---- a directory ------------------------------------------------------------------------------------- */

static moxie_status open_target(mox_gguf_job *j, moxie_error *error)
{
    const moxie_model *model = j->model;
    moxie_model_layer *loaded = NULL;
    mox_dims dims;
    moxie_layer_config ignored = MOXIE_LAYER_CONFIG_INIT;
    const int64_t first = model->places[0].layer;
    MOX_TRY(mox_config_layer(model->family, model->config, model->config_path, first, &dims, &ignored, error));
    MOX_TRY(mox_model_load_layer(model, first, &loaded, error));
    dims.experts = loaded->weights.n_experts;
    dims.shared_intermediate = loaded->config.shared.intermediate;
    const int64_t last = model->places[model->n_places - 1].layer;
    dims.layers = dims.layers > last ? dims.layers : last + 1;
    j->shared = mox_quantize_shared_dtype(&loaded->config);
    const moxie_status status = mox_gguf_target_open(model->family, model->model_type, &dims, &loaded->config,
                                                     loaded->config.routing.bias != NULL, j->recipe, &j->target, error);
    mox_model_layer_free(loaded);
    j->owned = mox_calloc((uint64_t)mox_tensor_set_count(model->set), 1);
    MOX_FAIL_IF(status == MOXIE_OK && !j->owned, MOXIE_ERR_MEMORY, error, "no memory for a list of tensors");
    MOX_TRY(status);
    MOX_TRY(mox_gguf_tokenizer_add(j->source, j->target.architecture, model->config, j->target.metadata,
                                   &j->summary.tokens, &j->summary.no_tokenizer, error));
    return mox_gguf_target_add_keys(&j->target, model->config, error);
}

static moxie_status add_spec(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    mox_gguf_job *j = user;
    if (j->n_specs == j->room) {
        const int64_t room = j->room > 0 ? 2 * j->room : 64;
        mox_tensor_spec *grown = mox_realloc(j->specs, (uint64_t)room * sizeof *grown);
        MOX_FAIL_IF(!grown, MOXIE_ERR_MEMORY, error, "no memory for %lld tensors", (long long)room);
        j->specs = grown;
        j->room = room;
    }
    j->specs[j->n_specs++] = *spec;
    return MOXIE_OK;
}

static moxie_status list_directory_layer(mox_gguf_job *j, int64_t i, moxie_error *error)
{
    moxie_model_layer *loaded = NULL;
    const int64_t layer = j->model->places[i].layer;
    MOX_TRY(mox_model_load_layer(j->model, layer, &loaded, error));
    moxie_status status = mox_gguf_target_check(&j->target, layer, &loaded->config, error);
    if (status == MOXIE_OK && (loaded->config.routing.bias != NULL) != j->target.has_correction)
        status = mox_fail(MOXIE_ERR_UNSUPPORTED, error,
                          "layer %lld has a correction bias, or has none, unlike the first: GGUF has no place for that",
                          (long long)layer);
    for (int64_t t = 0; t < mox_tensor_set_count(j->model->set); t++)
        j->owned[t] |= loaded->read[t];
    mox_model_layer_free(loaded);
    return status == MOXIE_OK ? mox_gguf_target_list(&j->target, layer, j->shared, add_spec, j, error) : status;
}

/* ---- a GGUF file ------------------------------------------------------------------------------------- */

/* The routed experts' stacks alone: all else is copied. */
static moxie_status list_file_layer(mox_gguf_job *j, int64_t i, moxie_error *error)
{
    static const mox_tensor_kind kinds[3] = { MOX_TENSOR_GATE, MOX_TENSOR_UP, MOX_TENSOR_DOWN };
    const mox_names *names = &j->model->family->names;
    const char *const name[3] = { names->gate, names->up, names->down };
    const int64_t layer = j->model->places[i].layer;
    const int64_t layers = json_integer_value(json_object_get(j->model->config, "num_hidden_layers"));
    for (int k = 0; k < 3; k++) {
        mox_tensor_spec spec = { .kind = kinds[k], .rank = 3, .expert = -1 };
        if (!name[k])
            continue;
        snprintf(spec.name, sizeof spec.name, "blk.%lld.%s.weight", (long long)layer, name[k]);
        const mox_file_tensor *t = mox_tensor_set_find(j->model->set, spec.name);
        if (!t || t->view.rank != 3)
            return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, j->source, -1,
                                 "there is no stack %s: experts in one tensor each, or gate and up in one, are read, "
                                 "but not requantized; convert the model again",
                                 spec.name);
        memcpy(spec.shape, t->view.shape, 3 * sizeof spec.shape[0]);
        spec.stacked = spec.shape[0], spec.rows = spec.shape[1], spec.cols = spec.shape[2];
        MOX_TRY(mox_gguf_recipe_type(j->recipe, kinds[k], spec.cols, layer, layers, &spec.dtype, error));
        spec.format = mox_gguf_stored(spec.dtype);
        spec.part = &spec.format->parts[0];
        j->changes = j->changes || t->view.dtype != spec.dtype;
        MOX_TRY(add_spec(j, &spec, error));
    }
    return MOXIE_OK;
}

/* ---- the source -------------------------------------------------------------------------------------- */

static moxie_status open_imatrix(mox_gguf_job *j, moxie_error *error)
{
    if (!j->options->imatrix)
        return MOXIE_OK;
    MOX_TRY(mox_imatrix_open(j->options->imatrix, &j->imatrix, error));
    for (int64_t i = 0; i < j->n_specs; i++)
        if (mox_quantize_is_routed(&j->specs[i]) && !mox_imatrix_has(j->imatrix, j->specs[i].name))
            return mox_fail_file(
                MOXIE_ERR_MISMATCH, error, j->options->imatrix, -1,
                "the importance matrix has no entry \"%s\": it is of another model, or of a part of it",
                j->specs[i].name);
    return MOXIE_OK;
}

static moxie_status list_layers(mox_gguf_job *j, moxie_error *error)
{
    const moxie_model *model = j->model;
    j->first = mox_calloc((uint64_t)model->n_places + 1, sizeof *j->first);
    MOX_FAIL_IF(!j->first, MOXIE_ERR_MEMORY, error, "no memory for a list of layers");
    for (int64_t i = 0; i < model->n_places; i++) {
        moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
        MOX_TRY(mox_model_describe_layer(model, i, &info, error));
        MOX_TRY(model->gguf ? list_file_layer(j, i, error) : list_directory_layer(j, i, error));
        j->first[i + 1] = j->n_specs;
        j->summary.source_bytes += info.expert_bytes;
    }
    if (model->gguf && !j->changes)
        return mox_fail_file(MOXIE_ERR_ARGUMENT, error, j->source, -1,
                             "its experts are %s already; nothing would change", j->recipe->id);
    j->summary.layers = model->n_places;
    return MOXIE_OK;
}

static moxie_status open_source(mox_gguf_job *j, moxie_error *error)
{
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    options.allow_unread = j->options->allow_unread;
    options.experts_only = mox_is_gguf_file(j->source);
    MOX_TRY(mox_model_open(j->source, &options, &j->model, error));
    MOX_FAIL_IF(j->model->family->other_has_images, MOXIE_ERR_UNSUPPORTED, error,
                "%s keeps a second set of experts for images in the same stacks, which would be lost",
                j->model->family->id);
    if (!j->model->gguf)
        MOX_TRY(open_target(j, error));
    return list_layers(j, error);
}

static moxie_status manifest(const mox_gguf_job *j, json_t **out, moxie_error *error)
{
    char hash[2][17];
    uint64_t sum = 0;
    MOX_TRY(mox_quantize_fingerprint(j->model, &sum, error));
    snprintf(hash[0], sizeof hash[0], "%016llx", (unsigned long long)sum);
    snprintf(hash[1], sizeof hash[1], "%016llx", (unsigned long long)(j->imatrix ? mox_imatrix_sum(j->imatrix) : 0));
    *out = json_pack("{s:s, s:s, s:i, s:s, s:s, s:I}", "version", MOXIE_VERSION_STRING, "format", j->recipe->id,
                     "scales", (int)j->options->scales, "imatrix_xxh3", hash[1], "source_xxh3", hash[0], "files",
                     (json_int_t)j->model->n_places);
    MOX_FAIL_IF(!*out, MOXIE_ERR_MEMORY, error, "no memory for a manifest");
    return MOXIE_OK;
}

/* ---- layers ------------------------------------------------------------------------------------------ */

static moxie_status advance(void *user, uint64_t bytes, moxie_error *error)
{
    mox_gguf_job *j = user;
    j->done_bytes += bytes;
    if (j->options->progress &&
        j->options->progress(j->options->progress_user, j->done_bytes, j->summary.source_bytes) != 0)
        return mox_fail(MOXIE_ERR_TIMEOUT, error,
                        "stopped after %llu of %llu bytes; the same call goes on behind finished layers",
                        (unsigned long long)j->done_bytes, (unsigned long long)j->summary.source_bytes);
    return MOXIE_OK;
}

static moxie_status make_layer(mox_gguf_job *j, int64_t i, moxie_error *error)
{
    mox_quantize_blocks layer = { .layer = j->model->places[i].layer,
                                  .specs = j->specs + j->first[i],
                                  .n_specs = j->first[i + 1] - j->first[i],
                                  .search = j->options->scales == MOXIE_SCALES_MSE,
                                  .imatrix = j->imatrix };
    MOX_TRY(mox_model_load_layer(j->model, layer.layer, &layer.loaded, error));
    layer.n_experts = layer.loaded->weights.n_experts;
    layer.errors = mox_calloc((uint64_t)layer.n_experts * 3, sizeof *layer.errors);
    moxie_status status = layer.errors ? MOXIE_OK : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for a list of errors");
    if (status == MOXIE_OK)
        status = mox_quantize_blocks_write(&layer, mox_gguf_job_layer_path(j, i), j->executor, advance, j, error);
    if (status == MOXIE_OK)
        status = mox_whole_file_write(mox_quantize_dir_errors_path(&j->dir, i), layer.errors,
                                      (uint64_t)layer.n_experts * 3 * sizeof *layer.errors, error);
    if (status == MOXIE_OK) {
        mox_quantize_dir_keep(&j->dir);
        mox_quantize_report(j->options, layer.errors, 3 * layer.n_experts);
    }
    mox_free(layer.errors);
    mox_model_layer_free(layer.loaded);
    return status;
}

static moxie_status do_layer(mox_gguf_job *j, int64_t i, moxie_error *error)
{
    uint64_t bytes = 0;
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    if (!mox_quantize_is_finished(mox_gguf_job_layer_path(j, i), &bytes) ||
        !mox_quantize_report_finished(j->options, mox_quantize_dir_errors_path(&j->dir, i)))
        return make_layer(j, i, error);
    MOX_TRY(mox_model_describe_layer(j->model, i, &info, error));
    j->summary.resumed_layers++;
    return advance(j, info.expert_bytes, error);
}

/* ---- all of it --------------------------------------------------------------------------------------- */

static moxie_status write_all(mox_gguf_job *j, moxie_error *error)
{
    for (int64_t i = 0; i < j->model->n_places; i++)
        MOX_TRY(do_layer(j, i, error));
    MOX_TRY(mox_gguf_job_assemble(j, error));
    return mox_quantize_dir_commit_file(&j->dir, error);
}

static moxie_status check(mox_gguf_job *j, const char *out, moxie_error *error)
{
    MOX_TRY(check_options(j, out, error));
    return open_source(j, error);
}

static moxie_status start(mox_gguf_job *j, const char *out, moxie_error *error)
{
    json_t *m = NULL;
    MOX_TRY(check(j, out, error));
    MOX_TRY(open_imatrix(j, error));
    MOX_TRY(manifest(j, &m, error));
    const moxie_status status = mox_quantize_dir_open(out, m, &j->dir, error);
    json_decref(m);
    return status;
}

static moxie_status make_job(const char *source, const mox_gguf_recipe *recipe, const moxie_quantize_options *options,
                             const moxie_executor *executor, mox_gguf_job **out, moxie_error *error)
{
    mox_gguf_job *j = mox_alloc(sizeof *j);
    MOX_FAIL_IF(!j, MOXIE_ERR_MEMORY, error, "no memory to quantize");
    j->source = source;
    j->recipe = recipe;
    j->options = options;
    j->executor = executor;
    j->dir.held.fd = j->dir.number = -1;
    *out = j;
    return MOXIE_OK;
}

static void free_job(mox_gguf_job *j)
{
    mox_quantize_dir_close(&j->dir);
    mox_gguf_target_close(&j->target);
    mox_imatrix_close(j->imatrix);
    mox_model_close(j->model);
    mox_free(j->specs);
    mox_free(j->first);
    mox_free(j->owned);
    mox_free(j);
}

moxie_status mox_quantize_gguf_check(const char *source, const char *out, const mox_gguf_recipe *recipe,
                                     const moxie_quantize_options *options, moxie_error *error)
{
    mox_gguf_job *j;
    MOX_TRY(make_job(source, recipe, options, NULL, &j, error));
    const moxie_status status = check(j, out, error);
    free_job(j);
    return status;
}

moxie_status mox_quantize_gguf(const char *source, const char *out, const mox_gguf_recipe *recipe,
                               const moxie_quantize_options *options, const moxie_executor *executor,
                               moxie_quantize_summary *summary, moxie_error *error)
{
    mox_gguf_job *j;
    MOX_TRY(make_job(source, recipe, options, executor, &j, error));
    moxie_status status = start(j, out, error);
    if (status == MOXIE_OK)
        status = write_all(j, error);
    if (status == MOXIE_OK)
        *summary = j->summary;
    free_job(j);
    return status;
}
