/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ranks_equal.c - the output bytes of R ranks equal those of one rank with the same tokens.
 *
 *     random layers on 2 to 9 ranks: sharded, replicated and scattered tokens; linear and round robin placement, slot
 *     maps with replicas; ranks without tokens, ranks without experts; one chunk and many; tokens with adapters
 *
 * MOXIE_TEST_SEED repeats a layer, MOXIE_TEST_CONFIGS sets how many there are.
 */
#include "test_adapter_set.h"
#include "test_ranks.h"

#include "layer/config/tp_slice.h"

static const char *const layouts[] = { "sharded", "replicated", "scattered" };

static bool sums_over_ranks(const test_layer *layer, const test_ranks_spec *spec)
{
    moxie_layer_config config = layer->config;
    config.tp_size = spec->tp;
    return mox_tp_cut_of(&config, (moxie_mode)spec->options.mode, NULL) == MOX_TP_SUMS;
}

/* A random way to compute the layer on ranks. */
static test_ranks_spec any_spec(test_layer *layer, test_rng *rng, moxie_token_layout layout, moxie_slot_map *map)
{
    test_ranks_spec spec = { .ranks = (int32_t)test_range(rng, 2, test_below(rng, 4) == 0 ? 9 : 4),
                             .ep_map = (int32_t)test_below(rng, 2),
                             .layout = layout,
                             .chunk = test_below(rng, 2) == 0 ? 0 : test_range(rng, 1, 5),
                             .runs = test_below(rng, 4) == 0 ? 2 : 1,
                             .threads = test_below(rng, 6) == 0 ? 2 : 0,
                             .options = MOXIE_OPTIONS_INIT };
    spec.options.mode = test_below(rng, 2) == 0 ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST;
    spec.options.backend = test_below(rng, 8) == 0 ? MOXIE_BACKEND_REF : MOXIE_BACKEND_CPU;
    if (test_below(rng, 3) == 0) {
        spec.tp = (int32_t)test_range(rng, 2, 3);
        spec.ranks = spec.tp * (int32_t)test_range(rng, 1, 3);
    }
    if (sums_over_ranks(layer, &spec)) /* which round; tests/ranks/test_tp_equal.c */
        spec.options.mode = MOXIE_MODE_EXACT;
    spec.more = spec.chunk > 0 && spec.chunk % 2 == 0 ? 2 : 0;
    test_ranks_cut(&spec, rng, layer->args.tokens);
    if (test_below(rng, 3) == 0)
        spec.options.exchange_capacity = test_ranks_own(&spec, layer->args.tokens) + (int64_t)test_below(rng, 3);
    *map = test_ranks_map(layer, rng, spec.tp > 1 ? spec.ranks / spec.tp : spec.ranks);
    if (test_below(rng, 3) == 0)
        spec.map = map;
    return spec;
}

static void describe(const test_layer *layer, const test_ranks_spec *spec)
{
    print_error("%s\n  %d ranks, tp %d, %s, %s, chunks of %lld (+ %lld a rank), capacity %lld\n", layer->text,
                (int)spec->ranks, (int)spec->tp, layouts[spec->layout],
                spec->map != NULL   ? "slot map"
                : spec->ep_map == 0 ? "linear"
                                    : "round robin",
                (long long)spec->chunk, (long long)spec->more, (long long)spec->options.exchange_capacity);
}

/* The first token whose bytes differ. */
static int64_t first_difference(const test_layer *layer, const char *a, const char *b)
{
    const int64_t row = layer->config.hidden * mox_dtype_bytes(layer->config.dtype);
    for (int64_t t = 0; t < layer->args.tokens; t++)
        if (memcmp(a + t * row, b + t * row, (size_t)row) != 0)
            return t;
    return -1;
}

static bool same_on_ranks(test_layer *layer, test_ranks_spec *spec)
{
    test_rank_result results[TEST_MAX_RANKS];
    moxie_options options = spec->options;
    options.max_tokens = layer->args.tokens + 1;
    test_layer_plan(layer, &options);
    moxie_adapters *adapters = NULL;
    moxie_error error = { 0 };
    if (spec->adapters != NULL)
        assert_ok(test_adapter_set_give(spec->adapters, layer->built, &adapters, &error), &error);
    layer->args.adapters = adapters;
    char *one = test_layer_output(layer, layer->plan);
    char *all = calloc(test_layer_output_bytes(layer) + 1, 1);
    const moxie_status status = test_ranks_run(layer, spec, all, results);
    const int64_t token = status == MOXIE_OK ? first_difference(layer, one, all) : -1;
    if (status != MOXIE_OK || token >= 0)
        describe(layer, spec);
    for (int32_t r = 0; r < spec->ranks && status != MOXIE_OK; r++)
        print_error("  rank %d: %s: %s\n", (int)r, moxie_status_name(results[r].status), results[r].error.text);
    if (token >= 0)
        print_error("  token %lld of %lld differs\n", (long long)token, (long long)layer->args.tokens);
    free(one);
    free(all);
    moxie_adapters_destroy(adapters);
    return status == MOXIE_OK && token < 0;
}

/* Tokens with adapters, or without. */
static void adapt(test_layer *layer, test_ranks_spec *spec, test_rng *rng, test_adapter_set *adapters)
{
    test_adapter_set_assign(adapters, layer, rng);
    spec->adapters = adapters;
    spec->options.max_adapter_rank = adapters->max_rank;
}

static void random_layers(void **state)
{
    (void)state;
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", 300 / (test_quick() ? 4 : test_one_in(10, "layers")));
    const uint64_t first = test_seed(72600);
    int64_t failed = 0;
    for (int64_t i = 0; i < configs && failed < 5; i++) {
        const uint64_t seed = first + (uint64_t)i;
        const moxie_token_layout layout = (moxie_token_layout)(seed % 3);
        const bool sharded = layout == MOXIE_TOKENS_SHARDED;
        const test_layer_limits limits = {
            .tokens = -1, .features = seed % 2 == 0, .no_parallel = true, .plain_routing = sharded, .rounds = true
        };
        test_rng rng = { seed };
        test_layer layer;
        moxie_slot_map map;
        test_layer_make(&layer, &rng, &limits);
        test_ranks_spec spec = any_spec(&layer, &rng, layout, &map);
        test_adapter_set adapters = { .max_rank = 0 };
        if (test_below(&rng, 3) == 0)
            adapt(&layer, &spec, &rng, &adapters);
        if (!same_on_ranks(&layer, &spec)) {
            print_error("repeat with MOXIE_TEST_SEED=%llu MOXIE_TEST_CONFIGS=1\n", (unsigned long long)seed);
            failed++;
        }
        test_adapter_set_free(&adapters);
        test_layer_free(&layer);
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_layers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
