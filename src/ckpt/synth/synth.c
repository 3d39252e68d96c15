/* SPDX-License-Identifier: Apache-2.0
 *
 * synth.c - writes a synthetic checkpoint as a directory; formats of GGUF files are synth_gguf.c's.
 *
 *     resolve -> count: bytes of every tensor, cuts between shards -> staged directory
 *             -> config.json -> shard 1, shard 2, ... with one line of the index per tensor -> rename
 *
 * Tensors go into shards in the order of mox_enumerate_layer(). A shard is closed when the next tensor would make it
 * too large. Only the tensors of the open shard are kept in memory, since a model can have half a million; so the index
 * is written as text along the way. A single shard is called model.safetensors and needs no index.
 */
#include "ckpt/synth/synth.h"

#include <stdio.h>

#include "base/sizes.h"
#include "base/whole_file.h"
#include "ckpt/safetensors/tensor_writer.h"
#include "ckpt/staging.h"
#include "ckpt/synth/synth_config.h"
#include "ckpt/synth/synth_gguf.h"
#include "ckpt/synth/synth_tensor.h"

static const uint64_t default_shard_bytes = UINT64_C(5000000000);

/* The open shard. */
typedef struct shard {
    mox_tensor_spec *specs;
    int64_t *layers;
    int64_t count, room;
    uint64_t bytes;
    int64_t number; /* counts from 1 */
} shard;

typedef struct writing {
    mox_synth_model model;
    moxie_synth_options options;
    mox_synth_filler *filler;
    mox_staging *staging;
    mox_tensor_writer *writer;
    mox_whole_file index; /* none when there is one shard */
    shard open;
    int64_t layer;
    uint64_t shard_bytes;
    /* Of the whole checkpoint. */
    uint64_t total_bytes, done_bytes;
    int64_t total_tensors, total_shards, index_lines;
} writing;

static moxie_status tensor_bytes(const mox_tensor_spec *spec, uint64_t *out, moxie_error *error)
{
    uint64_t bytes = (uint64_t)mox_dtype_bits(spec->dtype);
    bool fits = bytes > 0;
    for (int32_t i = 0; i < spec->rank; i++)
        fits = fits && mox_mul_u64(bytes, (uint64_t)spec->shape[i], &bytes);
    MOX_FAIL_IF(!fits, MOXIE_ERR_ARGUMENT, error, "%s has more bytes than 64 bits count", spec->name);
    *out = bytes / 8;
    return MOXIE_OK;
}

static bool starts_shard(const writing *w, uint64_t open_bytes, uint64_t bytes)
{
    return open_bytes > 0 && (bytes > w->shard_bytes || open_bytes > w->shard_bytes - bytes);
}

static moxie_status for_each_tensor(writing *w,
                                    moxie_status (*visit)(void *user, const mox_tensor_spec *spec, moxie_error *error),
                                    moxie_error *error)
{
    const mox_synth_model *m = &w->model;
    for (int64_t i = 0; i < m->layers; i++) {
        w->layer = mox_preset_layer(m->preset, i);
        MOX_TRY(mox_enumerate_layer(m->family, &m->dims, m->routed, m->shared, w->layer, visit, w, error));
    }
    return MOXIE_OK;
}

static moxie_status count_tensor(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    writing *w = user;
    uint64_t bytes;
    MOX_TRY(tensor_bytes(spec, &bytes, error));
    if (w->total_tensors == 0 || starts_shard(w, w->open.bytes, bytes)) {
        w->total_shards++;
        w->open.bytes = 0;
    }
    w->open.bytes += bytes;
    w->total_tensors++;
    MOX_FAIL_IF(!mox_add_u64(w->total_bytes, bytes, &w->total_bytes), MOXIE_ERR_ARGUMENT, error,
                "the checkpoint has more bytes than 64 bits count");
    return MOXIE_OK;
}

/* ---- one shard ---------------------------------------------------------------------------------- */

static void shard_name(const writing *w, char *buffer, size_t size)
{
    if (w->total_shards == 1)
        snprintf(buffer, size, "model.safetensors");
    else
        snprintf(buffer, size, "model-%05lld-of-%05lld.safetensors", (long long)w->open.number,
                 (long long)w->total_shards);
}

static moxie_status put_bytes(void *user, const void *data, uint64_t bytes, moxie_error *error)
{
    writing *w = user;
    MOX_TRY(mox_tensor_writer_put(w->writer, data, bytes, error));
    w->done_bytes += bytes;
    if (w->options.progress && w->options.progress(w->options.progress_user, w->done_bytes, w->total_bytes) != 0)
        return mox_fail(MOXIE_ERR_TIMEOUT, error, "cancelled after %llu of %llu bytes; nothing was left behind",
                        (unsigned long long)w->done_bytes, (unsigned long long)w->total_bytes);
    return MOXIE_OK;
}

static moxie_status open_shard_file(writing *w, const char *name, moxie_error *error)
{
    mox_tensor_decl *decls = mox_calloc((uint64_t)w->open.count, sizeof *decls);
    MOX_FAIL_IF(!decls, MOXIE_ERR_MEMORY, error, "no memory for %lld tensors", (long long)w->open.count);
    for (int64_t i = 0; i < w->open.count; i++) {
        const mox_tensor_spec *spec = &w->open.specs[i];
        decls[i] = (mox_tensor_decl) { .name = spec->name, .dtype = spec->dtype, .rank = spec->rank };
        memcpy(decls[i].shape, spec->shape, sizeof decls[i].shape);
    }
    static const char *const metadata[] = { "format", "pt" };
    const char *path = mox_staging_path(w->staging, name);
    const moxie_status status = path
                                    ? mox_tensor_writer_open(path, decls, w->open.count, metadata, 1, &w->writer, error)
                                    : mox_fail(MOXIE_ERR_ARGUMENT, error, "the path of %s is too long", name);
    mox_free(decls);
    return status;
}

/* Appends to the index; at most one tensor's name and file at a time. */
static moxie_status put_index(writing *w, moxie_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static moxie_status put_index(writing *w, moxie_error *error, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    MOX_FAIL_IF(length < 0 || (size_t)length >= sizeof line, MOXIE_ERR_ARGUMENT, error,
                "a tensor's name is too long for the index");
    return mox_whole_file_append(&w->index, line, (uint64_t)length, error);
}

static moxie_status close_shard(writing *w, moxie_error *error)
{
    char name[64];
    w->open.number++;
    shard_name(w, name, sizeof name);
    MOX_TRY(open_shard_file(w, name, error));
    for (int64_t i = 0; i < w->open.count; i++) {
        const mox_tensor_spec *spec = &w->open.specs[i];
        MOX_TRY(mox_synth_fill(w->filler, w->open.layers[i], spec, put_bytes, w, error));
        if (w->index.fd >= 0)
            MOX_TRY(put_index(w, error, "%s\n    \"%s\": \"%s\"", w->index_lines++ > 0 ? "," : "", spec->name, name));
    }
    mox_tensor_writer *writer = w->writer;
    w->writer = NULL;
    w->open.count = 0;
    w->open.bytes = 0;
    return mox_tensor_writer_finish(writer, error);
}

static moxie_status grow_shard(shard *s, moxie_error *error)
{
    if (s->count < s->room)
        return MOXIE_OK;
    const int64_t room = s->room > 0 ? 2 * s->room : 256;
    mox_tensor_spec *specs = mox_realloc(s->specs, (uint64_t)room * sizeof *specs);
    s->specs = specs ? specs : s->specs;
    int64_t *layers = mox_realloc(s->layers, (uint64_t)room * sizeof *layers);
    s->layers = layers ? layers : s->layers;
    MOX_FAIL_IF(!specs || !layers, MOXIE_ERR_MEMORY, error, "no memory for %lld tensors", (long long)room);
    s->room = room;
    return MOXIE_OK;
}

static moxie_status write_tensor(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    writing *w = user;
    uint64_t bytes;
    MOX_TRY(tensor_bytes(spec, &bytes, error));
    if (starts_shard(w, w->open.bytes, bytes))
        MOX_TRY(close_shard(w, error));
    MOX_TRY(grow_shard(&w->open, error));
    w->open.specs[w->open.count] = *spec;
    w->open.layers[w->open.count] = w->layer;
    w->open.count++;
    w->open.bytes += bytes;
    return MOXIE_OK;
}

/* ---- the directory ------------------------------------------------------------------------------ */

static moxie_status write_config(writing *w, moxie_error *error)
{
    json_t *config = NULL;
    const char *path = mox_staging_path(w->staging, "config.json");
    MOX_FAIL_IF(!path, MOXIE_ERR_ARGUMENT, error, "the path of config.json is too long");
    MOX_TRY(mox_synth_config(&w->model, &config, error));
    const moxie_status status = mox_json_write(path, config, error);
    json_decref(config);
    return status;
}

static moxie_status open_index(writing *w, moxie_error *error)
{
    if (w->total_shards == 1)
        return MOXIE_OK;
    const char *path = mox_staging_path(w->staging, "model.safetensors.index.json");
    MOX_FAIL_IF(!path, MOXIE_ERR_ARGUMENT, error, "the path of the index is too long");
    MOX_TRY(mox_whole_file_create(path, &w->index, error));
    return put_index(w, error, "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {",
                     (unsigned long long)w->total_bytes);
}

static moxie_status close_index(writing *w, moxie_error *error)
{
    if (w->index.fd < 0)
        return MOXIE_OK;
    MOX_TRY(put_index(w, error, "\n  }\n}\n"));
    return mox_whole_file_publish(&w->index, error);
}

static moxie_status write_files(writing *w, moxie_error *error)
{
    MOX_TRY(write_config(w, error));
    MOX_TRY(open_index(w, error));
    MOX_TRY(for_each_tensor(w, write_tensor, error));
    MOX_TRY(close_shard(w, error));
    return close_index(w, error);
}

static void release(writing *w)
{
    mox_whole_file_discard(&w->index);
    mox_tensor_writer_abandon(w->writer);
    mox_staging_abandon(w->staging);
    mox_synth_filler_destroy(w->filler);
    mox_free(w->open.specs);
    mox_free(w->open.layers);
}

moxie_status mox_synth_write(const char *preset, const char *dir, const moxie_synth_options *options,
                             const moxie_executor *executor, moxie_error *error)
{
    writing w = { .options = options ? *options : (moxie_synth_options)MOXIE_SYNTH_OPTIONS_INIT,
                  .index = MOX_WHOLE_FILE_NONE };
    w.shard_bytes = w.options.shard_bytes > 0 ? w.options.shard_bytes : default_shard_bytes;
    MOX_TRY(mox_synth_resolve(preset, &w.options, &w.model, error));
    if (w.model.recipe)
        return mox_synth_gguf_write(&w.model, dir, &w.options, executor, error);
    MOX_TRY(for_each_tensor(&w, count_tensor, error));
    w.open.bytes = 0;
    moxie_status status = mox_synth_filler_create(&w.model, executor, &w.filler, error);
    if (status == MOXIE_OK)
        status = mox_staging_open(dir, w.total_bytes, &w.staging, error);
    if (status == MOXIE_OK)
        status = write_files(&w, error);
    if (status == MOXIE_OK) {
        mox_staging *staging = w.staging;
        w.staging = NULL;
        status = mox_staging_commit(staging, error);
    }
    release(&w);
    return status;
}
