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

moxie_status mox_mpi_listen(mox_mpi_transport *t, moxie_error *error)
{
    t->hearing = MPI_REQUEST_NULL;
    if (t->others_gone == t->ranks - 1)
        return MOXIE_OK;
    const int code =
        MPI_Irecv(&t->heard, (int)sizeof t->heard, MPI_BYTE, MPI_ANY_SOURCE, MOX_MPI_NOTICE_TAG, t->comm, &t->hearing);
    return code == MPI_SUCCESS ? MOXIE_OK : mox_mpi_failed(t, code, "MPI_Irecv", -1, error);
}

moxie_status mox_mpi_hear(mox_mpi_transport *t, moxie_error *error)
{
    int come = 1;
    while (come && t->hearing != MPI_REQUEST_NULL) {
        MPI_Status status;
        const int code = MPI_Test(&t->hearing, &come, &status);
        if (code != MPI_SUCCESS)
            return mox_mpi_failed(t, code, "MPI_Test", -1, error);
        if (!come)
            break;
        mox_mpi_other *other = &t->others[status.MPI_SOURCE];
        other->last = t->heard;
        other->waits = t->heard.news == MOX_MPI_WAITS ? mox_mpi_now() : 0;
        other->gone = t->heard.news != MOX_MPI_WAITS;
        t->others_gone += other->gone;
        MOX_TRY(mox_mpi_listen(t, error));
    }
    return MOXIE_OK;
}

/* Names the rank to blame first. */
static moxie_status say_gone(mox_mpi_transport *t, const mox_mpi_operation *operation, int32_t peer, moxie_error *error)
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
            return say_gone(t, operation, m->peer, error);
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
