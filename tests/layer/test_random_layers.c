/* SPDX-License-Identifier: Apache-2.0
 *
 * test_random_layers.c - random layers of every kind through plan, run and the oracle: every stage within its bound.
 *
 * MOXIE_TEST_CONFIGS says how many (default 500, in a quick run 125). Each layer has its own seed, printed on failure;
 * MOXIE_TEST_SEED=<seed> MOXIE_TEST_CONFIGS=1 repeats it alone.
 */
#include <math.h>

#include "test_layer.h"

/* Prints the reason and returns false instead of failing, so that the caller can print the seed. */
static bool check_layer(test_layer *layer, test_rng *rng, const moxie_executor *pool, int64_t *elements)
{
    moxie_error error = { 0 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    test_report report = { 0 };
    options.mode = test_below(rng, 2) == 0 ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST;
    options.backend = test_below(rng, 8) == 0 ? MOXIE_BACKEND_REF : MOXIE_BACKEND_CPU;
    options.max_tokens = layer->args.tokens + (int64_t)test_below(rng, 3) + (layer->args.tokens == 0);
    options.executor = test_below(rng, 2) == 0 ? pool : NULL;
    const moxie_status status = test_layer_check(layer, &options, &report, &error);
    if (status != MOXIE_OK)
        print_error("%s\n  %s: %s\n", layer->text, moxie_status_name(status), error.text);
    else if (!(report.worst_ratio <= 1))
        test_report_print(layer, &report);
    for (int s = 0; s < report.n_stages; s++)
        *elements += report.stages[s].elements;
    return status == MOXIE_OK && report.worst_ratio <= 1;
}

static void random_layers(void **state)
{
    (void)state;
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", 500 / (test_quick() ? 4 : test_one_in(10, "layers")));
    const uint64_t first = test_seed(20250);
    const test_layer_limits limits[] = { { .tokens = -1, .rounds = true },
                                         { .tokens = -1, .features = true, .rounds = true } };
    moxie_executor *pool = NULL;
    moxie_error error;
    assert_ok(moxie_executor_create(2, &pool, &error), &error);
    int64_t elements = 0, failed = 0;
    for (int64_t i = 0; i < configs && failed < 5; i++) {
        const uint64_t seed = first + (uint64_t)i;
        test_rng rng = { seed };
        test_layer layer;
        test_layer_make(&layer, &rng, &limits[seed % 3 == 0]);
        if (!check_layer(&layer, &rng, pool, &elements)) {
            print_error("repeat with MOXIE_TEST_SEED=%llu MOXIE_TEST_CONFIGS=1\n", (unsigned long long)seed);
            failed++;
        }
        test_layer_free(&layer);
    }
    moxie_executor_destroy(pool);
    assert_int_equal(failed, 0);
    print_message("%lld layers, %lld elements compared\n", (long long)configs, (long long)elements);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_layers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
