/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_module.c - the table of libmoxie_openmpi.so and libmoxie_mpich.so: creation of a transport, and starting MPI for
 * programs that do not (mpi_table.h).
 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "comm/mpi/mpi_transport.h"

#define WORDS_(x) #x
#define WORDS(x)  WORDS_(x)
#ifdef OPEN_MPI
#define BUILT "Open MPI " WORDS(OMPI_MAJOR_VERSION) "." WORDS(OMPI_MINOR_VERSION) "." WORDS(OMPI_RELEASE_VERSION)
#else
#define BUILT "MPICH " MPICH_VERSION
#endif

/* ---- creation ----------------------------------------------------------------------------------------- */

static moxie_status check_started(moxie_error *error)
{
    int started = 0, ended = 0;
    (void)MPI_Initialized(&started);
    (void)MPI_Finalized(&ended);
    MOX_FAIL_IF(!started || ended, MOXIE_ERR_ARGUMENT, error,
                "moxie_comm_mpi_create: MPI (" BUILT
                ") %s in this process; call %s first, or moxie_comm_mpi_launch in a "
                "program that does not use MPI itself",
                ended ? "has been finalized" : "is not initialised", ended ? "this function" : "MPI_Init_thread");
    return MOXIE_OK;
}

static moxie_status check_communicator(MPI_Comm from, int *ranks, moxie_error *error)
{
    int two_groups = 0;
    MOX_FAIL_IF(from == MPI_COMM_NULL, MOXIE_ERR_ARGUMENT, error,
                "moxie_comm_mpi_create: the communicator is MPI_COMM_NULL; ranks outside it do not take part");
    (void)MPI_Comm_test_inter(from, &two_groups);
    MOX_FAIL_IF(two_groups, MOXIE_ERR_ARGUMENT, error,
                "moxie_comm_mpi_create: this is an intercommunicator; merge its groups by MPI_Intercomm_merge");
    (void)MPI_Comm_size(from, ranks);
    MOX_FAIL_IF(*ranks > MOXIE_MAX_RANKS, MOXIE_ERR_UNSUPPORTED, error,
                "moxie_comm_mpi_create: the communicator has %d ranks; at most %d are possible", *ranks,
                MOXIE_MAX_RANKS);
    return MOXIE_OK;
}

/* MPI_Comm_dup, but it gives up at the deadline. */
static moxie_status duplicate(mox_mpi_transport *t, MPI_Comm from, moxie_error *error)
{
    MPI_Request request;
    MPI_Status status;
    int done = 0;
    const double begin = mox_mpi_now();
    int code = MPI_Comm_idup(from, &t->comm, &request);
    while (code == MPI_SUCCESS && !done) {
        code = MPI_Test(&request, &done, &status);
        const double waited = 1000 * (mox_mpi_now() - begin);
        MOX_FAIL_IF(
            !done && waited > t->host.deadline_ms, MOXIE_ERR_TIMEOUT, error,
            "moxie_comm_mpi_create: not all of the communicator's %d ranks called it within %d ms (deadline_ms); "
            "MPI does not say which did not; every rank must call it",
            t->ranks, t->host.deadline_ms);
        if (!done && waited < 2)
            sched_yield();
        else if (!done)
            nanosleep(&(struct timespec) { .tv_nsec = 500000 }, NULL);
    }
    if (code != MPI_SUCCESS)
        return mox_mpi_failed(t, code, "MPI_Comm_idup", -1, error);
    (void)MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(t->comm, &t->rank);
    return MOXIE_OK;
}

static moxie_status allocate(mox_mpi_transport *t, moxie_error *error)
{
    const uint64_t ranks = (uint64_t)t->ranks;
    t->waits.requests = t->host.alloc(ranks * sizeof(MPI_Request));
    t->ends.requests = t->host.alloc(ranks * sizeof(MPI_Request));
    t->others = t->host.alloc(ranks * sizeof(mox_mpi_other));
    t->hears = (mox_mpi_hearing) { .notices = t->host.alloc(ranks * sizeof(mox_mpi_notice)),
                                   .requests = t->host.alloc(ranks * sizeof(MPI_Request)),
                                   .statuses = t->host.alloc(ranks * sizeof(MPI_Status)),
                                   .ended = t->host.alloc(ranks * sizeof(int)) };
    MOX_FAIL_IF(!t->waits.requests || !t->ends.requests || !t->others || !t->hears.notices || !t->hears.requests ||
                    !t->hears.statuses || !t->hears.ended,
                MOXIE_ERR_MEMORY, error, "moxie_comm_mpi_create: no memory for %d ranks", t->ranks);
    for (int32_t r = 0; r < t->ranks; r++)
        t->waits.requests[r] = t->ends.requests[r] = t->hears.requests[r] = MPI_REQUEST_NULL;
    for (int i = 0; i < MOX_COMM_OPEN; i++)
        MOX_TRY(mox_mpi_reserve(t, &t->open[i], 2 * t->ranks, error));
    return MOXIE_OK;
}

/* Whether ranks share processors, as the launcher tells it: MPI's own way to ask is a collective, which waits. Open MPI
 * gives way to other processes itself then, in each call that finds nothing. */
static bool is_crowded(void)
{
#ifdef OPEN_MPI
    return false;
#else
    cpu_set_t set;
    const char *here = getenv("MPI_LOCALNRANKS");
    return here == NULL || sched_getaffinity(0, sizeof set, &set) != 0 || atoi(here) > CPU_COUNT(&set);
#endif
}

/* All that can fail on one rank alone comes before the first message. */
static moxie_status create(const void *communicator, const mox_mpi_options *options, moxie_transport *out,
                           moxie_error *error)
{
    int ranks = 0;
    MPI_Comm from = MPI_COMM_WORLD;
    MOX_TRY(check_started(error));
    if (communicator)
        from = *(const MPI_Comm *)communicator;
    MOX_TRY(check_communicator(from, &ranks, error));
    mox_mpi_transport *t = options->alloc(sizeof *t);
    MOX_FAIL_IF(!t, MOXIE_ERR_MEMORY, error, "moxie_comm_mpi_create: no memory for %d ranks", ranks);
    t->ranks = ranks;
    t->culprit = -1;
    t->crowded = is_crowded();
    t->host = *options;
    t->host.part_bytes = options->part_bytes > 0 ? options->part_bytes : (uint64_t)1 << 30;
    moxie_status status = allocate(t, error);
    if (status == MOXIE_OK)
        status = duplicate(t, from, error);
    if (status != MOXIE_OK) {
        if (status != MOXIE_ERR_TIMEOUT) /* else MPI still writes to t->comm */
            mox_mpi_free(t);
        return status;
    }
    for (int32_t r = 0; r < t->ranks; r++)
        mox_mpi_listen(t, r);
    *out =
        (moxie_transport) { .struct_size = sizeof *out, .ranks = t->ranks, .rank = t->rank, .name = "mpi", .self = t };
    mox_mpi_operations(out);
    out->cancel = mox_mpi_cancel;
    out->destroy = mox_mpi_destroy;
    return MOXIE_OK;
}

/* ---- for programs that do not call MPI ---------------------------------------------------------------- */

/* Else the death of another rank ends this one, where they have a connection. */
static void ignore_broken_pipes(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
        (void)signal(SIGPIPE, SIG_IGN);
}

static moxie_status launch(moxie_error *error)
{
    int started = 0, level = 0;
    (void)MPI_Initialized(&started);
    MOX_FAIL_IF(started, MOXIE_ERR_ARGUMENT, error,
                "moxie_comm_mpi_launch: MPI (" BUILT ") is initialised already in this process, and may be only once");
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    MOX_FAIL_IF(code != MPI_SUCCESS, MOXIE_ERR_IO, error,
                "moxie_comm_mpi_launch: MPI_Init_thread (" BUILT ") failed: %d", code);
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    ignore_broken_pipes();
    return MOXIE_OK;
}

static void finish(void)
{
    int started = 0, ended = 0;
    (void)MPI_Initialized(&started);
    (void)MPI_Finalized(&ended);
    if (started && !ended)
        (void)MPI_Finalize();
}

const mox_mpi_table *mox_mpi_table_get(void)
{
    static const mox_mpi_table table = { .version = MOX_MPI_TABLE_VERSION,
                                         .bytes = sizeof table,
                                         .built = BUILT,
                                         .create = create,
                                         .launch = launch,
                                         .finish = finish };
    return &table;
}
