/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_api.h - a small layer made from fuzz bytes: configuration, weights as in checkpoints, a batch. Every array is a
 * heap block of exactly its size, so that a sanitizer reports any access outside it.
 *
 * Tame layers have numbers of about one: their outputs are finite and within the oracle's bounds. Wild layers have any
 * bits, including NaNs and infinities. Sometimes their views and fields break a rule.
 */
#ifndef MOX_FUZZ_API_H
#define MOX_FUZZ_API_H

#include <moxie/moxie.h>
#include <stdbool.h>

#include "fuzz_targets.h"

/* The rest of the input. Reading past its end gives zeros. */
typedef struct fuzz_bytes {
    const uint8_t *data;
    uint64_t left;
} fuzz_bytes;

static inline uint32_t fuzz_byte(fuzz_bytes *b)
{
    if (b->left == 0)
        return 0;
    b->left--;
    return *b->data++;
}

/* A number from 0 to n - 1; n is at most 256. */
static inline uint32_t fuzz_below(fuzz_bytes *b, uint32_t n)
{
    return n > 1 ? fuzz_byte(b) % n : 0;
}

enum { FUZZ_EXPERTS = 6, FUZZ_TOKENS = 9, FUZZ_BLOCKS = 512 };

typedef struct fuzz_layer {
    bool tame, has_weights;
    uint64_t state; /* of the numbers, which are too many to take each from the input */
    moxie_layer_config config;
    moxie_weights weights;
    moxie_expert experts[FUZZ_EXPERTS + 1]; /* the last is the shared one */
    struct {
        void *data;
        size_t bytes;
    } blocks[FUZZ_BLOCKS];
    int n_blocks;
} fuzz_layer;

void fuzz_layer_make(fuzz_layer *layer, fuzz_bytes *b);
void fuzz_layer_free(fuzz_layer *layer);
/* A batch of up to FUZZ_TOKENS tokens: everything but the workspace. */
moxie_run_args fuzz_layer_args(fuzz_layer *layer, fuzz_bytes *b);
/* Memory of the layer's, zeroed. */
void *fuzz_layer_own(fuzz_layer *layer, size_t bytes);
/* Of all bytes that the layer owns. */
uint64_t fuzz_layer_sum(const fuzz_layer *layer);
/* The next random number; and a float of the layer's kind. */
uint32_t fuzz_layer_next(fuzz_layer *layer);
float fuzz_layer_number(fuzz_layer *layer);

#endif
