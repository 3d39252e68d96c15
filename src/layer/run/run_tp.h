/* SPDX-License-Identifier: Apache-2.0
 *
 * run_tp.h - tensor parallel ranks of a group give each other their columns of act and of y (config/tp_slice.h).
 *
 *     x -> W13's rows of this rank -> act [pairs, I_r] -> [gather] -> act [pairs, I] -> quant_act
 *       -> W2's rows of this rank  -> y [pairs, H_r]   -> [gather] -> y [pairs, H]   -> combine
 */
#ifndef MOX_LAYER_RUN_TP_H
#define MOX_LAYER_RUN_TP_H

#include "layer/run/run_state.h"

/* Puts the columns of all ranks of the group beside each other in `out`, [pairs, I] for MOX_W13, [pairs, H] for MOX_W2.
 * All ranks of the group have the same pairs, in one order. Collective over the plan's comm. */
moxie_status mox_run_tp_gather(const mox_run *run, mox_projection projection, int64_t pairs, const float *mine,
                               float *out, moxie_error *error);

#endif
