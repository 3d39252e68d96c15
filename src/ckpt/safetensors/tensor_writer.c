/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_writer.c - a safetensors file, streamed: there is the whole file or none.
 *
 *     open: path.<pid>-<n>.tmp, header  ->  put, put, ...  ->  finish: all bytes there? close, rename to path
 *                                                          \-> abandon: unlink
 *
 * Small pieces are gathered, because a checkpoint has tens of thousands of 4-byte scales. There is no fsync: what
 * a crash of the machine leaves is the file system's affair, a crash of the program leaves only the temporary file.
 */
#include "ckpt/safetensors/tensors.h"

#include <string.h>

#include "ckpt/beside.h"
#include "ckpt/safetensors/safetensors_header.h"

#define BUFFER_BYTES (UINT64_C(1) << 18)

struct mox_tensor_writer {
    mox_arena arena;
    mox_beside file;
    unsigned char *buffer;
    uint64_t buffered;
    uint64_t promised, given; /* bytes of data */
    bool failed;              /* a write failed before */
};

static moxie_status write_all(mox_tensor_writer *w, const unsigned char *data, uint64_t bytes, moxie_error *error)
{
    const moxie_status status = mox_beside_write(&w->file, data, bytes, -1, error);
    w->failed = w->failed || status != MOXIE_OK;
    return status;
}

static moxie_status flush(mox_tensor_writer *w, moxie_error *error)
{
    const uint64_t bytes = w->buffered;
    w->buffered = 0;
    return write_all(w, w->buffer, bytes, error);
}

static moxie_status start(mox_tensor_writer *w, const char *path, const mox_tensor_decl *tensors, int64_t count,
                          const char *const *metadata, int64_t n_metadata, moxie_error *error)
{
    unsigned char *header = NULL;
    uint64_t header_bytes = 0;
    w->file.fd = -1;
    w->buffer = mox_alloc(BUFFER_BYTES);
    const char *name = mox_arena_strndup(&w->arena, path, strlen(path));
    MOX_FAIL_IF(!w->buffer || !name, MOXIE_ERR_MEMORY, error, "no memory to write a file");
    MOX_TRY(
        mox_safetensors_header_make(tensors, count, metadata, n_metadata, &header, &header_bytes, &w->promised, error));
    moxie_status status = mox_beside_create(&w->arena, name, &w->file, error);
    if (status == MOXIE_OK)
        status = write_all(w, header, header_bytes, error);
    mox_free(header);
    return status;
}

moxie_status mox_tensor_writer_open(const char *path, const mox_tensor_decl *tensors, int64_t count,
                                    const char *const *metadata, int64_t n_metadata, mox_tensor_writer **out,
                                    moxie_error *error)
{
    mox_tensor_writer *w = mox_alloc(sizeof *w);
    MOX_FAIL_IF(!w, MOXIE_ERR_MEMORY, error, "no memory to write a file");
    const moxie_status status = start(w, path, tensors, count, metadata, n_metadata, error);
    if (status == MOXIE_OK)
        *out = w;
    else
        mox_tensor_writer_abandon(w);
    return status;
}

moxie_status mox_tensor_writer_put(mox_tensor_writer *w, const void *data, uint64_t bytes, moxie_error *error)
{
    if (bytes > w->promised - w->given)
        return mox_fail_file(MOXIE_ERR_ARGUMENT, error, w->file.path, -1,
                             "%llu bytes of data were declared, and more than that are given",
                             (unsigned long long)w->promised);
    w->given += bytes;
    if (bytes > BUFFER_BYTES - w->buffered)
        MOX_TRY(flush(w, error));
    if (bytes > BUFFER_BYTES)
        return write_all(w, data, bytes, error);
    if (bytes > 0)
        memcpy(w->buffer + w->buffered, data, bytes);
    w->buffered += bytes;
    return MOXIE_OK;
}

/* Whatever can still fail before the file has its name. */
static moxie_status complete(mox_tensor_writer *w, moxie_error *error)
{
    if (w->failed)
        return mox_fail_file(MOXIE_ERR_IO, error, w->file.path, -1, "an earlier write failed");
    if (w->given != w->promised)
        return mox_fail_file(MOXIE_ERR_ARGUMENT, error, w->file.path, -1,
                             "%llu bytes of data were declared, %llu given", (unsigned long long)w->promised,
                             (unsigned long long)w->given);
    MOX_TRY(flush(w, error));
    return mox_beside_publish(&w->file, false, error);
}

moxie_status mox_tensor_writer_finish(mox_tensor_writer *w, moxie_error *error)
{
    const moxie_status status = complete(w, error);
    mox_tensor_writer_abandon(w);
    return status;
}

void mox_tensor_writer_abandon(mox_tensor_writer *w)
{
    if (!w)
        return;
    mox_beside_discard(&w->file);
    mox_free(w->buffer);
    mox_arena_free(&w->arena);
    mox_free(w);
}
