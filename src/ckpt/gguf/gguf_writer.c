/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_writer.c - writes one GGUF file (gguf_writer.h).
 */
#include "ckpt/gguf/gguf_writer.h"

#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "base/sizes.h"
#include "base/whole_file.h"
#include "ckpt/name_map.h"
#include "format/block.h"
#include "format/format.h"

enum { VERSION = 3, MAX_AXES = 4, MAX_NAME = 63 }; /* ggml's GGML_MAX_NAME with its zero */

typedef struct place {
    uint64_t offset, bytes; /* in the file */
} place;

struct mox_gguf_writer {
    mox_whole_file file;
    place *places;
    int64_t count;
    uint64_t data_bytes;      /* of all tensors */
    _Atomic uint64_t written; /* of them */
};

/* ---- types ------------------------------------------------------------------------------------------- */

/* The number of a type in GGUF files; -1: none. */
static int32_t type_of(moxie_dtype dtype)
{
    static const struct {
        moxie_dtype dtype;
        int32_t type;
    } plain[] = { { MOXIE_F32, 0 },  { MOXIE_F16, 1 },  { MOXIE_BF16, 30 }, { MOXIE_I8, 24 },
                  { MOXIE_I16, 25 }, { MOXIE_I32, 26 }, { MOXIE_I64, 27 },  { MOXIE_F64, 28 } };
    const mox_block *block = mox_block_of(dtype);
    if (block)
        return block->type;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (plain[i].dtype == dtype)
            return plain[i].type;
    return -1;
}

/* The name of a type that GGUF files can hold; NULL for other dtypes. */
static const char *type_name(moxie_dtype dtype)
{
    const mox_block *block = mox_block_of(dtype);
    return block ? block->format.name : type_of(dtype) >= 0 ? mox_dtype_name(dtype) : NULL;
}

uint64_t mox_gguf_tensor_bytes(const mox_tensor_decl *t)
{
    const mox_block *block = mox_block_of(t->dtype);
    const uint64_t weights = block ? (uint64_t)block->weights : 1;
    uint64_t bytes = block ? (uint64_t)block->bytes : (uint64_t)mox_dtype_bytes(t->dtype);
    for (int32_t i = 0; i < t->rank; i++) {
        const bool fastest = i == t->rank - 1;
        if (fastest && (uint64_t)t->shape[i] % weights != 0)
            return 0;
        if (!mox_mul_u64(bytes, (uint64_t)t->shape[i] / (fastest ? weights : 1), &bytes))
            return 0;
    }
    return t->rank == 0 && block ? 0 : bytes;
}

static moxie_status check_tensor(const char *path, const mox_tensor_decl *t, moxie_error *error)
{
    if (type_of(t->dtype) < 0 || t->rank > MAX_AXES || strlen(t->name) > MAX_NAME)
        return mox_fail_file(MOXIE_ERR_ARGUMENT, error, path, -1,
                             "tensor %s (dtype %s, %d axes) has no place in a GGUF file: names have at most %d bytes, "
                             "shapes %d axes",
                             t->name, mox_dtype_name(t->dtype), (int)t->rank, MAX_NAME, MAX_AXES);
    if (mox_gguf_tensor_bytes(t) == 0)
        return mox_fail_file(MOXIE_ERR_ARGUMENT, error, path, -1,
                             "tensor %s has rows of %lld, which are no whole blocks of %s", t->name,
                             (long long)(t->rank > 0 ? t->shape[t->rank - 1] : 0), type_name(t->dtype));
    return MOXIE_OK;
}

/* ---- the head ---------------------------------------------------------------------------------------- */

static unsigned char *put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *at++ = (unsigned char)(value >> 8 * i);
    return at;
}

static unsigned char *put_bytes(unsigned char *at, const void *bytes, uint64_t size)
{
    if (size > 0)
        memcpy(at, bytes, size);
    return at + size;
}

static uint64_t info_bytes(const mox_tensor_decl *t)
{
    return 8 + strlen(t->name) + 4 + 8 * (uint64_t)t->rank + 4 + 8;
}

static unsigned char *put_info(unsigned char *at, const mox_tensor_decl *t, uint64_t offset)
{
    at = put(at, strlen(t->name), 8);
    at = put_bytes(at, t->name, strlen(t->name));
    at = put(at, (uint64_t)t->rank, 4);
    for (int32_t i = t->rank - 1; i >= 0; i--)
        at = put(at, (uint64_t)t->shape[i], 8);
    at = put(at, (uint64_t)type_of(t->dtype), 4);
    return put(at, offset, 8);
}

/* Gives every tensor its place; *end: the size of the file. */
static moxie_status place_tensors(mox_gguf_writer *w, const char *path, const mox_gguf_pairs *pairs,
                                  const mox_tensor_decl *tensors, uint64_t *start, uint64_t *end, moxie_error *error)
{
    uint64_t at = 24 + pairs->size;
    mox_name_map names = { 0 };
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; i < w->count && status == MOXIE_OK; i++) {
        int64_t existing = -1;
        status = check_tensor(path, &tensors[i], error);
        if (status == MOXIE_OK)
            status = mox_name_map_put(&names, tensors[i].name, 0, &existing, error);
        if (status == MOXIE_OK && existing >= 0)
            status = mox_fail_file(MOXIE_ERR_ARGUMENT, error, path, -1, "two tensors are called %s", tensors[i].name);
        at += info_bytes(&tensors[i]);
    }
    mox_name_map_free(&names);
    MOX_TRY(status);
    bool fits = mox_align_u64(at, MOX_GGUF_ALIGNMENT, start);
    *end = *start;
    for (int64_t i = 0; i < w->count && fits; i++) {
        w->places[i] = (place) { *end, mox_gguf_tensor_bytes(&tensors[i]) };
        w->data_bytes += w->places[i].bytes;
        fits = mox_add_u64(*end, w->places[i].bytes, end) && mox_align_u64(*end, MOX_GGUF_ALIGNMENT, end);
    }
    MOX_FAIL_IF(!fits || *end > INT64_MAX, MOXIE_ERR_ARGUMENT, error, "%s would have more bytes than 63 bits count",
                path);
    return MOXIE_OK;
}

static moxie_status write_head(const mox_gguf_writer *w, const mox_gguf_pairs *pairs, const mox_tensor_decl *tensors,
                               uint64_t start, moxie_error *error)
{
    unsigned char *head = mox_calloc(start, 1), *at = head;
    MOX_FAIL_IF(!head, MOXIE_ERR_MEMORY, error, "no memory for a head of %llu bytes", (unsigned long long)start);
    at = put_bytes(at, "GGUF", 4);
    at = put(at, VERSION, 4);
    at = put(at, (uint64_t)w->count, 8);
    at = put(at, (uint64_t)pairs->count, 8);
    at = put_bytes(at, pairs->bytes, pairs->size);
    for (int64_t i = 0; i < w->count; i++)
        at = put_info(at, &tensors[i], w->places[i].offset - start);
    const moxie_status status = mox_whole_file_write_at(&w->file, head, start, 0, error);
    mox_free(head);
    return status;
}

/* ---- the writer -------------------------------------------------------------------------------------- */

static moxie_status open_writer(mox_gguf_writer *w, const char *path, const mox_gguf_pairs *pairs,
                                const mox_tensor_decl *tensors, moxie_error *error)
{
    uint64_t start = 0, end = 0;
    MOX_TRY(place_tensors(w, path, pairs, tensors, &start, &end, error));
    MOX_TRY(mox_whole_file_create(path, &w->file, error));
    MOX_TRY(mox_whole_file_reserve(&w->file, end, error));
    return write_head(w, pairs, tensors, start, error);
}

moxie_status mox_gguf_writer_open(const char *path, const mox_gguf_pairs *pairs, const mox_tensor_decl *tensors,
                                  int64_t count, mox_gguf_writer **out, moxie_error *error)
{
    MOX_FAIL_IF(pairs->failed, MOXIE_ERR_MEMORY, error, "no memory for the metadata of %s", path);
    mox_gguf_writer *w = mox_alloc(sizeof *w);
    MOX_FAIL_IF(!w, MOXIE_ERR_MEMORY, error, "no memory to write a file");
    w->file = MOX_WHOLE_FILE_NONE;
    w->count = count;
    w->places = mox_calloc((uint64_t)count + 1, sizeof *w->places);
    const moxie_status status = w->places
                                    ? open_writer(w, path, pairs, tensors, error)
                                    : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for %lld tensors", (long long)count);
    if (status == MOXIE_OK)
        *out = w;
    else
        mox_gguf_writer_abandon(w);
    return status;
}

moxie_status mox_gguf_writer_put(mox_gguf_writer *w, int64_t i, uint64_t offset, const void *data, uint64_t bytes,
                                 moxie_error *error)
{
    MOX_FAIL_IF(i < 0 || i >= w->count || offset > w->places[i].bytes || bytes > w->places[i].bytes - offset,
                MOXIE_ERR_ARGUMENT, error, "bytes beyond the end of tensor %lld of %s", (long long)i, w->file.path);
    MOX_TRY(mox_whole_file_write_at(&w->file, data, bytes, w->places[i].offset + offset, error));
    atomic_fetch_add(&w->written, bytes);
    return MOXIE_OK;
}

moxie_status mox_gguf_writer_finish(mox_gguf_writer *w, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    if (atomic_load(&w->written) != w->data_bytes)
        status = mox_fail_file(MOXIE_ERR_MISMATCH, error, w->file.path, -1,
                               "%llu bytes of tensors were written, expected %llu",
                               (unsigned long long)atomic_load(&w->written), (unsigned long long)w->data_bytes);
    if (status == MOXIE_OK)
        status = mox_whole_file_publish(&w->file, error);
    mox_gguf_writer_abandon(w);
    return status;
}

void mox_gguf_writer_abandon(mox_gguf_writer *w)
{
    if (!w)
        return;
    mox_whole_file_discard(&w->file);
    mox_free(w->places);
    mox_free(w);
}
