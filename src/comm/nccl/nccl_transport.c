/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_transport.c - the life of a transport over NCCL, and its groups of messages (nccl_transport.h).
 */
#include "comm/nccl/nccl_transport.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/memory.h"
#include "base/sizes.h"
#include "comm/nccl/nccl_apart.h"
#include "comm/nccl/nccl_connect.h"

enum { GOODBYE = 1000 }; /* ms, how long a rank that leaves waits for the others */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void sleep_a_little(void)
{
    nanosleep(&(struct timespec) { .tv_nsec = 20000 }, NULL);
}

/* NCCL brings a group to its stream on a thread of its own, mostly within microseconds. */
static void give_way(uint32_t round)
{
    if (round < 200)
        sched_yield();
    else
        sleep_a_little();
}

/* ---- failures ----------------------------------------------------------------------------------------- */

static moxie_status failed(const mox_nccl_transport *t, int code, const char *what, moxie_error *error)
{
    char text[400];
    const char *why = t->nccl->last_error(t->comm);
    const bool other = code == MOX_NCCL_REMOTE_ERROR || code == MOX_NCCL_SYSTEM_ERROR;
    snprintf(text, sizeof text, "%s", why != NULL ? why : "");
    mox_make_printable(text, sizeof text);
    return mox_fail(other ? MOXIE_ERR_TIMEOUT : MOXIE_ERR_IO, error, "%s on rank %d of %d: NCCL: %s%s%s%s", what,
                    t->rank, t->ranks, t->nccl->error_string(code), text[0] != 0 ? " (" : "", text,
                    text[0] != 0 ? ")" : "");
}

/* ---- groups ------------------------------------------------------------------------------------------- */

static char *place_of(const mox_nccl_operation *o, const mox_nccl_piece *p, const void *rows)
{
    return o->on_device ? (char *)(uintptr_t)rows : o->device + p->at;
}

static int send_and_receive(const mox_nccl_transport *t, const mox_nccl_operation *o)
{
    const uint64_t header = o->on_device ? 0 : sizeof(mox_nccl_header);
    int code = MOX_NCCL_SUCCESS;
    for (int32_t r = 0; r < t->ranks && code == MOX_NCCL_SUCCESS; r++) {
        const mox_nccl_piece *s = &o->send[r], *g = &o->recv[r];
        if (s->message)
            code = t->nccl->send(place_of(o, s, s->from), s->bytes + header, MOX_NCCL_BYTES, r, t->comm, o->stream);
        if (g->message && code == MOX_NCCL_SUCCESS)
            code = t->nccl->recv(place_of(o, g, g->to), g->bytes + header, MOX_NCCL_BYTES, r, t->comm, o->stream);
    }
    return code;
}

/* The group is on its stream: what comes after it. */
static moxie_status follow(mox_nccl_transport *t, mox_nccl_operation *o, moxie_error *error)
{
    t->pending = NULL;
    if (!o->on_device)
        MOX_TRY(t->device.copy(o->pinned + o->send_bytes, o->device + o->send_bytes, o->bytes - o->send_bytes,
                               o->stream, error));
    if (!o->captured)
        MOX_TRY(t->device.event_record(o->event, o->stream, error));
    o->on_stream = true;
    return MOXIE_OK;
}

moxie_status mox_nccl_settle(mox_nccl_transport *t, bool *settled, moxie_error *error)
{
    int state = MOX_NCCL_SUCCESS;
    const int code = t->nccl->comm_async(t->comm, &state);
    if (code != MOX_NCCL_SUCCESS)
        return failed(t, code, "ncclCommGetAsyncError", error);
    if (state != MOX_NCCL_SUCCESS && state != MOX_NCCL_IN_PROGRESS)
        return failed(t, state, "an operation", error);
    *settled = state == MOX_NCCL_SUCCESS;
    return *settled && t->pending != NULL ? follow(t, t->pending, error) : MOXIE_OK;
}

moxie_status mox_nccl_settle_all(mox_nccl_transport *t, const char *what, moxie_error *error)
{
    const int64_t begin = now_ms();
    for (uint32_t round = 0;; round++) {
        bool settled;
        MOX_TRY(mox_nccl_settle(t, &settled, error));
        if (settled)
            return MOXIE_OK;
        MOX_FAIL_IF(
            now_ms() - begin > t->deadline_ms, MOXIE_ERR_TIMEOUT, error,
            "%s: not all of %d ranks took part within %d ms (deadline_ms); NCCL does not say which did not; every "
            "rank must call it",
            what, t->ranks, t->deadline_ms);
        give_way(round);
    }
}

moxie_status mox_nccl_submit(mox_nccl_transport *t, mox_nccl_operation *o, int64_t *request, moxie_error *error)
{
    MOX_TRY(mox_nccl_settle_all(t, "the operation before", error)); /* NCCL takes one after the other */
    int code = t->nccl->group_start();
    if (code == MOX_NCCL_SUCCESS) {
        const int within = send_and_receive(t, o);
        code = t->nccl->group_end();
        if (within != MOX_NCCL_SUCCESS && within != MOX_NCCL_IN_PROGRESS)
            code = within;
    }
    if (code != MOX_NCCL_SUCCESS && code != MOX_NCCL_IN_PROGRESS)
        return failed(t, code, mox_comm_kind_name(o->kind), error);
    o->used = true;
    *request = o - t->open;
    t->pending = o;
    return code == MOX_NCCL_SUCCESS ? follow(t, o, error) : MOXIE_OK;
}

/* ---- end ---------------------------------------------------------------------------------------------- */

static void nccl_cancel(void *self)
{
    mox_nccl_transport *t = self;
    if (t->comm == NULL || t->device.use(t->device.ordinal, NULL) != MOXIE_OK)
        return;
    (void)t->nccl->comm_abort(t->comm);
    t->comm = NULL;
    t->pending = NULL;
}

moxie_status mox_nccl_copy(void *self, void *to, const void *from, uint64_t bytes, void *stream, moxie_error *error)
{
    const mox_nccl_transport *t = self;
    MOX_TRY(t->device.use(t->device.ordinal, error));
    return t->device.copy(to, from, bytes, stream, error);
}

static void release(mox_nccl_transport *t)
{
    for (int i = 0; i < MOX_COMM_OPEN; i++) {
        mox_nccl_operation *o = &t->open[i];
        if (o->event != NULL)
            t->device.event_destroy(o->event);
        if (o->pinned != NULL)
            t->device.release_pinned(o->pinned);
        if (o->device != NULL)
            t->device.release(o->device);
        mox_free(o->send);
        mox_free(o->recv);
    }
    if (t->headers != NULL)
        t->device.release_pinned(t->headers);
    t->device.stream_destroy(t->stream);
    t->device.stream_destroy(t->looks);
    mox_free(t);
}

static int finalize(void *user)
{
    const mox_nccl_transport *t = user;
    (void)t->device.use(t->device.ordinal, NULL);
    return t->nccl->comm_finalize(t->comm);
}

/* code: of its finalization. */
static void end_comm(mox_nccl_transport *t, int code)
{
    (void)(code == MOX_NCCL_SUCCESS ? t->nccl->comm_destroy(t->comm) : t->nccl->comm_abort(t->comm));
    t->comm = NULL;
}

static void end_late(void *user, int code)
{
    mox_nccl_transport *t = user;
    end_comm(t, code);
    release(t);
}

/* Whether all operations are done, as far as events tell. */
static bool is_idle(mox_nccl_transport *t)
{
    bool idle;
    if (mox_nccl_settle(t, &idle, NULL) != MOXIE_OK)
        return false;
    for (int i = 0; i < MOX_COMM_OPEN && idle; i++) {
        const mox_nccl_operation *o = &t->open[i];
        int32_t done = 1;
        if (o->used && !o->captured)
            idle = t->device.event_done(o->event, &done, NULL) == MOXIE_OK && done;
    }
    return idle;
}

/* Waits for the others to have finished with this rank's memory: NCCL does in comm_finalize, until they call it, too.
 * False: they have not come. NCCL still waits for them, and has the transport until then: a communicator that is being
 * finalized cannot be aborted. One with operations that do not end is aborted before. */
static bool say_goodbye(mox_nccl_transport *t)
{
    const int64_t begin = now_ms();
    int code = MOX_NCCL_SYSTEM_ERROR;
    bool idle = is_idle(t);
    while (!idle && now_ms() - begin < GOODBYE) {
        sleep_a_little();
        idle = is_idle(t);
    }
    if (idle) {
        const int32_t left = (int32_t)mox_max_i64(begin + GOODBYE - now_ms(), 0);
        if (mox_nccl_call_apart(&(mox_nccl_call) { finalize, end_late, t }, left, &code) == MOXIE_ERR_TIMEOUT)
            return false;
    }
    while (code == MOX_NCCL_IN_PROGRESS && now_ms() - begin < GOODBYE) {
        sleep_a_little();
        if (t->nccl->comm_async(t->comm, &code) != MOX_NCCL_SUCCESS)
            break;
    }
    end_comm(t, code);
    return true;
}

static void nccl_destroy(void *self)
{
    mox_nccl_transport *t = self;
    (void)t->device.use(t->device.ordinal, NULL);
    if (t->comm == NULL || say_goodbye(t))
        release(t);
}

/* ---- creation ----------------------------------------------------------------------------------------- */

static moxie_status allocate(mox_nccl_transport *t, moxie_error *error)
{
    void *headers = NULL;
    MOX_TRY(t->device.use(t->device.ordinal, error));
    MOX_TRY(t->device.stream_create(&t->stream, error));
    MOX_TRY(t->device.stream_create(&t->looks, error));
    MOX_TRY(t->device.allocate_pinned((uint64_t)t->ranks * sizeof *t->headers, &headers, error));
    t->headers = headers;
    for (int i = 0; i < MOX_COMM_OPEN; i++) {
        mox_nccl_operation *o = &t->open[i];
        o->send = mox_calloc((uint64_t)t->ranks, sizeof *o->send);
        o->recv = mox_calloc((uint64_t)t->ranks, sizeof *o->recv);
        MOX_FAIL_IF(o->send == NULL || o->recv == NULL, MOXIE_ERR_MEMORY, error,
                    "moxie_comm_nccl_create: no memory for %d ranks", t->ranks);
        MOX_TRY(t->device.event_create(&o->event, error));
    }
    return MOXIE_OK;
}

typedef struct first_barrier {
    mox_nccl_transport *t;
    moxie_status (*enqueue)(void *self, int64_t *request, moxie_error *error);
    int64_t request;
    moxie_error error;
} first_barrier;

static int enqueue_first(void *user)
{
    first_barrier *b = user;
    const moxie_status status = b->t->device.use(b->t->device.ordinal, &b->error);
    return status != MOXIE_OK ? (int)status : (int)b->enqueue(b->t, &b->request, &b->error);
}

static void end_first(void *user, int code)
{
    first_barrier *b = user;
    (void)code;
    nccl_cancel(b->t);
    nccl_destroy(b->t);
    mox_free(b);
}

/* NCCL connects the ranks when it enqueues their first messages, and waits for the others on the host meanwhile. At the
 * deadline *t becomes NULL: the thread that waits has it, and frees it when NCCL returns. */
static moxie_status enqueue_first_barrier(mox_nccl_transport **t, const moxie_transport *table, int64_t ms,
                                          int64_t *request, moxie_error *error)
{
    int result = MOXIE_OK;
    const int32_t ranks = (*t)->ranks, deadline_ms = (*t)->deadline_ms;
    first_barrier *b = mox_calloc(1, sizeof *b);
    MOX_FAIL_IF(b == NULL, MOXIE_ERR_MEMORY, error, "moxie_comm_nccl_create: no memory for a barrier");
    *b = (first_barrier) { .t = *t, .enqueue = table->barrier };
    const moxie_status status =
        mox_nccl_call_apart(&(mox_nccl_call) { enqueue_first, end_first, b }, (int32_t)mox_max_i64(ms, 0), &result);
    if (status == MOXIE_ERR_TIMEOUT) {
        *t = NULL;
        return mox_fail(status, error,
                        "moxie_comm_nccl_create: not all of %d ranks came to its barrier within %d ms (deadline_ms); "
                        "NCCL does not say which did not; has one stopped?",
                        ranks, deadline_ms);
    }
    *request = b->request;
    if (result != MOXIE_OK && error != NULL)
        *error = b->error;
    mox_free(b);
    MOX_FAIL_IF(status != MOXIE_OK, status, error, "moxie_comm_nccl_create: no thread to call NCCL on");
    return (moxie_status)result;
}

/* Makes the communicator, and passes a barrier: so all connections are there before the first run. *taken becomes NULL
 * where a thread that waits for other ranks has the transport. */
static moxie_status meet(mox_nccl_transport **taken, const mox_nccl_id *id, const moxie_transport *table,
                         moxie_error *error)
{
    mox_nccl_transport *t = *taken;
    const int64_t begin = now_ms();
    int64_t request = 0;
    int32_t done = 0;
    int code;
    MOX_TRY(mox_nccl_connect(t->nccl, id, t->ranks, t->rank, &t->device, t->deadline_ms, &t->comm, &code, error));
    if (t->comm == NULL)
        return failed(t, code, "ncclCommInitRankConfig", error);
    MOX_TRY(mox_nccl_settle_all(t, "moxie_comm_nccl_create", error));
    MOX_TRY(enqueue_first_barrier(taken, table, begin + t->deadline_ms - now_ms(), &request, error));
    while (!done) {
        MOX_TRY(table->progress(t, request, &done, error));
        const int32_t late = done || now_ms() - begin <= t->deadline_ms ? -1 : table->late(t, request);
        MOX_FAIL_IF(!done && now_ms() - begin > t->deadline_ms, MOXIE_ERR_TIMEOUT, error,
                    "moxie_comm_nccl_create: rank %d of %d did not take part within %d ms (deadline_ms)", late,
                    t->ranks, t->deadline_ms);
        sleep_a_little();
    }
    t->operations = 0; /* of the caller */
    return MOXIE_OK;
}

moxie_status mox_nccl_create(const mox_nccl_id *id, int32_t ranks, int32_t rank, const mox_comm_device *device,
                             int32_t deadline_ms, moxie_transport *out, moxie_error *error)
{
    const mox_nccl_library *nccl;
    MOX_TRY(mox_nccl_open(&nccl, error));
    mox_nccl_transport *t = mox_calloc(1, sizeof *t);
    MOX_FAIL_IF(t == NULL, MOXIE_ERR_MEMORY, error, "moxie_comm_nccl_create: no memory for %d ranks", ranks);
    t->nccl = nccl;
    t->device = *device;
    t->ranks = ranks;
    t->rank = rank;
    t->deadline_ms = deadline_ms;
    moxie_transport table = { .struct_size = sizeof table,
                              .ranks = ranks,
                              .rank = rank,
                              .name = "nccl",
                              .self = t,
                              .cancel = nccl_cancel,
                              .destroy = nccl_destroy,
                              .device = device->ordinal + 1 };
    mox_nccl_operations(&table);
    moxie_status status = allocate(t, error);
    if (status == MOXIE_OK)
        status = meet(&t, id, &table, error);
    if (status != MOXIE_OK && t != NULL) {
        nccl_cancel(t);
        nccl_destroy(t);
    }
    if (status != MOXIE_OK)
        return status;
    *out = table;
    return MOXIE_OK;
}
