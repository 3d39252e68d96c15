/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks_place.h - plans of fixed capacity on a device: the device decides which row goes where (mox_ranks.places).
 *
 *     ids -> [place_rows] -> position, token, ids of rows -> [copy_rows] -> rows of hidden states
 *
 * So the host waits for no choices of experts. Where rows travel from device to device it waits for nothing but other
 * ranks, and not even for those while a stream is captured in a graph.
 *
 * In the flow: run_ranks.c -> [ranks_place] -> cuda_table.h.
 */
#ifndef MOX_LAYER_RANKS_PLACE_H
#define MOX_LAYER_RANKS_PLACE_H

#include "layer/run/run_state.h"

/* Sets run->captured. A run that cannot be part of a graph is refused while a stream is captured. */
moxie_status mox_ranks_look_at_stream(mox_run *run, moxie_error *error);
/* After routing: what mox_exchange_send() and mox_exchange_take() do on the host, and the rows. */
moxie_status mox_ranks_place(const mox_run *run, moxie_error *error);

#endif
