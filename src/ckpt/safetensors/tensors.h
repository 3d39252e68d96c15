/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.h - the tensors of a checkpoint directory: names hashed once, data mapped, nothing interpreted.
 *
 *     file -> mox_tensor_file (one safetensors file, checked whole) -> mox_tensor_set (all shards, one name space)
 */
#ifndef MOX_CKPT_TENSORS_H
#define MOX_CKPT_TENSORS_H

#include <stdbool.h>

#include "base/memory.h"
#include "ckpt/safetensors/file_tensor.h"

typedef struct mox_tensor_set mox_tensor_set;

/* One file, or a directory: the files that model.safetensors.index.json names, or all *.safetensors in name order.
 * Every header is checked in full; tensors named by the index but absent are errors, extra ones warnings (they stay
 * in the set). Files are mapped; whoever truncates a mapped file kills its reader by SIGBUS, where
 * mox_tensor_set_check() did not see it first, so `no_mmap` reads every file whole into memory instead, at open.
 * One-thread-at-a-time; an open set is immutable. */
moxie_status mox_tensor_set_open_file(const char *path, bool no_mmap, mox_tensor_set **out, moxie_error *error);
moxie_status mox_tensor_set_open_dir(const char *dir, bool no_mmap, mox_tensor_set **out, moxie_error *error);
/* Tensors that lie in memory already, contiguous, as one shard called `name`. Names and data are borrowed. */
moxie_status mox_tensor_set_of_tensors(const char *name, const moxie_named_tensor *tensors, int64_t count,
                                       mox_tensor_set **out, moxie_error *error);
void mox_tensor_set_close(mox_tensor_set *set);

int64_t mox_tensor_set_count(const mox_tensor_set *set);
/* Tensor i, shard by shard, inside a shard in the order of its header. */
const mox_file_tensor *mox_tensor_set_at(const mox_tensor_set *set, int64_t i);
/* O(1); NULL when absent. */
const mox_file_tensor *mox_tensor_set_find(const mox_tensor_set *set, const char *name);
/* MOXIE_ERR_IO when a mapped file of the set was cut off since it was opened. One system call a file: for each layer,
 * not for each tensor. */
moxie_status mox_tensor_set_check(const mox_tensor_set *set, moxie_error *error);
/* MOXIE_ERR_UNSUPPORTED with file, tensor and reason when the tensor is unusable. */
moxie_status mox_file_tensor_check(const mox_tensor_set *set, const mox_file_tensor *tensor, moxie_error *error);
int64_t mox_tensor_set_files(const mox_tensor_set *set);
/* The path of shard i as it was opened. */
const char *mox_tensor_set_file_name(const mox_tensor_set *set, int64_t i);
/* A value of that file's __metadata__, or NULL. */
const char *mox_tensor_set_metadata(const mox_tensor_set *set, int64_t file, const char *key);
/* The first bytes of a file: its N and header, so many. */
const unsigned char *mox_tensor_set_file_header(const mox_tensor_set *set, int64_t i, uint64_t *bytes);
/* The pages of mapped files that hold these bytes need not stay in this process' memory; they come back when they are
 * touched. Nothing happens to bytes that are not a mapped file's. Thread-safe. */
void mox_tensor_set_drop(const mox_tensor_set *set, const void *data, uint64_t bytes);
/* Of all tensors' data. */
uint64_t mox_tensor_set_bytes(const mox_tensor_set *set);
/* Contradictions that were tolerated, names escaped. */
int64_t mox_tensor_set_warnings(const mox_tensor_set *set);
const char *mox_tensor_set_warning(const mox_tensor_set *set, int64_t i);

#endif
