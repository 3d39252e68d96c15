/* SPDX-License-Identifier: Apache-2.0
 *
 * run_shared.h - the shared expert of ranks that exchange rows.
 *
 *     whole       hidden states of own tokens -> shared expert -> shared_y [own tokens, H]
 *     by rows     hidden states of own tokens -> [gather] -> those of the group -> this rank's rows of W13
 *     (tp_size    -> act [tokens of the group, I_r] -> [gather] -> act [.., I] -> this rank's rows of W2
 *      above 1)   -> y [tokens of the group, H_r] -> [to the token's rank] -> shared_y [own tokens, H]
 *
 * Every dot product is whole on one rank, so both have the same bits. Which of the two it is, the configuration says
 * (mox_tp_shared_cut). In the flow: run_ranks.c -> [run_shared] -> combine.
 */
#ifndef MOX_LAYER_RUN_SHARED_H
#define MOX_LAYER_RUN_SHARED_H

#include "layer/run/run_state.h"

/* The shared expert, if there is one, of tokens [first, first + tokens), which are chunk `number`: sets shared_y.
 * Collective where it is cut. */
moxie_status mox_run_shared(mox_run *run, int64_t number, moxie_error *error);

#endif
