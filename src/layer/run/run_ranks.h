/* SPDX-License-Identifier: Apache-2.0
 *
 * run_ranks.h - moxie_plan_run where ranks compute the batch together (options.comm).
 *
 *     own tokens: route -> ids, weights [T,K]
 *     each chunk: counts -> dispatch -> passes over the rows that came (run_pass.h) -> return
 *                 -> shared expert of own tokens -> combine of own tokens -> [gather]
 *
 * Each result travels to its token's rank as one row, unweighted: f32, or 16-bit where the layer rounds results. There
 * the same combine as on one rank adds them in slot order. So the output bytes are those of one rank.
 *
 * With a fixed capacity (ranks.h) there are no counts: the message goes with the rows, and all rows have their places.
 */
#ifndef MOX_LAYER_RUN_RANKS_H
#define MOX_LAYER_RUN_RANKS_H

#include "layer/run/run_state.h"

/* The run has its arguments and its queue. Collective. */
moxie_status mox_run_ranks(mox_run *run, moxie_error *error);
/* Takes this rank's part in a run whose arguments are wrong, so that the others do not wait for it. Returns
 * `status`. */
moxie_status mox_run_ranks_refuse(const moxie_plan *plan, moxie_status status);

#endif
