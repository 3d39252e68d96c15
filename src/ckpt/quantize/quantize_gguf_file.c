/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_gguf_file.c - puts the layers' tensors into one GGUF file (quantize_gguf_file.h).
 */
#include "ckpt/quantize/quantize_gguf_file.h"

#include <stdio.h>
#include <string.h>

#include "base/sizes.h"
#include "ckpt/gguf/gguf_names.h"
#include "ckpt/gguf/gguf_writer.h"
#include "ckpt/model/model.h"
#include "ckpt/name_map.h"
#include "ckpt/quantize/quantize_plain.h"
#include "format/format.h"

enum { CHUNK = 8 << 20 };

/* The tensors of the result. A tensor has the number `spec` of a made one, or lies in the source. */
typedef struct assembly {
    mox_gguf_job *job;
    mox_tensor_decl *decls;
    int64_t *spec; /* -1: copied */
    const mox_file_tensor **copied;
    int64_t count;
    mox_gguf_pairs pairs;
    mox_gguf_writer *writer;
    mox_arena arena;
} assembly;

const char *mox_gguf_job_layer_path(mox_gguf_job *j, int64_t i)
{
    char name[64];
    snprintf(name, sizeof name, "model-%05lld.safetensors", (long long)i + 1);
    return mox_quantize_dir_path(&j->dir, name);
}

const char *mox_gguf_job_result_path(mox_gguf_job *j)
{
    return mox_quantize_dir_path(&j->dir, MOX_QUANTIZE_FILE);
}

/* ---- the list ---------------------------------------------------------------------------------------- */

static void add_made(assembly *a, int64_t spec)
{
    const mox_tensor_spec *s = &a->job->specs[spec];
    mox_tensor_decl *d = &a->decls[a->count];
    *d = (mox_tensor_decl) { .name = s->name, .dtype = s->dtype, .rank = s->rank };
    memcpy(d->shape, s->shape, sizeof d->shape);
    a->spec[a->count++] = spec;
}

static void add_copied(assembly *a, const mox_file_tensor *t, const char *name, moxie_dtype dtype)
{
    mox_tensor_decl *d = &a->decls[a->count];
    *d = (mox_tensor_decl) { .name = name, .dtype = dtype, .rank = t->view.rank };
    memcpy(d->shape, t->view.shape, sizeof d->shape);
    a->copied[a->count] = t;
    a->spec[a->count++] = -1;
    a->job->summary.copied_bytes += t->bytes;
}

/* A factor for each expert is part of the weights that were quantized. */
static bool is_scale(const mox_gguf_job *j, const mox_file_tensor *t)
{
    for (int64_t i = 0; i < j->n_specs; i++) {
        const size_t stem = strlen(j->specs[i].name) - strlen("weight");
        if (strncmp(t->name, j->specs[i].name, stem) == 0 && strcmp(t->name + stem, "scale") == 0)
            return true;
    }
    return false;
}

static moxie_status list_file(assembly *a, moxie_error *error)
{
    mox_gguf_job *j = a->job;
    mox_name_map made = { 0 };
    moxie_status status = MOXIE_OK;
    int64_t existing;
    for (int64_t i = 0; i < j->n_specs && status == MOXIE_OK; i++)
        status = mox_name_map_put(&made, j->specs[i].name, i, &existing, error);
    for (int64_t i = 0; i < mox_tensor_set_count(j->model->set) && status == MOXIE_OK; i++) {
        const mox_file_tensor *t = mox_tensor_set_at(j->model->set, i);
        const int64_t spec = mox_name_map_find(&made, t->name);
        if (spec >= 0)
            add_made(a, spec);
        else if (!is_scale(j, t))
            status = mox_file_tensor_check(j->model->set, t, error);
        if (status == MOXIE_OK && spec < 0 && !is_scale(j, t))
            add_copied(a, t, t->name, t->view.dtype);
    }
    mox_name_map_free(&made);
    return status;
}

/* A directory's tensors outside the MoE layers whose names and values llama.cpp's conversion would give. It makes
 * vectors f32. */
static moxie_status list_others(assembly *a, moxie_error *error)
{
    mox_gguf_job *j = a->job;
    char name[256];
    for (int64_t i = 0; i < mox_tensor_set_count(j->model->set); i++) {
        const mox_file_tensor *t = mox_tensor_set_at(j->model->set, i);
        const moxie_dtype dtype = t->view.dtype;
        if (j->owned[i])
            continue;
        if ((dtype != MOXIE_F32 && dtype != MOXIE_F16 && dtype != MOXIE_BF16) || t->view.rank > 2 ||
            !mox_gguf_rename(j->target.architecture, true, t->name, name, sizeof name)) {
            j->summary.left_out++;
            continue;
        }
        const char *copy = mox_arena_strndup(&a->arena, name, strlen(name));
        MOX_FAIL_IF(!copy, MOXIE_ERR_MEMORY, error, "no memory for a name");
        MOX_TRY(mox_file_tensor_check(j->model->set, t, error));
        add_copied(a, t, copy, t->view.rank < 2 ? MOXIE_F32 : dtype);
    }
    return MOXIE_OK;
}

static moxie_status list(assembly *a, moxie_error *error)
{
    mox_gguf_job *j = a->job;
    const uint64_t room = (uint64_t)(mox_tensor_set_count(j->model->set) + j->n_specs) + 1;
    a->decls = mox_arena_calloc(&a->arena, room, sizeof *a->decls);
    a->spec = mox_arena_calloc(&a->arena, room, sizeof *a->spec);
    a->copied = mox_arena_calloc(&a->arena, room, sizeof *a->copied);
    MOX_FAIL_IF(!a->decls || !a->spec || !a->copied, MOXIE_ERR_MEMORY, error, "no memory for a list of tensors");
    if (j->model->gguf)
        return list_file(a, error);
    for (int64_t i = 0; i < j->n_specs; i++) {
        add_made(a, i);
        if (!mox_quantize_is_routed(&j->specs[i]))
            j->summary.copied_bytes += mox_quantize_blocks_bytes(&j->specs[i]);
    }
    return list_others(a, error);
}

/* ---- metadata ---------------------------------------------------------------------------------------- */

static bool is_replaced(const char *key)
{
    return strcmp(key, "general.file_type") == 0 || strcmp(key, "general.quantization_version") == 0 ||
           strcmp(key, "general.alignment") == 0 || strncmp(key, "split.", strlen("split.")) == 0;
}

static moxie_status make_pairs(assembly *a, moxie_error *error)
{
    const mox_gguf_job *j = a->job;
    if (!j->model->gguf) {
        mox_gguf_pairs_add_all(&a->pairs, j->target.metadata);
        return MOXIE_OK;
    }
    uint64_t bytes;
    const unsigned char *file = mox_tensor_set_file_bytes(j->model->set, 0, &bytes);
    MOX_TRY(mox_gguf_pairs_copy(&a->pairs, file, bytes, j->source, is_replaced, error));
    json_t *own =
        json_pack("{s:i, s:i}", "general.file_type", (int)j->recipe->file_type, "general.quantization_version", 2);
    MOX_FAIL_IF(!own, MOXIE_ERR_MEMORY, error, "no memory for metadata");
    mox_gguf_pairs_add_all(&a->pairs, own);
    json_decref(own);
    return MOXIE_OK;
}

/* ---- bytes ------------------------------------------------------------------------------------------- */

static moxie_status put(const assembly *a, int64_t i, const mox_tensor_set *set, const mox_file_tensor *t,
                        moxie_error *error)
{
    const uint8_t *data = t->view.data;
    for (uint64_t at = 0; at < t->bytes; at += CHUNK) {
        const uint64_t n = t->bytes - at < CHUNK ? t->bytes - at : CHUNK;
        MOX_TRY(mox_gguf_writer_put(a->writer, i, at, data + at, n, error));
    }
    mox_tensor_set_drop(set, t->view.data, t->bytes);
    return MOXIE_OK;
}

/* A vector as f32. */
static moxie_status put_widened(const assembly *a, int64_t i, const mox_file_tensor *t, moxie_error *error)
{
    enum { AT_ONCE = 4096 };
    float values[AT_ONCE];
    const int64_t bytes = mox_dtype_bytes(t->view.dtype), count = (int64_t)t->bytes / bytes;
    for (int64_t at = 0; at < count; at += AT_ONCE) {
        const int64_t n = mox_min_i64(AT_ONCE, count - at);
        mox_widen(t->view.dtype, (const char *)t->view.data + at * bytes, values, n);
        MOX_TRY(mox_gguf_writer_put(a->writer, i, (uint64_t)at * sizeof *values, values, (uint64_t)n * sizeof *values,
                                    error));
    }
    return MOXIE_OK;
}

static moxie_status put_layer(assembly *a, int64_t layer, moxie_error *error)
{
    mox_gguf_job *j = a->job;
    mox_tensor_set *set = NULL;
    MOX_TRY(mox_tensor_set_open_file(mox_gguf_job_layer_path(j, layer), false, &set, error));
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; i < a->count && status == MOXIE_OK; i++) {
        if (a->spec[i] < j->first[layer] || a->spec[i] >= j->first[layer + 1])
            continue;
        const mox_file_tensor *t = mox_tensor_set_find(set, a->decls[i].name);
        status = t && t->bytes == mox_gguf_tensor_bytes(&a->decls[i])
                     ? put(a, i, set, t, error)
                     : mox_fail_file(MOXIE_ERR_MISMATCH, error, mox_gguf_job_layer_path(j, layer), -1,
                                     "%s is not in it as it should be; remove %s and start again", a->decls[i].name,
                                     j->dir.partial);
        if (status == MOXIE_OK && mox_quantize_is_routed(&j->specs[a->spec[i]]))
            j->summary.expert_bytes += t->bytes;
    }
    mox_tensor_set_close(set);
    return status;
}

static moxie_status put_all(assembly *a, moxie_error *error)
{
    const mox_tensor_set *source = a->job->model->set;
    for (int64_t i = 0; i < a->job->model->n_places; i++)
        MOX_TRY(put_layer(a, i, error));
    MOX_TRY(mox_tensor_set_check(source, error));
    for (int64_t i = 0; i < a->count; i++)
        if (a->spec[i] < 0)
            MOX_TRY(a->decls[i].dtype == a->copied[i]->view.dtype ? put(a, i, source, a->copied[i], error)
                                                                  : put_widened(a, i, a->copied[i], error));
    return MOXIE_OK;
}

/* ---- the result -------------------------------------------------------------------------------------- */

/* The reader must find in the result what was written. */
static moxie_status check_result(mox_gguf_job *j, moxie_error *error)
{
    moxie_model *model = NULL;
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    options.allow_unread = j->options->allow_unread;
    options.experts_only = j->model->experts_only;
    MOX_TRY(mox_model_open(mox_gguf_job_result_path(j), &options, &model, error));
    moxie_status status = model->n_places == j->model->n_places
                              ? MOXIE_OK
                              : mox_fail_file(MOXIE_ERR_MISMATCH, error, mox_gguf_job_result_path(j), -1,
                                              "%lld layers are read from the result, expected %lld",
                                              (long long)model->n_places, (long long)j->model->n_places);
    for (int64_t i = 0; i < j->model->n_places && status == MOXIE_OK; i++) {
        moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
        status = mox_model_describe_layer(model, i, &info, error);
    }
    mox_model_close(model);
    return status;
}

moxie_status mox_gguf_job_assemble(mox_gguf_job *j, moxie_error *error)
{
    assembly a = { .job = j };
    moxie_status status = list(&a, error);
    if (status == MOXIE_OK)
        status = make_pairs(&a, error);
    if (status == MOXIE_OK)
        status = mox_gguf_writer_open(mox_gguf_job_result_path(j), &a.pairs, a.decls, a.count, &a.writer, error);
    if (status == MOXIE_OK)
        status = put_all(&a, error);
    if (status == MOXIE_OK)
        status = mox_gguf_writer_finish(a.writer, error);
    else
        mox_gguf_writer_abandon(a.writer);
    mox_gguf_pairs_free(&a.pairs);
    mox_arena_free(&a.arena);
    return status == MOXIE_OK ? check_result(j, error) : status;
}
