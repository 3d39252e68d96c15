/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_conformance.c - random operations, and what they must give (comm_conformance.h).
 */
#include "comm_conformance.h"

#include <math.h>

enum { POISON = 0xa5 };

/* An operation as one rank sees it. */
typedef struct operation {
    mox_comm_kind kind;
    int32_t ranks, rank;
    uint64_t seed; /* the same on all ranks */
    uint64_t row_bytes;
    int64_t rows_there;                                 /* in every rank's `send` */
    int64_t *send_rows, *send_at, *recv_rows, *recv_at; /* [ranks] */
    moxie_comm_rows rows;
    int64_t each, n;
    moxie_comm_sum how;
    unsigned char *send, *recv, *want;
    size_t send_bytes, recv_bytes;
    mox_comm_request request;
} operation;

static void *buffer(size_t bytes)
{
    void *made = malloc(bytes ? bytes : 1); /* as long as needed, so that a sanitizer sees a byte too far */
    if (!made)
        abort();
    return made;
}

static uint64_t mixed(uint64_t a, uint64_t b)
{
    test_rng rng = { a ^ (b + 1) * 0x9e3779b97f4a7c15u };
    return test_u64(&rng);
}

/* ---- what ranks send ---------------------------------------------------------------------------------- */

static void make_row(const operation *o, int32_t rank, int64_t row, unsigned char *out)
{
    const uint64_t start = mixed(mixed(o->seed, (uint64_t)rank), (uint64_t)row);
    if (o->kind == MOX_COMM_REDUCE_SCATTER) {
        for (uint64_t i = 0; i < o->row_bytes / 4; i++) {
            const uint32_t mantissa = (uint32_t)(start >> 40) + 77777u * (uint32_t)i;
            const float value = (float)((int32_t)(mantissa & 0xffffff) - 0x800000) / (float)(1 << (mantissa & 15));
            memcpy(out + 4 * i, &value, 4);
        }
        return;
    }
    for (uint64_t i = 0; i < o->row_bytes; i++)
        out[i] = (unsigned char)((start >> (i & 7)) + 31 * i + (i >> 8));
}

/* How many rows `from` sends to `to`, and from which of its rows on. */
static int64_t rows_between(const operation *o, int32_t from, int32_t to)
{
    test_rng rng = { mixed(o->seed + 1, (uint64_t)from * 4096 + (o->kind == MOX_COMM_ALLGATHERV ? 0 : (uint64_t)to)) };
    if (test_below(&rng, 2) == 0)
        return 0;
    return test_range(&rng, 0, o->rows_there);
}

static int64_t place_between(const operation *o, int32_t from, int32_t to)
{
    test_rng rng = { mixed(o->seed + 2, (uint64_t)from * 4096 + (o->kind == MOX_COMM_ALLGATHERV ? 0 : (uint64_t)to)) };
    return test_range(&rng, 0, o->rows_there - rows_between(o, from, to));
}

/* ---- rows: alltoallv, allgatherv ---------------------------------------------------------------------- */

/* Received ranges in a random order, with gaps. Returns the rows that `recv` must hold. */
static int64_t place_received(operation *o, test_rng *own)
{
    int32_t *order = buffer((size_t)o->ranks * sizeof *order);
    int64_t at = 0;
    for (int32_t r = 0; r < o->ranks; r++) {
        const int32_t other = (int32_t)test_below(own, (uint64_t)r + 1);
        order[r] = order[other];
        order[other] = r;
    }
    for (int32_t i = 0; i < o->ranks; i++) {
        at += test_range(own, 0, 2);
        o->recv_at[order[i]] = at;
        at += o->recv_rows[order[i]];
    }
    free(order);
    return at + 1;
}

static void make_rows(operation *o, test_rng *own)
{
    for (int32_t r = 0; r < o->ranks; r++) {
        o->send_rows[r] = rows_between(o, o->rank, r);
        o->send_at[r] = place_between(o, o->rank, r);
        o->recv_rows[r] = rows_between(o, r, o->rank);
    }
    if (o->kind == MOX_COMM_ALLGATHERV) /* entries that are not read */
        for (int32_t r = 1; r < o->ranks; r++)
            o->send_rows[r] = o->send_at[r] = -1;
    o->recv_bytes = (size_t)place_received(o, own) * o->row_bytes;
    o->recv = buffer(o->recv_bytes);
    o->want = buffer(o->recv_bytes);
    memset(o->recv, POISON, o->recv_bytes);
    memset(o->want, POISON, o->recv_bytes);
    for (int32_t r = 0; r < o->ranks; r++)
        for (int64_t i = 0; i < o->recv_rows[r]; i++)
            make_row(o, r, place_between(o, r, o->rank) + i, o->want + (uint64_t)(o->recv_at[r] + i) * o->row_bytes);
}

/* ---- reduce_scatter ----------------------------------------------------------------------------------- */

/* The sum in rank order, in f32; false when it is far from the sum in double precision. */
static bool add_rows(const operation *o, int64_t row, float *sum)
{
    const uint64_t cols = o->row_bytes / 4;
    double *exact = buffer(cols * sizeof *exact), *size = buffer(cols * sizeof *size);
    float *part = buffer(o->row_bytes);
    bool close = true;
    for (int32_t r = 0; r < o->ranks; r++) {
        make_row(o, r, row, (unsigned char *)part);
        for (uint64_t c = 0; c < cols; c++) {
            sum[c] = r == 0 ? part[c] : sum[c] + part[c];
            exact[c] = (r == 0 ? 0 : exact[c]) + (double)part[c];
            size[c] = (r == 0 ? 0 : size[c]) + fabs((double)part[c]);
        }
    }
    for (uint64_t c = 0; c < cols; c++)
        close = close && fabs((double)sum[c] - exact[c]) <= (double)o->ranks * 0x1p-24 * size[c];
    free(exact);
    free(size);
    free(part);
    return close;
}

static bool make_sums(operation *o)
{
    bool close = true;
    for (int32_t r = 0; r < o->ranks; r++) { /* the same on all ranks */
        o->recv_rows[r] = rows_between(o, 0, r);
        o->recv_at[r] = place_between(o, 0, r);
    }
    o->recv_bytes = (size_t)(o->recv_rows[o->rank] + 1) * o->row_bytes; /* one row more, which stays */
    o->recv = buffer(o->recv_bytes);
    o->want = buffer(o->recv_bytes);
    memset(o->recv, POISON, o->recv_bytes);
    memset(o->want, POISON, o->recv_bytes);
    for (int64_t i = 0; i < o->recv_rows[o->rank]; i++)
        close = add_rows(o, o->recv_at[o->rank] + i, (float *)(o->want + (uint64_t)i * o->row_bytes)) && close;
    return close;
}

/* ---- counts, allreduce -------------------------------------------------------------------------------- */

static void make_counts(operation *o)
{
    const size_t numbers = (size_t)o->each * (size_t)o->ranks;
    o->send_bytes = o->recv_bytes = 8 * numbers;
    o->send = buffer(o->send_bytes);
    o->recv = buffer(o->recv_bytes);
    o->want = buffer(o->recv_bytes);
    memset(o->recv, POISON, o->recv_bytes);
    for (int32_t r = 0; r < o->ranks; r++)
        for (int64_t i = 0; i < o->each; i++) {
            const uint64_t sent = mixed(o->seed + (uint64_t)i, (uint64_t)(o->rank * 4096 + r));
            const uint64_t received = mixed(o->seed + (uint64_t)i, (uint64_t)(r * 4096 + o->rank));
            memcpy(o->send + 8 * (r * o->each + i), &sent, 8);
            memcpy(o->want + 8 * (r * o->each + i), &received, 8);
        }
}

static float float_of(const operation *o, int32_t rank, int64_t i)
{
    const uint64_t number = mixed(o->seed + (uint64_t)rank, (uint64_t)i);
    if (number % 7 == 0)
        return NAN;
    return number % 11 == 0 ? -INFINITY : (float)(int32_t)(number >> 32);
}

static int64_t integer_of(const operation *o, int32_t rank, int64_t i)
{
    return (int64_t)mixed(o->seed + (uint64_t)rank, (uint64_t)i); /* sums wrap around */
}

static void make_reduced(operation *o)
{
    const size_t size = o->how == MOXIE_COMM_MAX_F32 ? 4 : 8;
    o->recv_bytes = (size_t)o->n * size;
    o->recv = buffer(o->recv_bytes);
    o->want = buffer(o->recv_bytes);
    for (int64_t i = 0; i < o->n; i++) {
        float largest = NAN, f = float_of(o, o->rank, i);
        int64_t integer = integer_of(o, o->rank, i), sum = 0, most = INT64_MIN;
        for (int32_t r = 0; r < o->ranks; r++) {
            largest = fmaxf(largest, float_of(o, r, i));
            most = integer_of(o, r, i) > most ? integer_of(o, r, i) : most;
            sum = (int64_t)((uint64_t)sum + (uint64_t)integer_of(o, r, i));
        }
        memcpy(o->recv + (size_t)i * size, size == 4 ? (void *)&f : (void *)&integer, size);
        memcpy(o->want + (size_t)i * size,
               size == 4                      ? (void *)&largest
               : o->how == MOXIE_COMM_SUM_I64 ? (void *)&sum
                                              : (void *)&most,
               size);
    }
}

/* ---- one operation ------------------------------------------------------------------------------------ */

static uint64_t random_row(test_rng *shared, mox_comm_kind kind)
{
    static const uint64_t sizes[] = { 1, 2, 3, 4, 7, 8, 16, 31, 64, 100, 1000, 4096 };
    const uint64_t row = test_below(shared, 12) == 0 ? 65600 : sizes[test_below(shared, 12)];
    return kind == MOX_COMM_REDUCE_SCATTER ? (row + 3) / 4 * 4 : row;
}

/* False when the test's own numbers are wrong. */
static bool make_operation(operation *o, moxie_comm *comm, test_rng *shared, test_rng *own)
{
    const size_t list = (size_t)mox_comm_ranks(comm) * sizeof(int64_t);
    *o = (operation) { .ranks = mox_comm_ranks(comm), .rank = mox_comm_rank(comm), .seed = test_u64(shared) };
    o->kind = (mox_comm_kind)test_below(shared, MOX_COMM_BARRIER + 1);
    o->row_bytes = random_row(shared, o->kind);
    o->rows_there = test_range(shared, 0, o->row_bytes > 5000 ? 2 : 5);
    o->each = test_range(shared, 0, 5);
    o->n = test_range(shared, 0, 40);
    o->how = (moxie_comm_sum)test_below(shared, 3);
    o->send_rows = buffer(list);
    o->send_at = buffer(list);
    o->recv_rows = buffer(list);
    o->recv_at = buffer(list);
    if (o->kind == MOX_COMM_COUNTS)
        make_counts(o);
    else if (o->kind == MOX_COMM_ALLREDUCE)
        make_reduced(o);
    if (o->kind != MOX_COMM_ALLTOALLV && o->kind != MOX_COMM_ALLGATHERV && o->kind != MOX_COMM_REDUCE_SCATTER)
        return true;
    o->send_bytes = (size_t)o->rows_there * o->row_bytes;
    o->send = buffer(o->send_bytes);
    for (int64_t i = 0; i < o->rows_there; i++)
        make_row(o, o->rank, i, o->send + (uint64_t)i * o->row_bytes);
    if (o->kind == MOX_COMM_REDUCE_SCATTER && !make_sums(o))
        return false;
    if (o->kind != MOX_COMM_REDUCE_SCATTER)
        make_rows(o, own);
    const bool sums = o->kind == MOX_COMM_REDUCE_SCATTER;
    o->rows = (moxie_comm_rows) { .send = o->send,
                                  .recv = o->recv,
                                  .row_bytes = o->row_bytes,
                                  .send_rows = sums ? NULL : o->send_rows,
                                  .send_at = sums ? NULL : o->send_at,
                                  .recv_rows = o->recv_rows,
                                  .recv_at = o->recv_at };
    return true;
}

static moxie_status start_operation(operation *o, moxie_comm *comm, moxie_error *error)
{
    switch (o->kind) {
    case MOX_COMM_COUNTS:
        return mox_comm_start_counts(comm, (const int64_t *)(const void *)o->send, (int64_t *)(void *)o->recv, o->each,
                                     &o->request, error);
    case MOX_COMM_ALLTOALLV: return mox_comm_start_alltoallv(comm, &o->rows, &o->request, error);
    case MOX_COMM_ALLGATHERV: return mox_comm_start_allgatherv(comm, &o->rows, &o->request, error);
    case MOX_COMM_REDUCE_SCATTER: return mox_comm_start_reduce_scatter(comm, &o->rows, &o->request, error);
    case MOX_COMM_ALLREDUCE: return mox_comm_start_allreduce(comm, o->recv, o->n, o->how, &o->request, error);
    case MOX_COMM_BARRIER: break;
    }
    return mox_comm_start_barrier(comm, &o->request, error);
}

/* NaN in `want` asks for any NaN. */
static bool is_right(const operation *o)
{
    if (o->kind != MOX_COMM_ALLREDUCE || o->how != MOXIE_COMM_MAX_F32)
        return o->recv_bytes == 0 || memcmp(o->recv, o->want, o->recv_bytes) == 0;
    for (int64_t i = 0; i < o->n; i++) {
        float got, want;
        memcpy(&got, o->recv + 4 * i, 4);
        memcpy(&want, o->want + 4 * i, 4);
        if (got != want && !(isnan(got) && isnan(want)))
            return false;
    }
    return true;
}

static void free_operation(operation *o)
{
    free(o->send_rows);
    free(o->send_at);
    free(o->recv_rows);
    free(o->recv_at);
    free(o->send);
    free(o->recv);
    free(o->want);
}

/* ---- rounds ------------------------------------------------------------------------------------------- */

/* Waits for the operations in a random order; some are tested a few times before. */
static bool finish(operation *list, int32_t n, moxie_comm *comm, test_rng *own, char *text, size_t size)
{
    moxie_error error;
    for (int32_t left = n; left > 0; left--) {
        const int32_t i = (int32_t)test_below(own, (uint64_t)left);
        int32_t done = 0;
        moxie_status status = MOXIE_OK;
        if (test_below(own, 3) == 0)
            status = mox_comm_test(comm, list[i].request, &done, &error);
        if (status == MOXIE_OK && !done)
            status = mox_comm_wait(comm, list[i].request, &error);
        if (status != MOXIE_OK || !is_right(&list[i])) {
            snprintf(text, size, "rank %d, %s of rows of %llu bytes: %s", list[i].rank,
                     mox_comm_kind_name(list[i].kind), (unsigned long long)list[i].row_bytes,
                     status == MOXIE_OK ? "wrong bytes" : error.text);
            return false;
        }
        const operation last = list[left - 1];
        list[left - 1] = list[i];
        list[i] = last;
    }
    return true;
}

static bool run_round(moxie_comm *comm, uint64_t seed, char *text, size_t size)
{
    test_rng shared = { seed }, own = { mixed(seed, 1000u + (uint64_t)mox_comm_rank(comm)) };
    operation list[MOX_COMM_OPEN] = { 0 };
    const int32_t n = (int32_t)test_range(&shared, 1, MOX_COMM_OPEN);
    moxie_error error = { 0 };
    bool good = true;
    for (int32_t i = 0; i < n && good; i++) {
        good = make_operation(&list[i], comm, &shared, &own);
        if (!good)
            snprintf(text, size, "the test's sum in f32 is far from the one in double precision");
        else if (start_operation(&list[i], comm, &error) != MOXIE_OK) {
            snprintf(text, size, "rank %d cannot start %s: %s", list[i].rank, mox_comm_kind_name(list[i].kind),
                     error.text);
            good = false;
        }
    }
    good = good && finish(list, n, comm, &own, text, size);
    if (!good)
        mox_comm_break(comm, &(moxie_error) { .code = MOXIE_ERR_MISMATCH, .offset = -1, .text = "the test failed" });
    for (int32_t i = 0; i < n; i++)
        free_operation(&list[i]);
    return good;
}

bool comm_conforms(moxie_comm *comm, uint64_t seed, int64_t rounds, char *text, size_t size)
{
    for (int64_t round = 0; round < rounds; round++) {
        const uint64_t number = mixed(seed, (uint64_t)round);
        if (!run_round(comm, number, text, size)) {
            const size_t used = strlen(text);
            snprintf(text + used, size - used, " (round %lld of seed %llu)", (long long)round,
                     (unsigned long long)seed);
            return false;
        }
    }
    return true;
}
