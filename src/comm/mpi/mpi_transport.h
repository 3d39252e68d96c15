/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_transport.h - a transport over MPI: operations made of messages between two ranks each.
 *
 *     start an operation -> MPI_Irecv and MPI_Isend for each rank that sends or gets bytes   (mpi_operations.c)
 *     progress()         -> MPI_Testsome, never a call that waits                            (mpi_messages.c)
 *     all are done       -> values and sums are combined, in rank order
 *     cancel(), destroy()-> the other ranks are told                                         (mpi_end.c)
 *
 * Why no collectives: a non-blocking collective of MPI can neither be cancelled nor freed, it does not say which rank
 * it waits for, and it makes ranks wait that have nothing to exchange. Messages do not have these faults. Small values
 * go from every rank to every other; for the few numbers of a run, that costs one round.
 *
 * Operation number n of one rank belongs to operation n of every other, and its messages carry n in their tag.
 *
 * A rank that is cancelled or destroyed sends a notice to all others: how many operations it took part in, and whom it
 * waited for. A rank that needs more than that of it fails at once, and names it. A rank that waits long says so by a
 * notice, too, since it may be late because another is: late() names a rank that is silent.
 *
 * Notices have a receive for each rank. An MPI that notices the death of a process (ULFM) ends all messages with it by
 * an error, and so this receive, too: then that rank is gone at once, and nobody waits for the deadline.
 *
 * What MPI cannot promise after cancel():
 *   - A receive that was not matched is withdrawn: its memory is free. One that has begun cannot be withdrawn.
 *   - A send cannot be withdrawn. Its memory may still be read, inside a later MPI call of this process or, on one
 *     host, by the receiver's process.
 *   cancel() waits 100 ms for both, then frees the requests. So memory of a failed operation should live until the
 *   process ends or calls MPI_Abort.
 *   - MPI_Finalize may wait for a dead rank for ever: after a failure, a program ends without it.
 */
#ifndef MOX_COMM_MPI_TRANSPORT_H
#define MOX_COMM_MPI_TRANSPORT_H

#include <stdbool.h>

#include <mpi.h>

#include "comm/mpi/mpi_table.h"
#include "comm/operation.h"

/* One message of an operation, or a part of one. */
typedef struct mox_mpi_message {
    const void *from; /* of a send */
    void *to;         /* of a receive */
    uint64_t bytes;
    int32_t peer;
    bool receive, done;
} mox_mpi_message;

typedef struct mox_mpi_operation {
    bool used;
    mox_comm_kind kind;
    uint64_t number; /* from 1 */
    double since;    /* when it was first found unfinished, or this rank last said that it waits; 0: not yet */
    /* Before posting: whole messages, at most 2 a rank. After: their parts, with a request each. */
    mox_mpi_message *messages;
    MPI_Request *requests;
    MPI_Status *statuses; /* what MPI_Testsome answers */
    int *ended;
    int32_t n, left, capacity;
    uint32_t polls;      /* that found it unfinished */
    int32_t left_then;   /* when a message last ended: how many were left, */
    uint32_t idle_polls; /* pauses since, */
    double idle_since;   /* and when the first of them that looks at the clock was; 0: not yet */
    bool sleeps;         /* since so long that this rank sleeps between polls */
    void *scratch;       /* what other ranks sent, [ranks] pieces; kept for the next operation */
    uint64_t scratch_bytes;
    void *target; /* where the combined values go */
    int64_t values;
    moxie_comm_sum how;
} mox_mpi_operation;

/* DIED is not sent: MPI says it. */
typedef enum mox_mpi_news { MOX_MPI_WAITS, MOX_MPI_CANCELLED, MOX_MPI_DESTROYED, MOX_MPI_DIED } mox_mpi_news;

typedef struct mox_mpi_notice {
    int64_t news;
    int64_t operations; /* the sender took part in operations 1 to this; not of WAITS */
    int64_t culprit;    /* whom it waits or waited for, or -1 */
} mox_mpi_notice;

/* Notices to all other ranks. */
typedef struct mox_mpi_telling {
    mox_mpi_notice notice;
    MPI_Request *requests; /* [ranks] */
} mox_mpi_telling;

/* The next notice of each rank. */
typedef struct mox_mpi_hearing {
    mox_mpi_notice *notices; /* [ranks] where it arrives */
    MPI_Request *requests;   /* [ranks] MPI_REQUEST_NULL of this rank, and of ranks that have gone */
    MPI_Status *statuses;    /* what MPI_Testsome answers */
    int *ended;
} mox_mpi_hearing;

/* What is known of another rank. */
typedef struct mox_mpi_other {
    bool gone;
    bool dead;           /* a message with it has failed */
    bool masked;         /* this rank goes on without it */
    mox_mpi_notice last; /* its last notice */
    double waits;        /* when it last said that it waits, as seen here; 0: never */
} mox_mpi_other;

typedef struct mox_mpi_transport {
    MPI_Comm comm;
    int32_t ranks, rank;
    mox_mpi_options host;
    uint64_t operations; /* started */
    int32_t culprit;     /* whom it last blamed for being late, gone, or for a failed message; or -1 */
    bool cancelled;
    bool crowded; /* each poll gives way: this host has fewer processors than ranks, as far as is known */
    mox_mpi_telling waits, ends; /* this rank's notices */
    mox_mpi_hearing hears;
    mox_mpi_other *others; /* [ranks] */
    int32_t others_gone;
    mox_mpi_operation open[MOX_COMM_OPEN];
} mox_mpi_transport;

/* A tag for each kind of message; MPI allows tags up to 32767 everywhere. */
enum { MOX_MPI_NOTICE_TAG = 0, MOX_MPI_TAGS = 32767 };

/* ---- mpi_messages.c ---- */

/* Add a message to an operation that is not posted yet. There is room for one in each direction for each rank. */
void mox_mpi_add_send(mox_mpi_operation *operation, int32_t peer, const void *from, uint64_t bytes);
void mox_mpi_add_receive(mox_mpi_operation *operation, int32_t peer, void *to, uint64_t bytes);
/* Starts all messages of the operation. */
moxie_status mox_mpi_post(mox_mpi_transport *t, mox_mpi_operation *operation, moxie_error *error);
/* Marks messages that are done; operation->left says how many are not. */
moxie_status mox_mpi_test(mox_mpi_transport *t, mox_mpi_operation *operation, moxie_error *error);
moxie_status mox_mpi_reserve(mox_mpi_transport *t, mox_mpi_operation *operation, int32_t capacity, moxie_error *error);
void mox_mpi_release(mox_mpi_transport *t, mox_mpi_operation *operation);
/* "what: MPI's text" with the status that the error class deserves; `peer` may be -1. */
moxie_status mox_mpi_failed(const mox_mpi_transport *t, int code, const char *what, int32_t peer, moxie_error *error);

/* ---- mpi_operations.c ---- */

/* Fills in counts .. progress and late. */
void mox_mpi_operations(moxie_transport *table);

/* ---- mpi_notices.c ---- */

/* Awaits the next notice of another rank. */
void mox_mpi_listen(mox_mpi_transport *t, int32_t rank);
/* A message with the rank has failed: it is dead, or out of reach. */
void mox_mpi_set_dead(mox_mpi_transport *t, int32_t rank);
/* Of an unfinished operation: fails if it needs a rank that has gone before it; tells the others if it takes long. */
moxie_status mox_mpi_unfinished(mox_mpi_transport *t, mox_mpi_operation *operation, moxie_error *error);
/* The lowest silent rank with an unfinished receive, or else with an unfinished send. Where all of them say that they
 * wait: the one that the lowest waits for. -1: none. */
int32_t mox_mpi_late(const mox_mpi_transport *t, const mox_mpi_operation *operation);
/* Fails for a rank that has gone, and names the one to blame first: itself, or the rank that it gave up. */
moxie_status mox_mpi_say_gone(mox_mpi_transport *t, const mox_mpi_operation *operation, int32_t peer,
                              moxie_error *error);
/* Takes in all notices that have come. */
moxie_status mox_mpi_hear(mox_mpi_transport *t, moxie_error *error);
void mox_mpi_tell(mox_mpi_transport *t, mox_mpi_telling *telling, mox_mpi_notice notice);
bool mox_mpi_all_done(int n, MPI_Request *requests);
/* Of a rank that did not say lately that it waits. */
bool mox_mpi_is_silent(const mox_mpi_transport *t, int32_t rank);

/* ---- mpi_end.c ---- */

void mox_mpi_cancel(void *self);
void mox_mpi_destroy(void *self);
moxie_status mox_mpi_mask(void *self, int32_t rank, moxie_error *error);
void mox_mpi_free(mox_mpi_transport *t); /* its memory alone */
double mox_mpi_now(void);                /* seconds */

#endif
