/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks_streams.h - a run over ranks whose exchanges have a stream of their own (options.exchange_streams 2).
 *
 *     caller's    | route | products 0        | shared 0 | products 1        | shared 1 | products 2 ...
 *     exchanges           | dispatch 0 | dispatch 1 | return 0, combine 0 | dispatch 2 | return 1, combine 1 ...
 *
 * All operations of the comm in a run are on the exchanges' stream, in one order. So are the operations between them
 * that need no product: rows are placed, copied and checked there, and own tokens are combined there.
 *
 * Each stream waits for the other by the events of mox_ranks_event. They are recorded when NCCL has the exchange before
 * them on the stream, which is when its request is done (comm/nccl/nccl_transport.h).
 *
 * The results of a chunk have one buffer: the products of the next one are enqueued before those of this one have left,
 * and only their last step, which writes them, waits. The other buffers have two sides (plan/ranks.h).
 */
#ifndef MOX_LAYER_RANKS_STREAMS_H
#define MOX_LAYER_RANKS_STREAMS_H

#include "layer/run/run_state.h"

/* Whether the run's exchanges have their own stream: not while its parts are timed, one after the other. */
bool mox_ranks_beside(const mox_run *run);
/* The run on the exchanges' stream. */
mox_run mox_ranks_away(const mox_run *run);
/* Marks what is enqueued on the run's stream so far; lets what comes next on it wait for the last such mark. */
moxie_status mox_ranks_reach(const mox_run *run, mox_ranks_event event, moxie_error *error);
moxie_status mox_ranks_await(const mox_run *run, mox_ranks_event event, moxie_error *error);

#endif
