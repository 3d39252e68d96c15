/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_index.c - the index of all layer files, in the Hugging Face manner: written last, so that a directory with an
 * index is whole.
 *
 *     { "metadata": { "total_size": N, ... }, "weight_map": { tensor: "layer-00003.safetensors", ... } }
 */
#include "prepare.h"

#include <limits.h>
#include <string.h>

/* 80 bytes a tensor; the largest public checkpoints have 20 MB. */
enum { MAX_BYTES = 128 << 20 };

static uint64_t bytes_of(const moxie_tensor *tensor)
{
    uint64_t bits = (uint64_t)moxie_dtype_bits(tensor->dtype);
    for (int32_t axis = 0; axis < tensor->rank; axis++)
        bits *= (uint64_t)tensor->shape[axis];
    return bits / 8;
}

/* Adds the tensors of one layer's file to a weight map. */
static moxie_status map_layer(const char *dir, int64_t layer, json_t *map, uint64_t *bytes, moxie_error *error)
{
    char path[PATH_MAX];
    moxie_tensor_file *file = NULL;
    moxie_status status = moxie_tensor_file_open(prepare_layer_path(dir, layer, path), 0, &file, error);
    for (int64_t i = 0; status == MOXIE_OK && i < moxie_tensor_file_count(file); i++) {
        const char *name = NULL;
        moxie_tensor tensor;
        status = moxie_tensor_file_at(file, i, &name, &tensor);
        *bytes += bytes_of(&tensor);
        if (json_object_set_new(map, name, json_string(strrchr(path, '/') + 1)) != 0)
            status = cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for the index");
    }
    moxie_tensor_file_close(file);
    return status;
}

static moxie_status make_map(const char *dir, const prepare_how *how, json_t **map, uint64_t *bytes, moxie_error *error)
{
    *map = json_object();
    *bytes = 0;
    moxie_status status = *map ? MOXIE_OK : cli_error(MOXIE_ERR_MEMORY, error, dir, "no memory for the index");
    for (int64_t i = 0; status == MOXIE_OK && i < how->n_layers; i++)
        status = map_layer(dir, how->layers[i], *map, bytes, error);
    if (status != MOXIE_OK) {
        json_decref(*map);
        *map = NULL;
    }
    return status;
}

moxie_status prepare_index_write(const char *dir, const prepare_how *how, const uint64_t *source_hash,
                                 moxie_error *error)
{
    char path[PATH_MAX], hash[24];
    json_t *map = NULL;
    uint64_t bytes = 0;
    const moxie_status status = make_map(dir, how, &map, &bytes, error);
    if (status != MOXIE_OK)
        return status;
    json_t *metadata;
    if (source_hash) {
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)*source_hash);
        metadata = json_pack("{s:I, s:s, s:s, s:s}", "total_size", (json_int_t)bytes, "moxie.version",
                             MOXIE_VERSION_STRING, "moxie.layout", how->layout, "moxie.source_xxh3", hash);
    } else {
        metadata = json_pack("{s:I}", "total_size", (json_int_t)bytes);
    }
    /* NULL without memory: json_pack() and the writer check that. */
    json_t *index = json_pack("{s:o, s:o}", "metadata", metadata, "weight_map", map);
    return cli_json_write(prepare_path(dir, PREPARE_INDEX, path), index, JSON_INDENT(1), error);
}

moxie_status prepare_index_check(const char *dir, const prepare_how *how, moxie_error *error)
{
    char path[PATH_MAX];
    json_t *map = NULL, *index = NULL;
    uint64_t bytes = 0;
    prepare_path(dir, PREPARE_INDEX, path);
    if (!moxie_file_exists(path))
        return cli_error(MOXIE_ERR_MISMATCH, error, path,
                         "there is no index, which is written last: the preparation was interrupted; run it again");
    moxie_status status = cli_json_read(path, MAX_BYTES, &index, error);
    if (status == MOXIE_OK)
        status = make_map(dir, how, &map, &bytes, error);
    if (status == MOXIE_OK && !json_equal(map, json_object_get(index, "weight_map")))
        status = cli_error(MOXIE_ERR_MISMATCH, error, path, "the index does not name the tensors that are there");
    json_decref(map);
    json_decref(index);
    return status;
}
