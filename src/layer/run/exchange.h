/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.h - which rows of a chunk go to which rank, and in which order their results come back.
 *
 *     own tokens, K = 3       choices' groups       rows to group 0    rows to group 1     position
 *         t0                     0  1  0               t0                 t0               0 3 1
 *         t1                     1  -  1               -                  t1               4 - 5
 *         t2                     0  -  -               t2                 -                2 - -
 *
 * A token has one row for each group that computes one of its choices; the other choices of that row are -1. Results
 * come back in the order of rows, then choices: group 0's before group 1's. `position` is where each choice's result
 * will be.
 *
 * With a fixed capacity a group's rows begin at group * capacity, and choice j of row i comes back as result i K + j
 * (plan/ranks.h).
 *
 * Where a group must be chosen (replicas), the token's own rank is the best; else tokens take turns. The choice changes
 * no bit.
 *
 * In the flow: route -> [exchange] -> run_ranks.c.
 */
#ifndef MOX_LAYER_EXCHANGE_H
#define MOX_LAYER_EXCHANGE_H

#include "layer/run/run_state.h"

/* Tokens [first, first + tokens) of the run's arrays. */
typedef struct mox_chunk {
    int64_t number, first, tokens;
} mox_chunk;

/* Chunk `number` of the tokens that `rank` owns. Another rank's are known only where all ranks have all tokens. */
mox_chunk mox_exchange_chunk(const mox_run *run, int32_t rank, int64_t number);
/* The tokens that this rank owns. */
int64_t mox_exchange_own_tokens(const mox_run *run);
/* The chunks that this rank's own tokens need, at least one. Of tokens that all ranks have, those that any rank needs,
 * so the same number on all. */
int64_t mox_exchange_chunks(const mox_run *run);

/* With a fixed capacity: for each rank the numbers of rows and pairs, and where they begin. Returns how many rows to
 * send. */
int64_t mox_exchange_place_fixed(const mox_ranks *x, int64_t top_k);
/* For own tokens: position, and for each rank the numbers of rows and pairs. Where tokens are sharded, also the rows
 * themselves in the send buffers. */
void mox_exchange_send(const mox_run *run, const mox_chunk *chunk);
/* Where all ranks have all tokens: puts the rows into the receive buffers that the others would send, and sets their
 * numbers. */
void mox_exchange_take(const mox_run *run, int64_t number);

#endif
