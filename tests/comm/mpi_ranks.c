/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_ranks.c - one rank of tests/comm/test_mpi_*.sh: a program of mpirun that uses a comm over MPI.
 *
 *     mpi_ranks exchange [PART_BYTES]   what every transport must do (comm_conformance.h), on several comms
 *     mpi_ranks late | stopped          rank 1 takes no part any more: the others must fail in time and name it
 *     mpi_ranks killed [MICROSECONDS]   the same, at any moment of an exchange
 *     mpi_ranks cut FILE                somebody takes the network away: every rank must fail in time and name another;
 *                                       FILE.N is there when rank N has failed
 *     mpi_ranks leaves | breaks         rank 1 says that it goes: the others must fail at once and name it
 *     mpi_ranks odd                     ranks state different numbers; a wrong communicator
 *     mpi_ranks early                   before MPI_Init
 *
 * Every rank prints "rank N: fine" at its end, or what was wrong.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/time.h>

#include <mpi.h>

#include "comm/comm.h"
#include "comm/mpi_loader.h"
#include "comm_conformance.h"

enum { DEADLINE = 3000 }; /* ms */
enum { PATIENCE = 20 };   /* s: how much longer a busy machine may take */

static int ranks, rank, failures;
static moxie_error error;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            printf("rank %d, line %d: %s: ", rank, __LINE__, #condition);                                              \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
        }                                                                                                              \
    } while (0)
#define FINE(call)                                                                                                     \
    do {                                                                                                               \
        const moxie_status status_ = (call);                                                                           \
        CHECK(status_ == MOXIE_OK, "%s", error.text);                                                                  \
        if (status_ != MOXIE_OK)                                                                                       \
            return;                                                                                                    \
    } while (0)

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- exchange ----------------------------------------------------------------------------------------- */

static void conform(moxie_comm *comm, uint64_t seed, int64_t rounds)
{
    char text[512] = "";
    const bool conforms = comm_conforms(comm, seed, rounds, text, sizeof text);
    CHECK(conforms, "%s", text);
}

static void exchange(uint64_t part_bytes)
{
    moxie_comm *comm, *second;
    FINE(mox_comm_mpi_create(NULL, 0, part_bytes, &comm, &error));
    CHECK(moxie_comm_ranks(comm) == ranks && moxie_comm_rank(comm) == rank, "rank %d", moxie_comm_rank(comm));
    CHECK(strcmp(moxie_comm_name(comm), "mpi") == 0, "%s", moxie_comm_name(comm));
    for (uint64_t round = 0; round < 5; round++) { /* another comm each time; MPI may give its number again */
        MPI_Comm world = MPI_COMM_WORLD;
        FINE(mox_comm_mpi_create(&world, 0, part_bytes, &second, &error));
        conform(comm, 100 + round, 4);
        conform(second, 200 + round, 4);
        moxie_comm_destroy(second);
    }
    FINE(moxie_comm_barrier(comm, &error));
    moxie_comm_destroy(comm);
}

/* ---- faults ------------------------------------------------------------------------------------------- */

/* Rows that are too long to be sent before the receiver takes them, and a number. */
static moxie_status exchange_once(moxie_comm *comm)
{
    enum { ROW = 150000 };
    static char send[ROW], recv[64 * ROW];
    int64_t one[64], at[64], from[64], value = rank;
    for (int r = 0; r < ranks; r++) {
        one[r] = 1;
        at[r] = r;
        from[r] = 0;
    }
    const moxie_comm_rows rows = {
        .send = send, .recv = recv, .row_bytes = ROW, .send_rows = one, .send_at = from, .recv_rows = one, .recv_at = at
    };
    const moxie_status status = moxie_comm_alltoallv(comm, &rows, &error);
    return status ? status : moxie_comm_allreduce(comm, &value, 1, MOXIE_COMM_MAX_I64, &error);
}

/* Exchanges until that fails, `most` seconds after it last went well, within `limit` seconds. The failure must
 * name rank 1, or `any` rank. */
static void expect_failure(moxie_comm *comm, double most, double limit, bool any)
{
    char name[32];
    moxie_status status = MOXIE_OK;
    double last = seconds();
    const double begin = last;
    while (status == MOXIE_OK && last - begin < limit) {
        last = seconds();
        status = exchange_once(comm);
    }
    const double waited = seconds() - last;
    snprintf(name, sizeof name, "rank 1 of %d", ranks);
    CHECK(status == MOXIE_ERR_TIMEOUT, "status %d", status);
    CHECK(waited < most, "%.2f s", waited);
    CHECK(strstr(error.text, any ? "rank " : name) || (!any && strstr(error.text, "waited for rank 1 ")), "%s",
          error.text);
    CHECK(moxie_comm_barrier(comm, &error) == status, "a broken comm works again");
    moxie_comm_destroy(comm);
}

static void kill_this(int signal_number)
{
    (void)signal_number;
    kill(getpid(), SIGKILL);
}

/* What rank 1 does. `moment`: of its death, in microseconds. */
static void be_faulty(const char *mode, moxie_comm *comm, int moment)
{
    const moxie_error reason = { .code = MOXIE_ERR_MISMATCH, .text = "a reason of its own" };
    if (strcmp(mode, "killed") == 0) {
        signal(SIGALRM, kill_this);
        setitimer(ITIMER_REAL, &(struct itimerval) { .it_value.tv_usec = 1 + moment }, NULL);
        while (exchange_once(comm) == MOXIE_OK)
            continue;
    } else if (strcmp(mode, "stopped") == 0)
        raise(SIGSTOP); /* until rank 0 kills it */
    else if (strcmp(mode, "late") == 0)
        usleep((DEADLINE + 1200) * 1000);
    else if (strcmp(mode, "breaks") == 0)
        mox_comm_break(comm, &reason);
    else
        moxie_comm_destroy(comm);
}

/* Tells the script, whatever becomes of what this rank prints. */
static void leave_mark(const char *file)
{
    char path[1024];
    snprintf(path, sizeof path, "%s.%d", file, rank);
    FILE *mark = fopen(path, "w");
    CHECK(mark != NULL && fclose(mark) == 0, "%s", path);
}

static void fault(const char *mode, const char *argument)
{
    moxie_comm *comm, *first;
    int64_t pid = getpid(), send[64], pids[64];
    const bool tells = strcmp(mode, "leaves") == 0 || strcmp(mode, "breaks") == 0;
    FINE(mox_comm_mpi_create(NULL, 0, 0, &first, &error));
    for (int r = 0; r < ranks; r++)
        send[r] = pid;
    conform(first, 1, 3);
    FINE(moxie_comm_counts(first, send, pids, 1, &error));
    FINE(mox_comm_mpi_create(NULL, tells ? 30000 : DEADLINE, 0, &comm, &error));
    if (strcmp(mode, "cut") == 0) {
        printf("rank %d: ready\n", rank);
        expect_failure(comm, DEADLINE / 1000.0 + PATIENCE, 100, true);
        leave_mark(argument);
    } else if (rank == 1) {
        be_faulty(mode, comm, atoi(argument));
    } else {
        expect_failure(comm, (tells ? 0 : DEADLINE / 1000.0) + PATIENCE, 60, false);
    }
    if (rank == 0 && strcmp(mode, "stopped") == 0) {
        usleep(300000); /* the others end meanwhile */
        kill((pid_t)pids[1], SIGKILL);
    }
}

/* ---- wrong calls -------------------------------------------------------------------------------------- */

static void odd(void)
{
    moxie_comm *comm;
    MPI_Comm none = MPI_COMM_NULL;
    int64_t values[64] = { 0 };
    CHECK(mox_comm_mpi_create(&none, 0, 0, &comm, &error) == MOXIE_ERR_ARGUMENT && strstr(error.text, "MPI_COMM_NULL"),
          "%s", error.text);
    CHECK(mox_comm_mpi_launch(&error) == MOXIE_ERR_ARGUMENT, "%s", error.text);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* MPICH reports broken messages there */
    FINE(mox_comm_mpi_create(NULL, 5000, 0, &comm, &error));
    const moxie_status status = moxie_comm_allreduce(comm, values, 3 + rank, MOXIE_COMM_SUM_I64, &error);
    CHECK(status == MOXIE_ERR_MISMATCH || status == MOXIE_ERR_TIMEOUT, "status %d", status);
    CHECK(strstr(error.text, "rank ") != NULL, "%s", error.text);
    if (rank == 0)
        printf("what a mismatch says: %s\n", error.text);
    moxie_comm_destroy(comm);
}

static void early(void)
{
    moxie_comm *comm;
    CHECK(mox_comm_mpi_create(NULL, 0, 0, &comm, &error) == MOXIE_ERR_ARGUMENT, "%s", error.text);
    CHECK(strstr(error.text, "not initialised") != NULL, "%s", error.text);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "exchange";
    const bool is_exchange = strcmp(mode, "exchange") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(mode, "early") == 0)
        early();
    signal(SIGPIPE, SIG_IGN); /* of a TCP connection to a dead rank */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (is_exchange)
        exchange(argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
    else if (strcmp(mode, "odd") == 0)
        odd();
    else if (strcmp(mode, "early") != 0)
        fault(mode, argc > 2 ? argv[2] : "0");
    if (failures == 0)
        printf("rank %d: fine\n", rank);
    fflush(stdout);
    if (!is_exchange && strcmp(mode, "early") != 0)
        _exit(failures != 0); /* MPI_Finalize may wait for a rank that is dead */
    MPI_Finalize();
    return failures != 0;
}
