/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_notices.c - what ranks tell each other besides operations: that they wait, or that they have gone; and whom a
 * rank blames for being late (mpi_transport.h).
 */
#include <time.h>

#include "comm/mpi/mpi_transport.h"

double mox_mpi_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A rank that waits says so after this time, and again each time it has passed. */
static double said_each(const mox_mpi_transport *t)
{
    return t->host.deadline_ms / 4000.0;
}

/* ---- whom to blame ------------------------------------------------------------------------------------ */

/* It has not said lately that it waits. */
bool mox_mpi_is_silent(const mox_mpi_transport *t, int32_t rank)
{
    return t->others[rank].waits == 0 || mox_mpi_now() - t->others[rank].waits > 2 * said_each(t);
}

/* The lowest rank with an unfinished message of that direction, INT32_MAX for none. */
static int32_t lowest(const mox_mpi_transport *t, const mox_mpi_operation *operation, bool receive, bool silent)
{
    int32_t found = INT32_MAX;
    for (int32_t i = 0; i < operation->n; i++) {
        const mox_mpi_message *m = &operation->messages[i];
        if (!m->done && m->receive == receive && m->peer < found && (!silent || mox_mpi_is_silent(t, m->peer)))
            found = m->peer;
    }
    return found;
}

int32_t mox_mpi_late(const mox_mpi_transport *t, const mox_mpi_operation *operation)
{
    const int32_t from = lowest(t, operation, true, true), to = lowest(t, operation, false, true);
    if (from != INT32_MAX || to != INT32_MAX)
        return from != INT32_MAX ? from : to;
    int32_t late = lowest(t, operation, true, false);
    late = late != INT32_MAX ? late : lowest(t, operation, false, false);
    if (late == INT32_MAX)
        return -1;
    const int32_t behind = (int32_t)t->others[late].last.culprit;
    return behind >= 0 && behind != t->rank && !t->others[behind].masked ? behind : late;
}

/* ---- notices ------------------------------------------------------------------------------------------ */

void mox_mpi_set_dead(mox_mpi_transport *t, int32_t rank)
{
    mox_mpi_other *other = &t->others[rank];
    if (!other->gone) {
        t->others_gone++;
        other->gone = true;
        other->last = (mox_mpi_notice) { .news = MOX_MPI_DIED, .culprit = -1 };
        other->waits = 0;
    }
    other->last.operations = 0; /* what has not come will not */
    other->dead = true;
}

void mox_mpi_listen(mox_mpi_transport *t, int32_t rank)
{
    if (rank == t->rank || t->others[rank].gone)
        return;
    const int code = MPI_Irecv(&t->hears.notices[rank], (int)sizeof(mox_mpi_notice), MPI_BYTE, rank, MOX_MPI_NOTICE_TAG,
                               t->comm, &t->hears.requests[rank]);
    if (code != MPI_SUCCESS)
        mox_mpi_set_dead(t, rank);
}

static void take_in(mox_mpi_transport *t, int32_t rank)
{
    mox_mpi_other *other = &t->others[rank];
    other->last = t->hears.notices[rank];
    other->waits = other->last.news == MOX_MPI_WAITS ? mox_mpi_now() : 0;
    other->gone = other->last.news != MOX_MPI_WAITS;
    t->others_gone += other->gone;
    mox_mpi_listen(t, rank);
}

moxie_status mox_mpi_hear(mox_mpi_transport *t, moxie_error *error)
{
    const mox_mpi_hearing *h = &t->hears;
    int count = 1;
    while (count > 0) { /* MPI_UNDEFINED, below 0, where no request is open */
        int class = MPI_SUCCESS;
        const int code = MPI_Testsome(t->ranks, h->requests, &count, h->ended, h->statuses);
        if (code != MPI_SUCCESS)
            (void)MPI_Error_class(code, &class);
        if (code != MPI_SUCCESS && class != MPI_ERR_IN_STATUS)
            return mox_mpi_failed(t, code, "MPI_Testsome", -1, error);
        for (int i = 0; i < count; i++)
            if (code == MPI_SUCCESS || h->statuses[i].MPI_ERROR == MPI_SUCCESS)
                take_in(t, h->ended[i]);
            else
                mox_mpi_set_dead(t, h->ended[i]);
    }
    return MOXIE_OK;
}

moxie_status mox_mpi_say_gone(mox_mpi_transport *t, const mox_mpi_operation *operation, int32_t peer,
                              moxie_error *error)
{
    const mox_mpi_notice *notice = &t->others[peer].last;
    const char *kind = mox_comm_kind_name(operation->kind);
    const int32_t named = (int32_t)notice->culprit;
    const int32_t culprit = named >= 0 && !t->others[named].masked ? named : -1;
    t->culprit = culprit >= 0 && culprit != t->rank ? culprit : peer;
    if (culprit >= 0)
        return mox_fail(
            MOXIE_ERR_TIMEOUT, error,
            "%s: rank %d of %d gave up (it waited for rank %d in vain), and rank %d needs it; make comms and "
            "plans anew, without the rank that is dead",
            kind, peer, t->ranks, culprit, t->rank);
    MOX_FAIL_IF(
        notice->news == MOX_MPI_DIED, MOXIE_ERR_TIMEOUT, error,
        "%s: MPI says that rank %d of %d is dead or out of reach, and rank %d needs it for operation %llu; make "
        "comms and plans anew, without that rank",
        kind, peer, t->ranks, t->rank, (unsigned long long)operation->number);
    return mox_fail(MOXIE_ERR_TIMEOUT, error,
                    "%s: rank %d of %d gave up (it %s after %lld operations), and rank %d needs it for operation %llu; "
                    "make comms and plans anew, without that rank",
                    kind, peer, t->ranks,
                    notice->news == MOX_MPI_CANCELLED ? "failed or was cancelled" : "was destroyed",
                    (long long)notice->operations, t->rank, (unsigned long long)operation->number);
}

static moxie_status check_gone(mox_mpi_transport *t, const mox_mpi_operation *operation, moxie_error *error)
{
    for (int32_t i = 0; t->others_gone > 0 && i < operation->n; i++) {
        const mox_mpi_message *m = &operation->messages[i];
        const mox_mpi_other *other = &t->others[m->peer];
        if (!m->done && other->gone && (int64_t)operation->number > other->last.operations)
            return mox_mpi_say_gone(t, operation, m->peer, error);
    }
    return MOXIE_OK;
}

void mox_mpi_tell(mox_mpi_transport *t, mox_mpi_telling *telling, mox_mpi_notice notice)
{
    telling->notice = notice;
    for (int32_t r = 0; r < t->ranks; r++)
        if (r != t->rank)
            (void)MPI_Isend(&telling->notice, (int)sizeof telling->notice, MPI_BYTE, r, MOX_MPI_NOTICE_TAG, t->comm,
                            &telling->requests[r]);
}

moxie_status mox_mpi_unfinished(mox_mpi_transport *t, mox_mpi_operation *operation, moxie_error *error)
{
    const double now = mox_mpi_now();
    MOX_TRY(mox_mpi_hear(t, error));
    MOX_TRY(check_gone(t, operation, error));
    if (operation->since == 0)
        operation->since = now;
    if (now - operation->since < said_each(t) || !mox_mpi_all_done(t->ranks, t->waits.requests))
        return MOXIE_OK;
    operation->since = now;
    mox_mpi_tell(t, &t->waits, (mox_mpi_notice) { .news = MOX_MPI_WAITS, .culprit = mox_mpi_late(t, operation) });
    return MOXIE_OK;
}

bool mox_mpi_all_done(int n, MPI_Request *requests)
{
    bool all = true;
    for (int i = 0; i < n; i++) {
        int done = 1;
        MPI_Status status;
        if (requests[i] != MPI_REQUEST_NULL)
            (void)MPI_Test(&requests[i], &done, &status);
        all = all && done;
    }
    return all;
}
