/* SPDX-License-Identifier: Apache-2.0
 *
 * test_comm_api.c - wrong arguments of every call of moxie_comm.h: what the errors say, that nothing is started or
 * broken by them, that nothing leaks when memory is short.
 */
#include "test_support.h"

#include <moxie/moxie_comm.h>

#include "base/memory.h"
#include "comm/comm.h"

/* The call fails as MOXIE_ERR_ARGUMENT with these words in its text. */
#define REFUSED(call, words) refused((call), &error, words, #call)

static void refused(moxie_status status, const moxie_error *error, const char *words, const char *call)
{
    assert_int_equal(status, MOXIE_ERR_ARGUMENT);
    if (!strstr(error->text, words))
        fail_msg("%s: %s", call, error->text);
}

/* ---- a transport that does nothing -------------------------------------------------------------------- */

static int destroyed, cancelled;

static moxie_status fail_silently(void *self, int64_t *request, moxie_error *error)
{
    (void)self, (void)request, (void)error;
    return MOXIE_ERR_IO; /* without a text */
}

static moxie_status start_rows(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    (void)self, (void)rows, (void)error;
    *request = 77;
    return MOXIE_OK;
}

static moxie_status start_counts(void *self, const int64_t *send, int64_t *recv, int64_t each, int64_t *request,
                                 moxie_error *error)
{
    (void)self, (void)send, (void)recv, (void)each, (void)error;
    *request = 78;
    return MOXIE_OK;
}

static moxie_status start_sum(void *self, void *values, int64_t n, moxie_comm_sum how, int64_t *request,
                              moxie_error *error)
{
    (void)self, (void)values, (void)n, (void)how, (void)error;
    *request = 79;
    return MOXIE_OK;
}

static moxie_status never_done(void *self, int64_t request, int32_t *done, moxie_error *error)
{
    (void)self, (void)error;
    assert_true(request >= 77 && request <= 79);
    *done = 0;
    return MOXIE_OK;
}

static int32_t late_is_unknown(void *self, int64_t request)
{
    (void)self, (void)request;
    return -1;
}

static void note_cancel(void *self)
{
    (void)self;
    cancelled++;
}

static void note_destroy(void *self)
{
    (void)self;
    destroyed++;
}

static moxie_transport idle_transport(void)
{
    moxie_transport t = MOXIE_TRANSPORT_INIT;
    t.ranks = 3;
    t.rank = 2;
    t.name = "idle";
    t.counts = start_counts;
    t.alltoallv = t.allgatherv = t.reduce_scatter = start_rows;
    t.allreduce = start_sum;
    t.barrier = fail_silently;
    t.progress = never_done;
    t.late = late_is_unknown;
    t.cancel = note_cancel;
    t.destroy = note_destroy;
    destroyed = cancelled = 0;
    return t;
}

/* ---- creation ----------------------------------------------------------------------------------------- */

static moxie_status create(const moxie_transport *t, moxie_error *error)
{
    moxie_comm *comm = NULL;
    const moxie_status status = moxie_comm_create(t, NULL, &comm, error);
    assert_true((status == MOXIE_OK) == (comm != NULL));
    moxie_comm_destroy(comm);
    return status;
}

#define WITHOUT(function)                                                                                              \
    do {                                                                                                               \
        t = idle_transport();                                                                                          \
        t.function = NULL;                                                                                             \
        REFUSED(create(&t, &error), #function " is NULL");                                                             \
    } while (0)

static void an_incomplete_table_is_refused(void **state)
{
    (void)state;
    moxie_transport t;
    moxie_error error;
    WITHOUT(name);
    WITHOUT(counts);
    WITHOUT(alltoallv);
    WITHOUT(allgatherv);
    WITHOUT(reduce_scatter);
    WITHOUT(allreduce);
    WITHOUT(barrier);
    WITHOUT(progress);
    WITHOUT(late);
    WITHOUT(cancel);
    WITHOUT(destroy);
    t = idle_transport();
    assert_ok(create(&t, &error), &error); /* without wait */
    assert_int_equal(destroyed, 1);
    assert_int_equal(cancelled, 0);
}

static void wrong_sizes_of_a_transport_are_refused(void **state)
{
    (void)state;
    moxie_transport t = idle_transport();
    moxie_error error;
    t.ranks = 0;
    REFUSED(create(&t, &error), "0 ranks");
    t.ranks = MOXIE_MAX_RANKS + 1;
    REFUSED(create(&t, &error), "1025 ranks");
    t.ranks = 2;
    REFUSED(create(&t, &error), "rank 2 is not one of 0 to 1");
    t.rank = -1;
    REFUSED(create(&t, &error), "rank -1");
    t = idle_transport();
    t.struct_size = 3;
    REFUSED(create(&t, &error), "moxie_transport");
    assert_int_equal(destroyed, 0);
    moxie_comm *comm;
    REFUSED(moxie_comm_create(NULL, NULL, &comm, &error), "transport is NULL");
    t = idle_transport();
    REFUSED(moxie_comm_create(&t, NULL, NULL, &error), "out is NULL");
    assert_int_equal(destroyed, 0);
}

static void a_failed_creation_destroys_a_good_transport(void **state)
{
    (void)state;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    moxie_error error;
    moxie_transport t = idle_transport();
    options.deadline_ms = -1;
    REFUSED(moxie_comm_create(&t, &options, &comm, &error), "deadline_ms is -1");
    assert_int_equal(destroyed, 1);
    mox_alloc_fail_at(1);
    assert_int_equal(moxie_comm_create(&t, NULL, &comm, &error), MOXIE_ERR_MEMORY);
    mox_alloc_fail_at(0);
    assert_int_equal(destroyed, 2);
    assert_null(comm);
}

static void local_comms_need_ranks_and_memory(void **state)
{
    (void)state;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comms[3] = { NULL };
    moxie_error error;
    REFUSED(moxie_comm_local_create(0, NULL, comms, &error), "0 ranks; 1 to 1024");
    REFUSED(moxie_comm_local_create(1025, NULL, comms, &error), "1025 ranks");
    REFUSED(moxie_comm_local_create(2, NULL, NULL, &error), "out is NULL");
    options.deadline_ms = -5;
    REFUSED(moxie_comm_local_create(2, &options, comms, &error), "deadline_ms is -5");
    options = (moxie_comm_options)MOXIE_COMM_OPTIONS_INIT;
    options.struct_size = 5;
    REFUSED(moxie_comm_local_create(2, &options, comms, &error), "moxie_comm_options");
    moxie_status status = MOXIE_ERR_MEMORY;
    for (uint64_t n = 1; status != MOXIE_OK; n++) {
        mox_alloc_fail_at(n);
        status = moxie_comm_local_create(3, NULL, comms, &error);
        mox_alloc_fail_at(0);
        assert_true(status == MOXIE_OK ? n > 5 : status == MOXIE_ERR_MEMORY && !comms[0] && !comms[1] && !comms[2]);
    }
    for (int r = 0; r < 3; r++)
        moxie_comm_destroy(comms[r]);
    moxie_comm_destroy(NULL);
    assert_int_equal(moxie_comm_ranks(NULL), 0);
    assert_int_equal(moxie_comm_rank(NULL), -1);
    assert_null(moxie_comm_name(NULL));
}

/* ---- operations --------------------------------------------------------------------------------------- */

static moxie_comm *one_rank(void)
{
    moxie_comm *comm;
    moxie_error error;
    assert_ok(moxie_comm_local_create(1, NULL, &comm, &error), &error);
    return comm;
}

static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    moxie_comm *comm = one_rank();
    int64_t numbers[2] = { 3, 4 }, got[2] = { 0 };
    moxie_error error;
    REFUSED(moxie_comm_counts(NULL, numbers, got, 1, &error), "comm is NULL");
    REFUSED(moxie_comm_counts(comm, NULL, got, 1, &error), "send is NULL");
    REFUSED(moxie_comm_counts(comm, numbers, NULL, 1, &error), "recv is NULL");
    REFUSED(moxie_comm_counts(comm, numbers, got, -1, &error), "each is -1");
    REFUSED(moxie_comm_counts(comm, numbers, got, INT64_MAX / 4, &error), "63 bits");
    REFUSED(moxie_comm_allreduce(NULL, numbers, 1, MOXIE_COMM_SUM_I64, &error), "comm is NULL");
    REFUSED(moxie_comm_allreduce(comm, NULL, 1, MOXIE_COMM_SUM_I64, &error), "values is NULL");
    REFUSED(moxie_comm_allreduce(comm, numbers, -2, MOXIE_COMM_SUM_I64, &error), "n is -2");
    REFUSED(moxie_comm_allreduce(comm, numbers, INT64_MAX / 4, MOXIE_COMM_SUM_I64, &error), "63 bits");
    REFUSED(moxie_comm_allreduce(comm, numbers, 1, (moxie_comm_sum)3, &error), "3 is no moxie_comm_sum");
    REFUSED(moxie_comm_barrier(NULL, &error), "comm is NULL");
    assert_ok(moxie_comm_counts(comm, NULL, NULL, 0, &error), &error);
    assert_ok(moxie_comm_allreduce(comm, NULL, 0, MOXIE_COMM_SUM_I64, &error), &error);
    assert_ok(moxie_comm_counts(comm, numbers, got, 2, NULL), &error);
    assert_int_equal(got[1], 4);
    moxie_comm_destroy(comm);
}

typedef moxie_status rows_call(moxie_comm *comm, const moxie_comm_rows *rows, moxie_error *error);

/* Sets one thing wrong, expects the words, and sets it right again. */
#define WRONG(set, words)                                                                                              \
    do {                                                                                                               \
        rows = good;                                                                                                   \
        number = 1, at = 0;                                                                                            \
        set;                                                                                                           \
        REFUSED(call(comm, &rows, &error), words);                                                                     \
    } while (0)

static void try_wrong_rows(moxie_comm *comm, rows_call *call, bool sends)
{
    int64_t number = 1, at = 0, one = 1, none = 0;
    float from[4] = { 0 }, to[4];
    moxie_error error;
    const moxie_comm_rows good = { .send = from,
                                   .recv = to,
                                   .row_bytes = 4,
                                   .send_rows = &one,
                                   .send_at = &none,
                                   .recv_rows = &number,
                                   .recv_at = &at };
    moxie_comm_rows rows;
    REFUSED(call(NULL, &good, &error), "comm is NULL");
    REFUSED(call(comm, NULL, &error), "rows is NULL");
    WRONG(rows.reserved[0] = 1, "moxie_comm_rows");
    WRONG(rows.row_bytes = 0, "row_bytes is 0");
    WRONG(rows.recv_rows = NULL, "recv_rows is NULL");
    WRONG(rows.recv_at = NULL, "recv_at is NULL");
    WRONG(number = -1, "recv_rows[0] is -1");
    WRONG(at = -1, "recv_at[0] is -1");
    WRONG(at = INT64_MAX / 2, "63 bits");
    WRONG(at = INT64_MAX, "63 bits");
    WRONG(number = at = INT64_MAX, "9223372036854775807 rows from row 9223372036854775807 on");
    WRONG(rows.row_bytes = UINT64_MAX / 4 * 4, "63 bits");
    WRONG(rows.recv = NULL, "recv is NULL");
    WRONG(rows.send = NULL, " is NULL");
    rows = good;
    number = 1, at = 0;
    assert_ok(call(comm, &rows, &error), &error); /* the comm is not broken */
    if (!sends)
        return;
    WRONG(rows.send_rows = NULL, "send_rows is NULL");
    WRONG(rows.send_at = NULL, "send_at is NULL");
    WRONG(rows.send_rows = (const int64_t[]) { -3 }, "send_rows[0] is -3");
    WRONG(rows.send_at = (const int64_t[]) { INT64_MIN }, "send_at[0] is -9223372036854775808");
    WRONG(number = 0, "sends 1 rows to itself, but expects 0");
}

static void wrong_rows_are_refused(void **state)
{
    (void)state;
    moxie_comm *comm = one_rank();
    try_wrong_rows(comm, moxie_comm_alltoallv, true);
    try_wrong_rows(comm, moxie_comm_allgatherv, true);
    try_wrong_rows(comm, moxie_comm_reduce_scatter, false);
    moxie_error error;
    const moxie_comm_rows odd = { .row_bytes = 6 };
    REFUSED(moxie_comm_reduce_scatter(comm, &odd, &error), "row_bytes is 6");
    moxie_comm_destroy(comm);
}

/* ---- what a transport does wrong ---------------------------------------------------------------------- */

static void a_transport_that_fails_or_sleeps_breaks_the_comm(void **state)
{
    (void)state;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm;
    moxie_error error = { 0 };
    int64_t value = 0;
    moxie_transport t = idle_transport();
    options.deadline_ms = 20;
    assert_ok(moxie_comm_create(&t, &options, &comm, &error), &error);
    assert_string_equal(moxie_comm_name(comm), "idle");
    assert_int_equal(moxie_comm_ranks(comm), 3);
    assert_int_equal(moxie_comm_rank(comm), 2);
    assert_int_equal(moxie_comm_barrier(comm, &error), MOXIE_ERR_IO);
    assert_non_null(strstr(error.text, "transport failed"));
    assert_non_null(strstr(error.text, "barrier, operation 1 of rank 2"));
    assert_int_equal(moxie_comm_allreduce(comm, &value, 1, MOXIE_COMM_SUM_I64, NULL), MOXIE_ERR_IO);
    assert_int_equal(cancelled, 1);
    moxie_comm_destroy(comm);

    t = idle_transport();
    assert_ok(moxie_comm_create(&t, &options, &comm, &error), &error);
    assert_int_equal(moxie_comm_allreduce(comm, &value, 1, MOXIE_COMM_SUM_I64, &error), MOXIE_ERR_TIMEOUT);
    assert_non_null(strstr(error.text, "another rank"));
    assert_non_null(strstr(error.text, "deadline_ms is 20"));
    assert_int_equal(cancelled, 1);
    moxie_comm_destroy(comm);
    assert_int_equal(destroyed, 1);
}

static moxie_status refuse_to_mask(void *self, int32_t rank, moxie_error *error)
{
    (void)self, (void)rank;
    error->code = MOXIE_ERR_UNSUPPORTED;
    return MOXIE_ERR_UNSUPPORTED;
}

static moxie_status exchange(moxie_comm *comm, int32_t on_device, float *to, const float *from, moxie_error *error)
{
    const int64_t one[3] = { 1, 1, 1 }, at[3] = { 0, 1, 2 };
    const moxie_comm_rows rows = { .send = from,
                                   .recv = to,
                                   .row_bytes = sizeof *to,
                                   .send_rows = one,
                                   .send_at = at,
                                   .recv_rows = one,
                                   .recv_at = at,
                                   .on_device = on_device };
    mox_comm_request request;
    MOX_TRY(mox_comm_start_alltoallv(comm, &rows, &request, error));
    return mox_comm_wait(comm, request, error);
}

/* A degraded rank that has lost all others copies its own rows, and only the transport knows how on a device. */
static void nobody_copies_rows_of_a_device(void **state)
{
    (void)state;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm;
    moxie_error error = { 0 };
    const float from[3] = { 1, 2, 3 };
    moxie_transport t = idle_transport();
    options.deadline_ms = 20;
    t.device = 1;
    for (int first = 1; first >= 0; first--) {
        float to[3] = { 0 };
        t.mask = first == 1 ? refuse_to_mask : NULL; /* without it a run on the host may be degraded, too */
        assert_ok(moxie_comm_create(&t, &options, &comm, &error), &error);
        mox_comm_set_degraded(comm, true);
        assert_int_equal(exchange(comm, first, to, from, &error), first == 1 ? MOXIE_ERR_TIMEOUT : MOXIE_OK);
        assert_true(to[0] == 0 && to[1] == 0 && to[2] == (first == 1 ? 0.0f : 3.0f));
        assert_int_equal(exchange(comm, 1, to, from, &error), first == 1 ? MOXIE_ERR_TIMEOUT : MOXIE_ERR_UNSUPPORTED);
        assert_true(first == 1 || strstr(error.text, "cannot copy") != NULL);
        moxie_comm_destroy(comm);
    }
}

static void transports_are_listed(void **state)
{
    (void)state;
    moxie_transport_info info = MOXIE_TRANSPORT_INFO_INIT;
    int32_t n = 0;
    assert_int_equal(moxie_transport_at(0, NULL), 0);
    assert_int_equal(moxie_transport_at(-1, &info), 0);
    for (; moxie_transport_at(n, &info); n++) {
        assert_true(info.usable == (info.missing[0] == 0));
        assert_non_null(info.ranks);
        if (n == 0)
            assert_true(info.usable && strcmp(info.name, "local") == 0);
    }
    assert_true(n >= 1);
    info.struct_size = 6;
    assert_int_equal(moxie_transport_at(0, &info), 0);
}

/* What is awaited ends at any time: then the rank that sleeps sees it at most a part of that time later. */
static void a_wait_becomes_little_longer(void **state)
{
    uint64_t waited = 0, pause = 0;
    int looks = 0;
    (void)state;
    for (; waited<10000000000; waited += pause> 0 ? pause : 1000, looks++) {
        const uint64_t next = mox_comm_pause(waited);
        assert_true(next >= pause && next <= 1000000);
        assert_true(next == 0 ? waited < 100000 : next <= 20000 || next * 32 <= waited);
        pause = next;
    }
    assert_true(looks < 11000); /* a millisecond apart at last */
}

static int32_t shortest;

static void note_wait(void *self, int64_t request, int32_t ms)
{
    (void)self, (void)request;
    shortest = ms;
}

static moxie_status done_at_the_second_look(void *self, int64_t request, int32_t *done, moxie_error *error)
{
    static int looks;
    (void)self, (void)request, (void)error;
    *done = ++looks % 2 == 0;
    return MOXIE_OK;
}

/* A deadline that is as good as none: the rank sleeps until then, and does not spin. */
static void the_longest_deadline_is_a_wait(void **state)
{
    (void)state;
    moxie_transport t = idle_transport();
    t.wait = note_wait;
    t.progress = done_at_the_second_look;
    for (int32_t less = 0; less < 2; less++) {
        moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
        moxie_comm *comm = NULL;
        moxie_error error;
        mox_comm_request request;
        int64_t value = 0;
        options.deadline_ms = INT32_MAX - less;
        shortest = 0;
        assert_ok(moxie_comm_create(&t, &options, &comm, &error), &error);
        assert_ok(mox_comm_start_allreduce(comm, &value, 1, MOXIE_COMM_SUM_I64, &request, &error), &error);
        assert_ok(mox_comm_wait(comm, request, &error), &error);
        assert_int_equal(shortest, INT32_MAX);
        moxie_comm_destroy(comm);
    }
}

static moxie_status fail_late(void *self, int64_t request, int32_t *done, moxie_error *error)
{
    (void)self, (void)request, (void)done;
    return mox_fail(MOXIE_ERR_TIMEOUT, error, "somebody is late");
}

static int32_t blame_nobody(void *self, int64_t request)
{
    (void)self, (void)request;
    return 1 << 30;
}

/* A transport of the caller's that blames a number which is no rank's. */
static void a_late_rank_that_is_none(void **state)
{
    (void)state;
    moxie_transport t = idle_transport();
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    moxie_error error;
    int64_t value = 0;
    t.progress = fail_late;
    t.late = blame_nobody;
    assert_ok(moxie_comm_create(&t, &options, &comm, &error), &error);
    assert_int_equal(moxie_comm_allreduce(comm, &value, 1, MOXIE_COMM_SUM_I64, &error), MOXIE_ERR_TIMEOUT);
    assert_non_null(strstr(error.text, "somebody is late"));
    moxie_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_rank_that_is_none),
        cmocka_unit_test(a_wait_becomes_little_longer),
        cmocka_unit_test(the_longest_deadline_is_a_wait),
        cmocka_unit_test(an_incomplete_table_is_refused),
        cmocka_unit_test(wrong_sizes_of_a_transport_are_refused),
        cmocka_unit_test(a_failed_creation_destroys_a_good_transport),
        cmocka_unit_test(local_comms_need_ranks_and_memory),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(wrong_rows_are_refused),
        cmocka_unit_test(transports_are_listed),
        cmocka_unit_test(a_transport_that_fails_or_sleeps_breaks_the_comm),
        cmocka_unit_test(nobody_copies_rows_of_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
