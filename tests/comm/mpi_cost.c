/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_cost.c - what a comm over MPI costs beside MPI's own MPI_Alltoallv of the same bytes. A program of mpirun.
 *
 *     mpi_cost [REPEATS [LIMIT]]     prints a line for each size; with LIMIT it fails where the median ratio is above
 *
 * The two take turns, each after a barrier, so that other work on the machine meets both. A time is that of the slowest
 * rank. `ratio` is the median over the turns of comm / MPI. Every byte that came is checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include <moxie/moxie_comm.h>

enum { SIZES = 6, MAX_RANKS = 64 };
static const int sizes[SIZES] = { 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20 }; /* bytes to each rank */

typedef struct cost {
    int ranks, rank;
    moxie_comm *comm;
    unsigned char *send, *recv;
    int counts[MAX_RANKS], at[MAX_RANKS];
    int64_t rows[MAX_RANKS], row_at[MAX_RANKS];
} cost;

static void set_size(cost *c, int bytes)
{
    for (int r = 0; r < c->ranks; r++) {
        c->counts[r] = bytes;
        c->at[r] = r * bytes;
        c->rows[r] = 1;
        c->row_at[r] = r;
        memset(c->send + (size_t)r * (size_t)bytes, 1 + c->rank * c->ranks + r, (size_t)bytes);
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

/* One exchange; its seconds on the slowest rank. */
static double exchange(cost *c, int bytes, int by_comm)
{
    moxie_error error;
    const moxie_comm_rows rows = { .send = c->send,
                                   .recv = c->recv,
                                   .row_bytes = (uint64_t)bytes,
                                   .send_rows = c->rows,
                                   .send_at = c->row_at,
                                   .recv_rows = c->rows,
                                   .recv_at = c->row_at };
    memset(c->recv, 0, (size_t)c->ranks * (size_t)bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    if (!by_comm) {
        MPI_Alltoallv(c->send, c->counts, c->at, MPI_BYTE, c->recv, c->counts, c->at, MPI_BYTE, MPI_COMM_WORLD);
    } else if (moxie_comm_alltoallv(c->comm, &rows, &error) != MOXIE_OK) {
        printf("rank %d: %s\n", c->rank, error.text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    double took = MPI_Wtime() - begin, slowest;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < c->ranks * bytes; i++)
        if (c->recv[i] != (unsigned char)(1 + i / bytes * c->ranks + c->rank)) {
            printf("rank %d: byte %d of %d is %d\n", c->rank, i, bytes, c->recv[i]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    return slowest;
}

/* The median ratio of a size. */
static double compare(cost *c, int bytes, int repeats)
{
    double *by_mpi = calloc(3 * (size_t)repeats, sizeof *by_mpi), *by_comm = by_mpi + repeats;
    double *ratios = by_comm + repeats;
    set_size(c, bytes);
    for (int i = -3; i < repeats; i++) { /* three turns to warm up */
        const double a = exchange(c, bytes, 0), b = exchange(c, bytes, 1);
        if (i < 0)
            continue;
        by_mpi[i] = a;
        by_comm[i] = b;
        ratios[i] = b / a;
    }
    const double ratio = median(ratios, repeats), mpi = median(by_mpi, repeats), comm = median(by_comm, repeats);
    if (c->rank == 0)
        printf(
            "%d ranks, %7d bytes to each: MPI_Alltoallv %8.1f us (fastest %7.1f), comm %8.1f us (%7.1f), ratio %.2f\n",
            c->ranks, bytes, 1e6 * mpi, 1e6 * by_mpi[0], 1e6 * comm, 1e6 * by_comm[0], ratio);
    free(by_mpi);
    return ratio;
}

int main(int argc, char **argv)
{
    cost c = { .ranks = 0 };
    moxie_error error;
    const int repeats = argc > 1 ? atoi(argv[1]) : 25;
    const double limit = argc > 2 ? atof(argv[2]) : 0;
    int failed = repeats < 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &c.ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
    c.send = malloc((size_t)c.ranks * (size_t)sizes[SIZES - 1]);
    c.recv = malloc((size_t)c.ranks * (size_t)sizes[SIZES - 1]);
    if (failed || !c.send || !c.recv || c.ranks > MAX_RANKS ||
        moxie_comm_mpi_create(NULL, NULL, &c.comm, &error) != MOXIE_OK) {
        printf("rank %d: cannot begin\n", c.rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < SIZES; i++)
        failed |= compare(&c, sizes[i], repeats) > limit && limit > 0;
    moxie_comm_destroy(c.comm);
    free(c.send);
    free(c.recv);
    MPI_Finalize();
    if (!failed)
        printf("rank %d: fine\n", c.rank);
    return failed;
}
