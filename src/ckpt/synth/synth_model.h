/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_model.h - what a synthetic checkpoint is made from: a preset with the caller's reductions, and the random
 * stream of each of its weights.
 *
 *   weight (layer, expert, projection, row, column)  =  element row * columns + column of
 *   the stream (seed, layer, expert, projection)
 *
 * So the same seed gives the same unquantized weights in every format, stacked or per expert. An expert's bytes depend
 * neither on the number of layers nor on the number of experts written.
 */
#ifndef MOX_CKPT_SYNTH_MODEL_H
#define MOX_CKPT_SYNTH_MODEL_H

#include <moxie/moxie_ckpt.h>

#include "ckpt/families/tables.h"
#include "ckpt/gguf/gguf_recipe.h"
#include "ckpt/synth/random.h"

/* Standard deviation of every weight. */
#define MOX_SYNTH_SIGMA 0.02

/* What the numbers of one stream are for. */
typedef enum mox_synth_source {
    MOX_SOURCE_GATE = 1,
    MOX_SOURCE_UP,
    MOX_SOURCE_DOWN,
    MOX_SOURCE_SHARED_GATE,
    MOX_SOURCE_SHARED_UP,
    MOX_SOURCE_SHARED_DOWN,
    MOX_SOURCE_GATE_BIAS,
    MOX_SOURCE_UP_BIAS,
    MOX_SOURCE_DOWN_BIAS,
    MOX_SOURCE_RANGE, /* calibrated ranges: global scales of weights, input scales */
    MOX_SOURCE_PLAIN  /* + mox_tensor_kind: router, correction bias, tables */
} mox_synth_source;

static inline mox_stream mox_synth_stream(uint64_t seed, int64_t layer, int64_t expert, int source)
{
    return (mox_stream) { seed, (uint64_t)layer << 40 | (uint64_t)expert << 8 | (uint64_t)source };
}

/* A preset with the reductions that the caller asked for. */
typedef struct mox_synth_model {
    const mox_preset *preset;
    const mox_family *family;
    const mox_hf_quant *routed, *shared;
    const mox_gguf_recipe *recipe; /* not NULL: a GGUF file; routed and shared are bf16 */
    mox_dims dims;  /* .layers counts as config.json does: all layers up to the last one written, dense ones too */
    int64_t layers; /* MoE layers written */
    uint64_t seed;
} mox_synth_model;

/* Finds preset and format, applies the options and checks that they fit. `options` may be NULL. */
moxie_status mox_synth_resolve(const char *preset, const moxie_synth_options *options, mox_synth_model *out,
                               moxie_error *error);

#endif
