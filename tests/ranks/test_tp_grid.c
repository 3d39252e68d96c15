/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tp_grid.c - grids of expert parallel groups of tensor parallel ranks give the bytes of one rank.
 *
 *     groups x tp ranks: sharded, replicated and scattered tokens; slot maps with replicas; chunks of a few tokens, so
 *     that some groups have more passes than others; ranks without tokens, experts or rows
 *
 * MOXIE_TEST_SEED repeats a layer, MOXIE_TEST_CONFIGS sets how many there are.
 */
#include "test_ranks.h"

static const char *const layouts[] = { "sharded", "replicated", "scattered" };

static test_ranks_spec any_grid(test_layer *layer, test_rng *rng, moxie_token_layout layout, moxie_slot_map *map)
{
    const int32_t tp = (int32_t)test_range(rng, 2, 4), groups = (int32_t)test_range(rng, 1, 3);
    test_ranks_spec spec = { .ranks = groups * tp,
                             .tp = tp,
                             .ep_map = (int32_t)test_below(rng, 2),
                             .layout = layout,
                             .chunk = test_below(rng, 2) == 0 ? 0 : test_range(rng, 1, 5),
                             .runs = test_below(rng, 4) == 0 ? 2 : 1,
                             .threads = test_below(rng, 6) == 0 ? 2 : 0,
                             .options = MOXIE_OPTIONS_INIT };
    spec.options.mode = test_below(rng, 2) == 0 ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST;
    spec.options.backend = test_below(rng, 8) == 0 ? MOXIE_BACKEND_REF : MOXIE_BACKEND_CPU;
    test_ranks_cut(&spec, rng, layer->args.tokens);
    *map = test_ranks_map(layer, rng, groups);
    if (test_below(rng, 3) == 0)
        spec.map = map;
    return spec;
}

/* Compares the output of the grid with that of one rank. */
static bool equals_one_rank(test_layer *layer, test_ranks_spec *spec)
{
    test_rank_result results[TEST_MAX_RANKS];
    moxie_options options = spec->options;
    options.max_tokens = layer->args.tokens + 1;
    test_layer_plan(layer, &options);
    char *one = test_layer_output(layer, layer->plan);
    char *all = calloc(test_layer_output_bytes(layer) + 1, 1);
    const bool ran = test_ranks_run(layer, spec, all, results) == MOXIE_OK;
    const bool equal = ran && memcmp(one, all, test_layer_output_bytes(layer)) == 0;
    for (int32_t r = 0; r < spec->ranks && !ran; r++)
        print_error("rank %d: %s: %s\n", (int)r, moxie_status_name(results[r].status), results[r].error.text);
    if (!equal)
        print_error("%s\n  %d groups of %d ranks, %s, %s, chunks of %lld\n", layer->text, (int)(spec->ranks / spec->tp),
                    (int)spec->tp, layouts[spec->layout], spec->map != NULL ? "slot map" : "no map",
                    (long long)spec->chunk);
    free(one);
    free(all);
    return equal;
}

static void random_grids(void **state)
{
    (void)state;
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", 120 / (test_quick() ? 4 : test_one_in(10, "layers")));
    const uint64_t first = test_seed(26060000);
    int64_t failed = 0;
    for (int64_t i = 0; i < configs && failed < 5; i++) {
        const uint64_t seed = first + (uint64_t)i;
        const test_layer_limits limits = {
            .tokens = -1, .features = seed % 2 == 0, .no_parallel = true, .plain_routing = seed % 3 == 0
        };
        test_rng rng = { seed };
        test_layer layer;
        moxie_slot_map map;
        test_layer_make(&layer, &rng, &limits);
        test_ranks_spec spec = any_grid(&layer, &rng, (moxie_token_layout)(seed % 3), &map);
        if (!equals_one_rank(&layer, &spec)) {
            print_error("repeat with MOXIE_TEST_SEED=%llu MOXIE_TEST_CONFIGS=1\n", (unsigned long long)seed);
            failed++;
        }
        test_layer_free(&layer);
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_grids) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
