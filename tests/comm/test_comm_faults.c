/* SPDX-License-Identifier: Apache-2.0
 *
 * test_comm_faults.c - ranks that never come, that leave, that cancel while others read their memory, and ranks that
 * disagree. Every other rank must fail in time, with a text that names the rank; nobody may hang or touch freed memory.
 */
#include "comm_threads.h"

#include <stdatomic.h>
#include <time.h>

#include "comm/comm.h"

enum { RANKS = 4, AWAY = 2 };
enum { PATIENCE = 20000 }; /* ms: no wait of this test is as long, on any machine */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void sleep_ms(int64_t ms)
{
    nanosleep(&(struct timespec) { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* What an operation of the test may have otherwise than on the other ranks. */
typedef struct numbers {
    mox_comm_kind kind;
    int64_t rows, back; /* to each rank, from each rank */
    uint64_t row_bytes;
    int64_t each, n;
    moxie_comm_sum how;
} numbers;

static numbers usual(mox_comm_kind kind)
{
    return (
        numbers) { .kind = kind, .rows = 2, .back = 2, .row_bytes = 16, .each = 2, .n = 2, .how = MOXIE_COMM_SUM_I64 };
}

/* Runs one operation; its memory is gone afterwards. */
static moxie_status run(moxie_comm *comm, const numbers *o, moxie_error *error)
{
    const size_t bytes = 8192;
    const bool sums = o->kind == MOX_COMM_REDUCE_SCATTER;
    int64_t rows[RANKS], at[RANKS], back[RANKS];
    char *send = calloc(1, bytes), *recv = calloc(1, bytes);
    moxie_status status = MOXIE_ERR_MEMORY;
    for (int32_t r = 0; r < RANKS; r++) {
        rows[r] = o->rows;
        at[r] = r * o->rows;
        back[r] = sums || r == moxie_comm_rank(comm) ? o->rows : o->back;
    }
    const moxie_comm_rows of = { .send = send,
                                 .recv = recv,
                                 .row_bytes = o->row_bytes,
                                 .send_rows = rows,
                                 .send_at = at,
                                 .recv_rows = back,
                                 .recv_at = at };
    switch (o->kind) {
    case MOX_COMM_COUNTS:
        status = moxie_comm_counts(comm, (int64_t *)(void *)send, (int64_t *)(void *)recv, o->each, error);
        break;
    case MOX_COMM_ALLTOALLV: status = moxie_comm_alltoallv(comm, &of, error); break;
    case MOX_COMM_ALLGATHERV: status = moxie_comm_allgatherv(comm, &of, error); break;
    case MOX_COMM_REDUCE_SCATTER: status = moxie_comm_reduce_scatter(comm, &of, error); break;
    case MOX_COMM_ALLREDUCE: status = moxie_comm_allreduce(comm, send, o->n, o->how, error); break;
    case MOX_COMM_BARRIER: status = moxie_comm_barrier(comm, error); break;
    }
    free(send);
    free(recv);
    return status;
}

/* ---- a rank that is not there ------------------------------------------------------------------------- */

typedef struct absence {
    mox_comm_kind kind;
    bool leaves; /* destroys its comm; else it just does not come */
    int32_t deadline;
    atomic_int come, failed;
} absence;

/* Until all that take part are there: a thread that has not begun yet would be named. */
static void meet(atomic_int *come)
{
    atomic_fetch_add(come, 1);
    while (atomic_load(come) < RANKS - 1)
        sleep_ms(1);
}

static void expect_failure(comm_thread *self, absence *a)
{
    const numbers o = usual(a->kind);
    moxie_error error = { 0 }, again = { 0 };
    meet(&a->come);
    const int64_t begin = now_ms();
    const moxie_status status = run(self->comm, &o, &error);
    const int64_t took = now_ms() - begin;
    COMM_EXPECT(self, status == MOXIE_ERR_TIMEOUT && error.code == status, "rank %d: status %d, %s", self->rank, status,
                error.text);
    COMM_EXPECT(self, took <= (a->leaves ? 0 : a->deadline) + PATIENCE, "rank %d took %lld ms", self->rank,
                (long long)took);
    COMM_EXPECT(self, a->leaves || took >= a->deadline - 1 || strstr(error.text, "gave up"),
                "rank %d: only %lld ms: %s", self->rank, (long long)took, error.text);
    COMM_EXPECT(self, strstr(error.text, "rank 2") && strstr(error.text, mox_comm_kind_name(a->kind)), "rank %d: %s",
                self->rank, error.text);
    COMM_EXPECT(self, strstr(error.text, " ms") && strstr(error.text, "anew"), "rank %d: %s", self->rank, error.text);
    COMM_EXPECT(self,
                moxie_comm_barrier(self->comm, &again) == MOXIE_ERR_TIMEOUT && strcmp(error.text, again.text) == 0,
                "rank %d says another text later: %s", self->rank, again.text);
}

static void be_absent_or_fail(comm_thread *self)
{
    absence *a = self->user;
    if (self->rank != AWAY)
        expect_failure(self, a);
    atomic_fetch_add(&a->failed, self->rank != AWAY);
    while (self->rank == AWAY && !a->leaves && atomic_load(&a->failed) < RANKS - 1)
        sleep_ms(1);
    moxie_comm_destroy(self->comm);
}

static void a_rank_that_never_comes_is_named(void **state)
{
    (void)state;
    for (mox_comm_kind kind = MOX_COMM_COUNTS; kind <= MOX_COMM_BARRIER; kind++) {
        absence a = { .kind = kind, .deadline = 500 };
        comm_run_threads(RANKS, a.deadline, be_absent_or_fail, &a);
    }
}

/* The others learn of it at once, not at their deadline. */
static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    for (mox_comm_kind kind = MOX_COMM_COUNTS; kind <= MOX_COMM_BARRIER; kind++) {
        absence a = { .kind = kind, .leaves = true, .deadline = 60000 };
        comm_run_threads(RANKS, a.deadline, be_absent_or_fail, &a);
    }
}

/* ---- a rank that cancels ------------------------------------------------------------------------------ */

/* Large rows, so that ranks copy while one gives up and frees its memory: a sanitizer sees an access behind that. */
static void cancel_in_the_middle(comm_thread *self)
{
    enum { ROW = 200000 };
    const mox_comm_kind kind = *(const mox_comm_kind *)self->user;
    const int64_t rows[RANKS] = { 1, 1, 1, 1 }, at[RANKS] = { 0, 1, 2, 3 };
    char *send = malloc(RANKS * ROW), *recv = malloc(RANKS * ROW);
    mox_comm_request request;
    moxie_error error = { 0 };
    memset(send, self->rank, RANKS * ROW);
    const moxie_comm_rows of = {
        .send = send, .recv = recv, .row_bytes = ROW, .send_rows = rows, .send_at = at, .recv_rows = rows, .recv_at = at
    };
    moxie_status status = MOXIE_OK;
    if (kind == MOX_COMM_ALLTOALLV)
        status = mox_comm_start_alltoallv(self->comm, &of, &request, &error);
    else if (kind == MOX_COMM_REDUCE_SCATTER)
        status = mox_comm_start_reduce_scatter(self->comm, &of, &request, &error);
    else
        status = mox_comm_start_allreduce(self->comm, send, RANKS * ROW / 8, MOXIE_COMM_SUM_I64, &request, &error);
    if (self->rank == AWAY) {
        mox_comm_break(self->comm, &(moxie_error) { .code = MOXIE_ERR_MEMORY, .offset = -1, .text = "my own reason" });
        memset(send, 0xff, RANKS * ROW);
        free(send);
        free(recv);
        COMM_EXPECT(self,
                    moxie_comm_barrier(self->comm, &error) == MOXIE_ERR_MEMORY &&
                        strcmp(error.text, "my own reason") == 0,
                    "%s", error.text);
    } else {
        if (status == MOXIE_OK)
            status = mox_comm_wait(self->comm, request, &error);
        COMM_EXPECT(self, status == MOXIE_OK || status == MOXIE_ERR_TIMEOUT, "status %d: %s", status, error.text);
        free(send);
        free(recv);
    }
    moxie_comm_destroy(self->comm);
}

static void cancelled_memory_is_not_touched(void **state)
{
    (void)state;
    static const mox_comm_kind kinds[] = { MOX_COMM_ALLTOALLV, MOX_COMM_REDUCE_SCATTER, MOX_COMM_ALLREDUCE };
    for (int round = 0; round < 90; round++) {
        mox_comm_kind kind = kinds[round % 3];
        comm_run_threads(RANKS, 20000, cancel_in_the_middle, &kind);
    }
}

/* Destroying a comm gives up what it has open. */
static void leave_open(comm_thread *self)
{
    atomic_int *opened = self->user;
    mox_comm_request request;
    moxie_error error = { 0 };
    int64_t values[4] = { 0 };
    for (int i = 0; i < MOX_COMM_OPEN && self->rank == 0; i++)
        COMM_EXPECT(self, mox_comm_start_allreduce(self->comm, values, 4, MOXIE_COMM_SUM_I64, &request, &error) == 0,
                    "%s", error.text);
    if (self->rank == 0)
        COMM_EXPECT(self,
                    mox_comm_start_barrier(self->comm, &request, &error) == MOXIE_ERR_ARGUMENT &&
                        strstr(error.text, "8 requests"),
                    "%s", error.text);
    while (self->rank == 1 && atomic_load(opened) == 0)
        sleep_ms(1);
    if (self->rank == 1) /* the memory of rank 0 is gone */
        COMM_EXPECT(self, moxie_comm_allreduce(self->comm, values, 4, MOXIE_COMM_SUM_I64, &error) == MOXIE_ERR_TIMEOUT,
                    "rank 1 computes with a rank that has left");
    moxie_comm_destroy(self->comm);
    atomic_store(opened, 1);
}

static void open_requests_end_with_the_comm(void **state)
{
    (void)state;
    atomic_int opened = 0;
    comm_run_threads(2, 1000, leave_open, &opened);
}

/* ---- ranks that disagree ------------------------------------------------------------------------------ */

typedef struct dispute {
    numbers most, one; /* `one`: of rank AWAY */
    const char *says[2];
} dispute;

static void disagree(comm_thread *self)
{
    const dispute *d = self->user;
    moxie_error error = { 0 };
    const moxie_status status = run(self->comm, self->rank == AWAY ? &d->one : &d->most, &error);
    COMM_EXPECT(self, status == MOXIE_ERR_MISMATCH, "rank %d: status %d, %s", self->rank, status, error.text);
    COMM_EXPECT(self, strstr(error.text, "rank 2") && strstr(error.text, d->says[0]) && strstr(error.text, d->says[1]),
                "rank %d: %s (and not %s, %s)", self->rank, error.text, d->says[0], d->says[1]);
    moxie_comm_destroy(self->comm);
}

static void try_dispute(numbers most, numbers one, const char *first, const char *second)
{
    dispute d = { most, one, { first, second } };
    comm_run_threads(RANKS, 20000, disagree, &d);
}

static void disagreements_are_named_on_both_sides(void **state)
{
    (void)state;
    for (mox_comm_kind kind = MOX_COMM_ALLTOALLV; kind <= MOX_COMM_REDUCE_SCATTER; kind++) {
        numbers other = usual(kind);
        other.rows = 3; /* and 2 come back */
        try_dispute(usual(kind), other, " 2", " 3");
        other = usual(kind);
        other.back = 1;
        if (kind != MOX_COMM_REDUCE_SCATTER)
            try_dispute(usual(kind), other, " 2", " 1");
        other = usual(kind);
        other.row_bytes = 20;
        try_dispute(usual(kind), other, "16", "20");
    }
    numbers other = usual(MOX_COMM_COUNTS);
    other.each = 3;
    try_dispute(usual(MOX_COMM_COUNTS), other, "16", "24");
    other = usual(MOX_COMM_ALLREDUCE);
    other.n = 7;
    try_dispute(usual(MOX_COMM_ALLREDUCE), other, "2", "7");
    other = usual(MOX_COMM_ALLREDUCE);
    other.how = MOXIE_COMM_MAX_I64;
    try_dispute(usual(MOX_COMM_ALLREDUCE), other, "moxie_comm_sum", ")");
}

static void other_operations_are_named_on_both_sides(void **state)
{
    (void)state;
    for (mox_comm_kind a = MOX_COMM_COUNTS; a <= MOX_COMM_BARRIER; a++)
        for (mox_comm_kind b = MOX_COMM_COUNTS; b <= MOX_COMM_BARRIER; b++)
            if (a != b)
                try_dispute(usual(a), usual(b), mox_comm_kind_name(a), mox_comm_kind_name(b));
}

/* Rank AWAY exchanges nothing, finishes and stays alive; the others want rows of it. */
static void pass_by(comm_thread *self)
{
    atomic_int *failed = self->user;
    numbers o = usual(MOX_COMM_ALLTOALLV);
    moxie_error error = { 0 };
    o.rows = o.back = self->rank == AWAY ? 0 : 2;
    const moxie_status status = run(self->comm, &o, &error);
    COMM_EXPECT(self, self->rank == AWAY || status == MOXIE_ERR_MISMATCH || status == MOXIE_ERR_TIMEOUT,
                "rank %d: status %d, %s", self->rank, status, error.text);
    atomic_fetch_add(failed, 1);
    while (atomic_load(failed) < RANKS)
        sleep_ms(1);
    moxie_comm_destroy(self->comm);
}

static void rows_wanted_of_a_rank_that_is_further(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        atomic_int failed = 0;
        const int64_t begin = now_ms();
        comm_run_threads(RANKS, 2 * PATIENCE, pass_by, &failed);
        assert_true(now_ms() - begin < PATIENCE);
    }
}

/* ---- the deadline ------------------------------------------------------------------------------------- */

/* What a rank computes between start and wait is not waiting. */
static void compute_and_wait(comm_thread *self)
{
    mox_comm_request request;
    moxie_error error = { 0 };
    sleep_ms(self->rank == 0 ? 0 : 2500);
    COMM_EXPECT(self, mox_comm_start_barrier(self->comm, &request, &error) == MOXIE_OK, "%s", error.text);
    sleep_ms(self->rank == 0 ? 2300 : 0);
    COMM_EXPECT(self, mox_comm_wait(self->comm, request, &error) == MOXIE_OK, "%s", error.text);
    moxie_comm_destroy(self->comm);
}

static void the_deadline_counts_waiting_only(void **state)
{
    (void)state;
    comm_run_threads(2, 2000, compute_and_wait, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_never_comes_is_named),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(cancelled_memory_is_not_touched),
        cmocka_unit_test(open_requests_end_with_the_comm),
        cmocka_unit_test(disagreements_are_named_on_both_sides),
        cmocka_unit_test(other_operations_are_named_on_both_sides),
        cmocka_unit_test(rows_wanted_of_a_rank_that_is_further),
        cmocka_unit_test(the_deadline_counts_waiting_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
