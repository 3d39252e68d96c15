/* SPDX-License-Identifier: Apache-2.0
 *
 * run_permute.h - sorts the pairs of a pass by slot.
 *
 * In the flow: run_pass.c (all slots at once), run_windows.c (those of a window) -> [run_permute].
 */
#ifndef MOX_LAYER_RUN_PERMUTE_H
#define MOX_LAYER_RUN_PERMUTE_H

#include "layer/run/run_state.h"

/* Sorts the pass's pairs by run->slots into run->permutation. `with_arrays`: what lies by pair, too. */
moxie_status mox_run_permute(mox_run *run, bool with_arrays, moxie_error *error);

#endif
