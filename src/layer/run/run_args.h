/* SPDX-License-Identifier: Apache-2.0
 *
 * run_args.h - reads a caller's arguments and checks them before anything is written.
 */
#ifndef MOX_LAYER_RUN_ARGS_H
#define MOX_LAYER_RUN_ARGS_H

#include "layer/run/run_state.h"

/* What a call needs besides the workspace. */
enum {
    MOX_NEEDS_HIDDEN = 1,
    MOX_NEEDS_OUTPUT = 2,
    MOX_NEEDS_LOGITS = 4, /* logits, or a router and its input */
    MOX_NEEDS_IDS = 8,
    MOX_NEEDS_WEIGHTS = 16,
    MOX_NEEDS_IDS_OR_LOGITS = 32, /* ids and weights; without ids as MOX_NEEDS_LOGITS */
    MOX_NEEDS_IDS_OUT = 64
};

/* Begins a run: the caller's arguments, checked against the plan and `needs`. The queue and the probe stay unset. */
moxie_status mox_run_begin(const moxie_plan *plan, const moxie_run_args *args, uint32_t needs, mox_run *run,
                           moxie_error *error);

/* Rows of `output` of moxie_plan_run: of all tokens, or in a run with other ranks of those that this rank owns. */
uint64_t mox_run_output_rows(const moxie_plan *plan, int64_t tokens);

#endif
