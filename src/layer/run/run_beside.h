/* SPDX-License-Identifier: Apache-2.0
 *
 * run_beside.h - experts of a run on a GPU that the host computes, out of records in its memory:
 *
 *     the GPU      windows of experts in slots | ...                     | combine
 *     the host     a chunk of tokens: its choices of these experts -> rows --copy--> y
 *
 * The GPU's kernels run meanwhile. A choice has its row of y, whoever computes it; combine reads all. The kernels are
 * those of the host's plan, so the bits of a result depend on which of its experts lie where.
 *
 * In the flow: run_windows.c -> [run_beside] -> run.c of the host's plan.
 */
#ifndef MOX_LAYER_RUN_BESIDE_H
#define MOX_LAYER_RUN_BESIDE_H

#include "layer/run/run_state.h"

/* Begins to copy what the host's kernels read of the batch. The host waits for the stream before it computes. */
moxie_status mox_run_beside_begin(const mox_run *run, moxie_error *error);
/* Computes the pass's choices of `experts` [count], into rows of y from `first_pair` on, in the order of the choices.
 */
moxie_status mox_run_beside(const mox_run *run, const int32_t *experts, int64_t count, int64_t first_pair,
                            moxie_error *error);

#endif
