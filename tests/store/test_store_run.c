/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_run.c - a run of a layer whose experts a store reads when they are needed equals the run from memory, byte
 * for byte: random layers, every format, shares of ranks, all numbers of tokens, a quarter of the slots and the fewest;
 * rows of moxie_plan_experts; several runs at the same time.
 */
#include "test_store.h"

#include <pthread.h>
#include <unistd.h>

#include "layer/weights/layer.h"

static const int64_t token_counts[] = { 300, 0, 1, 7, 64, 300 };
enum { COUNTS = sizeof token_counts / sizeof token_counts[0] };

static char folder[64];
static int64_t waves; /* runs that waited for a read */

static int begin_folder(void **state)
{
    (void)state;
    test_store_folder(folder);
    return 0;
}

static int end_folder(void **state)
{
    (void)state;
    test_store_remove(folder);
    return 0;
}

/* The outputs of the layer in memory, for each number of tokens. */
static void run_from_memory(test_layer *t, void *out[COUNTS])
{
    for (int i = 0; i < COUNTS; i++) {
        t->args.tokens = token_counts[i];
        out[i] = test_layer_output(t, t->plan);
    }
}

/* Runs the layer from a store with so many slots, and compares. */
static void compare_store(test_layer *t, const moxie_options *options, int64_t slots, void *const want[COUNTS])
{
    moxie_store_options o = MOXIE_STORE_OPTIONS_INIT;
    moxie_store_counters counters = MOXIE_STORE_COUNTERS_INIT;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_error error;
    o.ram_bytes = test_store_budget(folder, slots, 3);
    o.read_buffers = 3;
    o.verify = 1;
    moxie_store *store = test_store_open(folder, &o, NULL);
    assert_ok(moxie_store_layer(store, 7, NULL, options, &layer, &error), &error);
    assert_ok(moxie_plan_create(layer, options, &plan, &error), &error);
    test_layer_workspace(t, plan);
    for (int i = 0; i < COUNTS; i++) {
        t->args.tokens = token_counts[i];
        void *got = test_layer_output(t, plan);
        if (memcmp(got, want[i], test_layer_output_bytes(t)) != 0)
            fail_msg("a run of %lld tokens with %lld slots differs: %s", (long long)token_counts[i], (long long)slots,
                     t->text);
        free(got);
    }
    assert_ok(moxie_store_get_counters(store, -1, 0, &counters, &error), &error);
    assert_int_equal(counters.runs, COUNTS - 1); /* a run of no tokens has nothing to fetch */
    assert_int_equal(counters.failed_reads, 0);
    assert_true(counters.hits <= counters.uses);
    waves += counters.waits;
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_store_close(store);
}

static int compared;

/* False when a file cannot hold the layer, or these options choose another layout than it has. */
static void one_layer(uint64_t seed, const test_layer_limits *limits, const char *target, const moxie_options *options)
{
    test_layer t;
    void *want[COUNTS];
    test_rng rng = { test_seed(seed) };
    test_layer_make(&t, &rng, limits);
    if (test_store_fits(&t)) {
        char path[128];
        snprintf(path, sizeof path, "%s/layer-7.moxie", folder);
        test_store_write(folder, 7, &t, target);
        test_layer_plan(&t, options);
        if (test_store_has_layouts(folder, 7, &t, options)) {
            run_from_memory(&t, want);
            compare_store(&t, options, 1, want);
            compare_store(&t, options, t.config.experts / 4 + 1, want);
            compared++;
            for (int i = 0; i < COUNTS; i++)
                free(want[i]);
        }
        assert_int_equal(unlink(path), 0);
    }
    test_layer_free(&t);
}

static void test_random_layers(void **state)
{
    (void)state;
    const uint64_t count =
        (uint64_t)test_env("MOXIE_TEST_CONFIGS", test_quick() || test_sanitized() || test_emulated() ? 16 : 60);
    compared = 0;
    for (uint64_t seed = 0; seed < count; seed++) {
        moxie_options options = MOXIE_OPTIONS_INIT;
        const bool ref = seed % 8 == 3, scalar = seed % 4 == 1;
        options.backend = ref ? MOXIE_BACKEND_REF : MOXIE_BACKEND_CPU;
        options.isa = scalar ? "scalar" : NULL;
        one_layer(6000 + seed,
                  &(test_layer_limits) { .tokens = 300, .features = seed % 2 == 1, .rounds = true, .largest = 60 },
                  ref || scalar ? "moxie-rowmajor" : "moxie-cpu", &options);
    }
    assert_true(compared > (int)count / 4);
    assert_true(waves > 0);
}

/* Every format of weights; activations with one scale for the whole batch, too. */
static void test_formats(void **state)
{
    (void)state;
    compared = 0;
    for (int w = 0; w < test_weight_quant_count; w++) {
        moxie_options options = MOXIE_OPTIONS_INIT;
        options.backend = MOXIE_BACKEND_CPU;
        one_layer(7000 + (uint64_t)w,
                  &(test_layer_limits) { .weight = &test_weight_quants[w],
                                         .tokens = 300,
                                         .experts = 9,
                                         .top_k = 3,
                                         .largest = 70,
                                         .plain_routing = true },
                  w % 3 == 2 ? "moxie-rowmajor" : "moxie-cpu", &options);
    }
    assert_true(compared >= test_weight_quant_count / 3);
}

static const test_layer_limits usual = { .tokens = 300, TEST_STORE_USUAL };

static void test_rows(void **state)
{
    (void)state;
    test_layer t;
    moxie_store_options o = MOXIE_STORE_OPTIONS_INIT;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_error error;
    test_store_make(&t, 8000, &usual);
    options.backend = MOXIE_BACKEND_CPU;
    test_store_write(folder, 0, &t, "moxie-cpu");
    test_layer_plan(&t, &options);
    const size_t choices = (size_t)(t.args.tokens * t.config.top_k), n = choices * (size_t)t.config.hidden;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    test_store_choose(&t, 5);
    moxie_run_args args = t.args;
    memset(want, 0xee, n * sizeof *want);
    memset(got, 0xdd, n * sizeof *got);
    assert_ok(moxie_plan_experts(t.plan, &args, want, &error), &error);
    o.ram_bytes = test_store_budget(folder, 2, 2);
    moxie_store *store = test_store_open(folder, &o, NULL);
    assert_ok(moxie_store_layer(store, 0, NULL, &options, &layer, &error), &error);
    assert_ok(moxie_plan_create(layer, &options, &plan, &error), &error);
    test_layer_workspace(&t, plan);
    args.workspace = t.args.workspace;
    args.workspace_bytes = t.args.workspace_bytes;
    assert_ok(moxie_plan_experts(plan, &args, got, &error), &error);
    assert_memory_equal(got, want, n * sizeof *want);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_store_close(store);
    free(want);
    free(got);
    test_layer_free(&t);
}

/* ---- several runs at the same time --------------------------------------------------------------------- */

enum { RUNNERS = 4, ROUNDS = 6, LAYERS = 3 };

typedef struct runner {
    pthread_t thread;
    moxie_store *store;
    test_layer *layers;
    moxie_layer **opened;
    void **want; /* [LAYERS] outputs of 300 tokens */
    uint64_t seed;
    int wrong;
} runner;

static void *run_some(void *user)
{
    runner *r = user;
    moxie_options options = MOXIE_OPTIONS_INIT;
    test_rng rng = { r->seed };
    options.backend = MOXIE_BACKEND_CPU;
    options.max_tokens = 300;
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t l = test_below(&rng, LAYERS);
        test_layer *t = &r->layers[l];
        moxie_plan *plan = NULL;
        moxie_run_args args = t->args;
        int32_t ids[6];
        for (int k = 0; k < 6; k++)
            ids[k] = (int32_t)test_below(&rng, 12);
        r->wrong += moxie_store_prefetch(r->store, (int64_t)test_below(&rng, LAYERS), ids, 6, NULL) != MOXIE_OK;
        r->wrong += moxie_plan_create(r->opened[l], &options, &plan, NULL) != MOXIE_OK;
        args.workspace_bytes = moxie_plan_workspace_bytes(plan);
        args.workspace = aligned_alloc(64, (args.workspace_bytes + 63) / 64 * 64);
        args.output = malloc(test_layer_output_bytes(t));
        args.ids_out = NULL;
        args.weights_out = NULL;
        args.logits_out = NULL;
        r->wrong += moxie_plan_run(plan, &args, NULL) != MOXIE_OK;
        r->wrong += memcmp(args.output, r->want[l], test_layer_output_bytes(t)) != 0;
        free(args.output);
        free(args.workspace);
        moxie_plan_destroy(plan);
    }
    return NULL;
}

static void test_side_by_side(void **state)
{
    (void)state;
    test_layer layers[LAYERS];
    moxie_layer *opened[LAYERS] = { NULL };
    void *want[LAYERS];
    runner runners[RUNNERS];
    moxie_store_options o = MOXIE_STORE_OPTIONS_INIT;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error;
    options.backend = MOXIE_BACKEND_CPU;
    for (int l = 0; l < LAYERS; l++) {
        test_store_make(&layers[l], 8100 + 50 * (uint64_t)l, &usual);
        test_store_write(folder, l, &layers[l], "moxie-cpu");
        test_layer_plan(&layers[l], &options);
        want[l] = test_layer_output(&layers[l], layers[l].plan);
    }
    o.ram_bytes = test_store_budget(folder, 3, 4);
    o.read_buffers = 4;
    moxie_store *store = test_store_open(folder, &o, NULL);
    for (int l = 0; l < LAYERS; l++)
        assert_ok(moxie_store_layer(store, l, NULL, &options, &opened[l], &error), &error);
    for (int i = 0; i < RUNNERS; i++) {
        runners[i] =
            (runner) { .store = store, .layers = layers, .opened = opened, .want = want, .seed = 77 + (uint64_t)i };
        assert_int_equal(pthread_create(&runners[i].thread, NULL, run_some, &runners[i]), 0);
    }
    for (int i = 0; i < RUNNERS; i++) {
        pthread_join(runners[i].thread, NULL);
        assert_int_equal(runners[i].wrong, 0);
    }
    moxie_store_counters counters = MOXIE_STORE_COUNTERS_INIT;
    assert_ok(moxie_store_get_counters(store, -1, 0, &counters, &error), &error);
    assert_int_equal(counters.runs, RUNNERS * ROUNDS);
    for (int l = 0; l < LAYERS; l++) {
        moxie_layer_destroy(opened[l]);
        free(want[l]);
        test_layer_free(&layers[l]);
    }
    moxie_store_close(store);
}

/* ---- two files of a layer -------------------------------------------------------------------------------- */

/* A store of two files of layer 4 is refused, and the message names both and the layer. */
static void test_layer_twice(void **state)
{
    (void)state;
    test_layer t;
    char first[96], second[96];
    const char *paths[] = { folder, second };
    moxie_store_options o = MOXIE_STORE_OPTIONS_INIT;
    moxie_store *store = NULL;
    moxie_error error = { 0 };
    test_store_make(&t, 8300, &usual);
    for (int64_t number = 3; number <= 5; number++)
        test_store_write(folder, number, &t, "moxie-cpu");
    o.ram_bytes = UINT64_C(1) << 30;
    snprintf(first, sizeof first, "%s/layer-4.moxie", folder);
    snprintf(second, sizeof second, "%s/again.moxie", folder);
    assert_int_equal(link(first, second), 0);
    for (int n_paths = 1; n_paths <= 2; n_paths++) { /* both in the folder; one of them given once more by its name */
        assert_int_equal(moxie_store_open(paths, n_paths, &o, &store, &error), MOXIE_ERR_ARGUMENT);
        assert_null(store);
        assert_non_null(strstr(error.text, "layer 4"));
        assert_true(strstr(error.file, "again.moxie") != NULL || strstr(error.text, "again.moxie") != NULL);
        assert_true(n_paths == 2 || strstr(error.file, "layer-4.moxie") != NULL ||
                    strstr(error.text, "layer-4.moxie") != NULL);
    }
    test_layer_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_layers, begin_folder, end_folder),
        cmocka_unit_test_setup_teardown(test_formats, begin_folder, end_folder),
        cmocka_unit_test_setup_teardown(test_rows, begin_folder, end_folder),
        cmocka_unit_test_setup_teardown(test_side_by_side, begin_folder, end_folder),
        cmocka_unit_test_setup_teardown(test_layer_twice, begin_folder, end_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
