/* SPDX-License-Identifier: Apache-2.0
 *
 * local_pairs.c - operations of a local transport in which every pair of ranks exchanges rows by itself: counts,
 * alltoallv, allgatherv (local_group.h).
 */
#include <string.h>

#include "comm/local/local_group.h"

/* Rows of one direction between two ranks: how many, from which on. */
typedef struct range {
    int64_t rows, at;
} range;

static range sent(const mox_local_op *op, int32_t to)
{
    if (op->kind == MOX_COMM_COUNTS)
        return (range) { op->rows.row_bytes > 0, to };
    const int32_t entry = op->kind == MOX_COMM_ALLGATHERV ? 0 : to;
    return (range) { op->rows.send_rows[entry], op->rows.send_at[entry] };
}

static range received(const mox_local_op *op, int32_t from)
{
    if (op->kind == MOX_COMM_COUNTS)
        return (range) { op->rows.row_bytes > 0, from };
    return (range) { op->rows.recv_rows[from], op->rows.recv_at[from] };
}

void mox_local_pairs_begin(mox_local_rank *rank, mox_local_op *op)
{
    for (int32_t r = 0; r < rank->group->ranks; r++) {
        const bool in = received(op, r).rows > 0, out = sent(op, r).rows > 0;
        op->peers[r] = (uint8_t)((in ? 0 : MOX_LOCAL_IN) | (out ? 0 : MOX_LOCAL_OUT));
        op->left += in + out;
    }
}

/* Both ranks have come, and one of them needs the other: what they say must agree. */
static moxie_status check_pair(mox_local_rank *a, const mox_local_op *of_a, mox_local_rank *b, const mox_local_op *of_b,
                               moxie_error *error)
{
    const char *kind = mox_comm_kind_name(of_a->kind);
    const unsigned long long number = of_a->number;
    if (of_a->kind != of_b->kind)
        return mox_local_mismatch(a, b, error, "operation %llu of rank %d is %s, that of rank %d is %s", number,
                                  a->rank, kind, b->rank, mox_comm_kind_name(of_b->kind));
    if (of_a->rows.row_bytes != of_b->rows.row_bytes)
        return mox_local_mismatch(a, b, error, "%s, operation %llu: a row of rank %d has %llu bytes, of rank %d %llu",
                                  kind, number, a->rank, (unsigned long long)of_a->rows.row_bytes, b->rank,
                                  (unsigned long long)of_b->rows.row_bytes);
    const long long out = sent(of_a, b->rank).rows, into = received(of_b, a->rank).rows;
    if (out != into)
        return mox_local_mismatch(a, b, error, "%s, operation %llu: rank %d sends %lld rows, and rank %d expects %lld",
                                  kind, number, a->rank, out, b->rank, into);
    const long long back = sent(of_b, a->rank).rows, in = received(of_a, b->rank).rows;
    if (back != in)
        return mox_local_mismatch(a, b, error, "%s, operation %llu: rank %d sends %lld rows, and rank %d expects %lld",
                                  kind, number, b->rank, back, a->rank, in);
    return MOXIE_OK;
}

/* Copies the rows that go from one rank to the other, unless somebody does or did. */
static void copy_rows(mox_local_rank *from, mox_local_op *source, mox_local_rank *to, mox_local_op *target,
                      uint64_t largest)
{
    uint8_t *state = &target->peers[from->rank];
    const range out = sent(source, to->rank), in = received(target, from->rank);
    const uint64_t row = source->rows.row_bytes, bytes = (uint64_t)out.rows * row;
    pthread_mutex_t *lock = &from->group->lock;
    if ((*state & (MOX_LOCAL_IN | MOX_LOCAL_TAKEN)) != 0)
        return;
    if (bytes > largest) {
        mox_local_wake(from);
        mox_local_wake(to);
        return;
    }
    *state |= MOX_LOCAL_TAKEN;
    mox_local_enter(source);
    mox_local_enter(target);
    pthread_mutex_unlock(lock);
    memcpy((char *)target->rows.recv + (uint64_t)in.at * row, (const char *)source->rows.send + (uint64_t)out.at * row,
           bytes);
    pthread_mutex_lock(lock);
    *state |= MOX_LOCAL_IN;
    source->peers[to->rank] |= MOX_LOCAL_OUT;
    mox_local_leave(from, source);
    mox_local_leave(to, target);
    mox_local_less(from, source);
    mox_local_less(to, target);
}

static bool satisfied(const mox_local_op *op, int32_t other)
{
    return !op || (op->peers[other] & MOX_LOCAL_BOTH) == MOX_LOCAL_BOTH;
}

moxie_status mox_local_pairs_work(mox_local_rank *rank, mox_local_op *op, uint64_t largest, moxie_error *error)
{
    const int32_t ranks = rank->group->ranks;
    for (int32_t i = 0; i < ranks; i++) {
        const int32_t r = (rank->rank + i) % ranks;
        mox_local_rank *other = &rank->group->rank[r];
        mox_local_op *theirs = mox_local_find(other, op->number);
        if (rank->masked[r])
            mox_local_leave_out(rank, op, r);
        if (rank->masked[r] || other->masked[rank->rank] || (satisfied(op, r) && satisfied(theirs, rank->rank)))
            continue;
        if (!theirs) {
            MOX_TRY(mox_local_missing(rank, op, other, error));
            continue;
        }
        MOX_TRY(check_pair(rank, op, other, theirs, error));
        copy_rows(other, theirs, rank, op, largest);
        theirs = mox_local_find(other, op->number); /* the lock was let go */
        if (theirs)
            copy_rows(rank, op, other, theirs, largest);
    }
    return MOXIE_OK;
}
