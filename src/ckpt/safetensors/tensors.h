/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.h - the tensors of a checkpoint directory: names hashed once, data mapped, nothing interpreted.
 *
 *     one safetensors or GGUF file (header checked completely)  ->  mox_tensor_set (all shards, one name space)
 */
#ifndef MOX_CKPT_TENSORS_H
#define MOX_CKPT_TENSORS_H

#include <stdbool.h>

#include <jansson.h>

#include "base/memory.h"
#include "ckpt/safetensors/file_tensor.h"

typedef struct mox_tensor_set mox_tensor_set;

/* Opens one file, or a directory: the files that model.safetensors.index.json names, or all *.safetensors in name
 * order. Every header is checked completely. A tensor that the index names but no shard holds is an error; a tensor
 * that the index omits is a warning and stays in the set. Files are mapped. Truncating a mapped file kills its readers
 * by SIGBUS, unless mox_tensor_set_check() noticed before; so `no_mmap` reads every file into memory when it is opened.
 * One-thread-at-a-time; an open set is immutable. */
moxie_status mox_tensor_set_open_file(const char *path, bool no_mmap, mox_tensor_set **out, moxie_error *error);
moxie_status mox_tensor_set_open_dir(const char *dir, bool no_mmap, mox_tensor_set **out, moxie_error *error);
/* A GGUF file, with all parts of a split one. */
moxie_status mox_tensor_set_open_gguf(const char *path, bool no_mmap, mox_tensor_set **out, moxie_error *error);
/* The metadata of an open GGUF file, of its first part; NULL for other sets. */
const json_t *mox_tensor_set_gguf(const mox_tensor_set *set);
/* Tensors that are already in memory, contiguous, as one shard called `name`. Names and data are borrowed. */
moxie_status mox_tensor_set_of_tensors(const char *name, const moxie_named_tensor *tensors, int64_t count,
                                       mox_tensor_set **out, moxie_error *error);
void mox_tensor_set_close(mox_tensor_set *set);

int64_t mox_tensor_set_count(const mox_tensor_set *set);
/* Tensor i: shard by shard, within a shard in the order of its header. */
const mox_file_tensor *mox_tensor_set_at(const mox_tensor_set *set, int64_t i);
/* O(1); NULL when absent. */
const mox_file_tensor *mox_tensor_set_find(const mox_tensor_set *set, const char *name);
/* MOXIE_ERR_IO when a mapped file of the set was truncated since it was opened. One system call per file: call it per
 * layer, not per tensor. */
moxie_status mox_tensor_set_check(const mox_tensor_set *set, moxie_error *error);
/* MOXIE_ERR_UNSUPPORTED with file, tensor and reason when the tensor is unusable. */
moxie_status mox_file_tensor_check(const mox_tensor_set *set, const mox_file_tensor *tensor, moxie_error *error);
int64_t mox_tensor_set_files(const mox_tensor_set *set);
/* The path of shard i as it was opened. */
const char *mox_tensor_set_file_name(const mox_tensor_set *set, int64_t i);
/* A value in the __metadata__ of that file, or NULL. */
const char *mox_tensor_set_metadata(const mox_tensor_set *set, int64_t file, const char *key);
/* The start of a file, N and header; *bytes is their size. */
const unsigned char *mox_tensor_set_file_header(const mox_tensor_set *set, int64_t i, uint64_t *bytes);
/* All bytes of file i. */
const unsigned char *mox_tensor_set_file_bytes(const mox_tensor_set *set, int64_t i, uint64_t *bytes);
/* Lets the operating system drop the pages of mapped files that hold these bytes; they come back when they are touched.
 * Bytes outside mapped files are left alone. Thread-safe. */
void mox_tensor_set_drop(const mox_tensor_set *set, const void *data, uint64_t bytes);
/* Bytes of the data of all tensors. */
uint64_t mox_tensor_set_bytes(const mox_tensor_set *set);
/* Contradictions that were tolerated; names in them are escaped. */
int64_t mox_tensor_set_warnings(const mox_tensor_set *set);
const char *mox_tensor_set_warning(const mox_tensor_set *set, int64_t i);

#endif
