/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_blocks.h - the bytes of a tensor of a block type.
 */
#ifndef MOX_CKPT_SYNTH_BLOCKS_H
#define MOX_CKPT_SYNTH_BLOCKS_H

#include "ckpt/synth/synth_fill.h"

/* Makes the bytes of a tensor that stores matrices in blocks: spec->part is not NULL. */
moxie_status mox_fill_blocks(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, mox_fill_sink sink,
                             moxie_error *error);

#endif
