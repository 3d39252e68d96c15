/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_writer.h - writes a safetensors file as a stream: declare all tensors, then pass their bytes in the same
 * order.
 */
#ifndef MOX_CKPT_TENSOR_WRITER_H
#define MOX_CKPT_TENSOR_WRITER_H

#include "ckpt/safetensors/file_tensor.h"

typedef struct mox_tensor_writer mox_tensor_writer;

/* Creates a temporary file next to `path` and writes the header, padded to 8 bytes. Tensors lie in the order of the
 * declarations, which are read only during this call. `metadata`: n_metadata pairs key, value. Names, keys and values
 * are UTF-8. */
moxie_status mox_tensor_writer_open(const char *path, const mox_tensor_decl *tensors, int64_t count,
                                    const char *const *metadata, int64_t n_metadata, mox_tensor_writer **out,
                                    moxie_error *error);
/* The next bytes of the data, in the order of the declarations; they may be cut anywhere. */
moxie_status mox_tensor_writer_put(mox_tensor_writer *writer, const void *data, uint64_t bytes, moxie_error *error);
/* Checks that all bytes were written, flushes and renames. Frees the writer in any case. */
moxie_status mox_tensor_writer_finish(mox_tensor_writer *writer, moxie_error *error);
/* Removes the temporary file and frees. NULL is fine. */
void mox_tensor_writer_abandon(mox_tensor_writer *writer);

#endif
