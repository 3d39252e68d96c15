/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_device.c - the GPU's tier of a store, without a GPU (test_cuda_table.h): a run whose experts are copied
 * when they are needed equals the run of the same layer with all of them in device memory, byte for byte. Random
 * layers, all numbers of tokens, budgets from one slot on. Copies may come late: then each happens when something waits
 * for it. test_store_device_emulated is the same with emulated kernels of sm_90.
 * MOXIE_TEST_GPU=sm90 or sm80: on the GPU that is there, with the kernels of such cards.
 */
#include "test_adapter_set.h"
#include "test_late.h"
#include "test_store_gpu.h"

#ifdef MOX_TEST_EMULATED
enum { CONFIGS = 6, SANITIZED = 1 };
#define PRESET "sm_90"
static const int64_t token_counts[] = { 40, 0, 1, 7 };
#else
enum { CONFIGS = 10, SANITIZED = 6 };
#define PRESET "sm_80"
static const int64_t token_counts[] = { 300, 0, 1, 7, 1, 300 };
#endif
enum { COUNTS = sizeof token_counts / sizeof token_counts[0] };

/* ---- copies that come late ------------------------------------------------------------------------------ */

static int begin(void **state)
{
    return test_store_gpu_begin(state, PRESET);
}

static int begin_late(void **state)
{
    begin(state);
    if (test_store_on_gpu() == NULL)
        test_late_begin();
    return 0;
}

static int end_late(void **state)
{
    test_late_end();
    return test_store_gpu_end(state);
}

/* ---- runs ------------------------------------------------------------------------------------------------ */

static moxie_adapters *given;

/* Runs have the adapters; NULL: none. */
static void give(test_layer *t, const moxie_layer *layer, const test_adapter_set *adapters)
{
    const bool was = test_late_set(false);
    moxie_error error;
    if (adapters != NULL)
        assert_ok(test_adapter_set_give(adapters, layer, &given, &error), &error);
    t->args.adapters = given;
    test_late_set(was);
}

static void take_back(test_layer *t)
{
    moxie_adapters_destroy(given);
    t->args.adapters = given = NULL;
}

static void compare(test_layer *t, const moxie_store_options *o, const moxie_options *options,
                    const test_adapter_set *adapters, void *const want[COUNTS])
{
    test_store_opened s;
    test_store_gpu_open(t, o, options, &s);
    give(t, s.layer, adapters);
    for (int i = 0; i < COUNTS; i++) {
        void *got = test_store_gpu_output(t, s.plan, token_counts[i]);
        if (memcmp(got, want[i], test_layer_output_bytes(t)) != 0)
            fail_msg("a run of %lld tokens differs, with %llu bytes on the GPU: %s", (long long)token_counts[i],
                     (unsigned long long)o->device_bytes, t->text);
        free(got);
    }
    const moxie_store_counters c = test_store_counters(s.store);
    assert_int_equal(c.runs, COUNTS - 1); /* a run of no tokens has nothing to fetch */
    assert_int_equal(c.id_waits, COUNTS - 1);
    assert_int_equal(c.uses, c.device_uses - c.device_hits); /* RAM was asked for the others */
    assert_true(c.copies >= c.uses);                         /* once a pass */
    assert_true(c.device_inserts <= c.device_uses - c.device_hits);
    assert_int_equal(c.failed_reads, 0);
    test_store_gpu_check(t, s.plan);
    take_back(t);
    test_store_gpu_close(&s);
}

static int compared, changed;

/* The outputs of the layer that is all on the GPU. Counts the runs that its adapters change. */
static void run_resident(test_layer *t, const test_adapter_set *adapters, void *want[COUNTS])
{
    const int32_t *ids = t->args.adapter_ids;
    t->args.adapter_ids = NULL;
    for (int i = 0; i < COUNTS; i++)
        want[i] = test_store_gpu_output(t, t->plan, token_counts[i]);
    t->args.adapter_ids = ids;
    give(t, t->built, adapters);
    for (int i = 0; i < COUNTS && adapters != NULL; i++) {
        void *without = want[i];
        want[i] = test_store_gpu_output(t, t->plan, token_counts[i]);
        changed += memcmp(without, want[i], test_layer_output_bytes(t)) != 0;
        free(without);
    }
    take_back(t);
}

static void compare_all(test_layer *t, const moxie_options *options, const test_adapter_set *adapters)
{
    const int64_t experts = t->config.experts;
    void *want[COUNTS];
    const bool was = test_late_set(false);
    run_resident(t, adapters, want);
    test_late_set(was);
    const moxie_store_options smallest = test_store_gpu_store(1, 2, 1),
                              usual = test_store_gpu_store(experts / 4 + 1, 4, experts);
    compare(t, &smallest, options, adapters, want);
    compare(t, &usual, options, adapters, want);
    compared++;
    for (int i = 0; i < COUNTS; i++)
        free(want[i]);
}

static void one_layer(uint64_t seed, const test_layer_limits *limits, bool adapted)
{
    test_layer t;
    test_adapter_set adapters;
    test_rng rng = { test_seed(seed) };
    moxie_options options = test_store_gpu_options();
    const bool was = test_late_set(false);
    test_layer_make(&t, &rng, limits);
    if (adapted)
        test_adapter_set_assign(&adapters, &t, &rng);
    options.max_adapter_rank = adapted ? adapters.max_rank : 0;
    const bool takes = test_store_gpu_fits(&t, &options, test_store_gpu_target(PRESET));
    test_late_set(was);
    if (takes)
        compare_all(&t, &options, adapted ? &adapters : NULL);
    if (adapted)
        test_adapter_set_free(&adapters);
    test_layer_free(&t);
}

static void random_layers(uint64_t first, int64_t count, bool adapted)
{
    compared = changed = 0;
    for (uint64_t seed = 0; seed < (uint64_t)count || compared == 0 || (adapted && changed == 0); seed++)
        one_layer(first + seed,
                  &(test_layer_limits) { .tokens = 300, .features = seed % 2 == 1, .rounds = true, .largest = 60 },
                  adapted);
}

static int64_t layer_count(void)
{
    return test_env("MOXIE_TEST_CONFIGS", test_sanitized() || test_quick() ? SANITIZED : CONFIGS);
}

static void test_random_layers(void **state)
{
    (void)state;
    random_layers(9000, layer_count(), false);
}

/* Each token has one of three LoRA adapters, a disabled one, or none. */
static void test_random_layers_adapted(void **state)
{
    (void)state;
    random_layers(9200, layer_count(), true);
}

static void test_copies_come_late(void **state)
{
    if (test_store_on_gpu() != NULL || test_cuda_is_lazy())
        skip();
    test_random_layers(state);
    assert_true(test_late_copies() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_layers, begin, test_store_gpu_end),
        cmocka_unit_test_setup_teardown(test_random_layers_adapted, begin, test_store_gpu_end),
        cmocka_unit_test_setup_teardown(test_copies_come_late, begin_late, end_late),
    };
#ifdef MOX_TEST_EMULATED
    cmocka_set_test_filter("test_random_layers*"); /* the other does not depend on kernels */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
