/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_files.c - the shards of a directory, each opened on its own, and what index and shards say about each other.
 *
 *     index.json   yes: the files that it names      no, or damaged: every *.safetensors, in name order
 *     each file    opened: its tensors join the list; not opened: a finding, and the others go on
 *     a name twice, a name that the index places elsewhere, a name that the index omits: findings
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/listing.h"
#include "ckpt/gguf/gguf_header.h"
#include "ckpt/no_model.h"
#include "ckpt/safetensors/file.h"
#include "ckpt/safetensors/tensor_index.h"
#include "lint/lint_state.h"

#define SUFFIX ".safetensors"

static bool no_memory(mox_lint *lint)
{
    lint->report->no_memory = true;
    return false;
}

/* ---- which files ---------------------------------------------------------------------------------- */

static bool add_shard(mox_lint *lint, const char *name, int64_t *room)
{
    if (lint->n_shards == *room) {
        const int64_t more = *room ? 2 * *room : 64;
        mox_lint_shard *grown = mox_realloc(lint->shards, (uint64_t)more * sizeof *grown);
        if (!grown)
            return no_memory(lint);
        lint->shards = grown;
        *room = more;
    }
    mox_lint_shard *s = &lint->shards[lint->n_shards];
    *s = (mox_lint_shard) { .name = mox_arena_strndup(&lint->arena, name, strlen(name)) };
    s->path = mox_arena_printf(&lint->arena, "%s/%s", lint->dir, name);
    if (!s->name || !s->path)
        return no_memory(lint);
    lint->n_shards++;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const mox_lint_shard *)a)->name, ((const mox_lint_shard *)b)->name);
}

static bool is_shard(const char *name)
{
    const size_t length = strlen(name), suffix = strlen(SUFFIX);
    return name[0] != '.' && length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

static moxie_status list_directory(mox_lint *lint, bool all, moxie_error *error)
{
    DIR *stream = opendir(lint->dir);
    if (!stream)
        return mox_no_model(lint->dir, error);
    int64_t room = 0;
    moxie_status status = MOXIE_OK;
    while (all) {
        const struct dirent *entry;
        status = mox_next_entry(stream, lint->dir, &entry, error);
        if (!entry || (is_shard(entry->d_name) && !add_shard(lint, entry->d_name, &room)))
            break;
    }
    closedir(stream);
    if (lint->n_shards > 1)
        qsort(lint->shards, (size_t)lint->n_shards, sizeof *lint->shards, by_name);
    return status;
}

/* ---- their tensors -------------------------------------------------------------------------------- */

static void open_shard(mox_lint *lint, mox_lint_shard *s)
{
    moxie_error error = { 0 };
    if (mox_tensor_set_open_file(s->path, false, &s->set, &error) != MOXIE_OK) {
        s->set = NULL;
        mox_lint_unreadable(lint->report, MOX_LINT_UNREADABLE, &error);
        return;
    }
    lint->n_tensors += mox_tensor_set_count(s->set);
    lint->report->info.n_files++;
}

static void enter(mox_lint *lint, int32_t file, const mox_file_tensor *tensor)
{
    const mox_lint_where where = { -1, lint->shards[file].path, tensor->name };
    int64_t other = -1;
    if (tensor->unusable) {
        mox_lint_report(lint->report, MOX_LINT_UNUSABLE, where, "%s: %s", tensor->file_dtype, tensor->unusable);
        if (!lint->gguf) /* whose model has it, too, and the same numbers */
            return;
    }
    if (mox_name_map_put(&lint->names, tensor->name, lint->n_tensors, &other, NULL) != MOXIE_OK) {
        no_memory(lint);
        return;
    }
    if (other >= 0) {
        char name[200];
        mox_lint_report(lint->report, MOX_LINT_DUPLICATE, where, "it is in %s, too",
                        mox_escape(name, sizeof name, lint->shards[lint->files[other]].name));
        return;
    }
    lint->tensors[lint->n_tensors] = (moxie_named_tensor) { .name = tensor->name, .tensor = tensor->view };
    lint->files[lint->n_tensors++] = file;
}

static void enter_all(mox_lint *lint)
{
    const uint64_t most = (uint64_t)lint->n_tensors + 1;
    lint->tensors = mox_calloc(most, sizeof *lint->tensors);
    lint->files = mox_calloc(most, sizeof *lint->files);
    lint->read = mox_calloc(most, sizeof *lint->read);
    lint->n_tensors = 0;
    if (!lint->tensors || !lint->files || !lint->read) {
        no_memory(lint);
        return;
    }
    for (int64_t i = 0; i < lint->n_shards; i++)
        for (int64_t t = 0; lint->shards[i].set && t < mox_tensor_set_count(lint->shards[i].set); t++)
            enter(lint, (int32_t)i, mox_tensor_set_at(lint->shards[i].set, t));
    lint->report->info.n_tensors = lint->n_tensors;
}

/* ---- the index ------------------------------------------------------------------------------------ */

static uint64_t bytes_of(const mox_lint *lint, int64_t i)
{
    return mox_tensor_set_find(lint->shards[lint->files[i]].set, lint->tensors[i].name)->bytes;
}

/* Shards are numbered like the files of the index. Returns the number of the tensor, or -1. */
static int64_t check_entry(mox_lint *lint, const mox_index_entry *entry, const char *path)
{
    const int64_t i = mox_name_map_find(&lint->names, entry->tensor);
    const mox_lint_where where = { -1, path, entry->tensor };
    const mox_lint_shard *s = &lint->shards[entry->file];
    const bool held = s->set && mox_tensor_set_find(s->set, entry->tensor);
    char name[200], elsewhere[200];
    if (held || !s->set)
        return i; /* a shard that could not be opened has its own finding */
    mox_escape(name, sizeof name, s->name);
    if (i < 0)
        mox_lint_report(lint->report, MOX_LINT_INDEX_MISMATCH, where, "the index places it in %s; no file holds it",
                        name);
    else
        mox_lint_report(lint->report, MOX_LINT_INDEX_MISMATCH, where, "the index places it in %s, but %s holds it",
                        name, mox_escape(elsewhere, sizeof elsewhere, lint->shards[lint->files[i]].name));
    return i;
}

static void report_omitted(mox_lint *lint, const bool *named, const char *path)
{
    int64_t omitted = 0, first = -1;
    for (int64_t i = 0; i < lint->n_tensors; i++)
        if (!named[i]) {
            first = first < 0 ? i : first;
            omitted++;
        }
    if (omitted > 0)
        mox_lint_report(lint->report, MOX_LINT_INDEX_OMITS, (mox_lint_where) { -1, path, lint->tensors[first].name },
                        "the index does not name %lld tensors of its files; this is the first", (long long)omitted);
}

static void check_index(mox_lint *lint, const mox_tensor_index *index, const char *path)
{
    bool *named = mox_calloc((uint64_t)lint->n_tensors + 1, sizeof *named), whole = true;
    uint64_t bytes = 0;
    if (!named || !lint->tensors) {
        no_memory(lint);
        mox_free(named);
        return;
    }
    for (int64_t e = 0; e < index->n_entries; e++) {
        const int64_t i = check_entry(lint, &index->entries[e], path);
        whole = whole && i >= 0;
        if (i >= 0) {
            named[i] = true;
            bytes += bytes_of(lint, i);
        }
    }
    report_omitted(lint, named, path);
    mox_free(named);
    if (whole && index->has_total && index->total_size != (double)bytes)
        mox_lint_report(lint->report, MOX_LINT_INDEX_TOTAL, (mox_lint_where) { .layer = -1, .file = path },
                        "total_size is %.0f bytes, the tensors that it names have %llu", index->total_size,
                        (unsigned long long)bytes);
}

/* ---- all of it ------------------------------------------------------------------------------------ */

/* A GGUF file and its parts as one shard. */
static moxie_status open_gguf(mox_lint *lint, moxie_error *error)
{
    moxie_error broken = { 0 };
    lint->gguf = true;
    lint->shards = mox_calloc(1, sizeof *lint->shards);
    MOX_FAIL_IF(!lint->shards, MOXIE_ERR_MEMORY, error, "no memory to check %s", lint->dir);
    lint->shards[0] = (mox_lint_shard) { .name = lint->dir, .path = lint->dir };
    lint->n_shards = 1;
    if (mox_tensor_set_open_gguf(lint->dir, false, &lint->shards[0].set, &broken) != MOXIE_OK) {
        lint->shards[0].set = NULL;
        mox_lint_unreadable(lint->report, MOX_LINT_UNREADABLE, &broken);
    } else {
        lint->n_tensors = mox_tensor_set_count(lint->shards[0].set);
        lint->report->info.n_files = (int32_t)mox_tensor_set_files(lint->shards[0].set);
    }
    enter_all(lint);
    return MOXIE_OK;
}

moxie_status mox_lint_files(mox_lint *lint, moxie_error *error)
{
    if (mox_is_gguf_file(lint->dir))
        return open_gguf(lint, error);
    mox_tensor_index index = { 0 };
    const char *path = mox_arena_printf(&lint->arena, "%s/%s", lint->dir, MOX_INDEX_NAME);
    MOX_FAIL_IF(!path, MOXIE_ERR_MEMORY, error, "no memory for a name");
    moxie_error broken = { 0 };
    bool indexed = mox_file_exists(path);
    if (indexed && mox_tensor_index_load(path, &index, &broken) != MOXIE_OK) {
        mox_lint_unreadable(lint->report, MOX_LINT_UNREADABLE, &broken);
        indexed = false;
    }
    const moxie_status status = list_directory(lint, !indexed, error);
    int64_t room = 0;
    for (int64_t i = 0; status == MOXIE_OK && indexed && i < index.n_files; i++)
        if (!add_shard(lint, index.files[i], &room))
            break;
    for (int64_t i = 0; i < lint->n_shards; i++)
        open_shard(lint, &lint->shards[i]);
    if (status == MOXIE_OK)
        enter_all(lint);
    if (status == MOXIE_OK && indexed)
        check_index(lint, &index, path);
    mox_tensor_index_free(&index);
    return status;
}

bool mox_lint_still_there(mox_lint *lint)
{
    bool fine = true;
    for (int64_t i = 0; i < lint->n_shards; i++) {
        moxie_error error = { 0 };
        if (!lint->shards[i].set || mox_tensor_set_check(lint->shards[i].set, &error) == MOXIE_OK)
            continue;
        mox_lint_unreadable(lint->report, MOX_LINT_UNREADABLE, &error);
        fine = false;
    }
    return fine;
}

void mox_lint_close(mox_lint *lint)
{
    mox_model_close(lint->model);
    for (int64_t i = 0; i < lint->n_shards; i++)
        mox_tensor_set_close(lint->shards[i].set);
    mox_name_map_free(&lint->names);
    mox_free(lint->shards);
    mox_free(lint->tensors);
    mox_free(lint->files);
    mox_free(lint->read);
    mox_arena_free(&lint->arena);
}

/* ---- a tensor ------------------------------------------------------------------------------------- */

/* The number of a tensor of the model's set. */
static int64_t number_of(const mox_lint *lint, const mox_file_tensor *tensor)
{
    return tensor - mox_tensor_set_at(lint->model->set, 0);
}

void mox_lint_mark(mox_lint *lint, const mox_file_tensor *tensor)
{
    if (tensor)
        lint->read[number_of(lint, tensor)] = 1;
}

mox_lint_where mox_lint_at(const mox_lint *lint, int64_t layer, const mox_file_tensor *tensor)
{
    const char *path = tensor ? lint->shards[lint->files[number_of(lint, tensor)]].path : NULL;
    return (mox_lint_where) { layer, path, tensor ? tensor->name : NULL };
}

void mox_lint_drop(const mox_lint *lint, const mox_file_tensor *tensor, const void *data, uint64_t bytes)
{
    const mox_tensor_set *mapped =
        lint->gguf ? lint->model->set : lint->shards[lint->files[number_of(lint, tensor)]].set;
    mox_tensor_set_drop(mapped, data, bytes);
}
