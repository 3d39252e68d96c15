/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_split.h - models in several GGUF files: NAME-00001-of-00003.gguf and so on. Each part says which one it is
 * (split.no, from 0), how many there are (split.count) and how many tensors all have (split.tensors.count).
 */
#ifndef MOX_CKPT_GGUF_SPLIT_H
#define MOX_CKPT_GGUF_SPLIT_H

#include <jansson.h>

#include "base/memory.h"
#include "base/status.h"

/* Number of parts that the metadata of one says; 1 for a file that is not split. */
moxie_status mox_gguf_split_count(const json_t *metadata, const char *path, int64_t *out, moxie_error *error);
/* The path of part `part` (from 0) of `count`, made from the path of any; NULL when that is not named like a part, or
 * out of memory. */
const char *mox_gguf_split_path(const char *path, int64_t part, int64_t count, mox_arena *arena);
/* The file at `path` is part `part` of `count`. */
moxie_status mox_gguf_split_check(const json_t *metadata, const char *path, int64_t part, int64_t count,
                                  moxie_error *error);

#endif
