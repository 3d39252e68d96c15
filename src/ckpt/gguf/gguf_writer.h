/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_writer.h - writes one GGUF file, version 3: the head first, then bytes of tensors at their places.
 *
 *     open: temporary file, space, head  ->  put, put, ... in any order  ->  finish: to the disk, rename
 *                                                                       \-> abandon: unlink
 *
 * Tensors lie in the order in which they are declared, each on a multiple of 32 (gguf_header.h).
 */
#ifndef MOX_CKPT_GGUF_WRITER_H
#define MOX_CKPT_GGUF_WRITER_H

#include "ckpt/gguf/gguf_pairs.h"
#include "ckpt/safetensors/file_tensor.h"

#define MOX_GGUF_ALIGNMENT 32

typedef struct mox_gguf_writer mox_gguf_writer;

/* Bytes of a tensor of a block type or a plain float; 0: it has too many, or its rows are no whole blocks. */
uint64_t mox_gguf_tensor_bytes(const mox_tensor_decl *tensor);

/* `pairs` must not hold general.alignment. Shapes count elements, the slowest first. MOXIE_ERR_ARGUMENT when a dtype or
 * a shape has no place in GGUF. */
moxie_status mox_gguf_writer_open(const char *path, const mox_gguf_pairs *pairs, const mox_tensor_decl *tensors,
                                  int64_t count, mox_gguf_writer **out, moxie_error *error);
/* Writes bytes of tensor i, `offset` bytes from its start. Thread-safe for ranges that do not overlap. */
moxie_status mox_gguf_writer_put(mox_gguf_writer *writer, int64_t i, uint64_t offset, const void *data, uint64_t bytes,
                                 moxie_error *error);
/* Publishes the file; MOXIE_ERR_MISMATCH when not all bytes were put. Frees the writer in any case. */
moxie_status mox_gguf_writer_finish(mox_gguf_writer *writer, moxie_error *error);
void mox_gguf_writer_abandon(mox_gguf_writer *writer); /* NULL is fine */

#endif
