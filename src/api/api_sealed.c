/* SPDX-License-Identifier: Apache-2.0
 *
 * api_sealed.c - the calls of moxie_ckpt.h that write sealed files, moxie_sealed_writer_*. Each checks its arguments;
 * src/ckpt/safetensors does the work.
 */
#include "ckpt/safetensors/seal.h"
#include "layer/config/reserved.h"

moxie_status moxie_sealed_writer_open(const char *path, const moxie_sealed_tensor *tensors, int64_t n_tensors,
                                      const char *const *metadata, int64_t n_metadata, moxie_sealed_writer **out,
                                      moxie_error *error)
{
    MOX_FAIL_IF(!path || !out || n_tensors < 0 || (!tensors && n_tensors > 0), MOXIE_ERR_ARGUMENT, error,
                "moxie_sealed_writer_open: path, tensors or out is NULL, or n_tensors negative");
    MOX_FAIL_IF(n_metadata < 0 || (!metadata && n_metadata > 0), MOXIE_ERR_ARGUMENT, error,
                "moxie_sealed_writer_open: metadata is NULL or n_metadata negative");
    for (int64_t i = 0; i < n_tensors; i++)
        MOX_RESERVED(moxie_sealed_tensor, &tensors[i], "tensors", error);
    return mox_sealed_writer_open(path, tensors, n_tensors, metadata, n_metadata, out, error);
}

moxie_status moxie_sealed_writer_put(moxie_sealed_writer *writer, int64_t tensor, int64_t piece, const void *data,
                                     moxie_error *error)
{
    MOX_FAIL_IF(!writer || !data, MOXIE_ERR_ARGUMENT, error, "moxie_sealed_writer_put: writer or data is NULL");
    return mox_sealed_writer_put(writer, tensor, piece, data, error);
}

moxie_status moxie_sealed_writer_finish(moxie_sealed_writer *writer, moxie_error *error)
{
    MOX_FAIL_IF(!writer, MOXIE_ERR_ARGUMENT, error, "moxie_sealed_writer_finish: writer is NULL");
    return mox_sealed_writer_finish(writer, error);
}

void moxie_sealed_writer_abandon(moxie_sealed_writer *writer)
{
    mox_sealed_writer_abandon(writer);
}
