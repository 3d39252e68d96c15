/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_back.c - a prepared layer seen as the checkpoint's again: room at the addresses of its tensors, their views.
 *
 *     metadata moxie.source      names, dtypes, shapes      -> addresses in reserved memory, of which nothing is there
 *     tensors moxie.source/...   those that were kept       -> copied to their addresses
 *     config.json                                           -> the model reader takes these tensors for a checkpoint
 *     its views                                             -> unpacked through, an expert at a time
 */
#include "prepare.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static moxie_status bad_source(const char *path, moxie_error *error)
{
    return cli_error(MOXIE_ERR_FORMAT, error, path, "its metadata moxie.source does not describe tensors");
}

static bool read_tensor(const json_t *entry, moxie_named_tensor *out, int64_t *pieces, uint64_t *bytes)
{
    const char *name = NULL, *dtype = NULL;
    json_t *shape = NULL;
    json_int_t p = 0;
    json_t *copy = json_deep_copy(entry);
    if (!copy || json_unpack(copy, "[s, s, o, I]", &name, &dtype, &shape, &p) != 0 || p < 0) {
        json_decref(copy);
        return false;
    }
    moxie_tensor t = { .dtype = moxie_dtype_from_name(dtype), .rank = (int32_t)json_array_size(shape) };
    uint64_t bits = (uint64_t)moxie_dtype_bits(t.dtype);
    bool good = t.rank <= MOXIE_MAX_RANK && bits > 0;
    for (int32_t i = 0; good && i < t.rank; i++) {
        t.shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
        good = t.shape[i] >= 0 && !__builtin_mul_overflow(bits, (uint64_t)t.shape[i], &bits);
    }
    *out = (moxie_named_tensor) { .name = good ? strdup(name) : NULL, .tensor = t };
    *pieces = p;
    *bytes = bits / 8;
    json_decref(copy);
    return out->name != NULL && (p == 0 || *bytes % (uint64_t)p == 0);
}

/* Reads the list; *bytes[i] are kept in the tensors' strides until they have addresses. */
static moxie_status read_source(prepare_back *b, const char *path, uint64_t **sizes, moxie_error *error)
{
    const char *text = moxie_tensor_file_metadata(b->file, "moxie.source");
    json_error_t where;
    json_t *list = text ? json_loads(text, 0, &where) : NULL;
    const size_t count = json_array_size(list);
    b->tensors = calloc(count + 1, sizeof *b->tensors);
    b->pieces = calloc(count + 1, sizeof *b->pieces);
    *sizes = calloc(count + 1, sizeof **sizes);
    bool good = list && count > 0 && b->tensors && b->pieces && *sizes;
    for (size_t i = 0; good && i < count; i++) {
        good = read_tensor(json_array_get(list, i), &b->tensors[i], &b->pieces[i], &(*sizes)[i]);
        b->count++;
        b->room_bytes += ((*sizes)[i] + 63) / 64 * 64;
    }
    json_decref(list);
    return good ? MOXIE_OK : bad_source(path, error);
}

/* Addresses for all, in order, and what was kept at its own. */
static moxie_status fill_room(prepare_back *b, const uint64_t *sizes, moxie_error *error)
{
    uint64_t at = 0;
    char name[400];
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < b->count; i++) {
        moxie_tensor *t = &b->tensors[i].tensor, kept;
        t->data = b->room + at;
        at += (sizes[i] + 63) / 64 * 64;
        if (b->pieces[i] > 0)
            continue;
        snprintf(name, sizeof name, "%s%s", PREPARE_SOURCE, b->tensors[i].name);
        status = moxie_tensor_file_find(b->file, name, &kept, error);
        if (status == MOXIE_OK && (kept.dtype != t->dtype || kept.rank != t->rank ||
                                   memcmp(kept.shape, t->shape, (size_t)t->rank * sizeof *t->shape) != 0))
            status =
                cli_error(MOXIE_ERR_MISMATCH, error, "", "%s has not the type and shape that it was kept with", name);
        if (status == MOXIE_OK)
            memcpy(t->data, kept.data, sizes[i]);
    }
    return status;
}

static moxie_status reserve(prepare_back *b, moxie_error *error)
{
    void *room = mmap(NULL, b->room_bytes > 0 ? b->room_bytes : 1, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no %llu bytes of addresses for a layer's tensors",
                         (unsigned long long)b->room_bytes);
    b->room = room;
    return MOXIE_OK;
}

/* Another rank's file of the same layer describes the same tensors: one room serves both. */
static moxie_status share_room(prepare_back *b, const prepare_back *first, const char *path, moxie_error *error)
{
    const char *mine = moxie_tensor_file_metadata(b->file, "moxie.source");
    const char *other = moxie_tensor_file_metadata(first->file, "moxie.source");
    if (!mine || !other || strcmp(mine, other) != 0)
        return cli_error(MOXIE_ERR_MISMATCH, error, path, "it was not made of the tensors that the other ranks' were");
    b->tensors = first->tensors;
    b->pieces = first->pieces;
    b->count = first->count;
    b->room = first->room;
    return MOXIE_OK;
}

static moxie_status open_views(const char *dir, const prepare_how *how, int64_t layer, prepare_back *b,
                               moxie_error *error)
{
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_preparation_facts facts = MOXIE_PREPARATION_FACTS_INIT;
    options.experts_only = 1;
    options.tensors = b->tensors;
    options.n_tensors = b->count;
    moxie_status status = moxie_model_open(dir, &options, &b->model, error);
    if (status == MOXIE_OK)
        status = moxie_model_load_layer(b->model, layer, &b->layer, error);
    if (status == MOXIE_OK)
        status = moxie_model_expert_prefix(b->model, layer, b->prefix, sizeof b->prefix, error);
    if (status == MOXIE_OK)
        status = prepare_plan(how, b->layer, &b->preparation, error);
    if (status != MOXIE_OK)
        return status;
    const char *text = moxie_tensor_file_metadata(b->file, "moxie.facts");
    if (!text || sscanf(text, "%a %a %a %a %a %a", &facts.scale_most[0], &facts.scale_most[1], &facts.scale_least[0],
                        &facts.scale_least[1], &facts.a13_most, &facts.a2_most) != 6)
        return cli_error(MOXIE_ERR_FORMAT, error, "", "the metadata moxie.facts of layer %lld are no six numbers",
                         (long long)layer);
    return moxie_preparation_set_facts(b->preparation, &facts, error);
}

/* The file's tensors are those that the plan makes. */
static moxie_status check_tensors(const prepare_back *b, const char *path, moxie_error *error)
{
    char name[400];
    moxie_sealed_tensor want;
    moxie_status status = MOXIE_OK;
    for (int32_t i = 0;
         status == MOXIE_OK && prepare_stacked_tensor(b->preparation, b->prefix, i, name, sizeof name, &want); i++) {
        moxie_tensor found;
        status = moxie_tensor_file_find(b->file, name, &found, error);
        if (status == MOXIE_OK && (found.dtype != want.dtype || found.rank != want.rank ||
                                   memcmp(found.shape, want.shape, (size_t)want.rank * sizeof *want.shape) != 0))
            status =
                cli_error(MOXIE_ERR_MISMATCH, error, path, "%s has another type or shape than its layout makes", name);
    }
    return status;
}

moxie_status prepare_back_open(const char *dir, const prepare_how *how, int64_t layer, const prepare_back *first,
                               prepare_back *out, moxie_error *error)
{
    char path[PATH_MAX];
    uint64_t *sizes = NULL;
    *out = (prepare_back) { 0 };
    moxie_status status = moxie_tensor_file_open(prepare_layer_path(dir, layer, path), 0, &out->file, error);
    if (status == MOXIE_OK)
        status = moxie_tensor_file_check_seal(out->file, error);
    if (status == MOXIE_OK && first) {
        status = share_room(out, first, path, error);
    } else if (status == MOXIE_OK) {
        status = read_source(out, path, &sizes, error);
        if (status == MOXIE_OK)
            status = reserve(out, error);
        if (status == MOXIE_OK)
            status = fill_room(out, sizes, error);
    }
    free(sizes);
    if (status == MOXIE_OK)
        status = open_views(dir, how, layer, out, error);
    return status == MOXIE_OK ? check_tensors(out, path, error) : status;
}

void prepare_back_close(prepare_back *b)
{
    moxie_preparation_destroy(b->preparation);
    moxie_model_layer_free(b->layer);
    moxie_model_close(b->model);
    moxie_tensor_file_close(b->file);
    if (b->room_bytes > 0) { /* not shared */
        for (int64_t i = 0; i < b->count; i++)
            free((void *)(uintptr_t)b->tensors[i].name);
        free(b->tensors);
        free(b->pieces);
        if (b->room)
            munmap(b->room, b->room_bytes);
    }
    *b = (prepare_back) { 0 };
}

moxie_status prepare_back_slot(const prepare_back *b, int32_t slot, void **tensors, moxie_error *error)
{
    char name[400];
    moxie_sealed_tensor stacked;
    moxie_prepared_tensor one;
    moxie_status status = MOXIE_OK;
    for (int32_t i = 0; status == MOXIE_OK && moxie_preparation_tensor_at(b->preparation, i, &one); i++) {
        moxie_tensor found;
        prepare_stacked_tensor(b->preparation, b->prefix, i, name, sizeof name, &stacked);
        status = moxie_tensor_file_find(b->file, name, &found, error);
        if (status == MOXIE_OK)
            tensors[i] = (unsigned char *)found.data + (uint64_t)slot * one.bytes;
    }
    return status;
}

uint64_t prepare_back_hash(const prepare_back *b, int32_t slot)
{
    char name[400];
    moxie_tensor found;
    moxie_error error;
    uint64_t hash = 0;
    snprintf(name, sizeof name, "%s%s", b->prefix, PREPARE_EXPERT_HASH);
    if (moxie_tensor_file_find(b->file, name, &found, &error) == MOXIE_OK)
        memcpy(&hash, (const unsigned char *)found.data + (uint64_t)slot * sizeof hash, sizeof hash);
    return hash;
}
