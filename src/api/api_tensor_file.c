/* SPDX-License-Identifier: Apache-2.0
 *
 * api_tensor_file.c - the calls of moxie_ckpt.h that read and write safetensors files, moxie_tensor_file_*.
 *
 * Each checks its arguments and calls src/ckpt/safetensors. There a model's shards are a tensor set; a
 * moxie_tensor_file is a tensor set of one file.
 */
#include <moxie/moxie_ckpt.h>

#include "base/sizes.h"
#include "ckpt/safetensors/seal.h"
#include "ckpt/safetensors/tensor_writer.h"
#include "format/format.h"
#include "layer/config/reserved.h"

struct moxie_tensor_file {
    mox_tensor_set *set;
};

moxie_status moxie_tensor_file_open(const char *path, int no_mmap, moxie_tensor_file **out, moxie_error *error)
{
    MOX_FAIL_IF(!path || !out, MOXIE_ERR_ARGUMENT, error, "moxie_tensor_file_open: path or out is NULL");
    moxie_tensor_file *file = mox_alloc(sizeof *file);
    MOX_FAIL_IF(!file, MOXIE_ERR_MEMORY, error, "no memory to open a file");
    const moxie_status status = mox_tensor_set_open_file(path, no_mmap != 0, &file->set, error);
    if (status == MOXIE_OK)
        *out = file;
    else
        mox_free(file);
    return status;
}

void moxie_tensor_file_close(moxie_tensor_file *file)
{
    if (!file)
        return;
    mox_tensor_set_close(file->set);
    mox_free(file);
}

int64_t moxie_tensor_file_count(const moxie_tensor_file *file)
{
    return mox_tensor_set_count(file->set);
}

moxie_status moxie_tensor_file_at(const moxie_tensor_file *file, int64_t i, const char **name, moxie_tensor *out)
{
    if (i < 0 || i >= mox_tensor_set_count(file->set))
        return MOXIE_ERR_ARGUMENT;
    const mox_file_tensor *t = mox_tensor_set_at(file->set, i);
    if (name)
        *name = t->name;
    if (out)
        *out = t->view;
    return MOXIE_OK;
}

moxie_status moxie_tensor_file_find(const moxie_tensor_file *file, const char *name, moxie_tensor *out,
                                    moxie_error *error)
{
    MOX_FAIL_IF(!name || !out, MOXIE_ERR_ARGUMENT, error, "moxie_tensor_file_find: name or out is NULL");
    const mox_file_tensor *t = mox_tensor_set_find(file->set, name);
    char shown[160];
    if (!t)
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, mox_tensor_set_file_name(file->set, 0), -1,
                             "there is no tensor \"%s\"", mox_escape(shown, sizeof shown, name));
    MOX_TRY(mox_file_tensor_check(file->set, t, error));
    MOX_TRY(mox_tensor_set_check(file->set, error));
    *out = t->view;
    return MOXIE_OK;
}

const char *moxie_tensor_file_metadata(const moxie_tensor_file *file, const char *key)
{
    return file && key ? mox_tensor_set_metadata(file->set, 0, key) : NULL;
}

moxie_status moxie_tensor_file_check_seal(const moxie_tensor_file *file, moxie_error *error)
{
    MOX_FAIL_IF(!file, MOXIE_ERR_ARGUMENT, error, "moxie_tensor_file_check_seal: file is NULL");
    return mox_seal_check(file->set, error);
}

void moxie_tensor_file_release_pages(const moxie_tensor_file *file, const void *data, uint64_t bytes)
{
    if (file && data)
        mox_tensor_set_drop(file->set, data, bytes);
}

/* ---- writing ---------------------------------------------------------------------------------------- */

/* Checks that the tensor is contiguous host memory. *bytes is 0 for a shape that is rejected later, when the file's
 * header is written. */
static moxie_status check_tensor(const moxie_named_tensor *named, uint64_t *bytes, moxie_error *error)
{
    const moxie_tensor *t = &named->tensor;
    char shown[160];
    mox_escape(shown, sizeof shown, named->name ? named->name : "");
    MOX_RESERVED(moxie_named_tensor, named, shown, error);
    MOX_RESERVED(moxie_tensor, t, shown, error);
    MOX_FAIL_IF(t->device != 0, MOXIE_ERR_ARGUMENT, error, "tensor \"%s\" is on device %d: copy it to the host first",
                shown, (int)t->device);
    MOX_FAIL_IF(t->rank < 0 || t->rank > MOXIE_MAX_RANK, MOXIE_ERR_ARGUMENT, error,
                "tensor \"%s\": rank %d is outside 0..%d", shown, (int)t->rank, MOXIE_MAX_RANK);
    uint64_t elements = 1, bits = 0;
    bool strided = false, given = false;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        given = given || t->strides[i] != 0;
        strided = strided || (t->shape[i] != 1 && t->strides[i] != (int64_t)elements);
        if (t->shape[i] < 0 || !mox_mul_u64(elements, (uint64_t)t->shape[i], &elements))
            elements = 0;
    }
    MOX_FAIL_IF(given && strided, MOXIE_ERR_ARGUMENT, error, "tensor \"%s\" is not contiguous: copy it first", shown);
    if (!mox_mul_u64(elements, (uint64_t)mox_dtype_bits(t->dtype), &bits))
        bits = 0;
    MOX_FAIL_IF(bits > 0 && !t->data, MOXIE_ERR_ARGUMENT, error, "tensor \"%s\" has no data", shown);
    *bytes = bits / 8;
    return MOXIE_OK;
}

static moxie_status write_tensors(const char *path, const moxie_named_tensor *tensors, int64_t count,
                                  const char *const *metadata, int64_t n_metadata, mox_tensor_decl *decls,
                                  uint64_t *bytes, moxie_error *error)
{
    for (int64_t i = 0; i < count; i++) {
        MOX_TRY(check_tensor(&tensors[i], &bytes[i], error));
        decls[i] = (mox_tensor_decl) { .name = tensors[i].name,
                                       .dtype = tensors[i].tensor.dtype,
                                       .rank = tensors[i].tensor.rank };
        for (int32_t axis = 0; axis < decls[i].rank; axis++)
            decls[i].shape[axis] = tensors[i].tensor.shape[axis];
    }
    mox_tensor_writer *writer = NULL;
    MOX_TRY(mox_tensor_writer_open(path, decls, count, metadata, n_metadata, &writer, error));
    for (int64_t i = 0; i < count; i++) {
        const moxie_status status = mox_tensor_writer_put(writer, tensors[i].tensor.data, bytes[i], error);
        if (status != MOXIE_OK) {
            mox_tensor_writer_abandon(writer);
            return status;
        }
    }
    return mox_tensor_writer_finish(writer, error);
}

moxie_status moxie_tensor_file_write(const char *path, const moxie_named_tensor *tensors, int64_t n_tensors,
                                     const char *const *metadata, int64_t n_metadata, moxie_error *error)
{
    MOX_FAIL_IF(!path || n_tensors < 0 || (!tensors && n_tensors > 0), MOXIE_ERR_ARGUMENT, error,
                "moxie_tensor_file_write: path or tensors is NULL, or n_tensors negative");
    MOX_FAIL_IF(n_metadata < 0 || (!metadata && n_metadata > 0), MOXIE_ERR_ARGUMENT, error,
                "moxie_tensor_file_write: metadata is NULL or n_metadata negative");
    mox_tensor_decl *decls = mox_calloc((uint64_t)n_tensors, sizeof *decls);
    uint64_t *bytes = mox_calloc((uint64_t)n_tensors, sizeof *bytes);
    const moxie_status status =
        decls && bytes ? write_tensors(path, tensors, n_tensors, metadata, n_metadata, decls, bytes, error)
                       : mox_fail(MOXIE_ERR_MEMORY, error, "no memory to write %lld tensors", (long long)n_tensors);
    mox_free(decls);
    mox_free(bytes);
    return status;
}
