/* SPDX-License-Identifier: Apache-2.0
 *
 * local_group.h - what the ranks of a local transport share.
 *
 *     group -> rank 0 -> open operations, at most 8
 *           -> rank 1 -> ...
 *
 * Operation number n of one rank belongs to operation n of every other. Rows go straight from the sender's memory to
 * the receiver's. The rank that comes second copies, so a rank whose rows are only read may compute meanwhile:
 *
 *     pairwise   counts, alltoallv, allgatherv: each pair of ranks that exchange rows (local_pairs.c)
 *     joint      reduce_scatter, allreduce, barrier: once all ranks have come (local_joint.c)
 *
 * One mutex guards everything here; it is not held while bytes are copied. An operation whose memory is being copied
 * has `busy` above 0: cancel() waits until it is 0 again, and only then may the caller's memory go away. An operation's
 * place is freed by its own rank: when it is done, or by cancel().
 */
#ifndef MOX_COMM_LOCAL_GROUP_H
#define MOX_COMM_LOCAL_GROUP_H

#include <pthread.h>
#include <stdbool.h>

#include "comm/operation.h"

/* Copies of more bytes than this are left to progress(), when both ranks can share the work. */
#define MOX_LOCAL_LARGE 65536u

/* Of one other rank in an operation. */
enum {
    MOX_LOCAL_TAKEN = 1, /* a thread copies what comes from it */
    MOX_LOCAL_IN = 2,    /* nothing is to come from it any more */
    MOX_LOCAL_OUT = 4,   /* nothing is to go to it any more */
    MOX_LOCAL_BOTH = MOX_LOCAL_IN | MOX_LOCAL_OUT
};

typedef struct mox_local_op {
    uint64_t number; /* counted over all operations of its rank, from 1; 0: this place is free */
    mox_comm_kind kind;
    moxie_comm_rows rows; /* of counts: row_bytes is 8 each */
    void *values;         /* of allreduce, [n] */
    int64_t n;
    moxie_comm_sum how;
    int32_t left;   /* copies from and to this rank that are not done; 0: the operation is done */
    int32_t busy;   /* threads that read or write its memory now */
    bool arrived;   /* joint kinds: all ranks have started it */
    uint8_t *peers; /* [ranks], flags; of a joint kind, only the own rank's TAKEN */
} mox_local_op;

typedef struct mox_local_rank {
    struct mox_local_group *group;
    int32_t rank;
    bool gone;         /* cancelled or destroyed */
    int32_t culprit;   /* whom it last blamed for being late or gone, or -1 */
    bool woken;        /* something happened since the last wait */
    bool waiting;      /* its thread is in wait() */
    int64_t awaited;   /* the request that it waited for last, */
    uint64_t left_at;  /* and when wait() returned; mox_clock_now() */
    bool masks;        /* it goes on without some ranks */
    bool *masked;      /* [ranks]: without these */
    uint64_t started;  /* operations */
    moxie_error fault; /* a mismatch that this or another rank saw; code MOXIE_OK: none */
    pthread_cond_t changed;
    mox_local_op ops[MOX_COMM_OPEN];
    mox_local_op **all; /* [ranks]: the operations of a joint one, while this thread computes it */
} mox_local_rank;

typedef struct mox_local_group {
    pthread_mutex_t lock;
    int32_t ranks, users; /* users: not yet destroyed */
    mox_local_rank *rank; /* [ranks] */
    uint8_t *flags;
    mox_local_op **ops;
    bool *masked; /* [ranks, ranks] */
    /* The ranks that are left after a failure, once one of them has asked. */
    moxie_transport *next; /* [ranks] by rank here; struct_size 0: dead, or taken; NULL: nobody asked yet */
    bool *dead;            /* [ranks] */
} mox_local_group;

/* All of these with the lock held. */

/* The open operation of that number, or NULL. */
mox_local_op *mox_local_find(mox_local_rank *rank, uint64_t number);
void mox_local_wake(mox_local_rank *rank);
/* `rank` needs `other` for `op`, where `other` has no open operation of this number. Fails when it never will. */
moxie_status mox_local_missing(mox_local_rank *rank, const mox_local_op *op, const mox_local_rank *other,
                               moxie_error *error);
/* MOXIE_ERR_MISMATCH for both ranks, with one text. */
moxie_status mox_local_mismatch(mox_local_rank *a, mox_local_rank *b, moxie_error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* One copy of the operation less; wakes its rank when that was the last. */
void mox_local_less(mox_local_rank *rank, mox_local_op *op);
/* A thread begins to use the memory of `op`, or ends it. */
void mox_local_enter(mox_local_op *op);
void mox_local_leave(mox_local_rank *rank, mox_local_op *op);

/* Whether the rank waits for others: it is in wait(), or has just returned and what it waited for is not done. */
bool mox_local_waits(const mox_local_rank *rank);
/* The rank that an operation waits for. First one that has gone, then one that has not started the operation nor waits
 * for others, then whom the waiting ones wait for. Where there is none: the lowest that it waits for, or -1. */
int32_t mox_local_late(const mox_local_rank *rank, const mox_local_op *op);
/* The table's mask(), and what a rank does in an operation about a rank that it masked. */
moxie_status mox_local_mask(void *self, int32_t other, moxie_error *error);
void mox_local_leave_out(mox_local_rank *rank, mox_local_op *op, int32_t other);

/* Gives up transports of the next group that nobody took. */
void mox_local_drop_next(mox_local_group *group);

/* Sets left and peers of an operation just started. */
void mox_local_pairs_begin(mox_local_rank *rank, mox_local_op *op);
/* Does every copy that is possible now, of at most `largest` bytes each. Lets the lock go meanwhile. */
moxie_status mox_local_pairs_work(mox_local_rank *rank, mox_local_op *op, uint64_t largest, moxie_error *error);

void mox_local_joint_begin(mox_local_rank *rank, mox_local_op *op);
moxie_status mox_local_joint_work(mox_local_rank *rank, mox_local_op *op, uint64_t largest, moxie_error *error);

static inline bool mox_local_is_joint(mox_comm_kind kind)
{
    return kind == MOX_COMM_REDUCE_SCATTER || kind == MOX_COMM_ALLREDUCE || kind == MOX_COMM_BARRIER;
}

#endif
