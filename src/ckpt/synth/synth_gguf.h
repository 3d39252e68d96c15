/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_gguf.h - synthetic checkpoints as GGUF files: the same weights as in any other format, in the recipe's types.
 */
#ifndef MOX_CKPT_SYNTH_GGUF_H
#define MOX_CKPT_SYNTH_GGUF_H

#include "ckpt/gguf/gguf_target.h"
#include "base/executor.h"
#include "ckpt/synth/synth_model.h"

/* The model's layers as a GGUF file has them, all checked. Call mox_gguf_target_close() in any case. */
moxie_status mox_synth_gguf_target(const mox_synth_model *model, mox_gguf_target *out, moxie_error *error);
/* Writes the file at `path`, where there is nothing yet. */
moxie_status mox_synth_gguf_write(const mox_synth_model *model, const char *path, const moxie_synth_options *options,
                                  const moxie_executor *executor, moxie_error *error);

#endif
