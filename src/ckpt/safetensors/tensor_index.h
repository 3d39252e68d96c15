/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_index.h - model.safetensors.index.json: which shard holds which tensor.
 *
 *     { "metadata":   { "total_size": 13761264768 },
 *       "weight_map": { "model.norm.weight": "model-00002-of-00002.safetensors", ... } }
 *
 * `metadata` may be missing. A shard is a bare file name in the directory of the index.
 */
#ifndef MOX_CKPT_TENSOR_INDEX_H
#define MOX_CKPT_TENSOR_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"

#define MOX_INDEX_NAME "model.safetensors.index.json"
/* An index has about 80 bytes per tensor; the largest public ones have 20 MB. */
#define MOX_INDEX_MAX_BYTES (UINT64_C(1) << 27)

typedef struct mox_index_entry {
    const char *tensor;
    int64_t file; /* index into files */
} mox_index_entry;

typedef struct mox_tensor_index {
    mox_arena arena;
    const char **files; /* each file once, sorted by name */
    int64_t n_files;
    mox_index_entry *entries; /* in the order of the index */
    int64_t n_entries;
    bool has_total;
    double total_size; /* some files have a real number; exact to 2^53 */
} mox_tensor_index;

/* Parses `size` bytes; `path` is for messages. */
moxie_status mox_tensor_index_parse(const char *text, uint64_t size, const char *path, mox_tensor_index *out,
                                    moxie_error *error);
moxie_status mox_tensor_index_load(const char *path, mox_tensor_index *out, moxie_error *error);
void mox_tensor_index_free(mox_tensor_index *index);

#endif
