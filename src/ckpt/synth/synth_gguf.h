/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_gguf.h - synthetic checkpoints as GGUF files: the same weights as in any other format, in the recipe's types.
 */
#ifndef MOX_CKPT_SYNTH_GGUF_H
#define MOX_CKPT_SYNTH_GGUF_H

#include "ckpt/gguf/gguf_target.h"
#include "ckpt/synth/synth_fill.h"

/* The model's layers as a GGUF file has them, all checked. Call mox_gguf_target_close() in any case. */
moxie_status mox_synth_gguf_target(const mox_synth_model *model, mox_gguf_target *out, moxie_error *error);
/* Writes the file at `path`. */
moxie_status mox_synth_gguf_write(const mox_synth_model *model, const char *path, const moxie_synth_options *options,
                                  const moxie_executor *executor, moxie_error *error);
/* The bytes of a tensor of a block type: spec->part is not NULL. */
moxie_status mox_fill_blocks(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, mox_fill_sink sink,
                             moxie_error *error);

#endif
