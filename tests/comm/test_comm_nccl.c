/* SPDX-License-Identifier: Apache-2.0
 *
 * test_comm_nccl.c - the transport "nccl", between threads, over a stub of NCCL (nccl_stub.c) and the launch table
 * without a GPU (test_cuda_table.h): all operations, how ranks find each other, what fails.
 */
#include "comm_conformance.h"
#include "comm_threads.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/nccl/nccl_connect.h"
#include "test_cuda_table.h"

typedef struct rounds {
    uint64_t seed;
    int64_t rounds;
} rounds;

/* A comm over NCCL of the threads' local comm, which is destroyed. */
static moxie_comm *over_local(comm_thread *self, int32_t deadline_ms)
{
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    moxie_error error = { 0 };
    nccl.over = self->comm;
    options.deadline_ms = deadline_ms;
    COMM_EXPECT(self, moxie_comm_nccl_create(&nccl, &options, &comm, &error) == MOXIE_OK, "%s", error.text);
    moxie_comm_destroy(self->comm);
    return comm;
}

static int64_t elapsed_ms(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)(now.tv_sec - begin->tv_sec) * 1000 + (now.tv_nsec - begin->tv_nsec) / 1000000;
}

/* ---- operations ---------------------------------------------------------------------------------------- */

static void conform(comm_thread *self)
{
    const rounds *r = self->user;
    moxie_comm *comm = over_local(self, 0);
    if (comm == NULL)
        return;
    COMM_EXPECT(self, strcmp(moxie_comm_name(comm), "nccl") == 0, "it is %s", moxie_comm_name(comm));
    (void)comm_conforms(comm, r->seed, r->rounds, self->failure, sizeof self->failure);
    moxie_comm_destroy(comm);
}

static void all_operations_of_1_to_8_ranks(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= 8; ranks++) {
        rounds r = { test_seed(26) + (uint64_t)ranks, test_env("MOXIE_TEST_ROUNDS", 10) };
        comm_run_threads(ranks, 0, conform, &r);
    }
}

/* Rank r sends row r of 3 bytes to every rank, from device to device; and gathers. */
static void exchange_on_device(comm_thread *self)
{
    const mox_cuda_table *table = NULL;
    moxie_comm *comm = over_local(self, 0);
    moxie_error error = { 0 };
    int64_t rows[4], at[4], none[4] = { 0 };
    void *send = NULL, *recv = NULL;
    if (comm == NULL || mox_cuda_open(&table, &error) != MOXIE_OK)
        return;
    for (int32_t r = 0; r < self->ranks; r++) {
        rows[r] = 1;
        at[r] = self->ranks - 1 - r;
    }
    (void)table->allocate(16, &send, NULL);
    (void)table->allocate(16, &recv, NULL);
    moxie_comm_rows all = { .send = send,
                            .recv = recv,
                            .row_bytes = 3,
                            .send_rows = rows,
                            .send_at = none,
                            .recv_rows = rows,
                            .recv_at = at,
                            .on_device = 1 };
    for (int gather = 0; gather < 2; gather++) {
        memset(send, 'a' + self->rank, 3);
        memset(recv, 0, 16);
        const moxie_status status =
            gather ? moxie_comm_allgatherv(comm, &all, &error) : moxie_comm_alltoallv(comm, &all, &error);
        COMM_EXPECT(self, status == MOXIE_OK, "%s", error.text);
        for (int32_t r = 0; r < self->ranks; r++)
            COMM_EXPECT(self, ((char *)recv)[3 * at[r] + 2] == 'a' + r, "rank %d got %.12s", self->rank, (char *)recv);
    }
    COMM_EXPECT(self, moxie_comm_reduce_scatter(comm, &all, &error) == MOXIE_ERR_ARGUMENT, "sums on a device");
    table->release(send);
    table->release(recv);
    moxie_comm_destroy(comm);
}

static void rows_on_the_device(void **state)
{
    (void)state;
    comm_run_threads(4, 0, exchange_on_device, NULL);
}

static void refuse_device_rows(comm_thread *self)
{
    const int64_t none[2] = { 0 };
    char row;
    moxie_error error = { 0 };
    const moxie_comm_rows rows = { .send = &row,
                                   .recv = &row,
                                   .row_bytes = 1,
                                   .send_rows = none,
                                   .send_at = none,
                                   .recv_rows = none,
                                   .recv_at = none,
                                   .on_device = 1 };
    COMM_EXPECT(self, moxie_comm_alltoallv(self->comm, &rows, &error) == MOXIE_ERR_ARGUMENT, "taken");
    COMM_EXPECT(self, strstr(error.text, "local takes host memory only") != NULL, "%s", error.text);
    moxie_comm_destroy(self->comm);
}

static void other_transports_refuse_them(void **state)
{
    (void)state;
    comm_run_threads(2, 0, refuse_device_rows, NULL);
}

/* ---- how ranks find each other ------------------------------------------------------------------------- */

static void meet_by_file(comm_thread *self)
{
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    moxie_error error = { 0 };
    nccl.ranks = self->ranks;
    nccl.rank = self->rank;
    nccl.file = self->user;
    COMM_EXPECT(self, moxie_comm_nccl_create(&nccl, NULL, &comm, &error) == MOXIE_OK, "%s", error.text);
    if (comm != NULL)
        COMM_EXPECT(self, moxie_comm_barrier(comm, &error) == MOXIE_OK, "%s", error.text);
    moxie_comm_destroy(comm);
    moxie_comm_destroy(self->comm);
}

static void ranks_meet_by_a_file(void **state)
{
    (void)state;
    char path[] = "/tmp/moxie_nccl_XXXXXX";
    close(mkstemp(path));
    unlink(path);
    comm_run_threads(3, 0, meet_by_file, path);
    assert_int_equal(access(path, F_OK), -1);
}

static void a_file_that_is_there_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/moxie_nccl_XXXXXX";
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    moxie_error error;
    close(mkstemp(path));
    nccl.ranks = 2;
    nccl.file = path;
    options.deadline_ms = 50;
    assert_int_equal(moxie_comm_nccl_create(&nccl, &options, &comm, &error), MOXIE_ERR_ARGUMENT);
    nccl.rank = 1; /* too short for an id */
    assert_int_equal(moxie_comm_nccl_create(&nccl, &options, &comm, &error), MOXIE_ERR_IO);
    unlink(path);
    assert_int_equal(moxie_comm_nccl_create(&nccl, &options, &comm, &error), MOXIE_ERR_TIMEOUT);
    assert_non_null(strstr(error.text, path));
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    char id[MOXIE_NCCL_ID_BYTES];
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    moxie_error error;
    nccl.ranks = 2;
    assert_int_equal(moxie_comm_nccl_create(&nccl, NULL, &comm, &error), MOXIE_ERR_ARGUMENT); /* no way to meet */
    assert_ok(moxie_comm_nccl_id(id, &error), &error);
    nccl.id = id;
    nccl.file = "x";
    assert_int_equal(moxie_comm_nccl_create(&nccl, NULL, &comm, &error), MOXIE_ERR_ARGUMENT); /* two ways */
    nccl.file = NULL;
    nccl.rank = 2;
    assert_int_equal(moxie_comm_nccl_create(&nccl, NULL, &comm, &error), MOXIE_ERR_ARGUMENT);
    nccl.rank = 0;
    nccl.device = "7";
    assert_int_equal(moxie_comm_nccl_create(&nccl, NULL, &comm, &error), MOXIE_ERR_UNSUPPORTED);
    assert_null(comm);
}

/* ---- failures ------------------------------------------------------------------------------------------ */

static void one_rank_alone_fails_at_its_deadline(void **state)
{
    (void)state;
    char id[MOXIE_NCCL_ID_BYTES];
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    moxie_error error;
    assert_ok(moxie_comm_nccl_id(id, &error), &error);
    nccl.ranks = 2;
    nccl.id = id;
    options.deadline_ms = 60;
    assert_int_equal(moxie_comm_nccl_create(&nccl, &options, &comm, &error), MOXIE_ERR_TIMEOUT);
    assert_null(comm);
}

/* Rank 2 does not come to the second exchange, before the others have been told its number. */
static void miss_one(comm_thread *self)
{
    atomic_int *told = self->user;
    moxie_comm *comm = over_local(self, 1000);
    moxie_error error = { 0 };
    int64_t send[4] = { 0 }, recv[4];
    struct timespec begin;
    if (comm == NULL)
        return;
    COMM_EXPECT(self, moxie_comm_counts(comm, send, recv, 1, &error) == MOXIE_OK, "%s", error.text);
    if (self->rank != 2) {
        clock_gettime(CLOCK_MONOTONIC, &begin);
        const moxie_status status = moxie_comm_counts(comm, send, recv, 1, &error);
        COMM_EXPECT(self, status == MOXIE_ERR_TIMEOUT, "%s", moxie_status_name(status));
        COMM_EXPECT(self, strstr(error.text, "rank 2 of 4 did not take part") != NULL, "%s", error.text);
        COMM_EXPECT(self, elapsed_ms(&begin) < 20000, "after %lld ms", (long long)elapsed_ms(&begin));
        COMM_EXPECT(self, moxie_comm_barrier(comm, &error) == MOXIE_ERR_TIMEOUT, "a broken comm goes on");
    }
    atomic_fetch_add(told, self->rank != 2);
    while (atomic_load(told) < 3)
        nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
    moxie_comm_destroy(comm);
}

static void an_absent_rank_is_named(void **state)
{
    (void)state;
    atomic_int told = 0;
    comm_run_threads(4, 0, miss_one, &told);
}

/* Rank 1 makes another call. */
static void differ(comm_thread *self)
{
    moxie_comm *comm = over_local(self, 2000);
    moxie_error error = { 0 };
    int64_t send[3] = { 0 }, recv[3], value = 0;
    if (comm == NULL)
        return;
    const moxie_status status = self->rank == 1 ? moxie_comm_allreduce(comm, &value, 1, MOXIE_COMM_SUM_I64, &error)
                                                : moxie_comm_counts(comm, send, recv, 1, &error);
    COMM_EXPECT(self, status == MOXIE_ERR_MISMATCH || status == MOXIE_ERR_TIMEOUT, "rank %d: %s", self->rank,
                moxie_status_name(status));
    COMM_EXPECT(self, self->rank == 1 || strstr(error.text, "rank 1 sent operation 1, allreduce") != NULL, "%s",
                error.text);
    moxie_comm_destroy(comm);
}

static void different_calls_are_found(void **state)
{
    (void)state;
    comm_run_threads(3, 0, differ, NULL);
}

/* Rank 0 destroys its comm, and rank 1 only when that is done. */
static void leave_early(comm_thread *self)
{
    atomic_int *left = self->user;
    moxie_comm *comm = over_local(self, 0);
    struct timespec begin;
    while (self->rank == 1 && atomic_load(left) == 0)
        nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    moxie_comm_destroy(comm);
    COMM_EXPECT(self, elapsed_ms(&begin) < 10000, "rank %d left after %lld ms", self->rank,
                (long long)elapsed_ms(&begin));
    atomic_store(left, 1);
}

/* NCCL waits for the others, on a thread that frees what is rank 0's when they have come. */
static void a_rank_that_leaves_waits_a_second(void **state)
{
    (void)state;
    atomic_int left = 0;
    comm_run_threads(2, 0, leave_early, &left);
    for (int ms = 0; test_cuda_alive() > 0 && ms < 10000; ms++)
        nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
    assert_int_equal(test_cuda_alive(), 0);
}

static void tell_stub(const char *function, bool on)
{
    void *library = dlopen(getenv("MOXIE_NCCL_LIBRARY"), RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, function) : NULL;
    void (*set)(bool on);
    assert_non_null(symbol);
    memcpy(&set, &symbol, sizeof set);
    set(on);
}

/* ---- no id --------------------------------------------------------------------------------------------- */

static void get_no_id(comm_thread *self)
{
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    moxie_error error = { 0 };
    nccl.over = self->comm;
    const moxie_status status = moxie_comm_nccl_create(&nccl, NULL, &comm, &error);
    const char *text = self->rank == 0 ? "ncclGetUniqueId" : "rank 0 cannot take part (io)";
    COMM_EXPECT(self, status == (self->rank == 0 ? MOXIE_ERR_IO : MOXIE_ERR_MISMATCH), "rank %d: %s", self->rank,
                moxie_status_name(status));
    COMM_EXPECT(self, strstr(error.text, text) != NULL, "rank %d: %s", self->rank, error.text);
    COMM_EXPECT(self, moxie_comm_barrier(self->comm, &error) == MOXIE_OK, "%s", error.text);
    moxie_comm_destroy(self->comm);
}

static void a_rank_without_an_id_is_named(void **state)
{
    (void)state;
    tell_stub("nccl_stub_fail_ids", true);
    comm_run_threads(3, 0, get_no_id, NULL);
    tell_stub("nccl_stub_fail_ids", false);
}

/* ---- a rank that stops before its first barrier ---------------------------------------------------------- */

static moxie_status use_nothing(int32_t ordinal, moxie_error *error)
{
    (void)ordinal, (void)error;
    return MOXIE_OK;
}

typedef struct stopping {
    mox_nccl_id id;
    atomic_int told; /* rank 0 has its error */
} stopping;

/* Rank 1 makes its communicator, and nothing more. */
static void stop(comm_thread *self)
{
    stopping *s = self->user;
    const mox_comm_device device = { .use = use_nothing };
    const mox_nccl_library *nccl = NULL;
    mox_nccl_comm made = NULL;
    int code = 0;
    moxie_error error = { 0 };
    COMM_EXPECT(self, mox_nccl_open(&nccl, &error) == MOXIE_OK, "%s", error.text);
    COMM_EXPECT(self,
                mox_nccl_connect(nccl, &s->id, 2, 1, &device, 20000, &made, &code, &error) == MOXIE_OK && made != NULL,
                "%s", error.text);
    while (atomic_load(&s->told) == 0)
        nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
    if (made != NULL)
        (void)nccl->comm_abort(made);
}

static void create_beside(comm_thread *self)
{
    stopping *s = self->user;
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    moxie_error error = { 0 };
    struct timespec begin;
    nccl.ranks = 2;
    nccl.id = s->id.bytes;
    options.deadline_ms = 500;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    const moxie_status status = moxie_comm_nccl_create(&nccl, &options, &comm, &error);
    COMM_EXPECT(self, status == MOXIE_ERR_TIMEOUT, "%s", moxie_status_name(status));
    COMM_EXPECT(self, strstr(error.text, "not all of 2 ranks came to its barrier within 500 ms") != NULL, "%s",
                error.text);
    COMM_EXPECT(self, elapsed_ms(&begin) < 10000, "after %lld ms", (long long)elapsed_ms(&begin));
    COMM_EXPECT(self, comm == NULL, "a comm was made");
    atomic_store(&s->told, 1);
}

static void stop_or_create(comm_thread *self)
{
    moxie_comm_destroy(self->comm);
    if (self->rank == 1)
        stop(self);
    else
        create_beside(self);
}

/* NCCL waits for rank 1's connection on the host. Creation ends at its deadline all the same, and what it made is freed
 * when NCCL returns. */
static void a_rank_that_stops_before_the_barrier_is_not_waited_for(void **state)
{
    (void)state;
    stopping s = { .told = 0 };
    moxie_error error;
    assert_ok(moxie_comm_nccl_id(s.id.bytes, &error), &error);
    tell_stub("nccl_stub_connect_ranks", true);
    comm_run_threads(2, 0, stop_or_create, &s);
    for (int ms = 0; test_cuda_alive() > 0 && ms < 10000; ms++)
        nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
    tell_stub("nccl_stub_connect_ranks", false);
    assert_int_equal(test_cuda_alive(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_operations_of_1_to_8_ranks, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(rows_on_the_device, test_cuda_begin, test_cuda_end),
        cmocka_unit_test(other_transports_refuse_them),
        cmocka_unit_test_setup_teardown(ranks_meet_by_a_file, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_file_that_is_there_is_refused, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(wrong_options_are_refused, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_rank_without_an_id_is_named, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(one_rank_alone_fails_at_its_deadline, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(an_absent_rank_is_named, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(different_calls_are_found, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_rank_that_leaves_waits_a_second, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(a_rank_that_stops_before_the_barrier_is_not_waited_for, test_cuda_begin,
                                        test_cuda_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
