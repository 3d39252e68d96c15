/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.c - a comm over any transport: requests with a deadline (comm.h).
 *
 * The transport moves the bytes; this file numbers the operations, watches the clock and keeps the first failure. A
 * rank that waits sleeps in the transport's wait(), or polls with growing pauses where it has none.
 */
#include "comm/comm.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/sizes.h"
#include "comm/comm_check.h"
#include "comm/local/local.h"

/* For a transport that fails without a text. */
#define UNSAID                                                                                                         \
    {                                                                                                                  \
        .offset = -1, .text = "the transport failed"                                                                   \
    }

typedef struct open_request {
    bool used;
    mox_comm_kind kind;
    int64_t number;       /* the transport's */
    uint64_t operation;   /* counted over all of this rank's, from 1 */
    int64_t since;        /* ms; when it was first found unfinished; -1: not yet */
    int64_t seen;         /* ms; and last */
    int32_t extensions;   /* deadlines that it waited for a rank which itself waited */
    moxie_comm_rows rows; /* of counts: row_bytes is 8 each, and there are no arrays */
} open_request;

struct moxie_comm {
    moxie_transport transport;
    int32_t deadline;
    uint64_t operations;          /* started */
    uint64_t waited;              /* ns */
    uint64_t sent_bytes;          /* to other ranks */
    bool degraded;                /* goes on without ranks that are lost */
    bool alone;                   /* all others are lost, and the transport is not used any more */
    mox_comm_copy copy;           /* of rows on the transport's device, when this rank is alone; or NULL */
    mox_comm_counts_of counts_of; /* or NULL */
    bool *lost;                   /* [ranks] */
    int32_t losses;
    moxie_error broken; /* code MOXIE_OK: it is not */
    open_request open[MOX_COMM_OPEN];
};

static int64_t now_ms(void)
{
    return (int64_t)(mox_clock_now() / 1000000);
}

/* ---- creation ----------------------------------------------------------------------------------------- */

moxie_status mox_comm_create(const moxie_transport *transport, int32_t deadline_ms, moxie_comm **out,
                             moxie_error *error)
{
    moxie_comm *comm = mox_alloc(sizeof *comm);
    if (!comm) {
        transport->destroy(transport->self);
        return mox_fail(MOXIE_ERR_MEMORY, error, "moxie_comm: no memory for %llu bytes",
                        (unsigned long long)sizeof *comm);
    }
    comm->lost = mox_calloc((uint64_t)transport->ranks, sizeof *comm->lost);
    if (!comm->lost) {
        mox_free(comm);
        transport->destroy(transport->self);
        return mox_fail(MOXIE_ERR_MEMORY, error, "moxie_comm: no memory for %d ranks", transport->ranks);
    }
    comm->transport = *transport;
    comm->copy = NULL;
    comm->counts_of = NULL;
    comm->deadline = deadline_ms > 0 ? deadline_ms : MOX_COMM_DEADLINE;
    *out = comm;
    return MOXIE_OK;
}

moxie_status mox_comm_local_create(int32_t ranks, int32_t deadline_ms, moxie_comm **out, moxie_error *error)
{
    moxie_comm **comms = NULL;
    moxie_transport *transports = mox_calloc((uint64_t)ranks, sizeof *transports);
    moxie_status status = MOXIE_ERR_MEMORY;
    if (transports)
        comms = mox_calloc((uint64_t)ranks, sizeof(moxie_comm *));
    if (!comms) {
        (void)mox_fail(status, error, "moxie_comm_local_create: no memory for %d ranks", ranks);
        goto out;
    }
    status = mox_local_create(ranks, transports, error);
    if (status != MOXIE_OK)
        goto out;
    for (int32_t r = 0; r < ranks; r++) {
        const moxie_status made = mox_comm_create(&transports[r], deadline_ms, &comms[r], status ? NULL : error);
        status = status ? status : made;
    }
    for (int32_t r = 0; r < ranks; r++)
        if (status)
            mox_comm_destroy(comms[r]);
        else
            out[r] = comms[r];
out:
    mox_free(comms);
    mox_free(transports);
    return status;
}

moxie_status mox_comm_local_without(const moxie_comm *comm, const int32_t *dead, int32_t count, int32_t deadline_ms,
                                    moxie_comm **out, moxie_error *error)
{
    moxie_transport transport;
    MOX_TRY(mox_local_without(&comm->transport, dead, count, &transport, error));
    return mox_comm_create(&transport, deadline_ms, out, error);
}

void mox_comm_destroy(moxie_comm *comm)
{
    if (!comm)
        return;
    bool open = false;
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        open = open || comm->open[i].used;
    if (open && !comm->alone)
        comm->transport.cancel(comm->transport.self);
    comm->transport.destroy(comm->transport.self);
    mox_free(comm->lost);
    mox_free(comm);
}

int32_t mox_comm_ranks(const moxie_comm *comm)
{
    return comm->transport.ranks;
}

int32_t mox_comm_rank(const moxie_comm *comm)
{
    return comm->transport.rank;
}

const char *mox_comm_name(const moxie_comm *comm)
{
    return comm->transport.name;
}

int32_t mox_comm_rows_device(const moxie_comm *comm)
{
    return comm->transport.device - 1;
}

int32_t mox_comm_deadline(const moxie_comm *comm)
{
    return comm->deadline;
}

uint64_t mox_comm_operations(const moxie_comm *comm)
{
    return comm->operations;
}

uint64_t mox_comm_waited(const moxie_comm *comm)
{
    return comm->waited;
}

uint64_t mox_comm_sent_bytes(const moxie_comm *comm)
{
    return comm->sent_bytes;
}

/* ---- failure ------------------------------------------------------------------------------------------ */

static moxie_status say_broken(const moxie_comm *comm, moxie_error *error)
{
    if (error)
        *error = comm->broken;
    return comm->broken.code;
}

void mox_comm_break(moxie_comm *comm, const moxie_error *reason)
{
    if (comm->broken.code != MOXIE_OK)
        return;
    comm->broken = *reason;
    if (!comm->alone)
        comm->transport.cancel(comm->transport.self);
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        comm->open[i].used = false;
}

/* The rank that the request waits for, or -1: unknown, or a number that is no rank's. */
static int32_t late_rank(const moxie_comm *comm, const open_request *r)
{
    const int32_t late = comm->transport.late(comm->transport.self, r->number);
    return late >= 0 && late < comm->transport.ranks ? late : -1;
}

static void lose(moxie_comm *comm, int32_t rank)
{
    if (rank < 0 || comm->lost[rank] || rank == comm->transport.rank)
        return;
    comm->lost[rank] = true;
    comm->losses++;
}

/* The transport failed with `reason` in an operation that waited `waited` ms. */
static moxie_status transport_failed(moxie_comm *comm, const char *kind, uint64_t operation, int64_t waited,
                                     moxie_error *reason, moxie_error *error)
{
    const char *remedy =
        reason->code == MOXIE_ERR_TIMEOUT ? "; if a rank is dead, make comms and plans anew without it" : "";
    (void)mox_fail_context(reason->code, reason, "%s, operation %llu of rank %d, waited %lld of at most %d ms%s", kind,
                           (unsigned long long)operation, comm->transport.rank, (long long)waited, comm->deadline,
                           remedy);
    mox_comm_break(comm, reason);
    return say_broken(comm, error);
}

static moxie_status too_late(moxie_comm *comm, const open_request *r, int64_t waited, moxie_error *error)
{
    moxie_error reason;
    char rank[32] = "another rank";
    const int32_t late = late_rank(comm, r);
    lose(comm, late);
    if (late >= 0)
        snprintf(rank, sizeof rank, "rank %d of %d", late, comm->transport.ranks);
    (void)mox_fail(MOXIE_ERR_TIMEOUT, &reason,
                   "%s, operation %llu of rank %d: %s did not take part within %lld ms, and deadline_ms is %d; raise "
                   "deadline_ms if that rank is only slow; if it is dead, make comms and plans anew without it",
                   mox_comm_kind_name(r->kind), (unsigned long long)r->operation, comm->transport.rank, rank,
                   (long long)waited, comm->deadline);
    mox_comm_break(comm, &reason);
    return say_broken(comm, error);
}

/* ---- without lost ranks ------------------------------------------------------------------------------- */

void mox_comm_set_degraded(moxie_comm *comm, bool degraded)
{
    comm->degraded = degraded;
}

void mox_comm_set_copy(moxie_comm *comm, mox_comm_copy copy)
{
    comm->copy = copy;
}

void mox_comm_set_counts_of(moxie_comm *comm, mox_comm_counts_of counts)
{
    comm->counts_of = counts;
}

bool mox_comm_takes_numbers(const moxie_comm *comm)
{
    return comm->counts_of != NULL;
}

bool mox_comm_can_lose(const moxie_comm *comm)
{
    return comm->transport.device == 0 || comm->transport.mask != NULL || comm->copy != NULL;
}

bool mox_comm_is_lost(const moxie_comm *comm, int32_t rank)
{
    return comm->lost[rank];
}

int32_t mox_comm_losses(const moxie_comm *comm)
{
    return comm->losses;
}

/* Whether own rows can be copied where they are. */
static bool can_copy(const moxie_comm *comm, const open_request *r)
{
    return r->rows.on_device == 0 || comm->copy != NULL;
}

/* What an operation brings to a rank that takes part alone. */
static moxie_status copy_own(const moxie_comm *comm, const open_request *r, moxie_error *error)
{
    const moxie_comm_rows *m = &r->rows;
    const int32_t rank = comm->transport.rank;
    const bool rows = r->kind == MOX_COMM_ALLTOALLV || r->kind == MOX_COMM_ALLGATHERV;
    const int32_t entry = r->kind == MOX_COMM_ALLGATHERV ? 0 : rank;
    const int64_t count = rows ? m->send_rows[entry] : r->kind == MOX_COMM_COUNTS;
    const int64_t from = rows ? m->send_at[entry] : rank, to = rows ? m->recv_at[rank] : rank;
    if (count <= 0 || m->row_bytes == 0)
        return MOXIE_OK;
    MOX_FAIL_IF(!can_copy(comm, r), MOXIE_ERR_UNSUPPORTED, error,
                "rank %d has lost all others, and what it sends itself is on a device, where transport %s cannot copy "
                "it: use one whose mask() leaves out single ranks, or rows in host memory",
                (int)rank, comm->transport.name);
    char *target = (char *)m->recv + (uint64_t)to * m->row_bytes;
    const char *source = (const char *)m->send + (uint64_t)from * m->row_bytes;
    const uint64_t bytes = (uint64_t)count * m->row_bytes;
    if (m->on_device != 0)
        return comm->copy(comm->transport.self, target, source, bytes, m->stream, error);
    memcpy(target, source, bytes);
    return MOXIE_OK;
}

static bool can_go_on_alone(const moxie_comm *comm)
{
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        if (comm->open[i].used && !can_copy(comm, &comm->open[i]))
            return false;
    return true;
}

/* False: own rows on a device could not be copied. */
static bool go_on_alone(moxie_comm *comm, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    comm->transport.cancel(comm->transport.self);
    comm->alone = true;
    for (int32_t r = 0; r < comm->transport.ranks; r++)
        lose(comm, r);
    for (int i = 0; i < MOX_COMM_OPEN && status == MOXIE_OK; i++)
        if (comm->open[i].used)
            status = copy_own(comm, &comm->open[i], error);
    return status == MOXIE_OK;
}

/* The request failed with `status`, or is late if that is MOXIE_OK: gives up on the rank to blame. False when the comm
 * must break. */
static bool go_on(moxie_comm *comm, open_request *r, moxie_status status)
{
    const moxie_transport *t = &comm->transport;
    moxie_error why;
    if (!comm->degraded || (status != MOXIE_OK && status != MOXIE_ERR_TIMEOUT) || r->kind == MOX_COMM_REDUCE_SCATTER)
        return false;
    const int32_t late = late_rank(comm, r);
    const bool known = t->mask != NULL && late >= 0 && late != t->rank && !comm->lost[late];
    const moxie_status masked = known ? t->mask(t->self, late, &why) : MOXIE_ERR_UNSUPPORTED;
    if (masked == MOXIE_OK)
        lose(comm, late);
    else if ((masked != MOXIE_ERR_TIMEOUT || r->extensions++ >= t->ranks) &&
             (!can_go_on_alone(comm) || !go_on_alone(comm, &why)))
        return false;
    r->since = -1;
    return true;
}

/* ---- requests ----------------------------------------------------------------------------------------- */

/* A degraded run has lost a rank, and what follows cannot do without it. */
static moxie_status say_lost(const moxie_comm *comm, mox_comm_kind kind, moxie_error *error)
{
    int32_t rank = 0;
    while (!comm->lost[rank])
        rank++;
    return mox_fail(MOXIE_ERR_TIMEOUT, error,
                    "%s: a degraded run of this comm lost rank %d of %d, and only degraded runs go on without it; make "
                    "comms and plans anew without that rank",
                    mox_comm_kind_name(kind), rank, comm->transport.ranks);
}

/* A place for a request of a comm that works; NULL, and *status set, when there is none. */
static open_request *find_place(moxie_comm *comm, mox_comm_kind kind, moxie_status *status, moxie_error *error)
{
    if (comm->broken.code != MOXIE_OK) {
        *status = say_broken(comm, error);
        return NULL;
    }
    if (comm->losses > 0 && !comm->degraded) {
        *status = say_lost(comm, kind, error);
        return NULL;
    }
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        if (!comm->open[i].used) {
            comm->open[i] = (open_request) { .kind = kind, .operation = comm->operations + 1, .since = -1 };
            return &comm->open[i];
        }
    *status = mox_fail(MOXIE_ERR_ARGUMENT, error,
                       "%s: %d requests of this comm are open, which is the limit; wait for one of them",
                       mox_comm_kind_name(kind), MOX_COMM_OPEN);
    return NULL;
}

/* The transport answered `status` to the start of the request. One that fails to start has no number, so a degraded
 * comm does not ask whom to blame. */
static moxie_status started(moxie_comm *comm, open_request *place, moxie_status status, moxie_error *reason,
                            mox_comm_request *request, moxie_error *error)
{
    comm->operations += place->rows.on_device != 2; /* one that a capture holds is none that other ranks made, too */
    place->used = true;
    const bool loses = status == MOXIE_ERR_TIMEOUT && comm->degraded && place->kind != MOX_COMM_REDUCE_SCATTER;
    if (comm->alone)
        status = copy_own(comm, place, reason);
    else if (loses && can_go_on_alone(comm))
        status = go_on_alone(comm, reason) ? MOXIE_OK : MOXIE_ERR_IO;
    if (status != MOXIE_OK) {
        reason->code = status;
        return transport_failed(comm, mox_comm_kind_name(place->kind), place->operation, 0, reason, error);
    }
    *request = (mox_comm_request)(place - comm->open);
    return MOXIE_OK;
}

moxie_status mox_comm_start_counts_of(moxie_comm *comm, const mox_comm_numbers *numbers, const int64_t *send,
                                      int64_t *recv, int64_t each, mox_comm_request *request, moxie_error *error)
{
    moxie_error reason = UNSAID;
    moxie_status status;
    const moxie_transport *t = &comm->transport;
    open_request *place = find_place(comm, MOX_COMM_COUNTS, &status, error);
    if (!place)
        return status;
    MOX_TRY(mox_comm_check_counts(send, recv, each, t->ranks, error));
    place->rows = (moxie_comm_rows) { .send = send, .recv = recv, .row_bytes = 8 * (uint64_t)each };
    if (comm->alone)
        status = MOXIE_OK;
    else if (numbers != NULL)
        status = comm->counts_of(t->self, numbers, send, recv, each, &place->number, &reason);
    else
        status = t->counts(t->self, send, recv, each, &place->number, &reason);
    return started(comm, place, status, &reason, request, error);
}

moxie_status mox_comm_start_counts(moxie_comm *comm, const int64_t *send, int64_t *recv, int64_t each,
                                   mox_comm_request *request, moxie_error *error)
{
    return mox_comm_start_counts_of(comm, NULL, send, recv, each, request, error);
}

/* Of an exchange: what goes to other ranks. */
static uint64_t sent_bytes(mox_comm_kind kind, const moxie_comm_rows *rows, const moxie_transport *t)
{
    int64_t sent = 0;
    if (kind == MOX_COMM_ALLGATHERV)
        return (uint64_t)rows->send_rows[0] * (uint64_t)(t->ranks - 1) * rows->row_bytes;
    for (int32_t r = 0; r < t->ranks; r++)
        if (r != t->rank)
            sent += kind == MOX_COMM_ALLTOALLV ? rows->send_rows[r] : rows->recv_rows[r];
    return (uint64_t)sent * rows->row_bytes;
}

typedef moxie_status (*rows_function)(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error);

static moxie_status start_rows(moxie_comm *comm, mox_comm_kind kind, rows_function start, const moxie_comm_rows *rows,
                               mox_comm_request *request, moxie_error *error)
{
    moxie_error reason = UNSAID;
    moxie_status status;
    const moxie_transport *t = &comm->transport;
    open_request *place = find_place(comm, kind, &status, error);
    if (!place)
        return status;
    MOX_TRY(mox_comm_check_rows(kind, rows, t->rank, t->ranks, error));
    MOX_FAIL_IF(rows->on_device != 0 && (t->device == 0 || kind == MOX_COMM_REDUCE_SCATTER), MOXIE_ERR_ARGUMENT, error,
                "%s: rows on a device were given, and the transport %s takes %s", mox_comm_kind_name(kind), t->name,
                t->device == 0 ? "host memory only" : "those for alltoallv and allgatherv only");
    comm->sent_bytes += sent_bytes(kind, rows, t);
    place->rows = *rows;
    status = comm->alone ? MOXIE_OK : start(t->self, rows, &place->number, &reason);
    return started(comm, place, status, &reason, request, error);
}

moxie_status mox_comm_start_alltoallv(moxie_comm *comm, const moxie_comm_rows *rows, mox_comm_request *request,
                                      moxie_error *error)
{
    return start_rows(comm, MOX_COMM_ALLTOALLV, comm->transport.alltoallv, rows, request, error);
}

moxie_status mox_comm_start_allgatherv(moxie_comm *comm, const moxie_comm_rows *rows, mox_comm_request *request,
                                       moxie_error *error)
{
    return start_rows(comm, MOX_COMM_ALLGATHERV, comm->transport.allgatherv, rows, request, error);
}

moxie_status mox_comm_start_reduce_scatter(moxie_comm *comm, const moxie_comm_rows *rows, mox_comm_request *request,
                                           moxie_error *error)
{
    return start_rows(comm, MOX_COMM_REDUCE_SCATTER, comm->transport.reduce_scatter, rows, request, error);
}

moxie_status mox_comm_start_allreduce(moxie_comm *comm, void *values, int64_t n, moxie_comm_sum how,
                                      mox_comm_request *request, moxie_error *error)
{
    moxie_error reason = UNSAID;
    moxie_status status;
    const moxie_transport *t = &comm->transport;
    open_request *place = find_place(comm, MOX_COMM_ALLREDUCE, &status, error);
    if (!place)
        return status;
    MOX_TRY(mox_comm_check_allreduce(values, n, how, error));
    status = comm->alone ? MOXIE_OK : t->allreduce(t->self, values, n, how, &place->number, &reason);
    return started(comm, place, status, &reason, request, error);
}

moxie_status mox_comm_start_barrier(moxie_comm *comm, mox_comm_request *request, moxie_error *error)
{
    moxie_error reason = UNSAID;
    moxie_status status;
    const moxie_transport *t = &comm->transport;
    open_request *place = find_place(comm, MOX_COMM_BARRIER, &status, error);
    if (!place)
        return status;
    status = comm->alone ? MOXIE_OK : t->barrier(t->self, &place->number, &reason);
    return started(comm, place, status, &reason, request, error);
}

/* ---- test and wait ------------------------------------------------------------------------------------ */

moxie_status mox_comm_test(moxie_comm *comm, mox_comm_request request, int32_t *done, moxie_error *error)
{
    moxie_error reason = UNSAID;
    int32_t finished = 0;
    if (comm->broken.code != MOXIE_OK)
        return say_broken(comm, error);
    MOX_FAIL_IF(request < 0 || request >= MOX_COMM_OPEN || !comm->open[request].used, MOXIE_ERR_ARGUMENT, error,
                "comm: request %d is not open", request);
    open_request *r = &comm->open[request];
    const moxie_transport *t = &comm->transport;
    const moxie_status status = comm->alone ? MOXIE_OK : t->progress(t->self, r->number, &finished, &reason);
    finished = finished || comm->alone;
    if (status == MOXIE_OK && finished) {
        r->used = false;
        *done = 1;
        return MOXIE_OK;
    }
    const int64_t now = now_ms(), waited = r->since < 0 ? 0 : now - r->since;
    const bool late = status == MOXIE_OK && waited > comm->deadline;
    if ((status != MOXIE_OK || late) && go_on(comm, r, status))
        return mox_comm_test(comm, request, done, error);
    if (status != MOXIE_OK) {
        if (status == MOXIE_ERR_TIMEOUT)
            lose(comm, late_rank(comm, r));
        reason.code = status;
        return transport_failed(comm, mox_comm_kind_name(r->kind), r->operation, waited, &reason, error);
    }
    if (late)
        return too_late(comm, r, waited, error);
    r->since = r->since < 0 ? now : r->since;
    r->seen = now;
    *done = 0;
    return MOXIE_OK;
}

uint64_t mox_comm_pause(uint64_t waited)
{
    enum { YIELD = 100000, SHORTEST = 20000, LONGEST = 1000000, PART = 32 };
    const uint64_t part = waited / PART;
    return waited < YIELD ? 0 : part < SHORTEST ? SHORTEST : part > LONGEST ? LONGEST : part;
}

/* Sleeps until the request may have come further, at most until a little after its deadline. `waited`: ns so far. */
static void pause_for(const moxie_comm *comm, const open_request *r, uint64_t waited)
{
    const int64_t left = mox_max_i64(comm->deadline - (r->seen - r->since), 0);
    const uint64_t pause = mox_comm_pause(waited);
    if (comm->transport.wait)
        comm->transport.wait(comm->transport.self, r->number, (int32_t)mox_min_i64(left + 1, INT32_MAX));
    else if (pause == 0)
        sched_yield();
    else
        nanosleep(&(struct timespec) { .tv_nsec = (long)pause }, NULL);
}

moxie_status mox_comm_wait(moxie_comm *comm, mox_comm_request request, moxie_error *error)
{
    int32_t done = 0;
    MOX_TRY(mox_comm_test(comm, request, &done, error));
    if (done)
        return MOXIE_OK;
    const uint64_t begin = mox_clock_now();
    for (uint64_t now = begin;;) {
        pause_for(comm, &comm->open[request], now - begin);
        now = mox_clock_now();
        MOX_TRY(mox_comm_test(comm, request, &done, error));
        if (!done)
            continue;
        comm->waited += now - begin;
        return MOXIE_OK;
    }
}
