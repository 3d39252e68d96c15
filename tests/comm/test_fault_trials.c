/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fault_trials.c - layers run on 3 or 4 ranks again and again, until one rank is killed, stops, is late or loses
 * its links, at a random call of its transport. Every other rank must return MOXIE_ERR_TIMEOUT soon after the deadline:
 * how soon is the machine's matter, too, so ten seconds are allowed.
 *
 *     threads     over the local transport; the text names the faulty rank
 *     processes   over a transport of the test's own, with sockets; it names a rank, since the others close their
 *                 sockets in turn
 *
 * MOXIE_TEST_TRIALS: how many of each. Over MPI: test_mpi_degraded.sh.
 */
#include "comm_sockets.h"
#include "comm_threads.h"
#include "test_faulty.h"
#include "test_ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/local/local.h"

enum { DEADLINE = 1000, PATIENCE = 10000 };

typedef enum fault_kind { KILLED, STOPPED, LATE, CUT, FAULTS } fault_kind;

typedef struct trial {
    fault_kind kind;
    int32_t ranks, faulty;
    int64_t calls;
    bool processes;
    atomic_int *ended;   /* ranks that have failed as they should, in memory that processes share */
    atomic_int *ready;   /* ranks that have prepared their layers, whose time no deadline counts */
    atomic_int *process; /* the faulty one's id */
    test_layer layer;
    test_ranks_spec spec;
} trial;

/* ---- the faults ---------------------------------------------------------------------------------------- */

static void wait_for_the_others(const trial *t)
{
    while (atomic_load(t->ended) < t->ranks - 1)
        test_sleep_ms(1);
}

/* A thread that is killed or stopped keeps its memory, as it must: others may copy from it. A late rank comes back when
 * the others have given up. */
static void do_fault(test_fault *fault)
{
    const trial *t = fault->user;
    if (t->kind == CUT)
        test_fault_leave(fault);
    else if (t->kind == LATE || !t->processes)
        wait_for_the_others(t);
    else {
        atomic_store(t->process, (int)getpid());
        raise(t->kind == KILLED ? SIGKILL : SIGSTOP);
    }
}

static void wait_for_all(test_fault *fault)
{
    const trial *t = fault->user;
    atomic_fetch_add(t->ready, 1);
    while (atomic_load(t->ready) < t->ranks)
        test_sleep_ms(1);
}

/* ---- one rank ------------------------------------------------------------------------------------------ */

/* Runs until that fails. Returns 0 when all is as it should be. */
static int run_until_failure(trial *t, moxie_comm *comm, const test_fault *fault, char *text, size_t bytes)
{
    const int32_t rank = moxie_comm_rank(comm);
    char *output = malloc(test_layer_output_bytes(&t->layer) + 1), name[32];
    moxie_error error = { 0 };
    moxie_status status;
    status = test_ranks_run_one(&t->layer, &t->spec, comm, output, &error);
    const int64_t took = fault->done_ms > 0 ? test_now_ms() - fault->done_ms : 0;
    free(output);
    if (rank == t->faulty)
        return 0;
    snprintf(name, sizeof name, "rank %d", (int)t->faulty);
    const bool named = strstr(error.text, t->processes ? "rank " : name) != NULL;
    const bool good = status == MOXIE_ERR_TIMEOUT && took <= DEADLINE + PATIENCE && named;
    if (!good)
        snprintf(text, bytes, "fault %d of rank %d at call %lld: rank %d answers %s after %lld ms: %s", (int)t->kind,
                 (int)t->faulty, (long long)t->calls, (int)rank, moxie_status_name(status), (long long)took,
                 error.text);
    if (atomic_fetch_add(t->ended, 1) == t->ranks - 2 && t->processes && t->kind == STOPPED)
        kill((pid_t)atomic_load(t->process), SIGKILL);
    return !good;
}

static void begin(trial *t, uint64_t seed, bool processes)
{
    test_rng rng = { seed };
    const test_layer_limits limits = {
        .tokens = 9, .experts = 6, .top_k = 2, .no_parallel = true, .plain_routing = true
    };
    t->kind = (fault_kind)test_below(&rng, FAULTS);
    t->ranks = (int32_t)test_range(&rng, 3, 4);
    t->faulty = (int32_t)test_below(&rng, (uint64_t)t->ranks);
    t->calls = (int64_t)test_below(&rng, 60);
    t->processes = processes;
    atomic_store(t->ended, 0);
    atomic_store(t->ready, 0);
    test_layer_make(&t->layer, &rng, &limits);
    t->spec = (test_ranks_spec) { .ranks = t->ranks,
                                  .layout = (moxie_token_layout)test_below(&rng, 3),
                                  .runs = 1000,
                                  .options = MOXIE_OPTIONS_INIT };
    test_ranks_cut(&t->spec, &rng, 9);
}

/* ---- threads ------------------------------------------------------------------------------------------- */

typedef struct rank_thread {
    trial *of;
    moxie_comm *comm;
    test_fault fault;
    char text[1024];
    pthread_t thread;
} rank_thread;

static void *rank_main(void *user)
{
    rank_thread *self = user;
    run_until_failure(self->of, self->comm, &self->fault, self->text, sizeof self->text);
    moxie_comm_destroy(self->comm);
    return NULL;
}

static int64_t trials(void)
{
    return test_env("MOXIE_TEST_TRIALS", test_quick() || test_sanitized() ? 4 : 12);
}

static void threads(void **state)
{
    (void)state;
    static trial t;
    static atomic_int ended, ready, process;
    const uint64_t first = test_seed(61000);
    t.ended = &ended;
    t.ready = &ready;
    t.process = &process;
    for (int64_t i = 0; i < trials(); i++) {
        moxie_transport transports[4];
        static rank_thread ranks[4];
        moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
        moxie_error error = { 0 };
        options.deadline_ms = DEADLINE;
        begin(&t, first + (uint64_t)i, false);
        assert_ok(mox_local_create(t.ranks, transports, &error), &error);
        for (int32_t r = 0; r < t.ranks; r++) {
            ranks[r] = (rank_thread) { .of = &t };
            ranks[r].fault = (test_fault) {
                .calls_left = r == t.faulty ? t.calls : -1, .hook = do_fault, .first = wait_for_all, .user = &t
            };
            const moxie_transport faulty = test_faulty(transports[r], &ranks[r].fault);
            assert_ok(moxie_comm_create(&faulty, &options, &ranks[r].comm, &error), &error);
        }
        for (int32_t r = 0; r < t.ranks; r++)
            assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
        for (int32_t r = 0; r < t.ranks; r++)
            pthread_join(ranks[r].thread, NULL);
        for (int32_t r = 0; r < t.ranks; r++)
            if (ranks[r].text[0] != 0)
                fail_msg("seed %llu: %s", (unsigned long long)first + (unsigned long long)i, ranks[r].text);
        test_layer_free(&t.layer);
    }
}

/* ---- processes ----------------------------------------------------------------------------------------- */

static test_fault process_fault;

static moxie_transport with_fault(moxie_transport transport, void *user)
{
    trial *t = user;
    process_fault =
        (test_fault) { .calls_left = transport.rank == t->faulty ? t->calls : -1, .hook = do_fault, .user = t };
    return test_faulty(transport, &process_fault);
}

static int process_main(moxie_comm *comm, void *user)
{
    char text[1024] = "";
    const int bad = run_until_failure(user, comm, &process_fault, text, sizeof text);
    if (bad)
        fprintf(stderr, "%s\n", text);
    moxie_comm_destroy(comm);
    return bad;
}

static void processes(void **state)
{
    (void)state;
    static trial t;
    const uint64_t first = test_seed(62000);
    atomic_int *shared = mmap(NULL, 3 * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    t.ended = &shared[0];
    t.process = &shared[1];
    t.ready = &shared[2];
    for (int64_t i = 0; i < trials(); i++) {
        begin(&t, first + (uint64_t)i, true);
        const int dies = t.kind == KILLED || t.kind == STOPPED;
        const int bad = comm_run_faulty_processes(t.ranks, DEADLINE, i % 2 == 0, with_fault, process_main, &t);
        if (bad != dies)
            fail_msg("seed %llu, fault %d: %d processes did not end as they should",
                     (unsigned long long)first + (unsigned long long)i, (int)t.kind, bad - dies);
        test_layer_free(&t.layer);
    }
    munmap(shared, 3 * sizeof *shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(threads), cmocka_unit_test(processes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
