/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_end.c - how a rank leaves: cancel() and destroy() (mpi_transport.h).
 *
 * A communicator is only freed once the notices of all ranks have come. A message that arrives after that would be
 * found by the next communicator, to which MPI may give the same number. Where a rank is dead or has failed, the
 * communicator is kept until the process ends.
 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "comm/mpi/mpi_transport.h"

static const double leave_seconds = 1.0;  /* for the others to come to their destroy(), too */
static const double cancel_seconds = 0.1; /* for requests that cannot be withdrawn */

/* Sleeps a little longer each round: 0 at first, 1 ms in the end. */
static void pause_for(uint32_t round)
{
    if (round < 16)
        sched_yield();
    else
        nanosleep(&(struct timespec) { .tv_nsec = round < 64 ? 50000 : 1000000 }, NULL);
}

static void withdraw(MPI_Request *request)
{
    if (*request != MPI_REQUEST_NULL)
        (void)MPI_Cancel(request);
}

static void stop_hearing(mox_mpi_transport *t)
{
    for (int32_t r = 0; r < t->ranks; r++)
        withdraw(&t->hears.requests[r]);
}

static bool any_died(const mox_mpi_transport *t)
{
    for (int32_t r = 0; r < t->ranks; r++)
        if (t->others[r].dead)
            return true;
    return false;
}

/* ---- cancel ------------------------------------------------------------------------------------------- */

/* Waits a moment for what was withdrawn or cannot be, then forgets the rest. */
static void give_up(mox_mpi_transport *t)
{
    const double until = mox_mpi_now() + cancel_seconds;
    bool all = false;
    for (uint32_t round = 0; !all && mox_mpi_now() < until; round++) {
        all = mox_mpi_all_done(t->ranks, t->ends.requests) && mox_mpi_all_done(t->ranks, t->hears.requests);
        for (int i = 0; i < MOX_COMM_OPEN; i++)
            if (t->open[i].used)
                all = mox_mpi_all_done(t->open[i].n, t->open[i].requests) && all;
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
    const mox_mpi_operation *first = NULL; /* unfinished */
    (void)MPI_Finalized(&ended);
    if (t->cancelled || ended)
        return;
    t->cancelled = true;
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        if (t->open[i].used && (!first || t->open[i].number < first->number))
            first = &t->open[i];
    mox_mpi_tell(t, &t->ends,
                 (mox_mpi_notice) { .news = MOX_MPI_CANCELLED,
                                    .operations = (int64_t)(first ? first->number - 1 : t->operations),
                                    .culprit = t->culprit });
    stop_hearing(t);
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        for (int32_t m = 0; t->open[i].used && m < t->open[i].n; m++)
            if (t->open[i].messages[m].receive)
                withdraw(&t->open[i].requests[m]);
    give_up(t);
}

/* ---- mask --------------------------------------------------------------------------------------------- */

/* Of one rank's messages: receives are withdrawn, sends are left to MPI. A receive that has begun may still write, so
 * this waits a moment for it. */
static void drop_messages(mox_mpi_operation *o, int32_t rank)
{
    const double until = mox_mpi_now() + cancel_seconds;
    for (int32_t i = 0; i < o->n; i++)
        if (o->messages[i].peer == rank && !o->messages[i].done && o->messages[i].receive)
            withdraw(&o->requests[i]);
    for (int32_t i = 0; i < o->n; i++) {
        mox_mpi_message *m = &o->messages[i];
        if (m->peer != rank || m->done)
            continue;
        for (uint32_t round = 0; m->receive && !mox_mpi_all_done(1, &o->requests[i]) && mox_mpi_now() < until; round++)
            pause_for(round);
        if (o->requests[i] != MPI_REQUEST_NULL)
            (void)MPI_Request_free(&o->requests[i]);
        m->done = true;
        o->left--;
    }
}

moxie_status mox_mpi_mask(void *self, int32_t rank, moxie_error *error)
{
    mox_mpi_transport *t = self;
    mox_mpi_other *other = &t->others[rank];
    t->culprit = -1;
    MOX_FAIL_IF(t->cancelled, MOXIE_ERR_UNSUPPORTED, error, "rank %d was cancelled", t->rank);
    MOX_FAIL_IF(!other->gone && !mox_mpi_is_silent(t, rank), MOXIE_ERR_TIMEOUT, error, "rank %d waits itself", rank);
    other->masked = true;
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        if (t->open[i].used)
            drop_messages(&t->open[i], rank);
    return MOXIE_OK;
}

/* ---- destroy ------------------------------------------------------------------------------------------ */

/* Tells the others, waits for them a moment, and frees the communicator if all of them have come. */
static void leave(mox_mpi_transport *t)
{
    const double until = mox_mpi_now() + leave_seconds;
    bool all = false;
    moxie_error ignored;
    mox_mpi_tell(t, &t->ends,
                 (mox_mpi_notice) { .news = MOX_MPI_DESTROYED, .operations = (int64_t)t->operations, .culprit = -1 });
    for (uint32_t round = 0; !all && mox_mpi_now() < until; round++) {
        if (mox_mpi_hear(t, &ignored) != MOXIE_OK)
            break;
        all = mox_mpi_all_done(t->ranks, t->ends.requests) && t->others_gone == t->ranks - 1;
        if (!all)
            pause_for(round);
    }
    if (all && !any_died(t))
        (void)MPI_Comm_free(&t->comm);
    stop_hearing(t);
    (void)mox_mpi_all_done(t->ranks, t->hears.requests);
}

void mox_mpi_free(mox_mpi_transport *t)
{
    for (int i = 0; i < MOX_COMM_OPEN; i++) {
        mox_mpi_release(t, &t->open[i]);
        t->host.release(t->open[i].scratch);
    }
    t->host.release(t->waits.requests);
    t->host.release(t->ends.requests);
    t->host.release(t->hears.notices);
    t->host.release(t->hears.requests);
    t->host.release(t->hears.statuses);
    t->host.release(t->hears.ended);
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
    if (ended || (mox_mpi_all_done(t->ranks, t->ends.requests) && mox_mpi_all_done(t->ranks, t->waits.requests) &&
                  mox_mpi_all_done(t->ranks, t->hears.requests)))
        mox_mpi_free(t);
}
