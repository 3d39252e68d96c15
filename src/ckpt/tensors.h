/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.h - the tensors of a checkpoint directory: names hashed once, data mapped, nothing interpreted.
 *
 *     file -> mox_tensor_file (one safetensors file, checked whole) -> mox_tensor_set (all shards, one name space)
 */
#ifndef MOX_CKPT_TENSORS_H
#define MOX_CKPT_TENSORS_H

#include "base/memory.h"
#include "base/status.h"
#include "format/format.h"

typedef struct mox_file_tensor {
    const char *name;  /* as in the file, unescaped, terminated */
    moxie_tensor view; /* data possibly unaligned; strides zero (contiguous) */
    uint64_t bytes;
    uint64_t offset;   /* of the data in the file, for messages */
    int32_t file;      /* index of the shard */
} mox_file_tensor;

typedef struct mox_tensor_set mox_tensor_set;

/* One file, or a directory: the files that model.safetensors.index.json names, or all *.safetensors in name order.
 * Every header is checked in full; tensors named by the index but absent are errors, extra ones warnings. */
moxie_status mox_tensor_set_open_file(const char *path, bool no_mmap, mox_tensor_set **out, moxie_error *error);
moxie_status mox_tensor_set_open_dir(const char *dir, bool no_mmap, mox_tensor_set **out, moxie_error *error);
void mox_tensor_set_close(mox_tensor_set *set);

int64_t mox_tensor_set_count(const mox_tensor_set *set);
const mox_file_tensor *mox_tensor_set_at(const mox_tensor_set *set, int64_t i);
/* O(1); NULL when absent. */
const mox_file_tensor *mox_tensor_set_find(const mox_tensor_set *set, const char *name);
int64_t mox_tensor_set_files(const mox_tensor_set *set);
const char *mox_tensor_set_file_name(const mox_tensor_set *set, int64_t i);
uint64_t mox_tensor_set_bytes(const mox_tensor_set *set);
int64_t mox_tensor_set_warnings(const mox_tensor_set *set);
const char *mox_tensor_set_warning(const mox_tensor_set *set, int64_t i);

/* ---- writing, streamed: declare all tensors, then give the bytes in the same order ------------------ */

typedef struct mox_tensor_writer mox_tensor_writer;
typedef struct mox_tensor_decl {
    const char *name;
    moxie_dtype dtype;
    int32_t rank;
    int64_t shape[MOXIE_MAX_RANK];
} mox_tensor_decl;

/* Opens `path` with a temporary suffix beside it and writes the header (8-byte aligned). `metadata`: pairs. */
moxie_status mox_tensor_writer_open(const char *path, const mox_tensor_decl *tensors, int64_t count,
                                    const char *const *metadata, int64_t n_metadata, mox_tensor_writer **out,
                                    moxie_error *error);
/* The next bytes of the data section, in declaration order; any cut is fine. */
moxie_status mox_tensor_writer_put(mox_tensor_writer *writer, const void *data, uint64_t bytes, moxie_error *error);
/* Checks that every byte came, flushes and renames. Frees the writer either way. */
moxie_status mox_tensor_writer_finish(mox_tensor_writer *writer, moxie_error *error);
/* Removes the temporary file and frees. NULL is fine. */
void mox_tensor_writer_abandon(mox_tensor_writer *writer);

/* "F8_E4M3" and the like, as in files. NONE / NULL for unknown names. */
moxie_dtype mox_file_dtype_from_name(const char *name);
const char *mox_file_dtype_name(moxie_dtype dtype);

#endif
