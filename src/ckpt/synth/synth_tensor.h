/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_tensor.h - the bytes of any tensor of a synthetic checkpoint.
 */
#ifndef MOX_CKPT_SYNTH_TENSOR_H
#define MOX_CKPT_SYNTH_TENSOR_H

#include "ckpt/synth/synth_fill.h"

/* Makes all bytes of one tensor of checkpoint layer `layer` and passes them to `sink` in order, some MB at a time. */
moxie_status mox_synth_fill(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, mox_bytes_fn sink,
                            void *user, moxie_error *error);

#endif
