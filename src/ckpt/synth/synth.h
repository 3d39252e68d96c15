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

/* moxie_synth_write() with the threads given. */
moxie_status mox_synth_write(const char *preset, const char *dir, const moxie_synth_options *options,
                             const moxie_executor *executor, moxie_error *error);

#endif
