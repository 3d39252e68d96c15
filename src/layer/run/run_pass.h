/* SPDX-License-Identifier: Apache-2.0
 *
 * run_pass.h - one pass of a run: at most pass_tokens tokens from permute to combine, or the parts of it.
 *
 *     begin_pass    permute: sorts the pairs of tokens [first, first + tokens) by slot
 *     pass          routed and shared experts, norm, combine;  or the routed experts up to y
 *     scatter       y -> rows in another order
 *     combine       from y, or from rows that came from elsewhere, to the output
 *
 * In the flow: run.c (this rank alone), run_ranks.c (rows come from and go to other ranks).
 */
#ifndef MOX_LAYER_RUN_PASS_H
#define MOX_LAYER_RUN_PASS_H

#include "layer/run/run_state.h"

/* Starts the pass of `each` tokens from `first`, or of those that are left: sorts its pairs by slot. */
moxie_status mox_run_begin_pass(mox_run *run, int64_t first, int64_t each, moxie_error *error);
/* Runs the experts of a pass. `whole`: routed and shared experts, and combine; else the routed experts up to y. */
moxie_status mox_run_pass(mox_run *run, bool whole, moxie_error *error);
/* rows[i] = y[position[i]], or zeros where that is -1, for i < count, rows of `cols` numbers of type `dtype`: a combine
 * with one expert a token and no weights. Results that the layer rounds are rounded. */
moxie_status mox_run_scatter(const mox_run *run, const int64_t *position, int64_t count, int64_t cols,
                             moxie_dtype dtype, void *rows, moxie_error *error);

/* Arguments of combine for the present pass. Rows of y are found by `position`; NULL: they are in the order [T,K]. */
mox_combine_args mox_run_combine_args(const mox_run *run, const float *y, const int64_t *position);
moxie_status mox_run_combine(mox_run *run, const mox_combine_args *args, moxie_error *error);

#endif
