/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.c - all shards of a checkpoint as one name space.
 *
 *     index.json?  yes: the files that it names    no: every *.safetensors of the directory, in name order
 *                   \                              /
 *                    open each, check its header, add its names; a name in two shards is an error
 *                   |
 *     index.json?  yes: every tensor is in the shard that the index names, else an error; extra tensors: a warning
 */
#include "ckpt/safetensors/tensors.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/listing.h"
#include "base/sizes.h"
#include "ckpt/safetensors/file.h"
#include "ckpt/safetensors/file_dtype.h"
#include "ckpt/gguf/gguf_header.h"
#include "ckpt/gguf/gguf_split.h"
#include "ckpt/name_map.h"
#include "ckpt/no_model.h"
#include "ckpt/safetensors/safetensors_header.h"
#include "ckpt/safetensors/tensor_index.h"

#define MAX_ESCAPED 160
#define SUFFIX      ".safetensors"

typedef struct shard {
    const char *path;
    mox_file file;
    int64_t tensors;
} shard;

/* At most one warning per shard, and one for the index. */
struct mox_tensor_set {
    mox_tensor_list list; /* its arena also holds paths and warnings */
    mox_name_map names;
    shard *shards;
    int64_t n_shards;
    const char **warnings;
    int64_t n_warnings;
    uint64_t bytes;
    json_t *gguf; /* metadata of the first file, in a set of GGUF files */
};

/* ---- making a set ----------------------------------------------------------------------------------- */

static moxie_status no_memory(moxie_error *error)
{
    return mox_fail(MOXIE_ERR_MEMORY, error, "no memory for the list of tensors");
}

/* An empty set with room for `files` shards and their warnings. */
static moxie_status new_set(int64_t files, mox_tensor_set **out, moxie_error *error)
{
    mox_tensor_set *set = mox_alloc(sizeof *set);
    if (!set)
        return no_memory(error);
    set->shards = mox_arena_calloc(&set->list.arena, (uint64_t)files, sizeof *set->shards);
    set->warnings = mox_arena_calloc(&set->list.arena, (uint64_t)files + 1, sizeof *set->warnings);
    if (!set->shards || !set->warnings) {
        mox_tensor_set_close(set);
        return no_memory(error);
    }
    *out = set;
    return MOXIE_OK;
}

/* Adds the names of the tensors from `first` on. */
static moxie_status enter_names(mox_tensor_set *set, int64_t first, moxie_error *error)
{
    for (int64_t i = first; i < set->list.count; i++) {
        const mox_file_tensor *t = &set->list.tensors[i];
        int64_t other = -1;
        MOX_TRY(mox_name_map_put(&set->names, t->name, i, &other, error));
        char escaped[MAX_ESCAPED], escaped_file[MAX_ESCAPED];
        if (other >= 0)
            return mox_fail_file(
                MOXIE_ERR_FORMAT, error, set->shards[t->file].path, -1,
                "tensor \"%s\" is in this file and in \"%s\": expected every name once",
                mox_escape(escaped, sizeof escaped, t->name),
                mox_escape(escaped_file, sizeof escaped_file, set->shards[set->list.tensors[other].file].path));
        set->bytes += t->bytes;
    }
    return MOXIE_OK;
}

/* Opens the file `dir`/`name` (dir NULL: `name` is the path). */
static moxie_status open_shard(mox_tensor_set *set, const char *dir, const char *name, bool no_mmap, shard **out,
                               moxie_error *error)
{
    shard *s = &set->shards[set->n_shards];
    s->path = mox_arena_printf(&set->list.arena, "%s%s%s", dir ? dir : "", dir ? "/" : "", name);
    if (!s->path)
        return no_memory(error);
    MOX_TRY(mox_file_open(s->path, no_mmap, UINT64_MAX, &s->file, error));
    set->n_shards++;
    *out = s;
    return MOXIE_OK;
}

static moxie_status add_shard(mox_tensor_set *set, const char *dir, const char *name, bool no_mmap, moxie_error *error)
{
    shard *s = NULL;
    const int64_t first = set->list.count;
    MOX_TRY(open_shard(set, dir, name, no_mmap, &s, error));
    MOX_TRY(mox_safetensors_header_parse(s->file.data, s->file.size, s->path, (int32_t)(set->n_shards - 1), &set->list,
                                         error));
    s->tensors = set->list.count - first;
    return enter_names(set, first, error);
}

/* Opens all these files as a set, or fails. */
static moxie_status open_files(const char *dir, const char *const *names, int64_t count, bool no_mmap,
                               mox_tensor_set **out, moxie_error *error)
{
    mox_tensor_set *set = NULL;
    MOX_TRY(new_set(count, &set, error));
    for (int64_t i = 0; i < count; i++) {
        const moxie_status status = add_shard(set, dir, names[i], no_mmap, error);
        if (status != MOXIE_OK) {
            mox_tensor_set_close(set);
            return status;
        }
    }
    *out = set;
    return MOXIE_OK;
}

moxie_status mox_tensor_set_open_file(const char *path, bool no_mmap, mox_tensor_set **out, moxie_error *error)
{
    return open_files(NULL, &path, 1, no_mmap, out, error);
}

/* ---- GGUF ------------------------------------------------------------------------------------------- */

static moxie_status add_gguf(mox_tensor_set *set, const char *path, bool no_mmap, json_t **metadata, moxie_error *error)
{
    shard *s = NULL;
    const int64_t first = set->list.count;
    MOX_TRY(open_shard(set, NULL, path, no_mmap, &s, error));
    MOX_TRY(mox_gguf_header_parse(s->file.data, s->file.size, s->path, (int32_t)(set->n_shards - 1), &set->list,
                                  metadata, error));
    s->tensors = set->list.count - first;
    return enter_names(set, first, error);
}

/* Number of parts of the model that `path` is part of. */
static moxie_status count_parts(const char *path, bool no_mmap, int64_t *out, moxie_error *error)
{
    mox_tensor_set *set = NULL;
    json_t *metadata = NULL;
    MOX_TRY(new_set(1, &set, error));
    moxie_status status = add_gguf(set, path, no_mmap, &metadata, error);
    if (status == MOXIE_OK)
        status = mox_gguf_split_count(metadata, path, out, error);
    json_decref(metadata);
    mox_tensor_set_close(set);
    return status;
}

static moxie_status add_part(mox_tensor_set *set, const char *path, int64_t part, int64_t count, bool no_mmap,
                             moxie_error *error)
{
    json_t *metadata = NULL;
    const char *own = count > 1 ? mox_gguf_split_path(path, part, count, &set->list.arena) : path;
    if (!own)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1,
                             "it is one of %lld parts (split.count), whose names must end in -00001-of-%05lld.gguf and "
                             "so on: give it the name it was released with",
                             (long long)count, (long long)count);
    moxie_status status = add_gguf(set, own, no_mmap, &metadata, error);
    if (status == MOXIE_OK && count > 1)
        status = mox_gguf_split_check(metadata, own, part, count, error);
    if (status == MOXIE_OK && part == 0)
        set->gguf = json_incref(metadata);
    json_decref(metadata);
    return status;
}

/* All parts together have as many tensors as the first says. */
static moxie_status check_parts(const mox_tensor_set *set, moxie_error *error)
{
    const json_t *total = json_object_get(set->gguf, "split.tensors.count");
    if (set->n_shards < 2 || !total || json_integer_value(total) == set->list.count)
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_MISMATCH, error, set->shards[0].path, -1,
                         "split.tensors.count is %lld, but its parts have %lld tensors",
                         (long long)json_integer_value(total), (long long)set->list.count);
}

moxie_status mox_tensor_set_open_gguf(const char *path, bool no_mmap, mox_tensor_set **out, moxie_error *error)
{
    mox_tensor_set *set = NULL;
    int64_t count = 1;
    MOX_TRY(count_parts(path, no_mmap, &count, error));
    MOX_TRY(new_set(count, &set, error));
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < count; i++)
        status = add_part(set, path, i, count, no_mmap, error);
    if (status == MOXIE_OK)
        status = check_parts(set, error);
    if (status == MOXIE_OK)
        *out = set;
    else
        mox_tensor_set_close(set);
    return status;
}

const json_t *mox_tensor_set_gguf(const mox_tensor_set *set)
{
    return set->gguf;
}

/* ---- without a file --------------------------------------------------------------------------------- */

static moxie_status add_tensors(mox_tensor_set *set, const moxie_named_tensor *tensors, int64_t count,
                                moxie_error *error)
{
    set->list.tensors = mox_calloc((uint64_t)count, sizeof *set->list.tensors);
    if (!set->list.tensors)
        return no_memory(error);
    set->list.capacity = count;
    for (int64_t i = 0; i < count; i++) {
        const moxie_tensor *view = &tensors[i].tensor;
        const char *dtype = mox_file_dtype_name(view->dtype);
        MOX_FAIL_IF(!tensors[i].name || !dtype || view->rank < 0 || view->rank > MOXIE_MAX_RANK, MOXIE_ERR_ARGUMENT,
                    error, "tensor %lld in memory has no name, or a dtype or rank that safetensors cannot express",
                    (long long)i);
        uint64_t bits = (uint64_t)mox_file_dtype_by_name(dtype)->bits;
        for (int32_t axis = 0; axis < view->rank; axis++)
            MOX_FAIL_IF(view->shape[axis] < 0 || !mox_mul_u64(bits, (uint64_t)view->shape[axis], &bits),
                        MOXIE_ERR_ARGUMENT, error,
                        "tensor %lld in memory has a negative axis, or more bytes than 64 bits count", (long long)i);
        MOX_FAIL_IF(bits > 0 && !view->data, MOXIE_ERR_ARGUMENT, error, "tensor %lld in memory has no data",
                    (long long)i);
        set->list.tensors[i] =
            (mox_file_tensor) { .name = tensors[i].name, .view = *view, .bytes = bits / 8, .file_dtype = dtype };
        set->list.count++;
    }
    return enter_names(set, 0, error);
}

moxie_status mox_tensor_set_of_tensors(const char *name, const moxie_named_tensor *tensors, int64_t count,
                                       mox_tensor_set **out, moxie_error *error)
{
    mox_tensor_set *set = NULL;
    MOX_TRY(new_set(1, &set, error));
    set->shards[0] = (shard) { .path = name, .tensors = count };
    set->n_shards = 1;
    const moxie_status status = add_tensors(set, tensors, count, error);
    if (status == MOXIE_OK)
        *out = set;
    else
        mox_tensor_set_close(set);
    return status;
}

/* ---- with an index ---------------------------------------------------------------------------------- */

/* Checks that the tensor of entry i is in the shard that the index names. Shards are numbered like the files of the
 * index. */
static moxie_status check_entry(const mox_tensor_set *set, const mox_tensor_index *index, int64_t i, const char *path,
                                moxie_error *error)
{
    const mox_index_entry *entry = &index->entries[i];
    const mox_file_tensor *t = mox_tensor_set_find(set, entry->tensor);
    if (t && t->file == entry->file)
        return MOXIE_OK;
    char escaped[MAX_ESCAPED], escaped_file[MAX_ESCAPED], elsewhere[MAX_ESCAPED];
    mox_escape(escaped, sizeof escaped, entry->tensor);
    mox_escape(escaped_file, sizeof escaped_file, index->files[entry->file]);
    if (!t)
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, path, -1,
                             "the index places tensor \"%s\" in \"%s\", but no shard holds it", escaped, escaped_file);
    return mox_fail_file(MOXIE_ERR_MISMATCH, error, path, -1,
                         "the index places tensor \"%s\" in \"%s\", but it is in \"%s\"", escaped, escaped_file,
                         mox_escape(elsewhere, sizeof elsewhere, index->files[t->file]));
}

static moxie_status warn(mox_tensor_set *set, const char *text, moxie_error *error)
{
    if (!text)
        return no_memory(error);
    set->warnings[set->n_warnings++] = text;
    return MOXIE_OK;
}

/* Adds one warning per shard with tensors that the index omits, naming the first of them. */
static moxie_status warn_extras(mox_tensor_set *set, const mox_tensor_index *index, moxie_error *error)
{
    if (set->list.count == index->n_entries)
        return MOXIE_OK;
    int64_t *extras = mox_calloc((uint64_t)set->n_shards, sizeof *extras);
    bool *named = mox_calloc((uint64_t)set->list.count, sizeof *named);
    moxie_status status = extras && named ? MOXIE_OK : no_memory(error);
    for (int64_t i = 0; status == MOXIE_OK && i < index->n_entries; i++)
        named[mox_name_map_find(&set->names, index->entries[i].tensor)] = true;
    for (int64_t i = 0; status == MOXIE_OK && i < set->list.count; i++)
        extras[set->list.tensors[i].file] += !named[i];
    for (int64_t i = 0; status == MOXIE_OK && i < set->list.count; i++) {
        int64_t *left = &extras[set->list.tensors[i].file];
        if (named[i] || *left == 0)
            continue;
        char escaped[MAX_ESCAPED], escaped_file[MAX_ESCAPED];
        status =
            warn(set,
                 mox_arena_printf(
                     &set->list.arena, "\"%s\" holds %lld tensors that the index does not name; the first is \"%s\"",
                     mox_escape(escaped_file, sizeof escaped_file, index->files[set->list.tensors[i].file]),
                     (long long)*left, mox_escape(escaped, sizeof escaped, set->list.tensors[i].name)),
                 error);
        *left = 0;
    }
    mox_free(extras);
    mox_free(named);
    return status;
}

static moxie_status check_index(mox_tensor_set *set, const mox_tensor_index *index, const char *path,
                                moxie_error *error)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < index->n_entries; i++) {
        MOX_TRY(check_entry(set, index, i, path, error));
        bytes += mox_tensor_set_find(set, index->entries[i].tensor)->bytes;
    }
    if (index->has_total && index->total_size != (double)bytes)
        MOX_TRY(
            warn(set,
                 mox_arena_printf(&set->list.arena, "the index gives a total_size of %.0f bytes, its tensors have %llu",
                                  index->total_size, (unsigned long long)bytes),
                 error));
    return warn_extras(set, index, error);
}

static moxie_status open_indexed(const char *dir, const char *index_path, bool no_mmap, mox_tensor_set **out,
                                 moxie_error *error)
{
    mox_tensor_index index = { 0 };
    mox_tensor_set *set = NULL;
    moxie_status status = mox_tensor_index_load(index_path, &index, error);
    if (status != MOXIE_OK)
        goto out;
    status = open_files(dir, index.files, index.n_files, no_mmap, &set, error);
    if (status == MOXIE_ERR_IO)
        mox_fail_context(status, error, "opening a shard that %s names", MOX_INDEX_NAME);
    if (status != MOXIE_OK)
        goto out;
    status = check_index(set, &index, index_path, error);
    if (status != MOXIE_OK)
        goto out;
    *out = set;
    set = NULL;
out:
    mox_tensor_set_close(set);
    mox_tensor_index_free(&index);
    return status;
}

/* ---- without an index ------------------------------------------------------------------------------- */

typedef struct name_list {
    mox_arena arena;
    const char **names;
    int64_t count, capacity;
} name_list;

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool has_suffix(const char *name)
{
    const size_t length = strlen(name), suffix = strlen(SUFFIX);
    return name[0] != '.' && length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

static moxie_status add_name(name_list *list, const char *name, moxie_error *error)
{
    if (list->count == list->capacity) {
        const int64_t capacity = list->capacity ? 2 * list->capacity : 64;
        const char **grown = mox_realloc(list->names, (uint64_t)capacity * sizeof *grown);
        if (!grown)
            return no_memory(error);
        list->names = grown;
        list->capacity = capacity;
    }
    const char *copy = mox_arena_strndup(&list->arena, name, strlen(name));
    if (!copy)
        return no_memory(error);
    list->names[list->count++] = copy;
    return MOXIE_OK;
}

static moxie_status list_directory(const char *dir, name_list *list, moxie_error *error)
{
    DIR *stream = opendir(dir);
    if (!stream)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1, "cannot open the directory: %m");
    moxie_status status = MOXIE_OK;
    while (status == MOXIE_OK) {
        const struct dirent *entry;
        status = mox_next_entry(stream, dir, &entry, error);
        if (!entry)
            break;
        if (has_suffix(entry->d_name))
            status = add_name(list, entry->d_name, error);
    }
    closedir(stream);
    if (status == MOXIE_OK && list->count == 0)
        status = mox_no_tensors(dir, error);
    if (status == MOXIE_OK)
        qsort(list->names, (size_t)list->count, sizeof *list->names, by_name);
    return status;
}

static moxie_status open_listed(const char *dir, bool no_mmap, mox_tensor_set **out, moxie_error *error)
{
    name_list list = { 0 };
    moxie_status status = list_directory(dir, &list, error);
    if (status == MOXIE_OK)
        status = open_files(dir, list.names, list.count, no_mmap, out, error);
    mox_free(list.names);
    mox_arena_free(&list.arena);
    return status;
}

moxie_status mox_tensor_set_open_dir(const char *dir, bool no_mmap, mox_tensor_set **out, moxie_error *error)
{
    mox_arena arena = { 0 };
    const char *index_path = mox_arena_printf(&arena, "%s/%s", dir, MOX_INDEX_NAME);
    if (!index_path)
        return no_memory(error);
    const moxie_status status = mox_file_exists(index_path) ? open_indexed(dir, index_path, no_mmap, out, error)
                                                            : open_listed(dir, no_mmap, out, error);
    mox_arena_free(&arena);
    return status;
}

void mox_tensor_set_close(mox_tensor_set *set)
{
    if (!set)
        return;
    for (int64_t i = 0; i < set->n_shards; i++)
        mox_file_close(&set->shards[i].file);
    json_decref(set->gguf);
    mox_name_map_free(&set->names);
    mox_tensor_list_free(&set->list);
    mox_free(set);
}

/* ---- asking ----------------------------------------------------------------------------------------- */

int64_t mox_tensor_set_count(const mox_tensor_set *set)
{
    return set->list.count;
}

const mox_file_tensor *mox_tensor_set_at(const mox_tensor_set *set, int64_t i)
{
    return &set->list.tensors[i];
}

const mox_file_tensor *mox_tensor_set_find(const mox_tensor_set *set, const char *name)
{
    const int64_t i = mox_name_map_find(&set->names, name);
    return i < 0 ? NULL : &set->list.tensors[i];
}

moxie_status mox_file_tensor_check(const mox_tensor_set *set, const mox_file_tensor *tensor, moxie_error *error)
{
    char escaped[MAX_ESCAPED];
    if (tensor->unusable)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, set->shards[tensor->file].path, (int64_t)tensor->offset,
                             "tensor \"%s\" (%s) cannot be used: %s", mox_escape(escaped, sizeof escaped, tensor->name),
                             tensor->file_dtype, tensor->unusable);
    return MOXIE_OK;
}

moxie_status mox_tensor_set_check(const mox_tensor_set *set, moxie_error *error)
{
    for (int64_t i = 0; i < set->n_shards; i++)
        MOX_TRY(mox_file_check(&set->shards[i].file, set->shards[i].path, error));
    return MOXIE_OK;
}

int64_t mox_tensor_set_files(const mox_tensor_set *set)
{
    return set->n_shards;
}

const char *mox_tensor_set_file_name(const mox_tensor_set *set, int64_t i)
{
    return set->shards[i].path;
}

const char *mox_tensor_set_metadata(const mox_tensor_set *set, int64_t file, const char *key)
{
    for (int64_t i = 0; i < set->list.n_metadata; i++)
        if (set->list.metadata[i].file == file && strcmp(set->list.metadata[i].key, key) == 0)
            return set->list.metadata[i].value;
    return NULL;
}

const unsigned char *mox_tensor_set_file_header(const mox_tensor_set *set, int64_t i, uint64_t *bytes)
{
    const mox_file *file = &set->shards[i].file;
    uint64_t n = 0;
    for (int b = 7; b >= 0; b--)
        n = n << 8 | file->data[b];
    *bytes = 8 + n; /* checked when the file was opened */
    return file->data;
}

const unsigned char *mox_tensor_set_file_bytes(const mox_tensor_set *set, int64_t i, uint64_t *bytes)
{
    *bytes = set->shards[i].file.size;
    return set->shards[i].file.data;
}

/* Operating systems keep files in naturally aligned runs of pages up to this size; touching one byte can map the whole
 * run. */
#define LONGEST_RUN ((uint64_t)2 << 20)

void mox_tensor_set_drop(const mox_tensor_set *set, const void *data, uint64_t bytes)
{
    for (int64_t i = 0; i < set->n_shards; i++) {
        const mox_file *file = &set->shards[i].file;
        const uint64_t offset =
            (uintptr_t)data - (uintptr_t)file->data; /* larger than the file when data lies before it */
        if (!file->mapped || offset > file->size || bytes > file->size - offset)
            continue;
        const uint64_t begin = offset & ~(LONGEST_RUN - 1);
        const uint64_t end = (offset + bytes + LONGEST_RUN - 1) & ~(LONGEST_RUN - 1);
        mox_drop_pages(file->data + begin, (end < file->size ? end : file->size) - begin);
    }
}

uint64_t mox_tensor_set_bytes(const mox_tensor_set *set)
{
    return set->bytes;
}

int64_t mox_tensor_set_warnings(const mox_tensor_set *set)
{
    return set->n_warnings;
}

const char *mox_tensor_set_warning(const mox_tensor_set *set, int64_t i)
{
    return set->warnings[i];
}
