/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_matrix.h - the bytes of a tensor that stores quantized matrices, or a part of them.
 */
#ifndef MOX_CKPT_SYNTH_MATRIX_H
#define MOX_CKPT_SYNTH_MATRIX_H

#include "ckpt/synth/synth_fill.h"

/* Makes the bytes of a tensor that stores a part of matrices: spec->part is not NULL. */
moxie_status mox_fill_matrix(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, mox_fill_sink sink,
                             moxie_error *error);

#endif
