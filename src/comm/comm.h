/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.h - a comm: a transport, a deadline, the open requests and the failure that broke it.
 *
 *     mox_comm_start_* -> request    returns at once; the arguments' memory belongs to the request until it is done
 *     mox_comm_test                  works on it, says whether it is done
 *     mox_comm_wait                  the same until it is done, or another rank is late past the deadline
 *
 * Every rank starts the same operations in the same order; up to MOX_COMM_OPEN are open at a time and finish in any
 * order. The deadline of a request runs from its first test that finds it unfinished: what a rank computes between
 * start and test does not count.
 *
 * A failure of the transport or of a deadline breaks the comm: it cancels the transport, so no memory of a request is
 * touched any more, and every later call returns the first failure. Wrong arguments (MOXIE_ERR_ARGUMENT) start nothing
 * and break nothing. One-thread-at-a-time.
 */
#ifndef MOX_COMM_COMM_H
#define MOX_COMM_COMM_H

#include <stdbool.h>

#include "comm/operation.h"

enum { MOX_COMM_DEADLINE = 30000 }; /* ms; the default */

/* Takes over transport->self: destroys it in the end, also when it fails. deadline_ms: 0 means 30000. */
moxie_status mox_comm_create(const moxie_transport *transport, int32_t deadline_ms, moxie_comm **out,
                             moxie_error *error);
/* out[ranks]. */
moxie_status mox_comm_local_create(int32_t ranks, int32_t deadline_ms, moxie_comm **out, moxie_error *error);
moxie_status mox_comm_local_without(const moxie_comm *comm, const int32_t *dead, int32_t count, int32_t deadline_ms,
                                    moxie_comm **out, moxie_error *error);
/* Gives up what is open. NULL is fine. */
void mox_comm_destroy(moxie_comm *comm);

int32_t mox_comm_ranks(const moxie_comm *comm);
int32_t mox_comm_rank(const moxie_comm *comm);
const char *mox_comm_name(const moxie_comm *comm);
/* The device whose rows alltoallv and allgatherv take; -1: none. */
int32_t mox_comm_rows_device(const moxie_comm *comm);
/* In ms. */
int32_t mox_comm_deadline(const moxie_comm *comm);
/* Operations started so far, without those of captured streams: the same number on all ranks at the same place of their
 * programs. */
uint64_t mox_comm_operations(const moxie_comm *comm);

/* Nanoseconds that this rank has waited so far: in mox_comm_wait, less the calls of the transport that ended a request.
 */
uint64_t mox_comm_waited(const moxie_comm *comm);
/* How long mox_comm_wait sleeps before it looks again, where the transport has no wait(), after `waited` ns; 0: it
 * gives way to others. A part of what it has waited, so that no wait becomes much longer: rows are awaited behind
 * milliseconds of products. In ns. */
uint64_t mox_comm_pause(uint64_t waited);
/* Bytes that it has sent so far to other ranks in alltoallv, allgatherv and reduce_scatter. */
uint64_t mox_comm_sent_bytes(const moxie_comm *comm);
/* While it is set, a dead or late rank breaks nothing: the comm loses it, and operations end without it. A lost rank's
 * rows are not written. A transport without mask() loses all others at once, and this rank copies its own rows. */
void mox_comm_set_degraded(moxie_comm *comm, bool degraded);
/* For a transport without mask() that takes rows on a device: copies bytes of rows there, behind what is enqueued on
 * `stream`, for a rank that has lost all others. `self` is the transport's, which was cancelled. */
typedef moxie_status (*mox_comm_copy)(void *self, void *to, const void *from, uint64_t bytes, void *stream,
                                      moxie_error *error);
void mox_comm_set_copy(moxie_comm *comm, mox_comm_copy copy);
/* Numbers that a device knows and the host does not: `put` writes them into the messages of a counts operation, behind
 * what is enqueued on `stream`. The messages are in the device's memory, `stride` bytes apart, rank 0's at `first`. */
typedef struct mox_comm_numbers {
    const void *user;
    moxie_status (*put)(const void *user, void *first, uint64_t stride, moxie_error *error);
    void *stream;
} mox_comm_numbers;
/* For a transport whose messages pass through a device: counts with such numbers. */
typedef moxie_status (*mox_comm_counts_of)(void *self, const mox_comm_numbers *numbers, const int64_t *send,
                                           int64_t *recv, int64_t each, int64_t *request, moxie_error *error);
void mox_comm_set_counts_of(moxie_comm *comm, mox_comm_counts_of counts);
bool mox_comm_takes_numbers(const moxie_comm *comm);
/* Whether rows on the transport's device can lose a rank, for plans there. */
bool mox_comm_can_lose(const moxie_comm *comm);
/* Whether this rank has lost `rank`, or the comm broke because of it. Ranks may have lost different ones. */
bool mox_comm_is_lost(const moxie_comm *comm, int32_t rank);
/* How many. */
int32_t mox_comm_losses(const moxie_comm *comm);

/* A number below MOX_COMM_OPEN, valid until the request is done. */
typedef int32_t mox_comm_request;

moxie_status mox_comm_start_counts(moxie_comm *comm, const int64_t *send, int64_t *recv, int64_t each,
                                   mox_comm_request *request, moxie_error *error);
/* The same with numbers of a device, for a comm that takes them. */
moxie_status mox_comm_start_counts_of(moxie_comm *comm, const mox_comm_numbers *numbers, const int64_t *send,
                                      int64_t *recv, int64_t each, mox_comm_request *request, moxie_error *error);
moxie_status mox_comm_start_alltoallv(moxie_comm *comm, const moxie_comm_rows *rows, mox_comm_request *request,
                                      moxie_error *error);
moxie_status mox_comm_start_allgatherv(moxie_comm *comm, const moxie_comm_rows *rows, mox_comm_request *request,
                                       moxie_error *error);
moxie_status mox_comm_start_reduce_scatter(moxie_comm *comm, const moxie_comm_rows *rows, mox_comm_request *request,
                                           moxie_error *error);
moxie_status mox_comm_start_allreduce(moxie_comm *comm, void *values, int64_t n, moxie_comm_sum how,
                                      mox_comm_request *request, moxie_error *error);
moxie_status mox_comm_start_barrier(moxie_comm *comm, mox_comm_request *request, moxie_error *error);

/* *done: 1 when it is done; then its number is free. Untouched on failure. */
moxie_status mox_comm_test(moxie_comm *comm, mox_comm_request request, int32_t *done, moxie_error *error);
moxie_status mox_comm_wait(moxie_comm *comm, mox_comm_request request, moxie_error *error);

/* Every rank tells all others a status. `status` is returned where it is not MOXIE_OK; else MOXIE_ERR_MISMATCH where
 * another rank has such a one, and names the lowest. `what`: "capture its runs", for the text. */
moxie_status mox_comm_agree(moxie_comm *comm, moxie_status status, const char *what, moxie_error *error);

/* Breaks the comm for a failure of the caller's own, so that other ranks do not wait in vain: cancels what is open.
 * Later calls return `reason`. A broken comm keeps its first failure. */
void mox_comm_break(moxie_comm *comm, const moxie_error *reason);

#endif
