/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_operations.c - the six operations of a transport as messages, and what is left to compute when all have come
 * (mpi_transport.h).
 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "comm/combine_values.h"
#include "comm/mpi/mpi_transport.h"

static const double spin_seconds = 5e-3; /* without an end of a message, before this rank sleeps */

enum {
    SPINS = 64,     /* polls without an end of a message, before this rank gives way to other processes */
    HEAR_EACH = 16, /* polls before the notices of other ranks are looked at; at once where this rank sleeps */
};

/* ---- start -------------------------------------------------------------------------------------------- */

/* A free place with room for one message in each direction for each rank. */
static moxie_status begin(mox_mpi_transport *t, mox_comm_kind kind, mox_mpi_operation **out, moxie_error *error)
{
    MOX_FAIL_IF(t->cancelled, MOXIE_ERR_TIMEOUT, error, "%s: rank %d was cancelled", mox_comm_kind_name(kind), t->rank);
    for (int i = 0; i < MOX_COMM_OPEN; i++) {
        mox_mpi_operation *o = &t->open[i];
        if (o->used)
            continue;
        MOX_TRY(mox_mpi_reserve(t, o, 2 * t->ranks, error));
        o->kind = kind;
        o->number = ++t->operations;
        o->n = o->left = 0;
        o->target = NULL;
        o->values = 0;
        o->since = o->idle_since = 0;
        o->polls = o->idle_polls = 0;
        o->sleeps = false;
        *out = o;
        return MOXIE_OK;
    }
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "%s: %d requests are open, which is the limit", mox_comm_kind_name(kind),
                    MOX_COMM_OPEN);
}

static moxie_status post(mox_mpi_transport *t, mox_mpi_operation *o, int64_t *request, moxie_error *error)
{
    *request = o - t->open;
    return mox_mpi_post(t, o, error);
}

/* Room for `bytes` from every rank. */
static moxie_status reserve_scratch(mox_mpi_transport *t, mox_mpi_operation *o, uint64_t bytes, moxie_error *error)
{
    uint64_t all;
    const bool fits = !__builtin_mul_overflow(bytes, (uint64_t)t->ranks, &all);
    if (fits && all <= o->scratch_bytes)
        return MOXIE_OK;
    void *larger = fits ? t->host.alloc(all) : NULL;
    MOX_FAIL_IF(!larger, MOXIE_ERR_MEMORY, error, "%s: no memory for %llu bytes from each of %d ranks",
                mox_comm_kind_name(o->kind), (unsigned long long)bytes, t->ranks);
    t->host.release(o->scratch);
    o->scratch = larger;
    o->scratch_bytes = all;
    return MOXIE_OK;
}

/* The rank to send to in turn i of 1 to ranks - 1: another one for every rank, so that no rank gets all at once. */
static int32_t turn(const mox_mpi_transport *t, int32_t i)
{
    return (int32_t)(((int64_t)t->rank + i) % t->ranks);
}

static moxie_status mpi_counts(void *self, const int64_t *send, int64_t *recv, int64_t each, int64_t *request,
                               moxie_error *error)
{
    mox_mpi_transport *t = self;
    mox_mpi_operation *o;
    MOX_TRY(begin(t, MOX_COMM_COUNTS, &o, error));
    const uint64_t bytes = 8 * (uint64_t)each;
    if (each > 0) {
        for (int32_t r = 0; r < t->ranks; r++)
            if (r != t->rank)
                mox_mpi_add_receive(o, r, recv + r * each, bytes);
        for (int32_t i = 1; i < t->ranks; i++)
            mox_mpi_add_send(o, turn(t, i), send + turn(t, i) * each, bytes);
        memcpy(recv + t->rank * each, send + t->rank * each, bytes);
    }
    return post(t, o, request, error);
}

static const char *sent_row(const moxie_comm_rows *rows, int64_t row)
{
    return (const char *)rows->send + (uint64_t)row * rows->row_bytes;
}

/* What comes from each rank, and a copy of the `own` rows from row `at` of send. */
static void receive_rows(const mox_mpi_transport *t, mox_mpi_operation *o, const moxie_comm_rows *rows, int64_t own,
                         int64_t at)
{
    for (int32_t r = 0; r < t->ranks; r++) {
        if (rows->recv_rows[r] == 0)
            continue;
        void *to = (char *)rows->recv + (uint64_t)rows->recv_at[r] * rows->row_bytes;
        if (r != t->rank)
            mox_mpi_add_receive(o, r, to, (uint64_t)rows->recv_rows[r] * rows->row_bytes);
        else
            memcpy(to, sent_row(rows, at), (uint64_t)own * rows->row_bytes);
    }
}

static moxie_status mpi_alltoallv(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    mox_mpi_transport *t = self;
    mox_mpi_operation *o;
    MOX_TRY(begin(t, MOX_COMM_ALLTOALLV, &o, error));
    receive_rows(t, o, rows, rows->send_rows[t->rank], rows->send_at[t->rank]);
    for (int32_t i = 1; i < t->ranks; i++) {
        const int32_t to = turn(t, i);
        if (rows->send_rows[to] > 0)
            mox_mpi_add_send(o, to, sent_row(rows, rows->send_at[to]), (uint64_t)rows->send_rows[to] * rows->row_bytes);
    }
    return post(t, o, request, error);
}

static moxie_status mpi_allgatherv(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    mox_mpi_transport *t = self;
    mox_mpi_operation *o;
    MOX_TRY(begin(t, MOX_COMM_ALLGATHERV, &o, error));
    receive_rows(t, o, rows, rows->send_rows[0], rows->send_at[0]);
    for (int32_t i = 1; rows->send_rows[0] > 0 && i < t->ranks; i++)
        mox_mpi_add_send(o, turn(t, i), sent_row(rows, rows->send_at[0]),
                         (uint64_t)rows->send_rows[0] * rows->row_bytes);
    return post(t, o, request, error);
}

static moxie_status mpi_reduce_scatter(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    mox_mpi_transport *t = self;
    mox_mpi_operation *o;
    MOX_TRY(begin(t, MOX_COMM_REDUCE_SCATTER, &o, error));
    const uint64_t own = (uint64_t)rows->recv_rows[t->rank] * rows->row_bytes;
    MOX_TRY(reserve_scratch(t, o, own, error));
    o->target = rows->recv;
    o->values = (int64_t)(own / sizeof(float));
    for (int32_t r = 0; own > 0 && r < t->ranks; r++)
        if (r != t->rank)
            mox_mpi_add_receive(o, r, (char *)o->scratch + (uint64_t)r * own, own);
    for (int32_t i = 1; i < t->ranks; i++) {
        const int32_t to = turn(t, i);
        if (rows->recv_rows[to] > 0)
            mox_mpi_add_send(o, to, sent_row(rows, rows->recv_at[to]), (uint64_t)rows->recv_rows[to] * rows->row_bytes);
    }
    if (own > 0)
        memcpy((char *)o->scratch + (uint64_t)t->rank * own, sent_row(rows, rows->recv_at[t->rank]), own);
    return post(t, o, request, error);
}

static moxie_status mpi_allreduce(void *self, void *values, int64_t n, moxie_comm_sum how, int64_t *request,
                                  moxie_error *error)
{
    mox_mpi_transport *t = self;
    mox_mpi_operation *o;
    MOX_TRY(begin(t, MOX_COMM_ALLREDUCE, &o, error));
    const uint64_t bytes = (uint64_t)n * (how == MOXIE_COMM_MAX_F32 ? sizeof(float) : sizeof(int64_t));
    MOX_TRY(reserve_scratch(t, o, bytes, error));
    o->target = values;
    o->values = n;
    o->how = how;
    if (n > 0) {
        memcpy((char *)o->scratch + (uint64_t)t->rank * bytes, values, bytes);
        for (int32_t r = 0; r < t->ranks; r++)
            if (r != t->rank)
                mox_mpi_add_receive(o, r, (char *)o->scratch + (uint64_t)r * bytes, bytes);
        for (int32_t i = 1; i < t->ranks; i++)
            mox_mpi_add_send(o, turn(t, i), values, bytes);
    }
    return post(t, o, request, error);
}

static moxie_status mpi_barrier(void *self, int64_t *request, moxie_error *error)
{
    mox_mpi_transport *t = self;
    mox_mpi_operation *o;
    MOX_TRY(begin(t, MOX_COMM_BARRIER, &o, error));
    for (int32_t r = 0; r < t->ranks; r++)
        if (r != t->rank)
            mox_mpi_add_receive(o, r, NULL, 0);
    for (int32_t i = 1; i < t->ranks; i++)
        mox_mpi_add_send(o, turn(t, i), NULL, 0);
    return post(t, o, request, error);
}

/* ---- end ---------------------------------------------------------------------------------------------- */

/* Sums of rows have no masked ranks: such an operation fails. */
static void sum_rows(const mox_mpi_operation *o, int32_t ranks)
{
    float *sum = o->target;
    const float *all = o->scratch;
    for (int64_t i = 0; i < o->values; i++) {
        float s = all[i];
        for (int32_t r = 1; r < ranks; r++)
            s += all[r * o->values + i];
        sum[i] = s;
    }
}

/* The first rank whose values count: masked ones sent none, or not all. */
static int32_t first_of(const mox_mpi_transport *t)
{
    int32_t first = 0;
    while (t->others[first].masked)
        first++;
    return first;
}

static void combine_i64(const mox_mpi_transport *t, const mox_mpi_operation *o)
{
    int64_t *result = o->target;
    const int64_t *all = o->scratch;
    const int32_t first = first_of(t);
    for (int64_t i = 0; i < o->values; i++) {
        int64_t v = all[first * o->values + i];
        for (int32_t r = first + 1; r < t->ranks; r++)
            if (!t->others[r].masked)
                v = mox_comm_combine_i64(v, all[r * o->values + i], o->how);
        result[i] = v;
    }
}

static void combine_f32(const mox_mpi_transport *t, const mox_mpi_operation *o)
{
    float *result = o->target;
    const float *all = o->scratch;
    const int32_t first = first_of(t);
    for (int64_t i = 0; i < o->values; i++) {
        float v = all[first * o->values + i];
        for (int32_t r = first + 1; r < t->ranks; r++)
            if (!t->others[r].masked)
                v = mox_comm_larger_f32(v, all[r * o->values + i]);
        result[i] = v;
    }
}

static void combine(const mox_mpi_transport *t, const mox_mpi_operation *o)
{
    if (o->kind == MOX_COMM_REDUCE_SCATTER)
        sum_rows(o, t->ranks);
    else if (o->kind == MOX_COMM_ALLREDUCE && o->how == MOXIE_COMM_MAX_F32)
        combine_f32(t, o);
    else if (o->kind == MOX_COMM_ALLREDUCE)
        combine_i64(t, o);
}

static moxie_status mpi_progress(void *self, int64_t request, int32_t *done, moxie_error *error)
{
    mox_mpi_transport *t = self;
    mox_mpi_operation *o = &t->open[request];
    MOX_TRY(mox_mpi_test(t, o, error));
    if (o->left > 0 && (++o->polls % HEAR_EACH == 0 || o->sleeps))
        MOX_TRY(mox_mpi_unfinished(t, o, error));
    *done = o->left == 0;
    if (*done) {
        combine(t, o);
        o->used = false;
    }
    return MOXIE_OK;
}

/* MPI only works inside its calls, and long messages take several steps of both ranks: so this rank comes back at once
 * for some milliseconds, and sleeps only when nothing has ended since. It gives way to other processes after a moment;
 * where ranks share processors, at once. */
static void mpi_wait(void *self, int64_t request, int32_t ms)
{
    mox_mpi_transport *t = self;
    mox_mpi_operation *o = &t->open[request];
    (void)ms; /* which is 1 at least */
    if (o->left != o->left_then) {
        o->left_then = o->left;
        o->idle_polls = 0;
        o->idle_since = 0;
        o->sleeps = false;
    }
    if (o->idle_polls < SPINS) {
        o->idle_polls++;
        if (t->crowded)
            sched_yield();
        return;
    }
    const double now = mox_mpi_now();
    o->idle_since = o->idle_since == 0 ? now : o->idle_since;
    const double idle = now - o->idle_since, pause = idle / 16 < 1e-3 ? idle / 16 : 1e-3;
    o->sleeps = idle >= spin_seconds;
    if (o->sleeps)
        nanosleep(&(struct timespec) { .tv_nsec = (long)(1e9 * pause) }, NULL);
    else
        sched_yield();
}

static int32_t mpi_late(void *self, int64_t request)
{
    mox_mpi_transport *t = self;
    if (t->culprit < 0 || t->others[t->culprit].masked)
        t->culprit = mox_mpi_late(t, &t->open[request]);
    return t->culprit;
}

void mox_mpi_operations(moxie_transport *table)
{
    table->counts = mpi_counts;
    table->alltoallv = mpi_alltoallv;
    table->allgatherv = mpi_allgatherv;
    table->reduce_scatter = mpi_reduce_scatter;
    table->allreduce = mpi_allreduce;
    table->barrier = mpi_barrier;
    table->progress = mpi_progress;
    table->wait = mpi_wait;
    table->late = mpi_late;
    table->mask = mox_mpi_mask;
}
