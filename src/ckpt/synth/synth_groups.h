/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_groups.h - the weights of a matrix before quantization, and the scales and zero points of its groups.
 */
#ifndef MOX_CKPT_SYNTH_GROUPS_H
#define MOX_CKPT_SYNTH_GROUPS_H

#include "ckpt/synth/synth_fill.h"

/* Deviates of columns [c, c + n) of row r. A weight is mox_fill_unit times a deviate. */
extern const float mox_fill_unit;
void mox_fill_deviates(const mox_fill_view *m, int64_t r, int64_t c, int64_t n, int32_t *z);
/* Computes filler->groups for `m`, unless they are its groups already. */
moxie_status mox_fill_make_groups(mox_synth_filler *filler, const mox_fill_view *m, moxie_error *error);

#endif
