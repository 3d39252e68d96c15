/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lazy_queue.h - the queues of test_lazy.h: streams, what is enqueued on them, events, captures.
 *
 * An event's record has a ticket of its own, so that a stream which waits keeps what was recorded when it began to.
 */
#ifndef TEST_LAZY_QUEUE_H
#define TEST_LAZY_QUEUE_H

#include <stdbool.h>

#include "test_lazy.h"
#include "test_stream.h"

enum { LAZY_CAPTURED = 8, LAZY_DEVICES = 8 };

/* One record of an event. */
typedef struct lazy_ticket {
    int references;
    bool done;
    struct lazy_capture *capture; /* recorded on a captured stream */
    int number;                   /* of the capture's tickets */
    int knows[LAZY_CAPTURED];     /* of each captured stream: how much of its work comes before */
} lazy_ticket;

typedef enum lazy_kind { LAZY_WORK, LAZY_RECORD, LAZY_WAIT } lazy_kind;

typedef struct lazy_op {
    lazy_kind kind;
    lazy_ticket *ticket; /* of LAZY_RECORD and LAZY_WAIT */
    test_cuda_work work; /* of LAZY_WORK; MOXIE_ERR_TIMEOUT: it cannot be done yet */
    int place;           /* captured: the number of its stream */
    struct lazy_op *next;
    size_t bytes;
    _Alignas(16) char args[];
} lazy_op;

typedef struct lazy_stream {
    test_stream face; /* what NCCL's stub sees; first */
    lazy_op *head, **tail;
    int32_t device;
    bool destroyed; /* freed when it is empty */
    struct lazy_capture *capture;
    int place; /* among the captured streams */
    struct lazy_stream *next;
} lazy_stream;

/* What was enqueued while a stream was captured, and what becomes a graph. */
typedef struct lazy_capture {
    lazy_op *ops, **tail;
    int streams, tickets;
    bool ended;
    lazy_stream *of[LAZY_CAPTURED];
    int count[LAZY_CAPTURED];                /* work of each stream so far */
    int knows[LAZY_CAPTURED][LAZY_CAPTURED]; /* [place]: what comes before the stream's next work */
} lazy_capture;

/* All functions take the lock by themselves, but those that say so. */
void lazy_lock(void);
void lazy_unlock(void);

/* ---- test_lazy_queue.c ---- */

lazy_stream *lazy_stream_make(int32_t device);
void lazy_stream_drop(lazy_stream *stream);
lazy_ticket *lazy_ticket_make(void);
/* The caller has the lock. NULL is fine. */
void lazy_ticket_drop(lazy_ticket *ticket);
/* Enqueues; the arguments are copied. The ticket gets a reference of its own. */
void lazy_push(lazy_stream *stream, lazy_kind kind, test_cuda_work work, const void *args, size_t bytes,
               lazy_ticket *ticket);
/* Makes steps until the ticket is done. */
moxie_status lazy_wait(lazy_ticket *ticket, moxie_error *error);
/* Makes steps until the ticket is done, or none is possible now. Returns whether it is. */
bool lazy_look(const lazy_ticket *ticket);
/* Makes steps until all streams of a device, or of all if it is -1, are empty; for at most `seconds`. */
void lazy_drain(int32_t device, int seconds);
void lazy_queue_seed(uint64_t seed);
/* Streams that exist and were not destroyed. */
int lazy_streams(void);

/* ---- test_lazy_graph.c ---- */

/* Appends to the stream's capture in place of its queue. The caller has the lock. */
void lazy_capture_push(lazy_stream *stream, lazy_op *op);
/* A stream waits for a ticket of a capture, and so becomes a part of it. The caller has the lock. */
void lazy_capture_join(lazy_stream *stream, const lazy_ticket *ticket);
/* Whether this thread captures a stream, and so may neither allocate nor wait. */
bool lazy_may_wait(void);
/* Sets the functions of graphs. `resolve`: the stream that a handle means. */
void lazy_graph_fill(mox_cuda_table *table, lazy_stream *(*resolve)(mox_cuda_stream stream));
int lazy_graphs(void);

#endif
