/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_pairs.h - metadata to be written: the bytes of pairs, as they lie in a GGUF file.
 *
 *     key string | type u32 | value         from JSON: text, true and false, integers (u32, u64), numbers (f32),
 *                                           lists of numbers (i32 or f32) or of text
 *                                           from another file: the same bytes, whatever their type
 */
#ifndef MOX_CKPT_GGUF_PAIRS_H
#define MOX_CKPT_GGUF_PAIRS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct mox_gguf_pairs {
    unsigned char *bytes;
    uint64_t size, room;
    int64_t count;
    bool failed; /* out of memory, or a value that GGUF cannot hold: never written */
} mox_gguf_pairs;

/* Every member of an object, in its order. */
void mox_gguf_pairs_add_all(mox_gguf_pairs *pairs, const json_t *object);
/* The pairs of a GGUF file that was read before, except those that `skip` (may be NULL) is true for. */
moxie_status mox_gguf_pairs_copy(mox_gguf_pairs *pairs, const unsigned char *file, uint64_t size, const char *path,
                                 bool (*skip)(const char *key), moxie_error *error);
void mox_gguf_pairs_free(mox_gguf_pairs *pairs);

#endif
