/* SPDX-License-Identifier: Apache-2.0
 *
 * local.c - the transport "local": its table, and the life of operations and ranks (local_group.h).
 */
#include "comm/local/local.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/local/local_group.h"

/* ---- for the other files ------------------------------------------------------------------------------ */

mox_local_op *mox_local_find(mox_local_rank *rank, uint64_t number)
{
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        if (rank->ops[i].number == number)
            return &rank->ops[i];
    return NULL;
}

void mox_local_wake(mox_local_rank *rank)
{
    rank->woken = true;
    pthread_cond_signal(&rank->changed);
}

void mox_local_enter(mox_local_op *op)
{
    op->busy++;
}

void mox_local_leave(mox_local_rank *rank, mox_local_op *op)
{
    if (--op->busy == 0 && (rank->gone || rank->masks))
        mox_local_wake(rank);
}

void mox_local_less(mox_local_rank *rank, mox_local_op *op)
{
    if (--op->left == 0)
        mox_local_wake(rank);
}

/* `other` has gone, and `rank` needs it. The text names the rank with which it began. */
static moxie_status fail_gone(mox_local_rank *rank, const mox_local_op *op, const mox_local_rank *other,
                              moxie_error *error)
{
    char why[64] = "it failed, was cancelled or was destroyed";
    if (other->fault.code != MOXIE_OK) {
        rank->fault = other->fault;
        if (error)
            *error = rank->fault;
        return rank->fault.code;
    }
    rank->culprit = other->culprit >= 0 ? other->culprit : other->rank;
    if (other->culprit >= 0)
        snprintf(why, sizeof why, "it waited for rank %d in vain", other->culprit);
    return mox_fail(MOXIE_ERR_TIMEOUT, error, "%s: rank %d of %d gave up (%s), and rank %d needs it",
                    mox_comm_kind_name(op->kind), other->rank, rank->group->ranks, why, rank->rank);
}

moxie_status mox_local_missing(mox_local_rank *rank, const mox_local_op *op, const mox_local_rank *other,
                               moxie_error *error)
{
    if (other->gone)
        return fail_gone(rank, op, other, error);
    if (other->started < op->number)
        return MOXIE_OK;
    (void)mox_fail(MOXIE_ERR_MISMATCH, &rank->fault,
                   "%s: rank %d exchanges rows with rank %d in operation %llu, which rank %d has finished without: all "
                   "ranks must make the same calls in the same order, and both sides state the same numbers of rows",
                   mox_comm_kind_name(op->kind), rank->rank, other->rank, (unsigned long long)op->number, other->rank);
    if (error)
        *error = rank->fault;
    return MOXIE_ERR_MISMATCH;
}

moxie_status mox_local_mismatch(mox_local_rank *a, mox_local_rank *b, moxie_error *error, const char *format, ...)
{
    char text[512];
    moxie_error fault;
    va_list arguments;
    va_start(arguments, format);
    mox_format_text(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)mox_fail(MOXIE_ERR_MISMATCH, &fault,
                   "%s: all ranks must make the same calls in the same order, with numbers that agree", text);
    if (a->fault.code == MOXIE_OK)
        a->fault = fault;
    if (b->fault.code == MOXIE_OK)
        b->fault = fault;
    mox_local_wake(b);
    if (error)
        *error = fault;
    return MOXIE_ERR_MISMATCH;
}

/* ---- operations --------------------------------------------------------------------------------------- */

static moxie_status work(mox_local_rank *rank, mox_local_op *op, uint64_t largest, moxie_error *error)
{
    if (mox_local_is_joint(op->kind))
        return mox_local_joint_work(rank, op, largest, error);
    return mox_local_pairs_work(rank, op, largest, error);
}

/* Copies `op` to a free place, with the rank's next number, and does what is small. */
static moxie_status start(void *self, const mox_local_op *op, int64_t *request, moxie_error *error)
{
    mox_local_rank *rank = self;
    moxie_status status = MOXIE_OK;
    pthread_mutex_lock(&rank->group->lock);
    mox_local_op *place = mox_local_find(rank, 0);
    if (rank->gone || !place) {
        status = mox_fail(MOXIE_ERR_TIMEOUT, error, "rank %d %s", rank->rank,
                          rank->gone ? "was cancelled" : "has too many open requests");
    } else {
        uint8_t *peers = place->peers;
        *place = *op;
        place->peers = peers;
        place->number = ++rank->started;
        if (mox_local_is_joint(op->kind))
            mox_local_joint_begin(rank, place);
        else
            mox_local_pairs_begin(rank, place);
        *request = place - rank->ops;
        status = work(rank, place, MOX_LOCAL_LARGE, error);
        if (status == MOXIE_ERR_TIMEOUT) /* progress() finds it again */
            status = MOXIE_OK;
    }
    pthread_mutex_unlock(&rank->group->lock);
    return status;
}

static moxie_status start_rows(void *self, mox_comm_kind kind, const moxie_comm_rows *rows, int64_t *request,
                               moxie_error *error)
{
    return start(self, &(mox_local_op) { .kind = kind, .rows = *rows }, request, error);
}

static moxie_status local_counts(void *self, const int64_t *send, int64_t *recv, int64_t each, int64_t *request,
                                 moxie_error *error)
{
    const moxie_comm_rows rows = { .send = send, .recv = recv, .row_bytes = (uint64_t)each * 8 };
    return start_rows(self, MOX_COMM_COUNTS, &rows, request, error);
}

static moxie_status local_alltoallv(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    return start_rows(self, MOX_COMM_ALLTOALLV, rows, request, error);
}

static moxie_status local_allgatherv(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    return start_rows(self, MOX_COMM_ALLGATHERV, rows, request, error);
}

static moxie_status local_reduce_scatter(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    return start_rows(self, MOX_COMM_REDUCE_SCATTER, rows, request, error);
}

static moxie_status local_allreduce(void *self, void *values, int64_t n, moxie_comm_sum how, int64_t *request,
                                    moxie_error *error)
{
    return start(self, &(mox_local_op) { .kind = MOX_COMM_ALLREDUCE, .values = values, .n = n, .how = how }, request,
                 error);
}

static moxie_status local_barrier(void *self, int64_t *request, moxie_error *error)
{
    return start(self, &(mox_local_op) { .kind = MOX_COMM_BARRIER }, request, error);
}

static moxie_status local_progress(void *self, int64_t request, int32_t *done, moxie_error *error)
{
    mox_local_rank *rank = self;
    mox_local_op *op = &rank->ops[request];
    moxie_status status = MOXIE_OK;
    pthread_mutex_lock(&rank->group->lock);
    if (op->left > 0 && rank->gone)
        status =
            mox_fail(MOXIE_ERR_TIMEOUT, error, "the other ranks went on without rank %d, which was late", rank->rank);
    else if (op->left > 0 && rank->fault.code == MOXIE_OK)
        status = work(rank, op, UINT64_MAX, error);
    if (status == MOXIE_OK && rank->fault.code != MOXIE_OK) {
        if (error)
            *error = rank->fault;
        status = rank->fault.code;
    }
    *done = status == MOXIE_OK && op->left == 0;
    if (*done)
        op->number = 0;
    pthread_mutex_unlock(&rank->group->lock);
    return status;
}

/* ---- waiting ------------------------------------------------------------------------------------------ */

static int32_t local_late(void *self, int64_t request)
{
    mox_local_rank *rank = self;
    pthread_mutex_lock(&rank->group->lock);
    const int32_t late = mox_local_late(rank, &rank->ops[request]);
    rank->culprit = late;
    pthread_mutex_unlock(&rank->group->lock);
    return late;
}

static void local_wait(void *self, int64_t request, int32_t ms)
{
    mox_local_rank *rank = self;
    struct timespec until;
    int failed = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&rank->group->lock);
    rank->waiting = true;
    rank->awaited = request;
    while (!rank->woken && rank->ops[request].left > 0 && failed == 0)
        failed = pthread_cond_timedwait(&rank->changed, &rank->group->lock, &until);
    rank->waiting = rank->woken = false;
    rank->left_at = mox_clock_now();
    pthread_mutex_unlock(&rank->group->lock);
}

/* ---- the end ------------------------------------------------------------------------------------------ */

/* With the lock held: who needs this rank learns that it has gone. */
static void go(mox_local_rank *rank)
{
    rank->gone = true;
    for (int32_t r = 0; r < rank->group->ranks; r++)
        mox_local_wake(&rank->group->rank[r]);
}

static void local_cancel(void *self)
{
    mox_local_rank *rank = self;
    pthread_mutex_lock(&rank->group->lock);
    if (!rank->gone)
        go(rank);
    for (int i = 0; i < MOX_COMM_OPEN; i++) {
        while (rank->ops[i].busy > 0)
            pthread_cond_wait(&rank->changed, &rank->group->lock);
        rank->ops[i].number = 0;
        rank->ops[i].left = 0;
    }
    pthread_mutex_unlock(&rank->group->lock);
}

static void free_group(mox_local_group *group)
{
    for (int32_t r = 0; r < group->ranks; r++)
        pthread_cond_destroy(&group->rank[r].changed);
    pthread_mutex_destroy(&group->lock);
    mox_local_drop_next(group);
    mox_free(group->masked);
    mox_free(group->ops);
    mox_free(group->flags);
    mox_free(group->rank);
    mox_free(group);
}

static void local_destroy(void *self)
{
    mox_local_rank *rank = self;
    mox_local_group *group = rank->group;
    pthread_mutex_lock(&group->lock);
    go(rank);
    const bool last = --group->users == 0;
    pthread_mutex_unlock(&group->lock);
    if (last)
        free_group(group);
}

/* ---- the beginning ------------------------------------------------------------------------------------ */

static void begin_rank(mox_local_group *group, int32_t r)
{
    mox_local_rank *rank = &group->rank[r];
    pthread_condattr_t clock;
    rank->group = group;
    rank->rank = r;
    rank->culprit = -1;
    rank->all = group->ops + (size_t)r * (size_t)group->ranks;
    rank->masked = group->masked + (size_t)r * (size_t)group->ranks;
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        rank->ops[i].peers = group->flags + ((size_t)r * MOX_COMM_OPEN + (size_t)i) * (size_t)group->ranks;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&rank->changed, &clock);
    pthread_condattr_destroy(&clock);
}

static mox_local_group *create_group(int32_t ranks)
{
    const uint64_t n = (uint64_t)ranks;
    mox_local_group *group = mox_alloc(sizeof *group);
    if (!group)
        return NULL;
    group->rank = mox_calloc(n, sizeof *group->rank);
    group->flags = mox_calloc(n * n, MOX_COMM_OPEN);
    group->ops = mox_calloc(n * n, sizeof *group->ops);
    group->masked = mox_calloc(n * n, sizeof *group->masked);
    if (!group->rank || !group->flags || !group->ops || !group->masked) {
        mox_free(group->masked);
        mox_free(group->ops);
        mox_free(group->flags);
        mox_free(group->rank);
        mox_free(group);
        return NULL;
    }
    group->ranks = group->users = ranks;
    pthread_mutex_init(&group->lock, NULL);
    for (int32_t r = 0; r < ranks; r++)
        begin_rank(group, r);
    return group;
}

moxie_status mox_local_create(int32_t ranks, moxie_transport *out, moxie_error *error)
{
    mox_local_group *group = create_group(ranks);
    MOX_FAIL_IF(!group, MOXIE_ERR_MEMORY, error, "moxie_comm_local_create: no memory for %d ranks", ranks);
    for (int32_t r = 0; r < ranks; r++)
        out[r] = (moxie_transport) {
            .struct_size = sizeof(moxie_transport),
            .ranks = ranks,
            .rank = r,
            .name = "local",
            .self = &group->rank[r],
            .counts = local_counts,
            .alltoallv = local_alltoallv,
            .allgatherv = local_allgatherv,
            .reduce_scatter = local_reduce_scatter,
            .allreduce = local_allreduce,
            .barrier = local_barrier,
            .progress = local_progress,
            .late = local_late,
            .cancel = local_cancel,
            .destroy = local_destroy,
            .wait = local_wait,
            .mask = mox_local_mask,
        };
    return MOXIE_OK;
}
