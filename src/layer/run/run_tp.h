/* SPDX-License-Identifier: Apache-2.0
 *
 * run_tp.h - tensor parallel ranks of a group give each other their columns of act and of y (config/tp_slice.h).
 *
 *     x -> W13's rows of this rank -> act [pairs, I_r] -> [gather] -> act [pairs, I] -> quant_act
 *       -> W2's rows of this rank  -> y [pairs, H_r]
 *
 * In fast mode W2 may be cut by columns (MOX_TP_SUMS). Then nothing travels between the products:
 *
 *     x -> smaller expert of this rank, fused or not -> parts of y [pairs, H] -> columns of rank q to rank q
 *       -> part of rank 0 + part of rank 1 + ..., of this rank's columns -> y [pairs, H_r]
 *
 * Where ranks compute a batch together, each returns its columns of y to the token's rank, which puts them beside each
 * other. A norm of y needs whole rows: then y is gathered like act. So it is for moxie_plan_experts.
 */
#ifndef MOX_LAYER_RUN_TP_H
#define MOX_LAYER_RUN_TP_H

#include "layer/run/run_state.h"

/* Puts the columns of all ranks of the group beside each other in `out`, [pairs, I] for MOX_W13, [pairs, H] for MOX_W2.
 * All ranks of the group have the same pairs, in one order. Collective over the plan's comm. */
moxie_status mox_run_tp_gather(const mox_run *run, mox_expert_kind kind, mox_projection projection, int64_t pairs,
                               const float *mine, float *out, moxie_error *error);

/* From the shared expert's y of the group's tokens, this rank's columns [tokens of the group, H_r], to all columns of
 * own tokens in `out`, [share[tp_rank], H]. share[r]: the tokens of rank r of the group. Collective. */
moxie_status mox_run_tp_return_shared(const mox_run *run, const int64_t *share, const float *mine, float *out,
                                      moxie_error *error);
/* The hidden states of chunk `number` of the group's tokens, of rank 0 first: *out. share[r] rows of rank r, of which
 * those without a token are zeros. Collective where tokens are sharded. */
moxie_status mox_run_tp_gather_hidden(const mox_run *run, const int64_t *share, int64_t number, const void **out,
                                      moxie_error *error);

/* Whether y must be gathered. */
bool mox_run_tp_gathers_y(const mox_run *run);

/* Passes for so many rows, and at least as many as any other rank has: ranks of all groups take part in the exchanges
 * of every pass. */
moxie_status mox_run_tp_passes(const mox_run *run, int64_t rows, int64_t *passes, moxie_error *error);

/* MOX_TP_SUMS: from run->y, this rank's part of each sum [pairs, H], to the sums over the group in rank order: of this
 * rank's columns, for mox_run_tp_own_columns(); or of all columns in run->y, where y is gathered. Collective. */
moxie_status mox_run_tp_sum(mox_run *run, moxie_error *error);

/* Lets run->y be this rank's columns, [pairs, H_r]. Nothing without tensor parallel ranks. */
moxie_status mox_run_tp_own_columns(mox_run *run, moxie_error *error);

/* Puts the columns that came back from all ranks of each group beside each other: [pairs of own tokens, H]. */
moxie_status mox_run_tp_join(const mox_run *run, const void **out, moxie_error *error);

#endif
