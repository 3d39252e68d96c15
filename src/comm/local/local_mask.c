/* SPDX-License-Identifier: Apache-2.0
 *
 * local_mask.c - which rank of a local transport is to blame when an operation waits, and how a rank goes on without
 * another one (local_group.h).
 *
 *     rank A waits for B, B waits for C, C is silent    -> A blames C, since B may still come
 *
 * A rank masks for itself. The masked rank has gone for all others then, so they mask it, too, in their next call.
 */
#include "base/clock.h"
#include "comm/local/local_group.h"

/* ---- whom to blame ------------------------------------------------------------------------------------ */

static bool needs(const mox_local_rank *rank, const mox_local_op *op, int32_t r)
{
    if (rank->masked[r])
        return false;
    return mox_local_is_joint(op->kind) ? r != rank->rank : (op->peers[r] & MOX_LOCAL_BOTH) != MOX_LOCAL_BOTH;
}

/* The oldest operation that a rank has not finished; NULL: none. */
static const mox_local_op *oldest_of(const mox_local_rank *rank)
{
    const mox_local_op *oldest = NULL;
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        if (rank->ops[i].number > 0 && rank->ops[i].left > 0 && (!oldest || rank->ops[i].number < oldest->number))
            oldest = &rank->ops[i];
    return oldest;
}

/* A rank whose deadline has just passed is awake, and about to say whom it waited for. */
bool mox_local_waits(const mox_local_rank *rank)
{
    const uint64_t just = 100000000; /* ns */
    return rank->waiting ||
           (rank->left_at > 0 && rank->ops[rank->awaited].left > 0 && mox_clock_now() - rank->left_at < just);
}

/* The lowest rank that the operation needs: one that has gone, or one that is behind and does not wait. */
static int32_t silent_of(const mox_local_rank *rank, const mox_local_op *op, bool gone)
{
    const mox_local_rank *all = rank->group->rank;
    for (int32_t r = 0; r < rank->group->ranks; r++)
        if (needs(rank, op, r) && (gone ? all[r].gone : all[r].started < op->number && !mox_local_waits(&all[r])))
            return r;
    return -1;
}

int32_t mox_local_late(const mox_local_rank *rank, const mox_local_op *op)
{
    const mox_local_rank *all = rank->group->rank;
    const int32_t ranks = rank->group->ranks;
    const mox_local_rank *asks = rank;
    int32_t lowest = -1;
    for (int32_t step = 0; op && step < ranks; step++) {
        int32_t late = silent_of(rank, op, true), next = -1;
        late = late >= 0 ? late : silent_of(rank, op, false);
        const int32_t culprit = late >= 0 && all[late].gone ? all[late].culprit : -1;
        if (culprit >= 0 && culprit != asks->rank && !asks->masked[culprit])
            return culprit;
        if (late >= 0 && late != asks->rank)
            return late;
        for (int32_t r = ranks - 1; r >= 0; r--)
            if (r != rank->rank && needs(rank, op, r) && (next < 0 || all[r].started <= all[next].started))
                next = r;
        if (lowest < 0)
            lowest = next;
        if (next < 0)
            break;
        rank = &all[next];
        op = oldest_of(rank);
    }
    return lowest;
}

/* ---- going on without --------------------------------------------------------------------------------- */

void mox_local_leave_out(mox_local_rank *rank, mox_local_op *op, int32_t other)
{
    if (op->busy > 0) /* the other rank's thread may copy just now, and wakes this one */
        return;
    const int missing = ((op->peers[other] & MOX_LOCAL_IN) == 0) + ((op->peers[other] & MOX_LOCAL_OUT) == 0);
    op->peers[other] |= MOX_LOCAL_BOTH | MOX_LOCAL_TAKEN;
    for (int i = 0; i < missing; i++)
        mox_local_less(rank, op);
}

moxie_status mox_local_mask(void *self, int32_t other, moxie_error *error)
{
    mox_local_rank *rank = self;
    mox_local_group *group = rank->group;
    mox_local_rank *target = &group->rank[other];
    moxie_status status = MOXIE_OK;
    pthread_mutex_lock(&group->lock);
    rank->culprit = -1;
    if (rank->gone) {
        status = mox_fail(MOXIE_ERR_UNSUPPORTED, error, "the other ranks went on without rank %d", rank->rank);
    } else if (mox_local_waits(target) && !target->gone) {
        status = mox_fail(MOXIE_ERR_TIMEOUT, error, "rank %d waits itself", other);
    } else {
        rank->masked[other] = rank->masks = true;
        target->gone = true;
        for (int32_t r = 0; r < group->ranks; r++)
            mox_local_wake(&group->rank[r]);
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}
