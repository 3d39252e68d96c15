/* SPDX-License-Identifier: Apache-2.0
 *
 * synth.h - synthetic checkpoints: a preset's MoE layers with true names, shapes and dtypes, and plausible numbers.
 *
 *     presets.def + options -> mox_synth_resolve -> mox_synth_model
 *         -> mox_enumerate_layer (tables.h) for each layer -> mox_synth_fill: one tensor's bytes, piece by piece
 *         -> shards, index, config.json in a staged directory (mox_synth_write)
 *
 * One logical weight is one number, whatever holds it: weight (layer, expert, projection, row, column) comes from
 * (seed, stream of layer, expert and projection, element row * columns + column). So the same seed gives the same
 * unquantized weights in every format, stacked or per expert, and an expert's bytes depend on neither the number of
 * layers nor of experts written.
 */
#ifndef MOX_CKPT_SYNTH_H
#define MOX_CKPT_SYNTH_H

#include <moxie/moxie_ckpt.h>

#include "base/executor.h"
#include "ckpt/synth/random.h"
#include "ckpt/families/tables.h"

/* Deviation of every weight. */
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
    MOX_SOURCE_RANGE, /* calibrated ranges: weight globals and input scales */
    MOX_SOURCE_PLAIN  /* + mox_tensor_kind: router, correction bias, tables */
} mox_synth_source;

static inline mox_stream mox_synth_stream(uint64_t seed, int64_t layer, int64_t expert, int source)
{
    return (mox_stream) { seed, (uint64_t)layer << 40 | (uint64_t)expert << 8 | (uint64_t)source };
}

/* A preset with the caller's reductions applied. */
typedef struct mox_synth_model {
    const mox_preset *preset;
    const mox_family *family;
    const mox_hf_quant *routed, *shared;
    mox_dims dims;  /* .layers: all layers up to the last one written, dense ones too, as config.json counts */
    int64_t layers; /* MoE layers written */
    uint64_t seed;
} mox_synth_model;

/* Finds preset and format, applies the overrides and checks that they fit. `options` may be NULL. */
moxie_status mox_synth_resolve(const char *preset, const moxie_synth_options *options, mox_synth_model *out,
                               moxie_error *error);

/* ---- presets (preset.c) ------------------------------------------------------------------------- */

/* The index in the checkpoint's names of the preset's i-th MoE layer. */
int64_t mox_preset_layer(const mox_preset *preset, int64_t i);
/* The keys of config.json that follow from no table, as JSON. */
const char *mox_preset_config_text(const mox_preset *preset);

/* ---- texts (synth_config.c) --------------------------------------------------------------------- */

/* config.json with quantization_config. The caller owns it. */
moxie_status mox_synth_config(const mox_synth_model *model, json_t **out, moxie_error *error);

/* ---- numbers (synth_tensor.c, synth_matrix.c) --------------------------------------------------- */

typedef struct mox_synth_filler mox_synth_filler;
typedef moxie_status (*mox_bytes_fn)(void *user, const void *data, uint64_t bytes, moxie_error *error);

/* Both arguments must outlive the filler. One-thread-at-a-time. */
moxie_status mox_synth_filler_create(const mox_synth_model *model, const moxie_executor *executor,
                                     mox_synth_filler **out, moxie_error *error);
void mox_synth_filler_destroy(mox_synth_filler *filler);
/* Makes all bytes of one tensor of checkpoint layer `layer` and hands them to `sink` in order, some MB at a time. */
moxie_status mox_synth_fill(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, mox_bytes_fn sink,
                            void *user, moxie_error *error);

/* ---- directories (synth.c) ---------------------------------------------------------------------- */

/* moxie_synth_write() with the threads given. */
moxie_status mox_synth_write(const char *preset, const char *dir, const moxie_synth_options *options,
                             const moxie_executor *executor, moxie_error *error);

#endif
