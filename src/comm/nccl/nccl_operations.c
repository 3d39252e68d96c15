/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_operations.c - the six operations of a transport as messages of NCCL, and what is left to do when all have come
 * (nccl_transport.h).
 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/combine_values.h"
#include "comm/nccl/nccl_transport.h"

enum { ALIGN = 256 };

/* ---- start -------------------------------------------------------------------------------------------- */

static moxie_status begin(mox_nccl_transport *t, mox_comm_kind kind, mox_nccl_operation **out, moxie_error *error)
{
    MOX_FAIL_IF(t->comm == NULL, MOXIE_ERR_TIMEOUT, error, "%s: rank %d was cancelled", mox_comm_kind_name(kind),
                t->rank);
    MOX_TRY(t->device.use(t->device.ordinal, error));
    for (int i = 0; i < MOX_COMM_OPEN; i++) {
        mox_nccl_operation *o = &t->open[i];
        if (o->used)
            continue;
        o->kind = kind;
        o->number = t->operations + 1;
        o->since = mox_clock_now();
        o->on_device = o->on_stream = o->captured = false;
        o->target = NULL;
        o->values = 0;
        o->stream = t->stream;
        memset(o->send, 0, (size_t)t->ranks * sizeof *o->send);
        memset(o->recv, 0, (size_t)t->ranks * sizeof *o->recv);
        *out = o;
        return MOXIE_OK;
    }
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "%s: %d requests are open, which is the limit", mox_comm_kind_name(kind),
                    MOX_COMM_OPEN);
}

/* Messages of `bytes` bytes each lie so far apart. */
static uint64_t stride_of(uint64_t bytes)
{
    return (sizeof(mox_nccl_header) + bytes + 15) / 16 * 16;
}

/* Places the messages: those to send, then those that come. */
static void place(mox_nccl_piece *pieces, int32_t ranks, uint64_t *at)
{
    for (int32_t r = 0; r < ranks; r++) {
        pieces[r].at = *at;
        if (pieces[r].message)
            *at += stride_of(pieces[r].bytes);
    }
}

static moxie_status reserve(mox_nccl_transport *t, mox_nccl_operation *o, moxie_error *error)
{
    void *pinned = NULL, *device = NULL;
    if (o->bytes <= o->capacity)
        return MOXIE_OK;
    const uint64_t capacity = (o->bytes + o->bytes / 2 + ALIGN - 1) / ALIGN * ALIGN;
    MOX_TRY(t->device.allocate_pinned(capacity, &pinned, error));
    const moxie_status status = t->device.allocate(capacity, &device, error);
    if (status != MOXIE_OK) {
        t->device.release_pinned(pinned);
        return status;
    }
    if (o->pinned != NULL)
        t->device.release_pinned(o->pinned);
    if (o->device != NULL)
        t->device.release(o->device);
    o->pinned = pinned;
    o->device = device;
    o->capacity = capacity;
    return MOXIE_OK;
}

static mox_nccl_header header_of(const mox_nccl_operation *o, uint64_t bytes)
{
    return (mox_nccl_header) { o->number, (uint64_t)o->kind << 56 | bytes };
}

/* Writes the messages to send into the staging memory, brings them to the device, and submits the group. `numbers` may
 * be NULL; else there is a message to each rank, all of one size. */
static moxie_status send_with(mox_nccl_transport *t, mox_nccl_operation *o, const mox_comm_numbers *numbers,
                              int64_t *request, moxie_error *error)
{
    uint64_t at = 0;
    t->operations++;
    place(o->send, t->ranks, &at);
    o->send_bytes = at;
    place(o->recv, t->ranks, &at);
    o->bytes = at;
    MOX_TRY(reserve(t, o, error));
    for (int32_t r = 0; r < t->ranks; r++) {
        const mox_nccl_piece *p = &o->send[r];
        if (!p->message)
            continue;
        const mox_nccl_header header = header_of(o, p->bytes);
        memcpy(o->pinned + p->at, &header, sizeof header);
        if (p->bytes > 0)
            memcpy(o->pinned + p->at + sizeof header, p->from, p->bytes);
    }
    MOX_TRY(t->device.fill(o->device + o->send_bytes, 0, o->bytes - o->send_bytes, o->stream, error));
    MOX_TRY(t->device.copy(o->device, o->pinned, o->send_bytes, o->stream, error));
    if (numbers != NULL)
        MOX_TRY(numbers->put(numbers->user, o->device + o->send[0].at + sizeof(mox_nccl_header),
                             stride_of(o->send[0].bytes), error));
    return mox_nccl_submit(t, o, request, error);
}

static moxie_status send_staged(mox_nccl_transport *t, mox_nccl_operation *o, int64_t *request, moxie_error *error)
{
    return send_with(t, o, NULL, request, error);
}

static void set_send(mox_nccl_operation *o, int32_t r, const void *from, uint64_t bytes, bool always)
{
    o->send[r] = (mox_nccl_piece) { .from = from, .bytes = bytes, .message = always || bytes > 0 };
}

static void set_recv(mox_nccl_operation *o, int32_t r, void *to, uint64_t bytes, bool always)
{
    o->recv[r] = (mox_nccl_piece) { .to = to, .bytes = bytes, .message = always || bytes > 0 };
}

moxie_status mox_nccl_counts_of(void *self, const mox_comm_numbers *numbers, const int64_t *send, int64_t *recv,
                                int64_t each, int64_t *request, moxie_error *error)
{
    mox_nccl_transport *t = self;
    mox_nccl_operation *o;
    MOX_TRY(begin(t, MOX_COMM_COUNTS, &o, error));
    for (int32_t r = 0; r < t->ranks && each > 0; r++) {
        set_send(o, r, send + r * each, 8 * (uint64_t)each, true);
        set_recv(o, r, recv + r * each, 8 * (uint64_t)each, true);
    }
    if (numbers != NULL)
        o->stream = numbers->stream;
    return send_with(t, o, numbers, request, error);
}

static moxie_status nccl_counts(void *self, const int64_t *send, int64_t *recv, int64_t each, int64_t *request,
                                moxie_error *error)
{
    return mox_nccl_counts_of(self, NULL, send, recv, each, request, error);
}

static char *row_at(const void *rows, int64_t row, uint64_t row_bytes)
{
    return (char *)(uintptr_t)rows + (uint64_t)row * row_bytes;
}

/* alltoallv, and allgatherv, where all ranks get what the first entry says. */
static moxie_status exchange_rows(mox_nccl_transport *t, mox_comm_kind kind, const moxie_comm_rows *rows,
                                  int64_t *request, moxie_error *error)
{
    mox_nccl_operation *o;
    MOX_TRY(begin(t, kind, &o, error));
    for (int32_t r = 0; r < t->ranks; r++) {
        const int32_t i = kind == MOX_COMM_ALLGATHERV ? 0 : r;
        if (rows->send_rows[i] > 0)
            set_send(o, r, row_at(rows->send, rows->send_at[i], rows->row_bytes),
                     (uint64_t)rows->send_rows[i] * rows->row_bytes, false);
        if (rows->recv_rows[r] > 0)
            set_recv(o, r, row_at(rows->recv, rows->recv_at[r], rows->row_bytes),
                     (uint64_t)rows->recv_rows[r] * rows->row_bytes, false);
    }
    if (rows->on_device == 0)
        return send_staged(t, o, request, error);
    o->on_device = true;
    o->captured = rows->on_device == 2;
    o->stream = rows->stream;
    return mox_nccl_submit(t, o, request, error);
}

static moxie_status nccl_alltoallv(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    return exchange_rows(self, MOX_COMM_ALLTOALLV, rows, request, error);
}

static moxie_status nccl_allgatherv(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    return exchange_rows(self, MOX_COMM_ALLGATHERV, rows, request, error);
}

static moxie_status nccl_reduce_scatter(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    mox_nccl_transport *t = self;
    mox_nccl_operation *o;
    MOX_TRY(begin(t, MOX_COMM_REDUCE_SCATTER, &o, error));
    const uint64_t own = (uint64_t)rows->recv_rows[t->rank] * rows->row_bytes;
    o->target = rows->recv;
    o->values = (int64_t)(own / sizeof(float));
    for (int32_t r = 0; r < t->ranks; r++) {
        if (rows->recv_rows[r] > 0)
            set_send(o, r, row_at(rows->send, rows->recv_at[r], rows->row_bytes),
                     (uint64_t)rows->recv_rows[r] * rows->row_bytes, false);
        set_recv(o, r, NULL, own, false);
    }
    return send_staged(t, o, request, error);
}

static moxie_status nccl_allreduce(void *self, void *values, int64_t n, moxie_comm_sum how, int64_t *request,
                                   moxie_error *error)
{
    mox_nccl_transport *t = self;
    mox_nccl_operation *o;
    MOX_TRY(begin(t, MOX_COMM_ALLREDUCE, &o, error));
    const uint64_t bytes = (uint64_t)n * (how == MOXIE_COMM_MAX_F32 ? sizeof(float) : sizeof(int64_t));
    o->target = values;
    o->values = n;
    o->how = how;
    for (int32_t r = 0; r < t->ranks; r++) {
        set_send(o, r, values, bytes, false);
        set_recv(o, r, NULL, bytes, false);
    }
    return send_staged(t, o, request, error);
}

static moxie_status nccl_barrier(void *self, int64_t *request, moxie_error *error)
{
    mox_nccl_transport *t = self;
    mox_nccl_operation *o;
    MOX_TRY(begin(t, MOX_COMM_BARRIER, &o, error));
    for (int32_t r = 0; r < t->ranks; r++) {
        set_send(o, r, NULL, 0, true);
        set_recv(o, r, NULL, 0, true);
    }
    return send_staged(t, o, request, error);
}

/* ---- end ---------------------------------------------------------------------------------------------- */

/* What rank r sent. */
static const char *came(const mox_nccl_operation *o, int32_t r)
{
    return o->pinned + o->recv[r].at + sizeof(mox_nccl_header);
}

static float f32_of(const mox_nccl_operation *o, int32_t r, int64_t i)
{
    float value;
    memcpy(&value, came(o, r) + i * (int64_t)sizeof value, sizeof value);
    return value;
}

static int64_t i64_of(const mox_nccl_operation *o, int32_t r, int64_t i)
{
    int64_t value;
    memcpy(&value, came(o, r) + i * (int64_t)sizeof value, sizeof value);
    return value;
}

/* The sum in rank order, or the largest. */
static float combine_f32(const mox_nccl_operation *o, int32_t ranks, int64_t i)
{
    float v = f32_of(o, 0, i);
    for (int32_t r = 1; r < ranks; r++)
        v = o->kind == MOX_COMM_REDUCE_SCATTER ? v + f32_of(o, r, i) : mox_comm_larger_f32(v, f32_of(o, r, i));
    return v;
}

static int64_t combine_i64(const mox_nccl_operation *o, int32_t ranks, int64_t i)
{
    int64_t v = i64_of(o, 0, i);
    for (int32_t r = 1; r < ranks; r++)
        v = mox_comm_combine_i64(v, i64_of(o, r, i), o->how);
    return v;
}

/* Headers are right where both sides made the same call. */
static moxie_status check_headers(const mox_nccl_transport *t, const mox_nccl_operation *o, moxie_error *error)
{
    for (int32_t r = 0; r < t->ranks; r++) {
        mox_nccl_header header;
        if (!o->recv[r].message)
            continue;
        const mox_nccl_header want = header_of(o, o->recv[r].bytes);
        memcpy(&header, o->pinned + o->recv[r].at, sizeof header);
        MOX_FAIL_IF(
            header.operation != want.operation || header.kind_and_bytes != want.kind_and_bytes, MOXIE_ERR_MISMATCH,
            error,
            "%s, operation %llu of rank %d, %llu bytes expected: rank %d sent operation %llu, %s of %llu bytes: "
            "all ranks must make the same calls in the same order, with numbers that agree",
            mox_comm_kind_name(o->kind), (unsigned long long)o->number, t->rank, (unsigned long long)o->recv[r].bytes,
            r, (unsigned long long)header.operation,
            header.kind_and_bytes >> 56 <= MOX_COMM_BARRIER
                ? mox_comm_kind_name((mox_comm_kind)(header.kind_and_bytes >> 56))
                : "something",
            (unsigned long long)(header.kind_and_bytes & UINT64_MAX >> 8));
    }
    return MOXIE_OK;
}

static moxie_status finish(const mox_nccl_transport *t, const mox_nccl_operation *o, moxie_error *error)
{
    MOX_TRY(check_headers(t, o, error));
    for (int32_t r = 0; r < t->ranks; r++)
        if (o->recv[r].message && o->recv[r].to != NULL && o->recv[r].bytes > 0)
            memcpy(o->recv[r].to, came(o, r), o->recv[r].bytes);
    const bool f32 = o->kind == MOX_COMM_REDUCE_SCATTER || o->how == MOXIE_COMM_MAX_F32;
    for (int64_t i = 0; i < o->values; i++)
        if (f32)
            ((float *)o->target)[i] = combine_f32(o, t->ranks, i);
        else
            ((int64_t *)o->target)[i] = combine_i64(o, t->ranks, i);
    return MOXIE_OK;
}

static moxie_status nccl_progress(void *self, int64_t request, int32_t *done, moxie_error *error)
{
    mox_nccl_transport *t = self;
    mox_nccl_operation *o = &t->open[request];
    bool settled;
    *done = 0;
    MOX_FAIL_IF(t->comm == NULL, MOXIE_ERR_TIMEOUT, error, "%s: rank %d was cancelled", mox_comm_kind_name(o->kind),
                t->rank);
    MOX_TRY(t->device.use(t->device.ordinal, error));
    MOX_TRY(mox_nccl_settle(t, &settled, error));
    if (!o->on_stream)
        return MOXIE_OK;
    if (o->captured)
        *done = 1;
    else
        MOX_TRY(t->device.event_done(o->event, done, error));
    if (*done == 0)
        return MOXIE_OK;
    o->used = false;
    return o->on_device ? MOXIE_OK : finish(t, o, error);
}

/* Numbers come within microseconds, unless they are behind products. What a rank oversleeps, its GPU idles. */
static void nccl_wait(void *self, int64_t request, int32_t ms)
{
    enum { LOOK = 1000000 }; /* ns */
    const mox_nccl_transport *t = self;
    const uint64_t waited = mox_clock_now() - t->open[request].since;
    (void)ms; /* pauses are shorter */
    if (waited < LOOK)
        sched_yield();
    else
        nanosleep(&(struct timespec) { .tv_nsec = (long)mox_comm_pause(waited) }, NULL);
}

/* Copies on a stream of its own do not wait for NCCL's kernel. Before this rank's own message has come, the operation
 * has not begun: it waits for one before it, whose rows are on a device. */
static int32_t nccl_late(void *self, int64_t request)
{
    mox_nccl_transport *t = self;
    const mox_nccl_operation *o = &t->open[request];
    if (o->on_device || t->comm == NULL || t->device.use(t->device.ordinal, NULL) != MOXIE_OK)
        return -1;
    for (int32_t r = 0; r < t->ranks; r++)
        if (o->recv[r].message &&
            t->device.copy(&t->headers[r], o->device + o->recv[r].at, sizeof *t->headers, t->looks, NULL) != MOXIE_OK)
            return -1;
    if (t->device.stream_wait(t->looks, NULL) != MOXIE_OK)
        return -1;
    if (o->recv[t->rank].message && t->headers[t->rank].operation != o->number)
        return -1;
    for (int32_t r = 0; r < t->ranks; r++)
        if (o->recv[r].message && r != t->rank && t->headers[r].operation != o->number)
            return r;
    return -1;
}

void mox_nccl_operations(moxie_transport *table)
{
    table->counts = nccl_counts;
    table->alltoallv = nccl_alltoallv;
    table->allgatherv = nccl_allgatherv;
    table->reduce_scatter = nccl_reduce_scatter;
    table->allreduce = nccl_allreduce;
    table->barrier = nccl_barrier;
    table->progress = nccl_progress;
    table->wait = nccl_wait;
    table->late = nccl_late;
}
