/* SPDX-License-Identifier: Apache-2.0
 *
 * synth.h - synthetic checkpoints: the MoE layers of a preset with true names, shapes and dtypes, and plausible
 * numbers.
 *
 *     presets.def + options -> mox_synth_resolve (synth_model.c) -> mox_synth_model
 *         -> mox_enumerate_layer (tables.h) for each layer -> mox_synth_fill: the bytes of one tensor, chunk by chunk
 *         -> shards, index, config.json in a staged directory (mox_synth_write)
 *
 * Every logical weight is one number, regardless of the tensor that stores it (synth_model.h).
 */
#ifndef MOX_CKPT_SYNTH_H
#define MOX_CKPT_SYNTH_H

#include <moxie/moxie_ckpt.h>

#include "base/executor.h"

/* moxie_synth_write() with the threads of `executor`. */
moxie_status mox_synth_write(const char *preset, const char *dir, const moxie_synth_options *options,
                             const moxie_executor *executor, moxie_error *error);

#endif
