/* SPDX-License-Identifier: Apache-2.0
 *
 * model_pair.h - gate and up in two formats. One matrix, W13, holds both, so both need one element. Where all numbers
 * of the narrower element are numbers of the wider one, and groups, scales and activations are the same, its codes are
 * copied in the wider element: int4 beside int8, MXFP4 beside MXFP6 or MXFP8. No number changes.
 */
#ifndef MOX_CKPT_MODEL_PAIR_H
#define MOX_CKPT_MODEL_PAIR_H

#include "ckpt/model/layer_reader.h"

/* Gate (0) and up (1): a matrix of each, its quantization as viewed, its name. */
typedef struct mox_pair {
    const mox_match *match[2];
    moxie_quant quant[2];
    const char *name[2];
} mox_pair;

/* True when two matrices have the same format, groups and activations. */
bool mox_pair_same(const mox_match *a, const mox_match *b);
/* Copies the narrower one's codes in all experts. *wide: the one whose format both have then. *note: what was done, for
 * moxie inspect, static, or NULL. MOXIE_ERR_MISMATCH when neither holds the other. */
moxie_status mox_pair_widen(mox_layer_reader *reader, const mox_pair *pair, moxie_expert *experts, int64_t count,
                            int *wide, const char **note);

/* True when both are types of a GGUF file, block types or floats, each f32 numbers by definition. */
bool mox_pair_needs_floats(const mox_layer_reader *reader, const mox_pair *pair);
/* Replaces both by copies in f32, which are exact. */
moxie_status mox_pair_to_floats(mox_layer_reader *reader, const mox_pair *pair, moxie_expert *experts, int64_t count,
                                const char **note);

#endif
