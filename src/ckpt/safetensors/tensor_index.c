/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_index.c - the weight_map of an index as an array, and its files as a sorted set.
 *
 * The index is as untrusted as any input: a file name with a directory in it could point anywhere, so only bare names
 * are accepted. Whether the file is a regular one is checked when it is opened.
 */
#include "ckpt/safetensors/tensor_index.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt/safetensors/file.h"
#include "ckpt/json.h"

/* While the index is read, entries point to the names of their files; numbers follow when all names are known. */
typedef struct mapped {
    const char *tensor, *file;
} mapped;

static int by_file(const void *a, const void *b)
{
    return strcmp((*(const mapped *const *)a)->file, (*(const mapped *const *)b)->file);
}

static bool is_bare_name(const char *name)
{
    return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Checks and copies one pair of the weight_map. */
static moxie_status read_pair(mox_arena *arena, const char *tensor, const json_t *value, const char *path, mapped *out,
                              moxie_error *error)
{
    char escaped[160], escaped_file[160];
    const char *file = json_string_value(value);
    mox_escape(escaped, sizeof escaped, tensor);
    if (!file)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1,
                             "weight_map maps tensor \"%s\" to something that is not a string; expected a file name",
                             escaped);
    if (!is_bare_name(file))
        return mox_fail_file(
            MOXIE_ERR_FORMAT, error, path, -1,
            "weight_map maps tensor \"%s\" to \"%s\": expected a bare file name in the directory of the index", escaped,
            mox_escape(escaped_file, sizeof escaped_file, file));
    out->tensor = mox_arena_strndup(arena, tensor, strlen(tensor));
    out->file = mox_arena_strndup(arena, file, strlen(file));
    MOX_FAIL_IF(!out->tensor || !out->file, MOXIE_ERR_MEMORY, error, "no memory for the index");
    return MOXIE_OK;
}

/* Numbers the distinct file names. `order` receives all pairs, sorted by file. */
static moxie_status number_files(mox_tensor_index *index, const mapped *pairs, const mapped **order, moxie_error *error)
{
    const int64_t n = index->n_entries;
    for (int64_t i = 0; i < n; i++)
        order[i] = &pairs[i];
    qsort(order, (size_t)n, sizeof *order, by_file);
    index->files = mox_arena_calloc(&index->arena, (uint64_t)n, sizeof *index->files);
    MOX_FAIL_IF(!index->files, MOXIE_ERR_MEMORY, error, "no memory for the index");
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(order[i - 1]->file, order[i]->file) != 0)
            index->files[index->n_files++] = order[i]->file;
        index->entries[order[i] - pairs] = (mox_index_entry) { .tensor = order[i]->tensor, .file = index->n_files - 1 };
    }
    return MOXIE_OK;
}

static moxie_status read_map(mox_tensor_index *index, json_t *map, const char *path, moxie_error *error)
{
    const uint64_t n = json_object_size(map);
    mapped *pairs = mox_calloc(n, sizeof *pairs);
    const mapped **order = mox_calloc(n, sizeof *order);
    index->entries = mox_arena_calloc(&index->arena, n, sizeof *index->entries);
    moxie_status status = MOXIE_OK;
    if (!pairs || !order || !index->entries)
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory for an index of %llu tensors", (unsigned long long)n);
    for (void *i = json_object_iter(map); status == MOXIE_OK && i; i = json_object_iter_next(map, i)) {
        status = read_pair(&index->arena, json_object_iter_key(i), json_object_iter_value(i), path,
                           &pairs[index->n_entries], error);
        index->n_entries++;
    }
    if (status == MOXIE_OK)
        status = number_files(index, pairs, order, error);
    mox_free(pairs);
    mox_free(order);
    return status;
}

static moxie_status read_root(mox_tensor_index *index, const json_t *root, const char *path, moxie_error *error)
{
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1,
                             "expected an object \"weight_map\" of tensor names and files, found %s",
                             map ? "another type under that name" : "none");
    if (json_object_size(map) == 0)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1, "the weight_map is empty");
    const json_t *total = json_object_get(json_object_get(root, "metadata"), "total_size");
    index->has_total = json_is_number(total);
    index->total_size = json_number_value(total);
    return read_map(index, map, path, error);
}

moxie_status mox_tensor_index_parse(const char *text, uint64_t size, const char *path, mox_tensor_index *out,
                                    moxie_error *error)
{
    json_t *root = NULL;
    MOX_TRY(mox_json_parse(text, size, false, path, &root, error));
    mox_tensor_index index = { 0 };
    const moxie_status status = read_root(&index, root, path, error);
    json_decref(root);
    if (status == MOXIE_OK)
        *out = index;
    else
        mox_tensor_index_free(&index);
    return status;
}

moxie_status mox_tensor_index_load(const char *path, mox_tensor_index *out, moxie_error *error)
{
    mox_file file = { 0 };
    MOX_TRY(mox_file_open(path, true, MOX_INDEX_MAX_BYTES, &file, error));
    const moxie_status status = mox_tensor_index_parse((const char *)file.data, file.size, path, out, error);
    mox_file_close(&file);
    return status;
}

void mox_tensor_index_free(mox_tensor_index *index)
{
    mox_arena_free(&index->arena);
    *index = (mox_tensor_index) { 0 };
}
