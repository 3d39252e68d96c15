/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_ranks.h - makes the ranks' part of a plan (ranks.h): who holds which expert, the size of a chunk, its buffers;
 * and the handshake, in which all ranks compare their plans.
 *
 * In the flow: plan_create.c -> [plan_ranks] -> workspace.c.
 */
#ifndef MOX_LAYER_PLAN_RANKS_H
#define MOX_LAYER_PLAN_RANKS_H

#include "base/carver.h"
#include "layer/plan/plan.h"

/* Sets plan->ranks, or leaves it NULL without options->comm. The plan has its layer, configuration, kernels and
 * max_tokens. */
moxie_status mox_plan_ranks_create(moxie_plan *plan, const moxie_options *options, moxie_error *error);
void mox_plan_ranks_destroy(const moxie_plan *plan);
/* Before a run: takes over the layer's map where a mover has changed it. Allocates nothing. */
void mox_plan_ranks_follow(const moxie_plan *plan);
/* Before a run that places rows on the device: brings a changed map there, and waits. */
moxie_status mox_plan_ranks_update_tables(const moxie_plan *plan, moxie_error *error);
/* All but struct_size. */
void mox_plan_ranks_losses(const mox_ranks *ranks, moxie_losses *out);

/* The most tokens of a pass: of the batch, or rows that come from all ranks. */
int64_t mox_plan_max_pass(const moxie_plan *plan);
/* For tests: the most tokens of a chunk in plans that are made from now on; 0: no limit. Process-wide. */
extern int64_t mox_plan_ranks_test_chunk;
/* Rank r's limit is r times this number higher. */
extern int64_t mox_plan_ranks_test_more;
/* Chooses the size of a chunk. `one_chunk`: a scale covers the whole batch, so it must not be cut. */
void mox_plan_ranks_set_chunk(moxie_plan *plan, bool one_chunk);
/* The bytes of a row of x, after x->coded is known. */
void mox_plan_ranks_set_row(moxie_plan *plan);
/* Tokens that a pass must have room for: all that a rank owns, where messages have a fixed capacity. */
int64_t mox_plan_ranks_min_pass(const moxie_plan *plan);
/* With a fixed capacity: memory to take part in the exchange of a run that is refused. The chunk is known. */
moxie_status mox_plan_ranks_allocate_refusal(moxie_plan *plan, moxie_error *error);
/* The shared expert computes own tokens of a chunk in one pass, so a chunk is at most a pass. */
void mox_plan_ranks_fit_chunk(moxie_plan *plan);
void mox_plan_ranks_limit_chunk(moxie_plan *plan, int64_t tokens);
/* Assigns the buffers of a chunk. */
void mox_plan_ranks_carve(moxie_plan *plan, mox_carver *carver);
/* Allocates the pinned memory of a plan on a device. */
moxie_status mox_plan_ranks_pin(const moxie_plan *plan, moxie_error *error);
/* Bytes of a token: of what is dispatched; in the buffers of a chunk, of one rank. And the tokens that one rank owns.
 */
int64_t mox_plan_ranks_row_bytes(const moxie_plan *plan);
int64_t mox_plan_ranks_token_bytes(const moxie_plan *plan);
int64_t mox_plan_ranks_max_own(const moxie_plan *plan);

/* Steps "chunks", "dispatch", "return", "gather" with their bytes (plan_ranks_steps.c). */
moxie_status mox_plan_ranks_add_steps(moxie_plan *plan, moxie_error *error);

/* Compares the plans of all ranks. Collective: `status` says whether this rank's plan could be made so far, and a rank
 * whose plan could not must take part; its `plan` may be NULL. MOXIE_ERR_MISMATCH names the rank, what differs, and
 * both values. All get the smallest chunk of all, and learn whether codes can travel, so the caller assigns the
 * workspace again. */
moxie_status mox_plan_ranks_agree(moxie_plan *plan, moxie_comm *comm, moxie_status status, moxie_error *error);

#endif
