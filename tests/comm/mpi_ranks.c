/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_ranks.c - one rank of tests/comm/test_mpi_*.sh: a program of mpirun that uses a comm over MPI.
 *
 *     mpi_ranks exchange [PART_BYTES]   every operation, many times, against values computed from their definition
 *     mpi_ranks late | stopped | killed rank 1 takes no part any more: the others must fail in time and name it
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

#include <mpi.h>

#include "comm/comm.h"
#include "comm/mpi_loader.h"

enum { DEADLINE = 1500, ROUNDS = 40 };

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

/* A number that every rank can compute for every other. */
static uint32_t mixed(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t x = a * 2654435761u + b * 40503u + c * 69069u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ x >> 13;
}

/* ---- exchange ----------------------------------------------------------------------------------------- */

/* Rows that `from` sends to `to` in a round; often none. */
static int64_t rows_between(uint32_t round, int from, int to)
{
    const uint32_t x = mixed(round, (uint32_t)from, (uint32_t)to);
    return x % 3 == 0 ? 0 : (int64_t)(x / 3 % 17);
}

static unsigned char byte_of(uint32_t round, int from, int to, uint64_t i)
{
    return (unsigned char)mixed(round * 64 + (uint32_t)from, (uint32_t)to, (uint32_t)i);
}

/* Both are called with and without `to`: allgatherv sends the same rows to all, as if to rank 0. */
static void exchange_rows(moxie_comm *comm, uint32_t round, bool gather)
{
    enum { MOST = 17 };
    const uint64_t row_bytes = 1 + mixed(round, 7, 7) % 900;
    int64_t counts[4][64];
    moxie_comm_rows rows = { .row_bytes = row_bytes, .send_rows = counts[0], .send_at = counts[1],
                             .recv_rows = counts[2], .recv_at = counts[3] };
    const size_t size = (size_t)ranks * MOST * row_bytes;
    unsigned char *send = malloc(size), *recv = malloc(size), *expected = malloc(size);
    memset(recv, 0xee, size);
    memset(expected, 0xee, size);
    for (int r = 0; r < ranks; r++) {
        counts[0][r] = rows_between(round, rank, gather ? 0 : r);
        counts[1][r] = gather ? 0 : r * MOST;
        counts[2][r] = rows_between(round, r, gather ? 0 : rank);
        counts[3][r] = (ranks - 1 - r) * MOST;
        for (uint64_t i = 0; i < (uint64_t)counts[0][r] * row_bytes; i++)
            send[(uint64_t)counts[1][r] * row_bytes + i] = byte_of(round, rank, gather ? 0 : r, i);
        for (uint64_t i = 0; i < (uint64_t)counts[2][r] * row_bytes; i++)
            expected[(uint64_t)counts[3][r] * row_bytes + i] = byte_of(round, r, gather ? 0 : rank, i);
    }
    rows.send = send;
    rows.recv = recv;
    const moxie_status status =
        gather ? moxie_comm_allgatherv(comm, &rows, &error) : moxie_comm_alltoallv(comm, &rows, &error);
    CHECK(status == MOXIE_OK, "%s", error.text);
    CHECK(memcmp(recv, expected, size) == 0, "round %u, %s", round, gather ? "allgatherv" : "alltoallv");
    free(send);
    free(recv);
    free(expected);
}

/* Parts whose sum depends on the order: large ones that cancel each other, small ones between. */
static float part_of(uint32_t round, int from, int64_t i)
{
    const float large = (float)(mixed(round, (uint32_t)from, (uint32_t)i) % 1000) * 1e6f;
    return (from % 2 ? -large : large) + 0.1f * (float)from;
}

static void exchange_sums(moxie_comm *comm, uint32_t round)
{
    enum { COLS = 5, MOST = 4 };
    int64_t recv_rows[64], recv_at[64];
    float *send = malloc(sizeof *send * (size_t)ranks * MOST * COLS);
    float recv[MOST * COLS];
    int64_t at = 0;
    for (int r = 0; r < ranks; r++) {
        recv_rows[r] = mixed(round, 3, (uint32_t)r) % (MOST + 1);
        recv_at[r] = at;
        at += recv_rows[r];
    }
    for (int64_t i = 0; i < at * COLS; i++)
        send[i] = part_of(round, rank, i);
    const moxie_comm_rows rows = { .send = send, .recv = recv, .row_bytes = 4 * COLS, .recv_rows = recv_rows,
                                   .recv_at = recv_at };
    FINE(moxie_comm_reduce_scatter(comm, &rows, &error));
    for (int64_t i = 0; i < recv_rows[rank] * COLS; i++) {
        float sum = part_of(round, 0, recv_at[rank] * COLS + i);
        for (int r = 1; r < ranks; r++)
            sum += part_of(round, r, recv_at[rank] * COLS + i);
        CHECK(memcmp(&sum, &recv[i], sizeof sum) == 0, "round %u, sum %lld: %g, not %g", round, (long long)i,
              (double)recv[i], (double)sum);
    }
    free(send);
}

static void exchange_values(moxie_comm *comm, uint32_t round)
{
    enum { N = 9 };
    int64_t sums[N], largest[N], send[64 * 3], recv[64 * 3];
    float floats[N];
    for (int i = 0; i < N; i++) {
        sums[i] = largest[i] = (int64_t)mixed(round, (uint32_t)rank, (uint32_t)i) - 2000000000;
        floats[i] = -(float)mixed(round, (uint32_t)rank, (uint32_t)i);
    }
    FINE(moxie_comm_allreduce(comm, sums, N, MOXIE_COMM_SUM_I64, &error));
    FINE(moxie_comm_allreduce(comm, largest, N, MOXIE_COMM_MAX_I64, &error));
    FINE(moxie_comm_allreduce(comm, floats, N, MOXIE_COMM_MAX_F32, &error));
    for (int i = 0; i < N; i++) {
        int64_t sum = 0;
        uint32_t highest = 0, lowest = UINT32_MAX;
        for (int r = 0; r < ranks; r++) {
            const uint32_t x = mixed(round, (uint32_t)r, (uint32_t)i);
            sum += (int64_t)x - 2000000000;
            highest = x > highest ? x : highest;
            lowest = x < lowest ? x : lowest;
        }
        CHECK(sums[i] == sum && largest[i] == (int64_t)highest - 2000000000 && floats[i] == -(float)lowest,
              "round %u, value %d", round, i);
    }
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < 3; i++)
            send[3 * r + i] = (rank * 1000 + r) * 10 + i;
    FINE(moxie_comm_counts(comm, send, recv, 3, &error));
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < 3; i++)
            CHECK(recv[3 * r + i] == (r * 1000 + rank) * 10 + i, "counts from %d", r);
}

/* Eight requests at a time, ended in another order. */
static void many_open(moxie_comm *comm)
{
    int64_t values[MOX_COMM_OPEN];
    mox_comm_request request[MOX_COMM_OPEN];
    for (int i = 0; i < MOX_COMM_OPEN; i++) {
        values[i] = rank + i;
        FINE(mox_comm_start_allreduce(comm, &values[i], 1, MOXIE_COMM_SUM_I64, &request[i], &error));
    }
    for (int i = MOX_COMM_OPEN - 1; i >= 0; i--) {
        FINE(mox_comm_wait(comm, request[i], &error));
        CHECK(values[i] == (int64_t)ranks * (ranks - 1) / 2 + (int64_t)ranks * i, "request %d", i);
    }
}

static void exchange(uint64_t part_bytes)
{
    moxie_comm *comm, *second;
    FINE(mox_comm_mpi_create(NULL, 0, part_bytes, &comm, &error));
    CHECK(moxie_comm_ranks(comm) == ranks && moxie_comm_rank(comm) == rank, "rank %d", moxie_comm_rank(comm));
    CHECK(strcmp(moxie_comm_name(comm), "mpi") == 0, "%s", moxie_comm_name(comm));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        exchange_rows(comm, round, false);
        exchange_rows(comm, round, true);
        exchange_sums(comm, round);
        exchange_values(comm, round);
        if (round % 8 == 0) { /* another comm while the first is in use; MPI may give its number again */
            MPI_Comm world = MPI_COMM_WORLD;
            FINE(mox_comm_mpi_create(&world, 0, part_bytes, &second, &error));
            many_open(second);
            moxie_comm_destroy(second);
        }
    }
    FINE(moxie_comm_barrier(comm, &error));
    moxie_comm_destroy(comm);
}

/* ---- faults ------------------------------------------------------------------------------------------- */

/* This rank must fail within `most` seconds from now, and name rank 1. */
static void expect_failure(moxie_comm *comm, double most)
{
    char name[32];
    moxie_status status = MOXIE_OK;
    const double begin = seconds();
    int64_t value = rank;
    while (status == MOXIE_OK && seconds() - begin < 2 * most)
        status = moxie_comm_allreduce(comm, &value, 1, MOXIE_COMM_MAX_I64, &error);
    const double waited = seconds() - begin;
    snprintf(name, sizeof name, "rank 1 of %d", ranks);
    CHECK(status == MOXIE_ERR_TIMEOUT, "status %d", status);
    CHECK(waited < most, "%.2f s", waited);
    CHECK(strstr(error.text, name) != NULL || strstr(error.text, "waited for rank 1 ") != NULL, "%s", error.text);
    CHECK(moxie_comm_barrier(comm, &error) == status, "a broken comm works again");
    moxie_comm_destroy(comm);
}

/* What rank 1 does. `pids`: of all ranks. */
static void be_faulty(const char *mode, moxie_comm *comm)
{
    const moxie_error reason = { .code = MOXIE_ERR_MISMATCH, .text = "a reason of its own" };
    if (strcmp(mode, "killed") == 0)
        raise(SIGKILL);
    else if (strcmp(mode, "stopped") == 0)
        raise(SIGSTOP); /* until rank 0 kills it */
    else if (strcmp(mode, "late") == 0)
        usleep((DEADLINE + 1200) * 1000);
    else if (strcmp(mode, "breaks") == 0)
        mox_comm_break(comm, &reason);
    else
        moxie_comm_destroy(comm);
}

static void fault(const char *mode)
{
    moxie_comm *comm;
    int64_t pid = getpid(), send[64], pids[64];
    const bool tells = strcmp(mode, "leaves") == 0 || strcmp(mode, "breaks") == 0;
    FINE(mox_comm_mpi_create(NULL, tells ? 30000 : DEADLINE, 0, &comm, &error));
    for (int r = 0; r < ranks; r++)
        send[r] = pid;
    for (uint32_t round = 0; round < 5; round++)
        exchange_values(comm, round);
    FINE(moxie_comm_counts(comm, send, pids, 1, &error));
    if (rank == 1)
        be_faulty(mode, comm);
    else
        expect_failure(comm, tells ? 1 : DEADLINE / 1000.0 + 1);
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
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (is_exchange)
        exchange(argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
    else if (strcmp(mode, "odd") == 0)
        odd();
    else if (strcmp(mode, "early") != 0)
        fault(mode);
    if (failures == 0)
        printf("rank %d: fine\n", rank);
    fflush(stdout);
    if (!is_exchange && strcmp(mode, "early") != 0)
        _exit(failures != 0); /* MPI_Finalize may wait for a rank that is dead */
    MPI_Finalize();
    return failures != 0;
}
