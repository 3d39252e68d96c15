/* SPDX-License-Identifier: Apache-2.0
 *
 * test_comm_custom.c - moxie_comm_create: a transport of the caller's passes the conformance test, with and without a
 * wait() of its own; dead and absent processes are named.
 */
#include "comm_conformance.h"
#include "comm_sockets.h"

#include <unistd.h>

typedef struct rounds {
    uint64_t seed;
    int64_t rounds;
} rounds;

static int conform(moxie_comm *comm, void *user)
{
    const rounds *r = user;
    char text[1024];
    const bool good = comm_conforms(comm, r->seed, r->rounds, text, sizeof text);
    if (!good)
        fprintf(stderr, "%s\n", text);
    moxie_comm_destroy(comm);
    return !good;
}

static void sockets_of_1_to_16_processes(void **state)
{
    (void)state;
    static const int32_t ranks[] = { 1, 2, 3, 5, 8, 16 };
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        for (int sleeps = 0; sleeps < 2; sleeps++) {
            rounds r = { test_seed(8) + (uint64_t)ranks[i], test_quick() || test_sanitized() ? 5 : 30 };
            assert_int_equal(comm_run_processes(ranks[i], 0, sleeps, conform, &r), 0);
        }
}

/* Rank 1 of 3 dies or sleeps; the others must say so. */
static int miss_rank_1(moxie_comm *comm, void *user)
{
    const bool dies = *(const bool *)user;
    moxie_error error = { 0 }, again = { 0 };
    int64_t values[2] = { 1, 2 };
    if (moxie_comm_rank(comm) == 1 && dies)
        return 0;
    if (moxie_comm_rank(comm) == 1)
        sleep(2);
    const moxie_status status = moxie_comm_allreduce(comm, values, 2, MOXIE_COMM_SUM_I64, &error);
    const bool named = strstr(error.text, "rank 1") || strstr(error.text, "rank 0 has closed") ||
                       strstr(error.text, "rank 2 has closed");
    const bool same = moxie_comm_barrier(comm, &again) == status && strcmp(error.text, again.text) == 0;
    if (status != MOXIE_ERR_TIMEOUT || !named || !same || !strstr(error.text, "allreduce"))
        fprintf(stderr, "rank %d: %d %s; then %s\n", moxie_comm_rank(comm), status, error.text, again.text);
    moxie_comm_destroy(comm);
    return status != MOXIE_ERR_TIMEOUT || !named || !same;
}

static void processes_that_die_or_sleep_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool dies = i & 1;
        assert_int_equal(comm_run_processes(3, dies ? 60000 : 300, i & 2, miss_rank_1, &dies), 0);
    }
}

static int disagree(moxie_comm *comm, void *user)
{
    (void)user;
    moxie_error error = { 0 };
    int64_t values[3] = { 0 };
    const moxie_status status =
        moxie_comm_allreduce(comm, values, 2 + moxie_comm_rank(comm), MOXIE_COMM_SUM_I64, &error);
    moxie_comm_destroy(comm);
    return status != MOXIE_ERR_MISMATCH && status != MOXIE_ERR_TIMEOUT;
}

static void a_failure_of_the_transport_is_passed_on(void **state)
{
    (void)state;
    assert_int_equal(comm_run_processes(2, 20000, true, disagree, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sockets_of_1_to_16_processes),
        cmocka_unit_test(processes_that_die_or_sleep_are_named),
        cmocka_unit_test(a_failure_of_the_transport_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
