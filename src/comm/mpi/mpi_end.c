/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_end.c - how a rank leaves: notices, cancel(), destroy() (mpi_transport.h).
 *
 * A communicator is only freed once the notices of all ranks have come. A message that arrives after that would be found
 * by the next communicator, to which MPI may give the same number. Where a rank is dead or has failed, the communicator
 * is kept until the process ends.
 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "comm/mpi/mpi_transport.h"

static const double leave_seconds = 1.0;  /* for the others to come to their destroy(), too */
static const double cancel_seconds = 0.1; /* for requests that cannot be withdrawn */

double mox_mpi_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sleeps a little longer each round: 0 at first, 1 ms in the end. */
static void pause_for(uint32_t round)
{
    if (round < 16)
        sched_yield();
    else
        nanosleep(&(struct timespec) { .tv_nsec = round < 64 ? 50000 : 1000000 }, NULL);
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

/* Takes in all notices that have come. */
static moxie_status hear(mox_mpi_transport *t, moxie_error *error)
{
    int come = 1;
    while (come && t->hearing != MPI_REQUEST_NULL) {
        MPI_Status status;
        const int code = MPI_Test(&t->hearing, &come, &status);
        if (code != MPI_SUCCESS)
            return mox_mpi_failed(t, code, "MPI_Test", -1, error);
        if (!come)
            break;
        mox_mpi_gone *other = &t->others[status.MPI_SOURCE];
        other->gone = true;
        other->notice = t->heard;
        t->others_gone++;
        MOX_TRY(mox_mpi_listen(t, error));
    }
    return MOXIE_OK;
}

/* Names the rank to blame first. */
static moxie_status say_gone(mox_mpi_transport *t, const mox_mpi_operation *operation, int32_t peer, moxie_error *error)
{
    const mox_mpi_notice *notice = &t->others[peer].notice;
    const char *kind = mox_comm_kind_name(operation->kind);
    const int32_t culprit = (int32_t)notice->culprit;
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
                    kind, peer, t->ranks, notice->cancelled ? "failed or was cancelled" : "was destroyed",
                    (long long)notice->operations, t->rank, (unsigned long long)operation->number);
}

moxie_status mox_mpi_check_gone(mox_mpi_transport *t, const mox_mpi_operation *operation, moxie_error *error)
{
    MOX_TRY(hear(t, error));
    for (int32_t i = 0; t->others_gone > 0 && i < operation->n; i++) {
        const mox_mpi_message *m = &operation->messages[i];
        const mox_mpi_gone *other = &t->others[m->peer];
        if (!m->done && other->gone && (int64_t)operation->number > other->notice.operations)
            return say_gone(t, operation, m->peer, error);
    }
    return MOXIE_OK;
}

static void tell(mox_mpi_transport *t, bool cancelled, uint64_t operations, int32_t culprit)
{
    t->told = (mox_mpi_notice) { .operations = (int64_t)operations, .cancelled = cancelled, .culprit = culprit };
    for (int32_t r = 0; r < t->ranks; r++)
        if (r != t->rank)
            (void)MPI_Isend(&t->told, (int)sizeof t->told, MPI_BYTE, r, MOX_MPI_NOTICE_TAG, t->comm, &t->telling[r]);
}

static bool all_done(int n, MPI_Request *requests)
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

static void withdraw(MPI_Request *request)
{
    if (*request != MPI_REQUEST_NULL)
        (void)MPI_Cancel(request);
}

/* ---- cancel ------------------------------------------------------------------------------------------- */

/* Waits a moment for what was withdrawn or cannot be, then forgets the rest. */
static void give_up(mox_mpi_transport *t)
{
    const double until = mox_mpi_now() + cancel_seconds;
    bool all = false;
    for (uint32_t round = 0; !all && mox_mpi_now() < until; round++) {
        all = all_done(t->ranks, t->telling) && all_done(1, &t->hearing);
        for (int i = 0; i < MOX_COMM_OPEN; i++)
            if (t->open[i].used)
                all = all_done(t->open[i].n, t->open[i].requests) && all;
        if (!all)
            pause_for(round);
    }
    for (int i = 0; i < MOX_COMM_OPEN; i++) {
        mox_mpi_operation *o = &t->open[i];
        for (int32_t m = 0; o->used && m < o->n; m++)
            if (o->requests[m] != MPI_REQUEST_NULL)
                (void)MPI_Request_free(&o->requests[m]);
        o->used = false;
    }
}

void mox_mpi_cancel(void *self)
{
    mox_mpi_transport *t = self;
    int ended = 0;
    const mox_mpi_operation *first = NULL;
    (void)MPI_Finalized(&ended);
    if (t->cancelled || ended)
        return;
    t->cancelled = true;
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        if (t->open[i].used && (!first || t->open[i].number < first->number))
            first = &t->open[i];
    const int32_t late = first ? mox_mpi_late(first) : -1;
    tell(t, true, first ? first->number - 1 : t->operations, t->culprit >= 0 ? t->culprit : late);
    withdraw(&t->hearing);
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        for (int32_t m = 0; t->open[i].used && m < t->open[i].n; m++)
            if (t->open[i].messages[m].receive)
                withdraw(&t->open[i].requests[m]);
    give_up(t);
}

/* ---- destroy ------------------------------------------------------------------------------------------ */

/* Tells the others, waits for them a moment, and frees the communicator if all of them have come. */
static void leave(mox_mpi_transport *t)
{
    const double until = mox_mpi_now() + leave_seconds;
    bool all = false;
    moxie_error ignored;
    tell(t, false, t->operations, -1);
    for (uint32_t round = 0; !all && mox_mpi_now() < until; round++) {
        if (hear(t, &ignored) != MOXIE_OK)
            break;
        all = all_done(t->ranks, t->telling) && t->others_gone == t->ranks - 1;
        if (!all)
            pause_for(round);
    }
    if (all)
        (void)MPI_Comm_free(&t->comm);
    withdraw(&t->hearing);
    (void)all_done(1, &t->hearing);
}

void mox_mpi_free(mox_mpi_transport *t)
{
    for (int i = 0; i < MOX_COMM_OPEN; i++) {
        mox_mpi_release(t, &t->open[i]);
        t->host.release(t->open[i].scratch);
    }
    t->host.release(t->telling);
    t->host.release(t->others);
    t->host.release(t);
}

void mox_mpi_destroy(void *self)
{
    mox_mpi_transport *t = self;
    int ended = 0;
    (void)MPI_Finalized(&ended);
    if (!ended && !t->cancelled)
        leave(t);
    /* Where MPI still reads or writes a notice, a few bytes remain until the process ends. */
    if (ended || (all_done(t->ranks, t->telling) && t->hearing == MPI_REQUEST_NULL))
        mox_mpi_free(t);
}
