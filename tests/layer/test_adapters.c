/* SPDX-License-Identifier: Apache-2.0
 *
 * test_adapters.c - LoRA adapters on random layers of every kind:
 *
 *     bounds   every stage within its bound of the oracle, for 0 to 8 adapters of ranks 1 to 512, tokens mixed
 *     bytes    a token without adapter has the bytes of a layer without; every token's bytes depend on its own
 *              adapter alone: not on the neighbours', on T or on threads
 *
 * MOXIE_TEST_CONFIGS says how many layers (default 200 and 60, in a quick run 60 and 20; the long form is 3000). Each
 * layer has its own seed, printed on failure; MOXIE_TEST_SEED=<seed> MOXIE_TEST_CONFIGS=1 repeats it alone.
 */
#include "test_adapted.h"

/* ---- bounds ------------------------------------------------------------------------------------------------ */

static bool check_layer(test_adapted *a, test_rng *rng, const moxie_executor *pool, int64_t *elements)
{
    moxie_error error = { 0 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    test_report report = { 0 };
    test_layer *layer = &a->layer;
    options.mode = test_below(rng, 2) == 0 ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST;
    options.backend = test_below(rng, 6) == 0 ? MOXIE_BACKEND_REF : MOXIE_BACKEND_CPU;
    options.isa = test_below(rng, 6) == 0 ? "scalar" : NULL;
    options.max_tokens = layer->args.tokens + 1;
    options.executor = test_below(rng, 2) == 0 ? pool : NULL;
    options.max_adapter_rank = a->max_rank = test_adapted_rank(rng);
    moxie_status status = test_layer_try(layer, &options, &error);
    if (status == MOXIE_OK) {
        test_adapted_set(a, rng, (int32_t)test_below(rng, TEST_MAX_ADAPTERS + 1));
        status = test_plan_check(layer->plan, &layer->weights, &layer->args, &report, &error);
    }
    if (status != MOXIE_OK)
        print_error("%s\n  %s: %s\n", layer->text, moxie_status_name(status), error.text);
    else if (!(report.worst_ratio <= 1))
        test_report_print(layer, &report);
    for (int s = 0; s < report.n_stages; s++)
        *elements += report.stages[s].elements;
    return status == MOXIE_OK && report.worst_ratio <= 1;
}

static void bounds(void **state)
{
    (void)state;
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", test_quick() ? 60 : 200);
    const uint64_t first = test_seed(29029);
    const test_layer_limits limits[] = { { .tokens = -1, .largest = 80 },
                                         { .tokens = -1, .largest = 80, .features = true },
                                         { .tokens = -1 } };
    moxie_executor *pool = NULL;
    moxie_error error;
    assert_ok(moxie_executor_create(2, &pool, &error), &error);
    int64_t elements = 0, failed = 0;
    for (int64_t i = 0; i < configs && failed < 5; i++) {
        const uint64_t seed = first + (uint64_t)i;
        test_rng rng = { seed };
        test_adapted a = { 0 };
        test_layer_make(&a.layer, &rng, &limits[seed % 8 == 0 ? 2 : seed % 3 == 0]);
        if (!check_layer(&a, &rng, pool, &elements)) {
            print_error("repeat with MOXIE_TEST_SEED=%llu MOXIE_TEST_CONFIGS=1\n", (unsigned long long)seed);
            failed++;
        }
        test_adapted_free(&a);
    }
    moxie_executor_destroy(pool);
    assert_int_equal(failed, 0);
    print_message("%lld layers with adapters, %lld elements compared\n", (long long)configs, (long long)elements);
}

/* ---- bytes ------------------------------------------------------------------------------------------------- */

static void compare_layer(uint64_t seed, const moxie_executor *pool)
{
    const test_layer_limits limits = { .tokens = -1, .largest = 80, .plain_routing = true, .plain_acts = true };
    test_rng rng = { seed };
    test_adapted a = { 0 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error = { 0 };
    test_layer_make(&a.layer, &rng, &limits);
    options.mode = test_below(&rng, 2) == 0 ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST;
    options.max_tokens = a.layer.args.tokens + 1;
    assert_ok(test_layer_try(&a.layer, &options, &error), &error);
    test_adapted_fix_choices(&a);
    char *without = test_adapted_run(&a);
    options.max_adapter_rank = a.max_rank = test_adapted_rank(&rng);
    options.executor = pool;
    assert_ok(test_layer_try(&a.layer, &options, &error), &error);
    test_adapted_set(&a, &rng, 1 + (int32_t)test_below(&rng, 3));
    test_adapted_compare(&a, without);
    free(without);
    test_adapted_free(&a);
}

static void bytes(void **state)
{
    (void)state;
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", test_quick() ? 20 : 60);
    const uint64_t first = test_seed(29429);
    moxie_executor *pool = NULL;
    moxie_error error;
    assert_ok(moxie_executor_create(3, &pool, &error), &error);
    for (int64_t i = 0; i < configs; i++)
        compare_layer(first + (uint64_t)i, i % 2 ? pool : NULL);
    moxie_executor_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(bounds), cmocka_unit_test(bytes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
