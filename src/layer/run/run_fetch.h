/* SPDX-License-Identifier: Apache-2.0
 *
 * run_fetch.h - a run whose records come from a source (record_source.h), as many at a time as the source has room for.
 *
 *     ids of the batch -> begin            the source starts to read
 *     ids of a pass    -> slots            slot i is the i-th expert in the order in which records come
 *     permute          -> pairs by slot    so the experts of one call of next() are a window of slots, and their pairs
 *                                          lie together
 *     next             -> window [first, end) of slots: computed while the source reads the next ones
 *
 * Each pair has its row of y, whatever the window; combine sums them when all windows are done, in the order of the
 * choices. So no bit depends on what was in memory.
 *
 * On a GPU run_windows.h does the same in another way.
 *
 * In the flow: run.c -> [run_fetch] -> run_pass.c. Without a source, and in a traced run, the slots are the layer's.
 */
#ifndef MOX_LAYER_RUN_FETCH_H
#define MOX_LAYER_RUN_FETCH_H

#include "layer/run/run_state.h"

/* Opens the session of a run whose ids are known. Does nothing without a source. */
moxie_status mox_run_fetch_begin(mox_run *run, moxie_error *error);
/* Closes it. Returns `status`, the result of the run so far, if that is an error. */
moxie_status mox_run_fetch_end(mox_run *run, moxie_status status, moxie_error *error);
/* Sets run->slots for the pass at hand: those of the layer, or those of the experts that the pass uses. */
void mox_run_set_slots(mox_run *run);
/* The same slots once more, from the first one on: a second trip through the experts. */
void mox_run_fetch_again(mox_run *run);
/* Moves the window of run->slots behind itself, to slots whose records are there: an empty one when none is left, and
 * without `wait` when none is in memory. */
moxie_status mox_run_fetch_next(mox_run *run, bool wait, moxie_error *error);

#endif
