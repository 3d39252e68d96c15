/* SPDX-License-Identifier: Apache-2.0
 *
 * run_degraded.h - a run that loses ranks on the way and ends all the same (options.degraded, moxie_degraded).
 *
 *     own tokens --dispatch--> x lost rank    its results do not come: the choices count zero, and are counted
 *     rows of a lost rank's tokens            nobody waits for them: they compute nothing
 *     outputs of a lost rank's tokens         where all ranks get all outputs: zero
 *
 * On a device the host decides this, too: ids and positions are in its memory before they are brought to the device
 * (ranks_device.h).
 *
 * The comm ends operations without the ranks that it loses (comm.h). A rank that is lost at any time in a chunk is lost
 * for all of it. Without a lost rank these calls change nothing.
 *
 * In the flow: run_ranks.c, after each exchange.
 */
#ifndef MOX_LAYER_RUN_DEGRADED_H
#define MOX_LAYER_RUN_DEGRADED_H

#include "layer/run/run_state.h"

/* Around the exchanges of a run. */
void mox_run_degraded_begin(const moxie_plan *plan);
void mox_run_degraded_end(const moxie_plan *plan);

/* After the dispatch. `host` is the run as the host sees it. */
void mox_run_drop_rows(const mox_run *host);
/* Before combine, of the chunk's own tokens: takes lost choices out of args, or weights the others anew. */
moxie_status mox_run_drop_results(const mox_run *run, mox_combine_args *args, moxie_error *error);
/* After the gather of chunk `number`. */
moxie_status mox_run_drop_outputs(const mox_run *run, int64_t number, moxie_error *error);

#endif
