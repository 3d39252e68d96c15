/* SPDX-License-Identifier: Apache-2.0
 *
 * run_windows.h - a run on a GPU whose records come from a source (device_source.h), window by window:
 *
 *     ids of the batch -> host, which waits once -> begin
 *     a window of slots:   tables, permute of its pairs alone, quantize -> [its records are there] -> products -> y
 *     the last window:     before it, permute of all pairs, in the order of the windows: positions for combine
 *
 *     y | rows of window 0 | rows of window 1 | ...       a pair keeps its row until combine, whatever its window
 *
 * A window is what a rank of expert parallel ranks has: kernels get the slots of some experts, and skip the others. So
 * they are the plan's, and no bit depends on what was in device memory.
 *
 * In the flow: run.c -> [run_windows] -> run_pass.c.
 */
#ifndef MOX_LAYER_RUN_WINDOWS_H
#define MOX_LAYER_RUN_WINDOWS_H

#include "layer/run/run_state.h"

/* Whether the run fetches records to a GPU. */
bool mox_run_has_windows(const mox_run *run);
/* Brings the ids to the host, and opens a session of the source. */
moxie_status mox_run_windows_begin(mox_run *run, moxie_error *error);
/* Closes it. Returns `status`, the result of the run so far, if that is an error. */
moxie_status mox_run_windows_end(mox_run *run, moxie_status status, moxie_error *error);
/* The experts of the pass at hand. */
moxie_status mox_run_windows_want(mox_run *run, moxie_error *error);
/* The experts of a pass up to y. `shared`: the shared one too. */
moxie_status mox_run_windows(mox_run *run, bool shared, moxie_error *error);

#endif
