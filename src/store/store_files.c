/* SPDX-License-Identifier: Apache-2.0
 *
 * store_files.c - the files of a store (store_files.h), and what a store says about itself.
 */
#include "store/store_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/listing.h"
#include "base/sizes.h"
#include "layer/weights/layer_create.h"
#include "store/store_device.h"

/* ---- opening ----------------------------------------------------------------------------------------- */

static moxie_status add_file(moxie_store *store, const char *path, moxie_error *error)
{
    static const moxie_expert_file_options mapped = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    mox_store_layer *layers = mox_realloc(store->layers, ((uint64_t)store->n_layers + 1) * sizeof *store->layers);
    MOX_FAIL_IF(layers == NULL, MOXIE_ERR_MEMORY, error, "no memory for the layers of a store");
    store->layers = layers;
    layers[store->n_layers] = (mox_store_layer) { .store = store };
    MOX_TRY(mox_expert_file_open(path, &mapped, &layers[store->n_layers].file, error));
    store->n_layers++;
    const moxie_layer_config *config = &layers[store->n_layers - 1].file->config;
    if (config->tp_size > 1)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, path, -1,
                             "its records are the rows of tensor parallel rank %d of %d, and a store reads whole "
                             "experts: open it with moxie_layer_open_file(), or prepare files with --ep",
                             (int)config->tp_rank, (int)config->tp_size);
    return MOXIE_OK;
}

static bool is_expert_file(const char *name)
{
    const size_t length = strlen(name);
    return length > 6 && name[0] != '.' && strcmp(name + length - 6, ".moxie") == 0;
}

static moxie_status add_entries(moxie_store *store, const char *folder, DIR *stream, moxie_error *error)
{
    for (;;) {
        const struct dirent *entry;
        MOX_TRY(mox_next_entry(stream, folder, &entry, error));
        if (entry == NULL)
            return MOXIE_OK;
        mox_arena arena = { 0 };
        if (!is_expert_file(entry->d_name))
            continue;
        const char *path = mox_arena_printf(&arena, "%s/%s", folder, entry->d_name);
        const moxie_status status =
            path != NULL ? add_file(store, path, error) : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for a path");
        mox_arena_free(&arena);
        MOX_TRY(status);
    }
}

static moxie_status add_folder(moxie_store *store, const char *folder, moxie_error *error)
{
    const int32_t before = store->n_layers;
    DIR *stream = opendir(folder);
    if (stream == NULL)
        return mox_fail_file(MOXIE_ERR_IO, error, folder, -1, "cannot be listed: %m");
    const moxie_status status = add_entries(store, folder, stream, error);
    closedir(stream);
    if (status == MOXIE_OK && store->n_layers == before)
        return mox_fail_file(MOXIE_ERR_IO, error, folder, -1,
                             "it has no expert files (NAME.moxie): `moxie prepare DIR --layout moxie-auto -o OUT` of a "
                             "checkpoint writes them");
    return status;
}

static int by_number(const void *a, const void *b)
{
    const mox_store_layer *x = a, *y = b;
    return (x->file->header.layer > y->file->header.layer) - (x->file->header.layer < y->file->header.layer);
}

/* Sorts the layers by their numbers in the model. */
static moxie_status number_layers(moxie_store *store, moxie_error *error)
{
    qsort(store->layers, (size_t)store->n_layers, sizeof *store->layers, by_number);
    for (int32_t l = 0; l < store->n_layers; l++) {
        const moxie_expert_file *file = store->layers[l].file, *before = l > 0 ? store->layers[l - 1].file : NULL;
        store->layers[l].number = l;
        if (before != NULL && before->header.layer == file->header.layer)
            return mox_fail_file(MOXIE_ERR_ARGUMENT, error, file->path, -1,
                                 "it has layer %lld, and so has %s: a store takes one file of each layer, so leave one "
                                 "of the two out",
                                 (long long)file->header.layer, before->path);
    }
    return MOXIE_OK;
}

moxie_status mox_store_open_files(moxie_store *store, const char *const *paths, int64_t n_paths, moxie_error *error)
{
    MOX_FAIL_IF(n_paths < 1, MOXIE_ERR_ARGUMENT, error, "a store of no files: give folders or files");
    for (int64_t i = 0; i < n_paths; i++) {
        struct stat info;
        const bool folder = stat(paths[i], &info) == 0 && S_ISDIR(info.st_mode);
        MOX_TRY(folder ? add_folder(store, paths[i], error) : add_file(store, paths[i], error));
    }
    return number_layers(store, error);
}

/* ---- the reader -------------------------------------------------------------------------------------- */

static moxie_status name_files(const moxie_store *store, const char *mirror, mox_arena *arena, mox_read_file *files,
                               moxie_error *error)
{
    for (int32_t l = 0; l < store->n_layers; l++) {
        const char *path = store->layers[l].file->path, *slash = strrchr(path, '/');
        files[l].path = path;
        if (mirror == NULL)
            continue;
        files[l].mirror = mox_arena_printf(arena, "%s/%s", mirror, slash != NULL ? slash + 1 : path);
        MOX_FAIL_IF(files[l].mirror == NULL, MOXIE_ERR_MEMORY, error, "no memory for a path");
        MOX_TRY(mox_expert_check_mirror(store->layers[l].file, files[l].mirror, error));
    }
    return MOXIE_OK;
}

moxie_status mox_store_open_reader(moxie_store *store, const moxie_store_options *o, const mox_reader_options *base,
                                   moxie_error *error)
{
    const mox_read_buffer memory = { store->buffers[0].data, (uint64_t)store->n_buffers * store->record_bytes };
    mox_reader_options options = base != NULL ? *base : (mox_reader_options) { 0 };
    mox_arena arena = { 0 };
    mox_read_file *files = mox_arena_calloc(&arena, (uint64_t)store->n_layers, sizeof *files);
    options.engine = o->reader != NULL ? o->reader : options.engine;
    options.depth = o->read_depth > 0 ? o->read_depth : options.depth;
    options.chunk_bytes = o->read_chunk_bytes > 0 ? o->read_chunk_bytes : options.chunk_bytes;
    options.buffered = options.buffered || o->buffered;
    options.buffers = &memory;
    options.n_buffers = 1;
    moxie_status status = files != NULL ? name_files(store, o->mirror, &arena, files, error)
                                        : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for the files of a store");
    if (status == MOXIE_OK)
        status = mox_reader_open(files, store->n_layers, &options, &store->reader, error);
    mox_arena_free(&arena);
    return status;
}

/* ---- what there is ----------------------------------------------------------------------------------- */

moxie_status mox_store_find(const moxie_store *store, int64_t number, mox_store_layer **out, moxie_error *error)
{
    for (int32_t l = 0; l < store->n_layers; l++)
        if (store->layers[l].file->header.layer == number) {
            *out = &store->layers[l];
            return MOXIE_OK;
        }
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "the store has no layer %lld: it has %d, from %lld to %lld",
                    (long long)number, (int)store->n_layers, (long long)store->layers[0].file->header.layer,
                    (long long)store->layers[store->n_layers - 1].file->header.layer);
}

void mox_store_get_info(const moxie_store *store, moxie_store_info *out)
{
    mox_reader_info reader = { .engine = "" };
    if (store->reader != NULL) /* mox_store_describe() opens none */
        mox_reader_get_info(store->reader, &reader);
    *out = (moxie_store_info) { .struct_size = sizeof *out,
                                .layers = store->n_layers,
                                .policy = store->policy->name,
                                .slots = store->slots,
                                .read_buffers = store->read_buffers,
                                .record_bytes = store->record_bytes,
                                .buffer_bytes = (uint64_t)store->n_buffers * store->record_bytes,
                                .shared_bytes = store->shared_bytes,
                                .reader = reader.engine,
                                .device_slots = store->device_slots,
                                .device_buffers = store->device_buffers,
                                .device_record_bytes = store->device_record_bytes,
                                .device_shared_bytes = store->device_shared_bytes,
                                .direct = store->reader != NULL && reader.direct_copies == reader.copies };
    if (store->host != NULL) {
        out->host_slots = store->host->slots;
        out->host_read_buffers = store->host->read_buffers;
        out->host_record_bytes = store->host->record_bytes;
    }
    for (int32_t l = 0; l < store->n_layers; l++)
        out->file_bytes += (uint64_t)store->layers[l].file->header.held * store->layers[l].file->header.record_bytes;
}

/* A store's layers are all on its GPU, or all on the host. */
static moxie_status check_device(const moxie_store *store, const moxie_options *options, moxie_error *error)
{
    const bool wants = options != NULL && options->backend == MOXIE_BACKEND_CUDA;
    MOX_FAIL_IF(
        wants && store->device == NULL, MOXIE_ERR_UNSUPPORTED, error,
        "the options' back end is a GPU's, but the store was opened with device_bytes 0: set it "
        "(--budget-gpu), use the cpu back end, or moxie_layer_open_file(), which copies all experts to the GPU");
    MOX_FAIL_IF(!wants && store->device != NULL, MOXIE_ERR_UNSUPPORTED, error,
                "the store was opened with device_bytes, so its layers run on a GPU, and the options' back end is "
                "another: set it to cuda (--backend cuda), or device_bytes to 0");
    return MOXIE_OK;
}

static moxie_status open_on_device(mox_store_layer *from, const moxie_layer_config *config,
                                   const moxie_options *options, moxie_layer **out, moxie_error *error)
{
    const mox_store_device *d = from->store->device;
    moxie_layer *layer = NULL;
    MOX_TRY(mox_layer_open_fetched(from->file, config, options, &layer, error));
    if (layer->device.ordinal != d->device.ordinal) {
        const int own = layer->device.ordinal;
        mox_layer_destroy(layer);
        return mox_fail(MOXIE_ERR_MISMATCH, error, "the layer is to be on GPU %d, but the store's tier is on GPU %d",
                        own, (int)d->device.ordinal);
    }
    layer->device_source = &from->device_source;
    const moxie_status status = mox_store_host_layer(from, options, layer, error);
    if (status != MOXIE_OK)
        mox_layer_destroy(layer);
    else
        *out = layer;
    return status;
}

moxie_status mox_store_layer_open(moxie_store *store, int64_t number, const moxie_layer_config *config,
                                  const moxie_options *options, moxie_layer **out, moxie_error *error)
{
    mox_store_layer *from = NULL;
    moxie_layer *layer = NULL;
    MOX_TRY(mox_store_find(store, number, &from, error));
    MOX_TRY(check_device(store, options, error));
    if (store->device != NULL)
        return open_on_device(from, config, options, out, error);
    MOX_TRY(mox_layer_open_file(from->file, config, options, &layer, error));
    layer->source = &from->source;
    if (layer->shared_record != NULL && !store->is_host)
        layer->shared_record = from->shared_record;
    pthread_mutex_lock(&store->mutex);
    if (from->warm_left == 0) {
        mox_cache_end_warm(from->cache);
        from->warm_left = -1;
    }
    mox_store_read_kept(from);
    pthread_mutex_unlock(&store->mutex);
    *out = layer;
    return MOXIE_OK;
}
