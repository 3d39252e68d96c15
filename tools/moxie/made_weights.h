/* SPDX-License-Identifier: Apache-2.0
 *
 * made_weights.h - one layer's weights, made up in memory for a configuration.
 */
#ifndef MOXIE_MADE_WEIGHTS_H
#define MOXIE_MADE_WEIGHTS_H

#include "cli.h"

typedef struct made_weights {
    moxie_weights views;
    moxie_expert shared, *experts;
    void *blocks[24];
    int n_blocks;
} made_weights;

/* Random codes of the configuration's formats, without NaN, under scales that keep activations in range. All experts
 * read the same few blocks, each from its own offset, so memory is that of one expert. Makes a router if the
 * configuration has one. Call made_weights_free() in any case. */
moxie_status made_weights_make(const moxie_layer_config *config, uint64_t seed, made_weights *out, moxie_error *error);
void made_weights_free(made_weights *weights);
/* Bytes of an expert's matrices as in a checkpoint: codes, scales, zero points, globals, biases. */
uint64_t made_expert_bytes(const moxie_expert *expert);

#endif
