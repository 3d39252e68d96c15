/* SPDX-License-Identifier: Apache-2.0
 *
 * local_joint.c - operations of a local transport that begin when all ranks have come: barrier, allreduce,
 * reduce_scatter (local_group.h). Values are combined in rank order, so results are the same every time.
 */
#include <string.h>

#include "comm/combine_values.h"
#include "comm/local/local_group.h"

void mox_local_joint_begin(mox_local_rank *rank, mox_local_op *op)
{
    memset(op->peers, 0, (size_t)rank->group->ranks);
    op->left = op->kind == MOX_COMM_REDUCE_SCATTER ? rank->group->ranks : 1;
}

/* ---- do they agree? ----------------------------------------------------------------------------------- */

static moxie_status check_joint(mox_local_rank *a, const mox_local_op *of_a, mox_local_rank *b,
                                const mox_local_op *of_b, moxie_error *error)
{
    const char *kind = mox_comm_kind_name(of_a->kind);
    const unsigned long long number = of_a->number;
    if (of_a->kind != of_b->kind)
        return mox_local_mismatch(a, b, error, "operation %llu is %s for rank %d, and %s for rank %d", number, kind,
                                  a->rank, mox_comm_kind_name(of_b->kind), b->rank);
    if (of_a->n != of_b->n || of_a->how != of_b->how)
        return mox_local_mismatch(
            a, b, error, "%s, operation %llu: rank %d has %lld values (moxie_comm_sum %d), rank %d %lld (%d)", kind,
            number, a->rank, (long long)of_a->n, (int)of_a->how, b->rank, (long long)of_b->n, (int)of_b->how);
    if (of_a->rows.row_bytes != of_b->rows.row_bytes)
        return mox_local_mismatch(a, b, error, "%s, operation %llu: rows of %llu bytes on rank %d, of %llu on rank %d",
                                  kind, number, (unsigned long long)of_a->rows.row_bytes, a->rank,
                                  (unsigned long long)of_b->rows.row_bytes, b->rank);
    for (int32_t r = 0; of_a->kind == MOX_COMM_REDUCE_SCATTER && r < a->group->ranks; r++)
        if (of_a->rows.recv_rows[r] != of_b->rows.recv_rows[r] || of_a->rows.recv_at[r] != of_b->rows.recv_at[r])
            return mox_local_mismatch(
                a, b, error,
                "%s, operation %llu: rank %d says that rank %d gets %lld rows from row %lld on, rank %d says %lld from "
                "row %lld on",
                kind, number, a->rank, r, (long long)of_a->rows.recv_rows[r], (long long)of_a->rows.recv_at[r], b->rank,
                (long long)of_b->rows.recv_rows[r], (long long)of_b->rows.recv_at[r]);
    return MOXIE_OK;
}

/* Fills rank->all. Sets *all when every rank has started the operation. */
static moxie_status gather(mox_local_rank *rank, mox_local_op *op, bool *all, moxie_error *error)
{
    *all = true;
    for (int32_t r = 0; r < rank->group->ranks; r++) {
        mox_local_rank *other = &rank->group->rank[r];
        mox_local_op *theirs = rank->masked[r] ? NULL : mox_local_find(other, op->number);
        rank->all[r] = theirs;
        if (rank->masked[r] && op->kind != MOX_COMM_REDUCE_SCATTER)
            continue;
        *all = *all && theirs != NULL;
        if (!theirs)
            MOX_TRY(mox_local_missing(rank, op, other, error));
        else if (!op->arrived)
            MOX_TRY(check_joint(rank, op, other, theirs, error));
    }
    return MOXIE_OK;
}

/* ---- the sums ----------------------------------------------------------------------------------------- */

/* The first rank that takes part: those that are masked have no operation. */
static int32_t first_of(mox_local_op *const *all)
{
    int32_t first = 0;
    while (!all[first])
        first++;
    return first;
}

static void reduce_i64(mox_local_op *const *all, int32_t ranks, int64_t i, moxie_comm_sum how)
{
    const int32_t first = first_of(all);
    int64_t sum = ((const int64_t *)all[first]->values)[i];
    for (int32_t r = first + 1; r < ranks; r++)
        if (all[r])
            sum = mox_comm_combine_i64(sum, ((const int64_t *)all[r]->values)[i], how);
    for (int32_t r = first; r < ranks; r++)
        if (all[r])
            ((int64_t *)all[r]->values)[i] = sum;
}

static void reduce_f32(mox_local_op *const *all, int32_t ranks, int64_t i)
{
    const int32_t first = first_of(all);
    float largest = ((const float *)all[first]->values)[i];
    for (int32_t r = first + 1; r < ranks; r++)
        if (all[r])
            largest = mox_comm_larger_f32(largest, ((const float *)all[r]->values)[i]);
    for (int32_t r = first; r < ranks; r++)
        if (all[r])
            ((float *)all[r]->values)[i] = largest;
}

/* Rows of rank `to`: recv = sum of all ranks' rows. */
static void reduce_rows(mox_local_op *const *all, int32_t ranks, int32_t to)
{
    const moxie_comm_rows *target = &all[to]->rows;
    const uint64_t first = (uint64_t)target->recv_at[to] * target->row_bytes;
    const uint64_t n = (uint64_t)target->recv_rows[to] * (target->row_bytes / 4);
    enum { PIECE = 1024 }; /* of f32, which stay in the nearest cache */
    for (uint64_t begin = 0; begin < n; begin += PIECE) {
        const uint64_t count = n - begin < PIECE ? n - begin : PIECE;
        float *sum = (float *)target->recv + begin;
        memcpy(sum, (const char *)all[0]->rows.send + first + 4 * begin, 4 * count);
        for (int32_t r = 1; r < ranks; r++) {
            const float *part = (const float *)((const char *)all[r]->rows.send + first) + begin;
            for (uint64_t i = 0; i < count; i++)
                sum[i] += part[i];
        }
    }
}

/* ---- the work ----------------------------------------------------------------------------------------- */

/* Everybody is here. What needs no further thread is done at once. */
static void arrive(mox_local_rank *rank, mox_local_op *op)
{
    mox_local_group *group = rank->group;
    for (int32_t r = 0; r < group->ranks; r++)
        if (rank->all[r]) {
            rank->all[r]->arrived = true;
            mox_local_enter(rank->all[r]);
        }
    if (op->kind == MOX_COMM_ALLREDUCE) {
        pthread_mutex_unlock(&group->lock);
        for (int64_t i = 0; i < op->n; i++)
            if (op->how == MOXIE_COMM_MAX_F32)
                reduce_f32(rank->all, group->ranks, i);
            else
                reduce_i64(rank->all, group->ranks, i, op->how);
        pthread_mutex_lock(&group->lock);
    }
    for (int32_t r = 0; r < group->ranks; r++) {
        mox_local_op *theirs = rank->all[r];
        if (!theirs)
            continue;
        mox_local_leave(&group->rank[r], theirs);
        if (op->kind != MOX_COMM_REDUCE_SCATTER)
            mox_local_less(&group->rank[r], theirs);
        else
            mox_local_wake(&group->rank[r]);
    }
}

/* Sums the rows of rank `to` out of rank->all. */
static void sum_rows_of(mox_local_rank *rank, int32_t to)
{
    mox_local_group *group = rank->group;
    rank->all[to]->peers[to] |= MOX_LOCAL_TAKEN;
    for (int32_t r = 0; r < group->ranks; r++)
        mox_local_enter(rank->all[r]);
    pthread_mutex_unlock(&group->lock);
    reduce_rows(rank->all, group->ranks, to);
    pthread_mutex_lock(&group->lock);
    for (int32_t r = 0; r < group->ranks; r++) {
        mox_local_leave(&group->rank[r], rank->all[r]);
        mox_local_less(&group->rank[r], rank->all[r]);
    }
}

/* Sums the rows of every rank that nobody sums yet, the own first. */
static moxie_status scatter(mox_local_rank *rank, mox_local_op *op, uint64_t largest, moxie_error *error)
{
    for (int32_t i = 0; i < rank->group->ranks && op->left > 0; i++) {
        const int32_t to = (rank->rank + i) % rank->group->ranks;
        bool all;
        MOX_TRY(gather(rank, op, &all, error)); /* the lock was let go, and a rank may have gone */
        if (all && (rank->all[to]->peers[to] & MOX_LOCAL_TAKEN) == 0 &&
            (uint64_t)op->rows.recv_rows[to] * op->rows.row_bytes <= largest)
            sum_rows_of(rank, to);
    }
    return MOXIE_OK;
}

moxie_status mox_local_joint_work(mox_local_rank *rank, mox_local_op *op, uint64_t largest, moxie_error *error)
{
    bool all = op->arrived;
    if (!all) {
        MOX_TRY(gather(rank, op, &all, error));
        if (all)
            arrive(rank, op);
    }
    if (op->arrived && op->kind == MOX_COMM_REDUCE_SCATTER)
        return scatter(rank, op, largest, error);
    return MOXIE_OK;
}
