/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_transport.h - a transport over NCCL: each operation is one group of ncclSend and ncclRecv, a pair for each other
 * rank and for the own one.
 *
 *     rows on the device     the group goes to the stream of the rows
 *     host memory            pinned -> device -> group -> device -> pinned, on a stream of the transport
 *
 *         staging of one operation:   | message to send | ... | message that comes | ... |
 *         a message:                  | operation, kind, bytes | the bytes |
 *
 * Numbers that only the device knows are put into the messages there (mox_comm_numbers).
 *
 * While a stream is captured in a graph, the group becomes a part of it, and no event can tell when it has ended.
 *
 * The communicator blocks: a group is on its stream when ncclGroupEnd returns. Without that NCCL starts a thread for
 * each group, and steps of 0.6 to 2.5 ms took 0.3 ms longer. No group waits on the host for other ranks, since all
 * connections are there when the transport is. Making the communicator waits for them, and so does ending it: these
 * calls are on threads of their own (nccl_apart.h).
 *
 * The user may set NCCL_COMM_BLOCKING=0. Then MOX_NCCL_IN_PROGRESS means that the group is not on its stream yet, and
 * only when it is, the next one may be submitted. An event says when the device has finished.
 *
 * Who is late: NCCL does not say. But the header of a message that came can be read while the others are awaited. So
 * operations in host memory name the lowest rank whose message is missing; rows on a device name none. A run begins
 * each chunk with the former.
 *
 * NCCL can neither withdraw an operation nor use a communicator after one was aborted: cancel() aborts it. Other ranks
 * see that as a rank that is late.
 */
#ifndef MOX_COMM_NCCL_TRANSPORT_H
#define MOX_COMM_NCCL_TRANSPORT_H

#include <stdbool.h>

#include "comm/comm.h"
#include "comm/device_memory.h"
#include "comm/nccl/nccl_library.h"
#include "comm/operation.h"

/* The beginning of a message in host memory. */
typedef struct mox_nccl_header {
    uint64_t operation, kind_and_bytes;
} mox_nccl_header;

/* What goes to or comes from one rank. */
typedef struct mox_nccl_piece {
    const void *from; /* of what is sent */
    void *to;         /* of what comes; NULL: it stays in the staging memory */
    uint64_t bytes;
    uint64_t at;  /* of its message in the staging memory */
    bool message; /* there is one */
} mox_nccl_piece;

typedef struct mox_nccl_operation {
    bool used, on_stream; /* on_stream: no longer in progress at NCCL; the event is recorded */
    bool on_device;       /* rows on the device: no staging */
    bool captured;        /* its stream is captured in a graph: it is done when it is on the stream; no event */
    mox_comm_kind kind;
    uint64_t number; /* of those with headers, from 1. Rows on a device have none: ranks may capture different ones */
    uint64_t since;  /* when it began, of mox_clock_now() */
    void *event, *stream;
    mox_nccl_piece *send, *recv; /* [ranks] */
    char *pinned, *device;       /* staging memory, as long as the largest operation so far */
    uint64_t capacity, send_bytes, bytes;
    void *target; /* where combined values go */
    int64_t values;
    moxie_comm_sum how;
} mox_nccl_operation;

typedef struct mox_nccl_transport {
    const mox_nccl_library *nccl;
    mox_comm_device device;
    mox_nccl_comm comm; /* NULL: aborted */
    int32_t ranks, rank, deadline_ms;
    uint64_t operations;         /* started, of those with headers */
    void *stream, *looks;        /* of operations in host memory; of late() */
    mox_nccl_header *headers;    /* pinned [ranks], for late() */
    mox_nccl_operation *pending; /* submitted, and in progress at NCCL; or NULL */
    mox_nccl_operation open[MOX_COMM_OPEN];
} mox_nccl_transport;

/* ---- nccl_transport.c ---- */

/* Submits the operation's messages and sets *request. */
moxie_status mox_nccl_submit(mox_nccl_transport *t, mox_nccl_operation *operation, int64_t *request,
                             moxie_error *error);
/* Works on what is in progress at NCCL; *settled: nothing is. */
moxie_status mox_nccl_settle(mox_nccl_transport *t, bool *settled, moxie_error *error);
/* The same until nothing is, or the deadline. */
moxie_status mox_nccl_settle_all(mox_nccl_transport *t, const char *what, moxie_error *error);
/* mox_comm_copy: the aborted communicator's operations have left the stream. */
moxie_status mox_nccl_copy(void *self, void *to, const void *from, uint64_t bytes, void *stream, moxie_error *error);
/* A transport of rank `rank` of `ranks`. Collective. */
moxie_status mox_nccl_create(const mox_nccl_id *id, int32_t ranks, int32_t rank, const mox_comm_device *device,
                             int32_t deadline_ms, moxie_transport *out, moxie_error *error);

/* ---- nccl_operations.c ---- */

/* mox_comm_counts_of: on the stream of the numbers, so that nothing has to wait for another stream. */
moxie_status mox_nccl_counts_of(void *self, const mox_comm_numbers *numbers, const int64_t *send, int64_t *recv,
                                int64_t each, int64_t *request, moxie_error *error);
/* Fills in counts .. progress and late. */
void mox_nccl_operations(moxie_transport *table);

#endif
