/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ranks_phases.c - where a run's time went (moxie_plan_phase_at): the phases of each worker add up to the time of
 * the run; waiting for a late rank counts as waiting, and is nobody's work; each stage counts to its phase.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "test_ranks.h"

#include "base/clock.h"
#include "base/cpu_features.h"

enum { RANKS = 3, LATE = 1, LATE_MS = 1000, WORKERS = 2 };

static double seconds_of(const moxie_plan *plan, int32_t worker, const char *name)
{
    moxie_plan_phase phase = MOXIE_PLAN_PHASE_INIT;
    double sum = 0;
    int32_t found = 0;
    for (int32_t i = 0; moxie_plan_phase_at(plan, worker, i, &phase); i++)
        if (name == NULL || strcmp(phase.name, name) == 0) {
            sum += phase.seconds;
            found++;
        }
    assert_true(found > 0);
    return sum;
}

static double now(void)
{
    return 1e-9 * (double)mox_clock_now();
}

static void expect_between(double low, double value, double high, const char *what)
{
    if (!(low <= value && value <= high))
        fail_msg("%s is %.6f s, not between %.6f and %.6f", what, value, low, high);
}

/* ---- the stopwatch -------------------------------------------------------------------------------- */

static void test_clock(void **state)
{
    (void)state;
    mox_clock clocks[WORKERS] = { { .since = 1 } };
    uint64_t sum = 0;
    const uint64_t begin = mox_clock_now();
    mox_clock_start(clocks, WORKERS, MOX_PHASE_ROUTE);
    assert_int_equal(mox_clock_enter(clocks, MOX_PHASE_W13), MOX_PHASE_ROUTE);
    usleep(20000);
    assert_int_equal(mox_clock_enter(clocks, MOX_PHASE_W13), MOX_PHASE_W13);
    const uint64_t last = mox_clock_now();
    assert_int_equal(mox_clock_enter(clocks, MOX_PHASE_W2), MOX_PHASE_W13);
    mox_clock_stop(clocks, WORKERS);
    const uint64_t end = mox_clock_now(), all = end - begin;
    for (int i = 0; i < MOX_PHASES; i++)
        sum += clocks[0].ns[i];
    assert_true(clocks[0].ns[MOX_PHASE_W13] >= 20000000 && clocks[0].ns[MOX_PHASE_W2] <= end - last);
    assert_true(sum <= all && clocks[1].ns[MOX_PHASE_IDLE] == sum);
    mox_clock_move(clocks, MOX_PHASE_W13, MOX_PHASE_WAIT, 5000000);
    assert_int_equal(clocks[0].ns[MOX_PHASE_WAIT], 5000000);
    mox_clock_move(clocks, MOX_PHASE_W13, MOX_PHASE_WAIT, UINT64_MAX); /* never more than there is */
    assert_int_equal(clocks[0].ns[MOX_PHASE_W13], 0);
    assert_int_equal(mox_clock_enter(NULL, MOX_PHASE_W2), MOX_PHASE_W2);
}

/* ---- one rank ------------------------------------------------------------------------------------- */

/* Runs all tasks here, in order, for the last worker first: it does what workers share. */
static void run_backwards(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    (void)self;
    for (int64_t i = 0; i < tasks; i++)
        fn(context, i, (int32_t)(WORKERS - 1 - i % WORKERS));
}

static double run_once(const test_layer *layer, moxie_plan *plan)
{
    const double begin = now();
    free(test_layer_output(layer, plan));
    return now() - begin;
}

/* Fused or not, all workers' phases add up to the same time, which is the time of the runs. */
static void try_alone(uint64_t seed, moxie_backend backend, int64_t *fused)
{
    test_rng rng = { seed };
    test_layer layer;
    moxie_executor executor = { .workers = WORKERS, .run = run_backwards };
    moxie_plan_phase phase = MOXIE_PLAN_PHASE_INIT;
    const test_layer_limits limits = { .tokens = 40, .no_parallel = true };
    test_layer_make(&layer, &rng, &limits);
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.executor = &executor;
    options.backend = backend;
    options.max_tokens = layer.args.tokens;
    test_layer_plan(&layer, &options);
    assert_true(seconds_of(layer.plan, 0, NULL) == 0);
    double wall = 0;
    for (int i = 0; i < 3; i++)
        wall += run_once(&layer, layer.plan);
    const double all = seconds_of(layer.plan, 0, NULL), other = seconds_of(layer.plan, 1, NULL);
    expect_between(all - 1e-6, other, all + 1e-6, "the phases of worker 1");
    expect_between(0, all, wall, "the sum of the phases");
    assert_true(seconds_of(layer.plan, 0, "w13") + seconds_of(layer.plan, 1, "w13") > 0);
    assert_true(seconds_of(layer.plan, 0, "w2") + seconds_of(layer.plan, 1, "w2") > 0);
    assert_true(seconds_of(layer.plan, 0, "route") > 0 && seconds_of(layer.plan, 0, "permute") > 0);
    assert_true(seconds_of(layer.plan, 0, "exchange") == 0 && seconds_of(layer.plan, 0, "wait") == 0);
    *fused += seconds_of(layer.plan, 1, "w13") > 0;
    assert_false(moxie_plan_phase_at(layer.plan, WORKERS, 0, &phase) || moxie_plan_phase_at(layer.plan, -1, 0, &phase));
    assert_false(moxie_plan_phase_at(layer.plan, 0, MOX_PHASES, &phase) || moxie_plan_phase_at(NULL, 0, 0, &phase) ||
                 moxie_plan_phase_at(layer.plan, 0, -1, &phase) || moxie_plan_phase_at(layer.plan, 0, 0, NULL));
    phase.struct_size = 1;
    assert_false(moxie_plan_phase_at(layer.plan, 0, 0, &phase));
    test_layer_free(&layer);
}

static void test_alone(void **state)
{
    (void)state;
    int64_t fused = 0, unused = 0;
    for (uint64_t i = 0; i < 12; i++)
        try_alone(test_seed(26060000) + i, MOXIE_BACKEND_CPU, &fused);
    try_alone(test_seed(26061000), MOXIE_BACKEND_REF, &unused);
    assert_true(fused > 0 || !mox_cpu()->avx2); /* a second worker has multiplied */
}

/* ---- ranks ---------------------------------------------------------------------------------------- */

typedef struct rank {
    const test_layer *layer;
    moxie_layer_config config;
    moxie_comm *comm;
    atomic_int *begun; /* ranks that have, but the late one */
    moxie_layer *built;
    moxie_plan *plan;
    double wall;
    moxie_status status;
    moxie_error error;
} rank;

static moxie_status build(rank *r)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.comm = r->comm;
    options.max_tokens = r->layer->args.tokens;
    const moxie_status status = test_ranks_layer(&r->config, &r->layer->weights, &options, &r->built, &r->error);
    return status == MOXIE_OK ? moxie_plan_create(r->built, &options, &r->plan, &r->error) : status;
}

/* Every rank has all tokens as its own. The second run is the one that counts; one rank comes late to it. */
static void *run_rank(void *argument)
{
    rank *r = argument;
    char *output = malloc(test_layer_output_bytes(r->layer) + 1);
    moxie_run_args args = r->layer->args;
    r->status = build(r);
    if (r->status != MOXIE_OK) {
        atomic_fetch_add(r->begun, 1);
        return NULL;
    }
    args.output = output;
    test_ranks_workspace(r->plan, &args);
    r->status = moxie_comm_barrier(r->comm, &r->error);
    atomic_fetch_add(r->begun, moxie_comm_rank(r->comm) != LATE);
    while (moxie_comm_rank(r->comm) == LATE && atomic_load(r->begun) < RANKS - 1)
        usleep(1000);
    if (moxie_comm_rank(r->comm) == LATE)
        usleep(LATE_MS * 1000);
    const double begin = now();
    if (r->status == MOXIE_OK)
        r->status = moxie_plan_run(r->plan, &args, &r->error);
    r->wall = now() - begin;
    free(args.workspace);
    free(output);
    return NULL;
}

static void test_late_rank(void **state)
{
    (void)state;
    test_rng rng = { test_seed(26062000) };
    test_layer layer;
    moxie_comm *comms[RANKS];
    rank ranks[RANKS];
    atomic_int begun = 0;
    pthread_t threads[RANKS];
    moxie_error error;
    const test_layer_limits limits = { .tokens = 20, .experts = 6, .no_parallel = true, .plain_routing = true };
    test_layer_make(&layer, &rng, &limits);
    assert_ok(moxie_comm_local_create(RANKS, NULL, comms, &error), &error);
    for (int32_t r = 0; r < RANKS; r++) {
        ranks[r] = (rank) { .layer = &layer, .config = layer.config, .comm = comms[r], .begun = &begun };
        ranks[r].config.ep_size = RANKS;
        ranks[r].config.ep_rank = r;
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    for (int32_t r = 0; r < RANKS; r++) {
        assert_ok(ranks[r].status, &ranks[r].error);
        const double waited = seconds_of(ranks[r].plan, 0, "wait"), all = seconds_of(ranks[r].plan, 0, NULL);
        expect_between(0, all, ranks[r].wall, "the sum of the phases");
        if (r != LATE) /* a busy machine may hold it up before it waits */
            expect_between(LATE_MS * 0.05e-3, waited, ranks[r].wall, "waiting for the late rank");
        assert_true(seconds_of(ranks[r].plan, 0, "exchange") > 0);
        assert_true(all - waited < ranks[r].wall - waited + 1e-9);
        moxie_plan_phase phase = MOXIE_PLAN_PHASE_INIT;
        uint64_t sent = 0;
        for (int32_t i = 0; moxie_plan_phase_at(ranks[r].plan, 0, i, &phase); i++)
            sent += phase.sent_bytes;
        assert_true(sent > 0);
        moxie_plan_destroy(ranks[r].plan);
        moxie_layer_destroy(ranks[r].built);
        moxie_comm_destroy(comms[r]);
    }
    test_layer_free(&layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_clock), cmocka_unit_test(test_alone),
                                        cmocka_unit_test(test_late_rank) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
