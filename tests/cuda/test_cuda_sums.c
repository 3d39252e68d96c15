/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_sums.c - layers whose scales multiply sums of chunks or of groups, on the cuda back end without a GPU; and
 * that the bits of a token are those of every batch. Compared with the oracle (random_layers.h).
 *
 * MOXIE_TEST_FILTER="*sm_80" runs the tests whose names match.
 */
#include "random_layers.h"

/* Integers whose sums are multiplied by scales, in tiles of up to 64 columns and of more. */
static void wide_tiles_of_ints(void **state)
{
    static const char *const weights[] = { "awq", "int4 words g128 zero", "int4 words zero", "gptq 8 bit zero",
                                           "int8 channel zero" };
    static const int64_t tokens[] = { 64, 290 };
    set_device(state);
    for (uint64_t i = 0; i < (few_cases() ? 5 : 20); i++) {
        const test_layer_limits limits = { .tokens = tokens[i / 2 % 2],
                                           .experts = 1,
                                           .largest = 130,
                                           .blocks = true,
                                           .weight = test_weight_quant_named(weights[i % 5]) };
        walk_layers(&limits, test_seed(48501) + i, 1, MOXIE_MODE_EXACT);
    }
}

/* Layers whose scales multiply sums of chunks: a row's weights and activations. */
typedef struct sums_kind {
    const char *weight, *act;
    int32_t group_cols; /* 0: those of the weights' name */
} sums_kind;

/* All tokens have all experts. A product has at most five chunks. */
static void make_of_sums(test_layer *layer, const sums_kind *kind, int64_t tokens, int32_t experts, uint64_t *seed)
{
    test_weight_quant weight = *test_weight_quant_named(kind->weight);
    weight.quant.group_cols = kind->group_cols > 0 ? kind->group_cols : weight.quant.group_cols;
    const test_layer_limits limits = { .tokens = tokens,
                                       .experts = experts,
                                       .top_k = experts,
                                       .largest = 270,
                                       .plain_routing = true,
                                       .no_parallel = true,
                                       .blocks = true,
                                       .weight = &weight,
                                       .act = test_act_quant_named(kind->act) };
    test_layer_make_large(layer, &limits, seed);
}

/* Tiles that are multiplied in halves of their columns, two chunks a stage. Chunks have scales each, or one for
 * both; tokens may have scales; a chunk may be left over. */
static void tiles_in_halves(void **state)
{
    static const sums_kind kinds[] = { { "int4 words g128 zero", "none", 64 },
                                       { "awq", "none", 0 },
                                       { "fp8 block 128x128", "none", 0 },
                                       { "fp8 block 128x128", "fp8 1x128", 0 } };
    uint64_t seed = test_seed(51500);
    const char *device = set_device(state);
    for (uint64_t i = 0; i < (few_cases() ? 4 : 16); i++) {
        test_layer layer;
        make_of_sums(&layer, &kinds[i % 4], 100, 1, &seed);
        check_decoded(device, &layer, MOXIE_MODE_EXACT, true, seed);
        test_layer_free(&layer);
    }
}

static test_layer_limits limits_of_blocks(int types, int64_t tokens)
{
    static const char *const names[][2] = { { "q4_k", "q6_k" }, { "iq4_xs", "iq4_xs" }, { "q6_k", "q5_k" } };
    return (test_layer_limits) { .tokens = tokens,
                                 .experts = EXPERTS,
                                 .largest = 300,
                                 .plain_routing = true,
                                 .plain_acts = true,
                                 .no_parallel = true,
                                 .blocks = true,
                                 .weight = test_weight_quant_named(names[types][0]),
                                 .down = test_weight_quant_named(names[types][1]),
                                 .act = &test_act_quants[0] };
}

/* Block types with decoders, mixed as files mix them, with and without a factor for each expert of W13; tiles of
 * few columns, of up to 64, and wide ones. */
static void block_types(void **state)
{
    static const int64_t tokens[] = { 5, 40, 150 };
    uint64_t seed = test_seed(52000);
    const char *device = set_device(state);
    for (int i = 0; i < 9; i++) {
        test_layer_limits limits = limits_of_blocks(i % 3, tokens[i / 3]);
        test_weight_quant scaled = *limits.weight;
        test_layer layer;
        if (few_cases() && i / 3 != i % 3)
            continue;
        scaled.quant.global = i / 3 == 1 ? MOXIE_GLOBAL_NONE : MOXIE_GLOBAL_MULTIPLY;
        limits.weight = &scaled;
        test_layer_make_large(&layer, &limits, &seed);
        check_decoded(device, &layer, MOXIE_MODE_EXACT, true, seed);
        test_layer_free(&layer);
    }
}

/* Bytes with a zero point a row, by activations of bytes with a scale a row: formats int8-modelslim, int8-w8a8-asym. */
static void bytes_with_zero_points(void **state)
{
    static const char *const acts[] = { "int8 token", "int8 token away", "int8 tensor", "int8 tensor static" };
    uint64_t seed = test_seed(49000);
    const char *device = set_device(state);
    for (int i = 0; i < 4; i++) {
        const test_layer_limits limits = { .tokens = 13,
                                           .experts = 3,
                                           .largest = 270,
                                           .plain_routing = true,
                                           .no_parallel = true,
                                           .blocks = true,
                                           .weight = test_weight_quant_named("int8 channel zero"),
                                           .act = test_act_quant_named(acts[i]) };
        test_layer layer;
        test_layer_make_large(&layer, &limits, &seed);
        check_decoded(device, &layer, MOXIE_MODE_EXACT, true, seed);
        test_layer_free(&layer);
    }
}

/* ---- batches ------------------------------------------------------------------------------------------- */

static void check_prefixes_of(test_layer *layer, moxie_mode mode, uint64_t seed)
{
    static const int64_t prefixes[] = { 1, 3, 8, 17, 40 };
    moxie_options options = test_layer_cuda_options(layer);
    options.mode = mode;
    test_layer_plan(layer, &options);
    void *all = test_layer_output(layer, layer->plan);
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        test_layer_check_prefix(layer, all, prefixes[i], seed);
    free(all);
    test_layer_free(layer);
}

static void check_prefixes(const test_layer_limits *limits, moxie_mode mode, uint64_t seed)
{
    test_rng rng = { seed };
    test_layer layer;
    test_layer_make(&layer, &rng, limits);
    check_prefixes_of(&layer, mode, seed);
}

/* Other batches have other tiles, other splits of the products, other work lists. */
static void batches_do_not_matter(void **state)
{
    const test_layer_limits undecoded = {
        .tokens = 70, .largest = 260, .plain_routing = true, .plain_acts = true, .mma = true
    };
    const test_layer_limits decoded = {
        .tokens = 70, .largest = 260, .plain_routing = true, .plain_acts = true, .decoded = true
    };
    const test_layer_limits decoded_acts = {
        .tokens = 70, .largest = 260, .plain_routing = true, .plain_acts = true, .decoded_acts = true
    };
    const test_layer_limits fp8 = {
        .tokens = 70, .largest = 260, .plain_routing = true, .plain_acts = true, .to_fp8 = true
    };
    set_device(state);
    for (uint64_t i = 0; i < (few_cases() ? 2 : 6); i++) {
        check_prefixes(&undecoded, MOXIE_MODE_FAST, test_seed(35000) + i);
        check_prefixes(&decoded, MOXIE_MODE_FAST, test_seed(36000) + i);
        check_prefixes(&decoded_acts, MOXIE_MODE_EXACT, test_seed(38000) + i);
        check_prefixes(&fp8, MOXIE_MODE_FAST, test_seed(39000) + i);
        const test_layer_limits blocks = limits_of_blocks((int)(i % 3), 70);
        check_prefixes(&blocks, MOXIE_MODE_EXACT, test_seed(53000) + i);
    }
}

/* Scales of 128 columns, with which Hopper's kernels add two chunks as one, in tiles of every width and in products cut
 * between blocks; an odd number of chunks. */
static void sums_of_two_chunks(void **state)
{
    static const sums_kind kinds[] = { { "int4 words g128 zero", "none", 128 },
                                       { "gptq 8 bit zero", "none", 128 },
                                       { "fp8 block 128x128", "none", 128 },
                                       { "fp8 block 128x128", "fp8 1x128", 128 } };
    uint64_t seed = test_seed(54500);
    const char *device = set_device(state);
    test_cuda_set_multiprocessors(2); /* so that some jobs are cut between two blocks, at an odd chunk if they could */
    for (uint64_t i = 0; i < (few_cases() ? 4 : 16); i++) {
        test_layer layer;
        make_of_sums(&layer, &kinds[i % 4], 70, 3, &seed);
        check_decoded(device, &layer, MOXIE_MODE_EXACT, true, seed);
        test_layer_free(&layer);
        make_of_sums(&layer, &kinds[i % 4], 70, 3, &seed);
        check_prefixes_of(&layer, MOXIE_MODE_EXACT, seed);
    }
}

/* Minimums in tiles of every width, up to 64 columns in one slot, and in rows of several blocks whose jobs are cut
 * between two blocks of threads. */
static void long_rows_of_minimums(void **state)
{
    uint64_t seed = test_seed(55500);
    const char *device = set_device(state);
    test_cuda_set_multiprocessors(3);
    for (int i = 0; i < (few_cases() ? 2 : 4); i++) {
        test_layer_limits limits = limits_of_blocks(0, 62 + i % 3);
        test_layer layer;
        limits.down = test_weight_quant_named(i % 2 == 0 ? "q4_k" : "q5_k");
        limits.largest = 900;
        limits.experts = limits.top_k = 1 + i % 4 / 2;
        test_layer_make_large(&layer, &limits, &seed);
        check_decoded(device, &layer, MOXIE_MODE_EXACT, true, seed);
        check_prefixes_of(&layer, MOXIE_MODE_EXACT, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_BOTH(wide_tiles_of_ints),     ON_BOTH(tiles_in_halves),       ON_BOTH(block_types),
        ON_BOTH(bytes_with_zero_points), ON_BOTH(batches_do_not_matter), ON_BOTH(sums_of_two_chunks),
        ON_BOTH(long_rows_of_minimums),
    };
    cmocka_set_test_filter(getenv("MOXIE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
