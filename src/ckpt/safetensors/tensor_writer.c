/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_writer.c - streams a safetensors file; there is the whole file or none (base/whole_file.h).
 *
 *     open: temporary file, header  ->  put, put, ...  ->  finish: all bytes there? to the disk, rename to path
 *                                                      \-> abandon: unlink
 */
#include "ckpt/safetensors/tensor_writer.h"

#include "base/memory.h"
#include "base/whole_file.h"
#include "ckpt/safetensors/safetensors_header.h"

struct mox_tensor_writer {
    mox_whole_file file;
    uint64_t declared, written; /* bytes of data */
};

static moxie_status start(mox_tensor_writer *w, const char *path, const mox_tensor_decl *tensors, int64_t count,
                          const char *const *metadata, int64_t n_metadata, moxie_error *error)
{
    unsigned char *header = NULL;
    uint64_t header_bytes = 0;
    MOX_TRY(
        mox_safetensors_header_make(tensors, count, metadata, n_metadata, &header, &header_bytes, &w->declared, error));
    moxie_status status = mox_whole_file_create(path, &w->file, error);
    if (status == MOXIE_OK)
        status = mox_whole_file_append(&w->file, header, header_bytes, error);
    mox_free(header);
    return status;
}

moxie_status mox_tensor_writer_open(const char *path, const mox_tensor_decl *tensors, int64_t count,
                                    const char *const *metadata, int64_t n_metadata, mox_tensor_writer **out,
                                    moxie_error *error)
{
    mox_tensor_writer *w = mox_alloc(sizeof *w);
    MOX_FAIL_IF(!w, MOXIE_ERR_MEMORY, error, "no memory to write a file");
    w->file = MOX_WHOLE_FILE_NONE;
    const moxie_status status = start(w, path, tensors, count, metadata, n_metadata, error);
    if (status == MOXIE_OK)
        *out = w;
    else
        mox_tensor_writer_abandon(w);
    return status;
}

moxie_status mox_tensor_writer_put(mox_tensor_writer *w, const void *data, uint64_t bytes, moxie_error *error)
{
    if (bytes > w->declared - w->written)
        return mox_fail_file(MOXIE_ERR_ARGUMENT, error, w->file.path, -1,
                             "%llu bytes of data were declared, and more than that were written",
                             (unsigned long long)w->declared);
    w->written += bytes;
    return mox_whole_file_append(&w->file, data, bytes, error);
}

/* Everything that can fail before the file gets its name. */
static moxie_status complete(mox_tensor_writer *w, moxie_error *error)
{
    if (w->written != w->declared)
        return mox_fail_file(MOXIE_ERR_ARGUMENT, error, w->file.path, -1,
                             "%llu bytes of data were declared, %llu were written", (unsigned long long)w->declared,
                             (unsigned long long)w->written);
    return mox_whole_file_publish(&w->file, error);
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
    mox_whole_file_discard(&w->file);
    mox_free(w);
}
