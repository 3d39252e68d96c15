/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_stress.c - many runs on a store with the fewest slots and buffers, over a disk that is slow now and then,
 * gives short reads and asks to try again: several threads, several layers, guesses of all kinds, and checks of plans
 * beside the runs. Every output has the bytes of the layer in memory, and every check is within its bounds.
 *
 * Each thread chooses from MOXIE_TEST_SEED; MOXIE_TEST_ROUNDS sets the rounds of a thread. A read comes late by up to
 * some milliseconds, so a slot that is given to another expert while a run still computes it shows up as a difference.
 */
#include "test_store.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <moxie/moxie_trace.h>

enum { LAYERS = 3, EXPERTS = 12, TOP_K = 4, SETS = 4, TOKENS = 24, CHOICES = TOKENS * TOP_K, THREADS = 4 };

static char folder[64];
static test_layer layers[LAYERS];
static moxie_options plain = MOXIE_OPTIONS_INIT;
static int32_t set_ids[SETS][CHOICES];
static float set_weights[CHOICES];
static void *want[LAYERS][SETS]; /* outputs with all experts in memory */

static const test_layer_limits limits = {
    .tokens = TOKENS, .experts = EXPERTS, .top_k = TOP_K, .largest = 64, .plain_routing = true, .no_parallel = true
};

/* ---- a disk with moods ----------------------------------------------------------------------------------- */

static _Atomic uint64_t reads_begun;

static void sleep_us(uint64_t us)
{
    const struct timespec time = { .tv_nsec = (long)(us * 1000) };
    nanosleep(&time, NULL);
}

static int64_t be_moody(void *user, int32_t file, int32_t copy, uint64_t offset, int64_t result)
{
    (void)user, (void)file, (void)copy, (void)offset;
    test_rng rng = { atomic_fetch_add(&reads_begun, 1) };
    const uint64_t mood = test_below(&rng, 24);
    if (mood < 4)
        sleep_us(test_below(&rng, mood == 0 ? 3000 : 300));
    if (mood == 5)
        return -EINTR;
    if (mood == 6)
        return -EAGAIN;
    return mood == 7 && result > 4096 ? (int64_t)test_below(&rng, (uint64_t)result / 4096) * 4096 + 4096 : result;
}

/* ---- what is right --------------------------------------------------------------------------------------- */

static void make_layer(int l)
{
    test_layer *t = &layers[l];
    moxie_error error;
    test_store_make(t, 8800 + 100 * (uint64_t)l, &limits);
    test_store_write(folder, l, t, "moxie-cpu");
    test_layer_plan(t, &plain);
    for (int s = 0; s < SETS; s++) {
        want[l][s] = malloc(test_layer_output_bytes(t));
        memset(want[l][s], 0xee, test_layer_output_bytes(t));
        const moxie_run_args args = test_store_args(&t->args, set_ids[s], set_weights, want[l][s]);
        assert_ok(moxie_plan_run(t->plan, &args, &error), &error);
    }
}

static int begin_layers(void **state)
{
    (void)state;
    test_rng rng = { test_seed(5) };
    test_store_folder(folder);
    plain.backend = MOXIE_BACKEND_CPU;
    for (int i = 0; i < CHOICES; i++)
        set_weights[i] = test_uniform(&rng);
    for (int s = 0; s < SETS; s++)
        for (int i = 0; i < CHOICES; i++) /* few experts, or all */
            set_ids[s][i] = (int32_t)test_below(&rng, (uint64_t)(s == 0 ? EXPERTS : 3 * s));
    for (int l = 0; l < LAYERS; l++)
        make_layer(l);
    return 0;
}

static int end_layers(void **state)
{
    (void)state;
    for (int l = 0; l < LAYERS; l++) {
        for (int s = 0; s < SETS; s++)
            free(want[l][s]);
        test_layer_free(&layers[l]);
    }
    test_store_remove(folder);
    return 0;
}

/* ---- threads --------------------------------------------------------------------------------------------- */

typedef struct worker {
    pthread_t thread;
    moxie_store *store;
    moxie_layer **opened;
    uint64_t seed;
    int64_t rounds;
    int failed, differ, beyond;
    test_report report; /* of the first check that is beyond its bounds */
} worker;

static void guess(worker *w, test_rng *rng)
{
    int32_t ids[5];
    for (int i = 0; i < 5; i++)
        ids[i] = (int32_t)test_below(rng, EXPERTS + 2) - 1;
    w->failed += moxie_store_prefetch(w->store, (int64_t)test_below(rng, LAYERS), ids, 5, NULL) != MOXIE_OK;
}

/* One run, or one check of a plan. */
static void one_round(worker *w, test_rng *rng, moxie_plan *const *plans)
{
    const int l = (int)test_below(rng, LAYERS), s = (int)test_below(rng, SETS);
    const test_layer *t = &layers[l];
    const size_t bytes = test_layer_output_bytes(t);
    test_report report;
    moxie_run_args args = test_store_args(&t->args, set_ids[s], set_weights, malloc(bytes));
    memset(args.output, 0xee, bytes);
    args.workspace_bytes = moxie_plan_workspace_bytes(plans[l]);
    args.workspace = aligned_alloc(64, (args.workspace_bytes + 63) / 64 * 64);
    memset(args.workspace, 0xee, args.workspace_bytes);
    if (test_below(rng, 12) == 0) {
        w->failed += test_plan_check(plans[l], &t->weights, &args, &report, NULL) != MOXIE_OK;
        if (!(report.worst_ratio <= 1) && w->beyond++ == 0)
            w->report = report;
    } else {
        w->failed += moxie_plan_run(plans[l], &args, NULL) != MOXIE_OK;
    }
    w->differ += memcmp(args.output, want[l][s], bytes) != 0;
    free(args.workspace);
    free(args.output);
}

static void *work(void *user)
{
    worker *w = user;
    test_rng rng = { w->seed };
    moxie_plan *plans[LAYERS] = { NULL };
    for (int l = 0; l < LAYERS; l++)
        w->failed += moxie_plan_create(w->opened[l], &plain, &plans[l], NULL) != MOXIE_OK;
    for (int64_t i = 0; i < w->rounds && w->failed == 0; i++) {
        if (test_below(&rng, 2) == 0)
            guess(w, &rng);
        one_round(w, &rng, plans);
    }
    for (int l = 0; l < LAYERS; l++)
        moxie_plan_destroy(plans[l]);
    return NULL;
}

static void stress(int64_t slots, int64_t reads, const moxie_store_options *with)
{
    static const mox_reader_options moody = { .fault = be_moody, .chunk_bytes = 4096 };
    moxie_store_options options = *with;
    moxie_layer *opened[LAYERS] = { NULL };
    static worker workers[THREADS];
    moxie_error error;
    const int64_t rounds = test_env("MOXIE_TEST_ROUNDS", test_sanitized() || test_emulated() ? 6 : 20);
    options.ram_bytes = test_store_budget(folder, slots, reads);
    options.read_buffers = (int32_t)reads;
    moxie_store *store = test_store_open(folder, &options, &moody);
    for (int l = 0; l < LAYERS; l++)
        assert_ok(moxie_store_layer(store, l, NULL, &plain, &opened[l], &error), &error);
    for (int i = 0; i < THREADS; i++) {
        workers[i] =
            (worker) { .store = store, .opened = opened, .seed = test_seed(40) + 7 * (uint64_t)i, .rounds = rounds };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) {
        test_report_print_beyond(&workers[i].report);
        assert_int_equal(workers[i].failed, 0);
        assert_int_equal(workers[i].differ, 0);
        assert_int_equal(workers[i].beyond, 0);
    }
    for (int l = 0; l < LAYERS; l++)
        moxie_layer_destroy(opened[l]);
    moxie_store_close(store);
}

static void test_fewest(void **state)
{
    (void)state;
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    stress(1, 2, &options);
    options.verify = 1;
    stress(1, 3, &options);
}

static void test_policies(void **state)
{
    (void)state;
    const char *name;
    for (int32_t p = 0; (name = moxie_cache_policy_at(p, NULL)) != NULL; p++) {
        moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
        options.policy = name;
        options.warm_runs = 9;
        options.max_inserts = p % 2 == 0 ? -1 : 1;
        options.reader = p % 2 == 0 ? "pread" : NULL;
        stress(3, 2 + p, &options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fewest), cmocka_unit_test(test_policies) };
    return cmocka_run_group_tests(tests, begin_layers, end_layers);
}
