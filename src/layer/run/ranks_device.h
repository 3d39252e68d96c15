/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks_device.h - what a run over ranks moves between a device and the host.
 *
 *     device   route -> ids          rows of hidden -> send_x       recv_x -> experts -> results       combine
 *                         |              ^        |                   ^                     |            ^
 *     host                v              |        v                   |                     v            |
 *              which row goes where -> token   [pinned]--exchange--[pinned]              [pinned]--exchange
 *
 * Unless the device does (ranks_place.h), the host decides which row goes where, as for plans on the host. So it waits
 * for the ids once a run. Rows travel from device to device where the transport takes device memory
 * (moxie_transport.device); else through pinned memory of the host, [pinned] above, and the host waits for the device
 * before each exchange.
 *
 * Pinned memory mirrors the beginning of the workspace: a buffer of ranks.h has one offset in both. `run->host` is the
 * run as the host sees it: its space is the pinned memory, and its ids and weights are copies. Of a plan on the host it
 * is the run itself. Then all functions here do nothing.
 *
 * In the flow: run_ranks.c -> [ranks_device] -> cuda_table.h.
 */
#ifndef MOX_LAYER_RANKS_DEVICE_H
#define MOX_LAYER_RANKS_DEVICE_H

#include "layer/run/run_state.h"

/* After routing: sets run->host. `host` is memory for it, which lives as long as the run. Waits for the device. */
moxie_status mox_ranks_begin(mox_run *run, mox_run *host, moxie_error *error);
/* Waits for the stream, of a plan with a comm at most the comm's deadline. */
moxie_status mox_ranks_wait_for_stream(const moxie_plan *plan, mox_cuda_stream stream, moxie_error *error);
/* The last call of a run. */
moxie_status mox_ranks_end(const mox_run *run, moxie_error *error);

/* The run whose space holds the rows that are sent and received. */
const mox_run *mox_ranks_rows_of(const mox_run *run);
/* Tells the transport about rows on the device. */
void mox_ranks_mark(const mox_run *run, moxie_comm_rows *rows);
/* The same of rows for which the host need not wait, since it waits for later ones of this run; it does wait where it
 * has placed rows itself, or may lose ranks. */
void mox_ranks_mark_early(const mox_run *run, moxie_comm_rows *rows);

/* Puts the hidden states of the chunk's rows into send_x, or recv_x where all ranks have all tokens. */
moxie_status mox_ranks_gather_hidden(const mox_run *run, bool send, int64_t tokens, moxie_error *error);
/* The rows of hidden states that space.token says, counted from token `first`, to the ranks' buffer at `to`. */
moxie_status mox_ranks_copy_hidden(const mox_run *run, int64_t first, uint64_t to, int64_t rows, moxie_error *error);
/* What the device has placed, without a capacity: fetches the counts. Then, where the comm does not take numbers of a
 * device: waits for them, and sets the counts of ranks. */
moxie_status mox_ranks_fetch_counts(const mox_run *run, moxie_error *error);
moxie_status mox_ranks_read_counts(const mox_run *run, moxie_error *error);
/* Where it does: these are the counts, as numbers of the messages to the ranks. When the messages have come, so have
 * the counts: mox_ranks_take_counts sets those of ranks. */
mox_comm_numbers mox_ranks_numbers(const mox_run *run);
void mox_ranks_take_counts(const mox_run *run);
/* Brings rows, ids and weights that the device has placed to the host before they are sent, and waits. */
moxie_status mox_ranks_download_sent(const mox_run *run, moxie_error *error);
/* Waits until what was gathered or downloaded is there. */
moxie_status mox_ranks_wait(const mox_run *run, moxie_error *error);
/* After a dispatch: brings rows, ids and weights to the device. */
moxie_status mox_ranks_upload_received(const mox_run *run, moxie_error *error);

/* The order of the results of a pass, `done` results of the chunk after the first. *count: how many there are. */
moxie_status mox_ranks_order(const mox_run *run, int64_t done, int64_t *count, moxie_error *error);
/* Sets the offsets of the shared expert's only slot. */
moxie_status mox_ranks_shared_offsets(const mox_run *run, int64_t *offsets, moxie_error *error);
/* The same for the tokens of a tensor parallel group, whose number the host knows. A graph holds the number itself. */
moxie_status mox_ranks_group_offsets(const mox_run *run, int64_t *offsets, moxie_error *error);

/* Bring rows of the ranks' buffer at `offset` to the host before they are sent, and waits; or to the device after they
 * came. */
moxie_status mox_ranks_download(const mox_run *run, uint64_t offset, uint64_t bytes, moxie_error *error);
moxie_status mox_ranks_upload(const mox_run *run, uint64_t offset, uint64_t bytes, moxie_error *error);

/* Before the host changes pinned memory that copies may still read: waits for the device. */
moxie_status mox_ranks_settle(const mox_run *run, moxie_error *error);
/* Brings positions of own choices that the host has changed, and with `weights` their weights (space.kept). Waits: they
 * come behind the return, which the next chunk of this side counts on. */
moxie_status mox_ranks_bring_choices(const mox_run *run, bool weights, moxie_error *error);
/* Sets memory of the caller to zero. */
moxie_status mox_ranks_clear(const mox_run *run, void *memory, uint64_t bytes, moxie_error *error);
/* Replaces *amax, the bits of a magnitude on the device, by the largest of all ranks: *maxima [*count], also there. */
moxie_status mox_ranks_join_amax(const mox_run *run, uint32_t *amax, const uint32_t **maxima, int32_t *count,
                                 moxie_error *error);

/* Pairs of the pass in a tensor parallel group, or on a device at least as many: the same number on all its ranks. */
int64_t mox_ranks_pairs(const mox_run *run);
/* Before ranks of a group gather: rows->send are `bytes` of the device's memory. Marks them; or brings them to pinned
 * memory, waits, and lets rows->send and recv be there. */
moxie_status mox_ranks_lend_pieces(const mox_run *run, uint64_t bytes, moxie_comm_rows *rows, moxie_error *error);
/* Afterwards: brings what came to the device. */
moxie_status mox_ranks_bring_pieces(const mox_run *run, uint64_t bytes, moxie_error *error);

/* Where outputs that come from other ranks arrive: args.output, or pinned memory; then `in_at` are places there, and
 * mox_ranks_place_outputs copies them to args.output, rank r's to row first[r]. */
void *mox_ranks_outputs(const mox_run *run, int64_t *in_at, const int64_t *in);
moxie_status mox_ranks_place_outputs(const mox_run *run, int64_t chunk, moxie_error *error);

#endif
