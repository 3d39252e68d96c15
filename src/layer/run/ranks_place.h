/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks_place.h - plans on a device that decides which row goes where (mox_ranks.places).
 *
 *     ids -> [place_rows] -> position, token, ids of rows -> [copy_rows] -> rows of hidden states
 *                 '-> counts -> the host, without a fixed capacity
 *
 * With a fixed capacity the host waits for no choices of experts. Where rows travel from device to device it waits for
 * nothing but other ranks, and not even for those while a stream is captured in a graph.
 *
 * Without one, the host reads how many rows and choices each group has, two numbers a group. It waits for them while
 * the device copies the rows, then the ranks agree, and ids and hidden states go from device to device. The rank that
 * computes finds the order of its results by itself ([order_rows]).
 *
 * In the flow: run_ranks.c -> [ranks_place] -> cuda_table.h.
 */
#ifndef MOX_LAYER_RANKS_PLACE_H
#define MOX_LAYER_RANKS_PLACE_H

#include "layer/run/exchange.h"

/* Sets run->captured. A run that cannot be part of a graph is refused while a stream is captured. */
moxie_status mox_ranks_look_at_stream(mox_run *run, moxie_error *error);
/* After routing: what mox_exchange_send() and mox_exchange_take() do on the host, and the rows. */
moxie_status mox_ranks_place(const mox_run *run, const mox_chunk *chunk, moxie_error *error);

#endif
