/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors_header.h - the header of one file: read and checked completely before any tensor is returned.
 *
 *     | N: 8 bytes, little endian | N bytes of JSON, padded with blanks | data: the tensors, without gaps |
 *
 * An entry is "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}. Offsets count from the start of
 * the data; tensors are row-major and little endian. Source: the safetensors format,
 * github.com/huggingface/safetensors.
 */
#ifndef MOX_CKPT_SAFETENSORS_HEADER_H
#define MOX_CKPT_SAFETENSORS_HEADER_H

#include "base/memory.h"
#include "ckpt/safetensors/file_tensor.h"

/* Limits: of the format, and of this reader. */
#define MOX_HEADER_MAX_BYTES UINT64_C(100000000)
#define MOX_MAX_TENSORS      INT64_C(4000000)

/* One pair of a file's __metadata__. */
typedef struct mox_file_metadata {
    const char *key, *value;
    int32_t file; /* index of the shard */
} mox_file_metadata;

/* The tensors of one or more files. Zero-initialised is valid and empty. */
typedef struct mox_tensor_list {
    mox_arena arena; /* names, metadata */
    mox_file_tensor *tensors;
    int64_t count, capacity;
    mox_file_metadata *metadata;
    int64_t n_metadata, metadata_capacity;
} mox_tensor_list;

/* Checks the whole file of `size` bytes at `file` and appends its tensors, in the order of the header, as views of
 * `file`; their `file` field becomes `shard`. On failure the list may contain some of them. */
moxie_status mox_safetensors_header_parse(unsigned char *file, uint64_t size, const char *path, int32_t shard,
                                          mox_tensor_list *list, moxie_error *error);
void mox_tensor_list_free(mox_tensor_list *list);

/* The inverse: N and the JSON for tensors that lie in this order without gaps, padded to 8 bytes. Free *out with
 * mox_free(); *data_bytes must follow it in the file. MOXIE_ERR_ARGUMENT names the declaration that breaks a rule. */
moxie_status mox_safetensors_header_make(const mox_tensor_decl *tensors, int64_t count, const char *const *metadata,
                                         int64_t n_metadata, unsigned char **out, uint64_t *out_size,
                                         uint64_t *data_bytes, moxie_error *error);

#endif
