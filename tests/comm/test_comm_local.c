/* SPDX-License-Identifier: Apache-2.0
 *
 * test_comm_local.c - the transport "local": ranks as threads of one process.
 */
#include "comm_conformance.h"
#include "comm_threads.h"

#include <stdatomic.h>
#include <time.h>

#include "base/memory.h"
#include "comm/local/local.h"

/* ---- random operations -------------------------------------------------------------------------------- */

typedef struct rounds {
    uint64_t seed;
    int64_t rounds;
} rounds;

static void conform(comm_thread *self)
{
    const rounds *r = self->user;
    (void)comm_conforms(self->comm, r->seed, r->rounds, self->failure, sizeof self->failure);
    moxie_comm_destroy(self->comm);
}

/* 1000 rounds, shared out over 1 to 16 ranks. */
static void all_operations_of_1_to_16_ranks(void **state)
{
    (void)state;
    const int64_t some = test_quick() || test_sanitized() ? 10 : 63;
    for (int32_t ranks = 1; ranks <= 16; ranks++) {
        rounds r = { test_seed(26) + (uint64_t)ranks, test_env("MOXIE_TEST_ROUNDS", some) };
        comm_run_threads(ranks, 0, conform, &r);
    }
}

static void all_operations_of_64_ranks(void **state)
{
    (void)state;
    rounds r = { test_seed(64), 3 };
    comm_run_threads(64, 0, conform, &r);
}

/* ---- who waits for whom ------------------------------------------------------------------------------- */

static void pass_barriers(comm_thread *self)
{
    atomic_int *entered = self->user;
    for (int i = 1; i <= 200; i++) {
        moxie_error error = { 0 };
        atomic_fetch_add(entered, 1);
        COMM_EXPECT(self, moxie_comm_barrier(self->comm, &error) == MOXIE_OK, "%s", error.text);
        COMM_EXPECT(self, atomic_load(entered) >= i * self->ranks, "rank %d left barrier %d too early", self->rank, i);
    }
    moxie_comm_destroy(self->comm);
}

static void nobody_leaves_a_barrier_before_all_have_come(void **state)
{
    (void)state;
    atomic_int entered = 0;
    comm_run_threads(7, 0, pass_barriers, &entered);
}

/* Ranks 1 and 3 fail: both keep their status, the others name the lowest; then nobody fails. */
static void agree_twice(comm_thread *self)
{
    moxie_error error = { .text = "as it was" };
    const bool fails = self->rank % 2 == 1;
    const moxie_status own = self->rank == 1 ? MOXIE_ERR_IO : fails ? MOXIE_ERR_MEMORY : MOXIE_OK;
    const moxie_status met = moxie_comm_agree(self->comm, own, &error);
    COMM_EXPECT(self, met == (fails ? own : MOXIE_ERR_MISMATCH), "rank %d: status %d", self->rank, (int)met);
    COMM_EXPECT(self, fails ? strcmp(error.text, "as it was") == 0 : strstr(error.text, "rank 1 could not") != NULL,
                "rank %d: %s", self->rank, error.text);
    COMM_EXPECT(self, moxie_comm_agree(self->comm, MOXIE_OK, &error) == MOXIE_OK, "%s", error.text);
    moxie_comm_destroy(self->comm);
}

static void ranks_agree_on_a_failure(void **state)
{
    (void)state;
    comm_run_threads(5, 0, agree_twice, NULL);
}

static void send_one_row(comm_thread *self, int32_t from, int32_t to)
{
    const int64_t none[3] = { 0 };
    int64_t send[3] = { 0 }, recv[3] = { 0 };
    const char row = 'x';
    char got[3] = "";
    moxie_error error = { 0 };
    send[to] = self->rank == from;
    recv[from] = self->rank == to;
    const moxie_comm_rows rows = { .send = &row,
                                   .recv = got,
                                   .row_bytes = 1,
                                   .send_rows = send,
                                   .send_at = none,
                                   .recv_rows = recv,
                                   .recv_at = none };
    COMM_EXPECT(self, moxie_comm_alltoallv(self->comm, &rows, &error) == MOXIE_OK, "rank %d: %s", self->rank,
                error.text);
    COMM_EXPECT(self, self->rank != to || got[0] == 'x', "rank %d received nothing", to);
}

/* Ranks 0 and 1 exchange 300 times while rank 2 is away: it only comes when they have told it to. */
static void exchange_without_the_third(comm_thread *self)
{
    atomic_int *finished = self->user;
    while (self->rank == 2 && atomic_load(finished) < 2)
        nanosleep(&(struct timespec) { .tv_nsec = 100000 }, NULL);
    for (int i = 0; i < 300; i++)
        send_one_row(self, i & 1, 1 - (i & 1));
    atomic_fetch_add(finished, 1);
    moxie_error error = { 0 };
    COMM_EXPECT(self, moxie_comm_barrier(self->comm, &error) == MOXIE_OK, "%s", error.text);
    moxie_comm_destroy(self->comm);
}

static void ranks_without_rows_are_not_waited_for(void **state)
{
    (void)state;
    atomic_int finished = 0;
    comm_run_threads(3, 10000, exchange_without_the_third, &finished);
}

/* ---- nothing is allocated ----------------------------------------------------------------------------- */

static void an_operation_allocates_nothing(void **state)
{
    (void)state;
    moxie_comm *comm;
    moxie_error error;
    int64_t send[2] = { 5, 6 }, recv[2] = { 0 }, value = 7;
    assert_ok(moxie_comm_local_create(1, NULL, &comm, &error), &error);
    assert_int_equal(moxie_comm_ranks(comm), 1);
    assert_int_equal(moxie_comm_rank(comm), 0);
    assert_string_equal(moxie_comm_name(comm), "local");
    const uint64_t before = mox_alloc_count();
    assert_ok(moxie_comm_counts(comm, send, recv, 2, &error), &error);
    assert_ok(moxie_comm_allreduce(comm, &value, 1, MOXIE_COMM_SUM_I64, &error), &error);
    assert_ok(moxie_comm_barrier(comm, &error), &error);
    assert_int_equal(mox_alloc_count(), before);
    assert_int_equal(recv[0], 5);
    assert_int_equal(recv[1], 6);
    assert_int_equal(value, 7);
    moxie_comm_destroy(comm);
}

/* Rank 1 is silent. Rank 0 has waited for its rows, and is awake for a moment; rank 2 waits for rank 0. */
static void who_waits_itself_is_not_blamed(void **state)
{
    (void)state;
    moxie_transport rank[3];
    moxie_error error;
    int64_t rows[3] = { 0, 1, 0 }, none[3] = { 0 }, at[3] = { 0 }, first, second, barrier;
    int32_t done = 0, value = 0;
    const moxie_comm_rows from_1 = { .send = &value,
                                     .recv = &value,
                                     .row_bytes = 4,
                                     .send_rows = none,
                                     .send_at = at,
                                     .recv_rows = rows,
                                     .recv_at = at };
    moxie_comm_rows nothing = from_1;
    nothing.recv_rows = none;
    assert_ok(mox_local_create(3, rank, &error), &error);
    assert_ok(rank[0].alltoallv(rank[0].self, &from_1, &first, &error), &error);
    assert_ok(rank[2].alltoallv(rank[2].self, &nothing, &second, &error), &error);
    assert_ok(rank[2].progress(rank[2].self, second, &done, &error), &error);
    assert_true(done);
    assert_ok(rank[2].barrier(rank[2].self, &barrier, &error), &error);
    assert_int_equal(rank[2].late(rank[2].self, barrier), 0); /* it has said nothing about waiting */
    rank[0].wait(rank[0].self, first, 1);
    assert_int_equal(rank[2].late(rank[2].self, barrier), 1);
    for (int r = 0; r < 3; r++)
        rank[r].cancel(rank[r].self);
    for (int r = 0; r < 3; r++)
        rank[r].destroy(rank[r].self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_operations_of_1_to_16_ranks),
        cmocka_unit_test(all_operations_of_64_ranks),
        cmocka_unit_test(nobody_leaves_a_barrier_before_all_have_come),
        cmocka_unit_test(ranks_agree_on_a_failure),
        cmocka_unit_test(ranks_without_rows_are_not_waited_for),
        cmocka_unit_test(an_operation_allocates_nothing),
        cmocka_unit_test(who_waits_itself_is_not_blamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
