/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize.c - all of a checkpoint (quantize.h):
 *
 *     check -> OUT.partial -> a file for each layer -> a file for each shard with other tensors
 *           -> index, other files, config.json -> is it read as what it should be? -> OUT
 */
#include "ckpt/quantize/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <moxie/moxie_version.h>

#include "activation/activation.h"
#include "base/checksum.h"
#include "base/whole_file.h"
#include "ckpt/families/layer_difference.h"
#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/gguf/gguf_header.h"
#include "ckpt/model/model.h"
#include "ckpt/quantize/quantize_dir.h"
#include "ckpt/quantize/quantize_gguf.h"
#include "ckpt/quantize/quantize_layer.h"
#include "ckpt/quantize/quantize_rest.h"
#include "ckpt/quantize/quantize_resume.h"
#include "ckpt/safetensors/seal.h"

typedef struct job {
    const char *source;
    const moxie_quantize_options *options;
    const moxie_executor *executor;
    moxie_model *model;
    mox_quantize_how how;
    mox_quantize_target target;
    mox_quantize_rest rest;
    mox_quantize_dir dir;
    mox_imatrix *imatrix; /* or NULL */
    int64_t files;
    uint64_t done_bytes, total_bytes;
    moxie_quantize_summary summary;
} job;

/* ---- what is asked ----------------------------------------------------------------------------------- */

static moxie_status choose_format(const char *id, mox_quantize_how *how, moxie_error *error)
{
    char names[1024] = "", escaped[64];
    size_t used = 0;
    const mox_hf_quant *f;
    for (int32_t i = 0; (f = mox_hf_quant_at(i)) != NULL; i++) {
        if (strcmp(f->id, id) == 0) {
            how->format = f;
            return MOXIE_OK;
        }
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, " %s", f->id);
    }
    return mox_fail(
        MOXIE_ERR_ARGUMENT, error,
        "there is no format \"%s\"; GGUF files have gguf-q8_0, gguf-q4_k and others, the other formats are:%s",
        mox_escape(escaped, sizeof escaped, id), names);
}

static moxie_status check_scales(const mox_quantize_how *how, moxie_error *error)
{
    const moxie_quant *w = &how->format->weight;
    MOX_FAIL_IF(how->scales < MOXIE_SCALES_PLAIN || how->scales > MOXIE_SCALES_FOUR_OVER_SIX, MOXIE_ERR_ARGUMENT, error,
                "options.scales is %d, which is none of moxie_quantize_scales", (int)how->scales);
    MOX_FAIL_IF(how->scales == MOXIE_SCALES_FOUR_OVER_SIX && (w->element != MOXIE_F4_E2M1 || !w->global),
                MOXIE_ERR_ARGUMENT, error,
                "\"four over six\" is about NVFP4's scales, and %s is not NVFP4: use mean square error instead",
                how->format->id);
    return MOXIE_OK;
}

/* Importances weight the errors among which scales are chosen. Where none are, they would change nothing. */
static moxie_status check_importances(const moxie_quantize_options *options, const char *id, bool has_scales,
                                      moxie_error *error)
{
    MOX_FAIL_IF(options->imatrix && !has_scales, MOXIE_ERR_ARGUMENT, error,
                "importances weight the errors among which a scale is chosen, and %s has no scales: leave them out",
                id);
    MOX_FAIL_IF(
        options->imatrix && options->scales == MOXIE_SCALES_PLAIN, MOXIE_ERR_ARGUMENT, error,
        "importances weight the errors among which a scale is chosen, and plain scales are not chosen: take those "
        "of least mean square error (--scales mse), or leave the importances out");
    return MOXIE_OK;
}

/* Magnitudes of activations are for static scales. Where there are none, they would change nothing. */
static moxie_status check_magnitudes(const moxie_quantize_options *options, const char *id, bool has_static_scales,
                                     moxie_error *error)
{
    MOX_FAIL_IF(!has_static_scales && (options->input_amax13 > 0 || options->input_amax2 > 0), MOXIE_ERR_ARGUMENT,
                error,
                "magnitudes of activations (--input-amax) become static scales, and %s has none for activations: leave "
                "them out",
                id);
    return MOXIE_OK;
}

/* Bytes of the source, and whether all of it is in the format already. */
static moxie_status survey(job *j, moxie_error *error)
{
    const moxie_model *model = j->model;
    bool other = false;
    for (int64_t i = 0; i < model->n_places; i++) {
        moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
        MOX_TRY(mox_model_describe_layer(model, i, &info, error));
        other = other || strcmp(info.format, j->how.format->id) != 0;
        j->summary.source_bytes += info.expert_bytes;
    }
    if (!other && !model->gguf)
        return mox_fail_file(MOXIE_ERR_ARGUMENT, error, j->source, -1,
                             "its experts are %s already; nothing would change", j->how.format->id);
    j->total_bytes = j->summary.source_bytes + j->rest.bytes;
    j->summary.layers = model->n_places;
    j->summary.copied_bytes = j->rest.bytes;
    j->summary.other_quantized = j->rest.quantized;
    j->summary.left_out = j->rest.left_out;
    return MOXIE_OK;
}

/* A directory that no loader understands is not worth hours of work. */
static moxie_status check_others(const job *j, moxie_error *error)
{
    char name[160];
    const mox_hf_quant *format = j->how.format;
    if (j->rest.quantized == 0 || j->options->allow_mixed)
        return MOXIE_OK;
    const char *method = mox_quant_config_method(j->model->quant_config);
    return mox_fail_file(
        MOXIE_ERR_UNSUPPORTED, error, j->source, -1,
        "%lld other modules are quantized (%s is the first), which are copied, and quantization_config "
        "cannot say that beside experts in %s: engines would not load the result. %s first, or set "
        "allow_mixed (--allow-mixed)",
        (long long)j->rest.quantized, mox_escape(name, sizeof name, j->rest.first_quantized), format->id,
        strcmp(method, "fp8") == 0 ? "Use w4afp8 or an fp8 format with the same blocks, dequantize them"
                                   : "Dequantize them");
}

static moxie_status open_source(job *j, moxie_error *error)
{
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    options.experts_only = !mox_is_gguf_file(j->source); /* of a GGUF file all is written under other names */
    options.allow_unread = j->options->allow_unread;
    MOX_TRY(mox_model_open(j->source, &options, &j->model, error));
    MOX_FAIL_IF(j->model->family->other_has_images, MOXIE_ERR_UNSUPPORTED, error,
                "%s keeps a second set of experts for images in the same stacks, which would be lost",
                j->model->family->id);
    MOX_TRY(mox_quantize_target_open(j->model, &j->target, error));
    MOX_TRY(mox_quantize_rest_open(j->model, &j->target, j->how.format, &j->rest, error));
    MOX_TRY(survey(j, error));
    return check_others(j, error);
}

/* A matrix without importances is found before hours of work, not after. */
static moxie_status open_imatrix(job *j, moxie_error *error)
{
    if (!j->options->imatrix)
        return MOXIE_OK;
    MOX_TRY(mox_imatrix_open(j->options->imatrix, &j->imatrix, error));
    const bool gated = mox_activation_is_gated(j->model->family->activation.kind);
    for (int64_t i = 0; i < j->model->n_places; i++)
        for (int32_t p = gated ? MOXIE_PROJECTION_GATE : MOXIE_PROJECTION_UP; p <= MOXIE_PROJECTION_DOWN; p++) {
            char name[MOX_IMPORTANCE_NAME];
            if (!mox_quantize_importance_name(j->imatrix, j->model->places[i].layer, p, name))
                return mox_fail_file(
                    MOXIE_ERR_MISMATCH, error, j->options->imatrix, -1,
                    "the importance matrix has no entry \"%s\": it is of another model, or of a part of it", name);
        }
    return MOXIE_OK;
}

/* ---- the manifest ------------------------------------------------------------------------------------ */

static moxie_status manifest(const job *j, json_t **out, moxie_error *error)
{
    char hash[17], importances[17];
    uint64_t sum = 0;
    MOX_TRY(mox_quantize_fingerprint(j->model, &sum, error));
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)sum);
    snprintf(importances, sizeof importances, "%016llx",
             (unsigned long long)(j->imatrix ? mox_imatrix_sum(j->imatrix) : 0));
    *out = json_pack("{s:s, s:s, s:i, s:s, s:f, s:f, s:s, s:I}", "version", MOXIE_VERSION_STRING, "format",
                     j->how.format->id, "scales", (int)j->how.scales, "imatrix_xxh3", importances, "input_amax13",
                     (double)j->options->input_amax13, "input_amax2", (double)j->options->input_amax2, "source_xxh3",
                     hash, "files", (json_int_t)j->files);
    MOX_FAIL_IF(!*out, MOXIE_ERR_MEMORY, error, "no memory for a manifest");
    return MOXIE_OK;
}

/* ---- files ------------------------------------------------------------------------------------------- */

static const char *file_path(job *j, int64_t i)
{
    char name[64];
    if (j->files == 1)
        return mox_quantize_dir_path(&j->dir, "model.safetensors");
    snprintf(name, sizeof name, "model-%05lld-of-%05lld.safetensors", (long long)i + 1, (long long)j->files);
    return mox_quantize_dir_path(&j->dir, name);
}

static moxie_status advance(void *user, uint64_t bytes, moxie_error *error)
{
    job *j = user;
    j->done_bytes += bytes;
    if (j->options->progress && j->options->progress(j->options->progress_user, j->done_bytes, j->total_bytes) != 0)
        return mox_fail(MOXIE_ERR_TIMEOUT, error,
                        "stopped after %llu of %llu bytes; the same call goes on behind finished layers",
                        (unsigned long long)j->done_bytes, (unsigned long long)j->total_bytes);
    return MOXIE_OK;
}

static moxie_status make_layer(job *j, int64_t i, uint64_t *bytes, moxie_error *error)
{
    const double amax[2] = { (double)j->options->input_amax13, (double)j->options->input_amax2 };
    mox_quantize_layer layer = { 0 };
    moxie_status status =
        mox_quantize_layer_open(j->model, &j->target, j->model->places[i].layer, &j->how, amax, &layer, error);
    layer.imatrix = j->imatrix;
    if (status == MOXIE_OK)
        status = mox_quantize_layer_write(&layer, file_path(j, i), j->executor, advance, j, error);
    if (status == MOXIE_OK)
        status = mox_whole_file_write(mox_quantize_dir_errors_path(&j->dir, i), layer.errors,
                                      (uint64_t)layer.n_experts * 3 * sizeof *layer.errors, error);
    if (status == MOXIE_OK) {
        mox_quantize_dir_keep(&j->dir);
        mox_quantize_report(j->options, layer.errors, 3 * layer.n_experts);
    }
    for (int64_t s = 0; s < layer.n_specs; s++)
        *bytes += mox_quantize_tensor_bytes(&layer.specs[s]);
    mox_quantize_layer_close(&layer);
    return status;
}

static moxie_status do_layer(job *j, int64_t i, moxie_error *error)
{
    uint64_t bytes = 0;
    if (!mox_quantize_is_finished(file_path(j, i), &bytes) ||
        !mox_quantize_report_finished(j->options, mox_quantize_dir_errors_path(&j->dir, i))) {
        bytes = 0;
        MOX_TRY(make_layer(j, i, &bytes, error));
    } else {
        moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
        MOX_TRY(mox_model_describe_layer(j->model, i, &info, error));
        MOX_TRY(advance(j, info.expert_bytes, error));
        j->summary.resumed_layers++;
    }
    j->summary.expert_bytes += bytes;
    return MOXIE_OK;
}

static moxie_status do_rest(job *j, int64_t i, moxie_error *error)
{
    uint64_t bytes = 0;
    const char *path = file_path(j, j->model->n_places + i);
    if (!mox_quantize_is_finished(path, &bytes))
        MOX_TRY(mox_quantize_rest_write(&j->rest, i, path, error));
    return advance(j, j->rest.shard_bytes[i], error);
}

/* ---- index, configuration ---------------------------------------------------------------------------- */

static json_t *index_of(const mox_tensor_set *set)
{
    json_t *map = json_object();
    bool fine = map != NULL;
    for (int64_t i = 0; fine && i < mox_tensor_set_count(set); i++) {
        const mox_file_tensor *t = mox_tensor_set_at(set, i);
        const char *path = mox_tensor_set_file_name(set, t->file), *slash = strrchr(path, '/');
        fine = json_object_set_new(map, t->name, json_string(slash ? slash + 1 : path)) == 0;
    }
    if (fine)
        return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)mox_tensor_set_bytes(set),
                         "weight_map", map);
    json_decref(map);
    return NULL;
}

static moxie_status write_index(job *j, moxie_error *error)
{
    mox_tensor_set *set = NULL;
    if (j->files == 1)
        return MOXIE_OK;
    MOX_TRY(mox_tensor_set_open_dir(j->dir.partial, false, &set, error));
    json_t *index = index_of(set);
    mox_tensor_set_close(set);
    const moxie_status status =
        mox_json_write(mox_quantize_dir_path(&j->dir, "model.safetensors.index.json"), index, error);
    json_decref(index);
    return status;
}

static moxie_status write_config(job *j, moxie_error *error)
{
    json_t *config = NULL;
    if (!j->model->gguf)
        MOX_TRY(mox_quantize_rest_files(j->source, j->dir.partial, error));
    MOX_TRY(mox_quantize_rest_config(&j->rest, j->how.format, &config, error));
    const moxie_status status = mox_json_write(mox_quantize_dir_path(&j->dir, "config.json"), config, error);
    json_decref(config);
    return status;
}

/* Layers of a GGUF file have got another configuration. */
static moxie_status check_same(job *j, const moxie_model *result, int64_t layer, moxie_error *error)
{
    moxie_model_layer *before = NULL, *after = NULL;
    if (!j->model->gguf)
        return MOXIE_OK;
    moxie_status status = mox_model_load_layer(j->model, layer, &before, error);
    if (status == MOXIE_OK)
        status = mox_model_load_layer(result, layer, &after, error);
    const char *found = status == MOXIE_OK ? mox_layer_difference(&before->config, &after->config) : NULL;
    if (found)
        status = mox_fail_file(MOXIE_ERR_MISMATCH, error, j->dir.partial, -1,
                               "layer %lld would be read with %s of another kind than in the GGUF file: choose a gguf "
                               "format",
                               (long long)layer, found);
    mox_model_layer_free(before);
    mox_model_layer_free(after);
    return status;
}

/* The reader must find in the result what was written. */
static moxie_status check_result(job *j, moxie_error *error)
{
    moxie_model *model = NULL;
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    options.experts_only = !j->model->gguf;
    options.allow_unread = j->options->allow_unread;
    MOX_TRY(mox_model_open(j->dir.partial, &options, &model, error));
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; i < j->model->n_places && status == MOXIE_OK; i++) {
        moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
        status = mox_model_describe_layer(model, i, &info, error);
        if (status == MOXIE_OK && strcmp(info.format, j->how.format->id) != 0)
            status = mox_fail_file(MOXIE_ERR_MISMATCH, error, j->dir.partial, -1,
                                   "layer %lld would be read as %s, not as %s: in this family's checkpoints the two "
                                   "cannot be told apart",
                                   (long long)info.layer, info.format, j->how.format->id);
        if (status == MOXIE_OK)
            status = check_same(j, model, info.layer, error);
    }
    mox_model_close(model);
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------------- */

static moxie_status write_all(job *j, moxie_error *error)
{
    for (int64_t i = 0; i < j->model->n_places; i++)
        MOX_TRY(do_layer(j, i, error));
    for (int64_t i = 0; i < j->rest.n_shards; i++)
        MOX_TRY(do_rest(j, i, error));
    MOX_TRY(write_index(j, error));
    MOX_TRY(write_config(j, error));
    MOX_TRY(check_result(j, error));
    return mox_quantize_dir_commit(&j->dir, error);
}

static moxie_status check(job *j, const char *out, moxie_error *error)
{
    MOX_TRY(choose_format(j->options->format, &j->how, error));
    MOX_TRY(check_scales(&j->how, error));
    const mox_hf_quant *format = j->how.format;
    MOX_TRY(check_importances(j->options, format->id, !mox_quant_is_plain(&format->weight), error));
    MOX_TRY(check_magnitudes(j->options, format->id, mox_quantize_has_static_scales(format), error));
    MOX_TRY(mox_quantize_dir_check(out, error));
    return open_source(j, error);
}

static moxie_status start(job *j, const char *out, moxie_error *error)
{
    MOX_TRY(check(j, out, error));
    MOX_TRY(open_imatrix(j, error));
    j->files = j->model->n_places + j->rest.n_shards;
    json_t *m = NULL;
    MOX_TRY(manifest(j, &m, error));
    const moxie_status status = mox_quantize_dir_open(out, m, &j->dir, error);
    json_decref(m);
    return status;
}

static moxie_status make_job(const char *dir, const moxie_quantize_options *options, const moxie_executor *executor,
                             job **out, moxie_error *error)
{
    job *j = mox_alloc(sizeof *j);
    MOX_FAIL_IF(!j, MOXIE_ERR_MEMORY, error, "no memory to quantize");
    j->source = dir;
    j->options = options;
    j->executor = executor;
    j->how = (mox_quantize_how) { .scales = options->scales, .loops = mox_weight_loops_best() };
    j->dir.held.fd = j->dir.number = -1;
    *out = j;
    return MOXIE_OK;
}

static void free_job(job *j)
{
    mox_quantize_dir_close(&j->dir);
    mox_quantize_rest_close(&j->rest);
    mox_quantize_target_close(&j->target);
    mox_model_close(j->model);
    mox_imatrix_close(j->imatrix);
    mox_free(j);
}

/* The recipe of a GGUF format; NULL: a format of directories. */
static moxie_status find_recipe(const moxie_quantize_options *options, const mox_gguf_recipe **out, moxie_error *error)
{
    const mox_gguf_recipe *recipe = *out = mox_gguf_recipe_by_id(options->format);
    if (!recipe)
        return MOXIE_OK;
    const bool has_scales = mox_block_of(MOX_BLOCK_DTYPE + recipe->gate_up) != NULL;
    MOX_TRY(check_importances(options, recipe->id, has_scales, error));
    return check_magnitudes(options, recipe->id, false, error);
}

moxie_status mox_quantize_check(const char *dir, const char *out, const moxie_quantize_options *options,
                                moxie_error *error)
{
    const mox_gguf_recipe *recipe;
    job *j;
    MOX_TRY(find_recipe(options, &recipe, error));
    mox_quantize_dir_settle(out);
    if (recipe)
        return mox_quantize_gguf_check(dir, out, recipe, options, error);
    MOX_TRY(make_job(dir, options, NULL, &j, error));
    const moxie_status status = check(j, out, error);
    free_job(j);
    return status;
}

moxie_status mox_quantize(const char *dir, const char *out, const moxie_quantize_options *options,
                          const moxie_executor *executor, moxie_quantize_summary *summary, moxie_error *error)
{
    const mox_gguf_recipe *recipe;
    job *j;
    MOX_TRY(find_recipe(options, &recipe, error));
    mox_quantize_dir_settle(out);
    if (recipe)
        return mox_quantize_gguf(dir, out, recipe, options, executor, summary, error);
    MOX_TRY(make_job(dir, options, executor, &j, error));
    moxie_status status = start(j, out, error);
    if (status == MOXIE_OK)
        status = write_all(j, error);
    if (status == MOXIE_OK)
        *summary = j->summary;
    free_job(j);
    return status;
}
