/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_skewed.c - a few experts have most tokens of a batch, so their slots have wider token tiles than others.
 * Results are within the oracle's bounds, and a token has the same bytes as in smaller batches.
 */
#include <stdlib.h>
#include <string.h>

#include "test_cuda_table.h"
#include "test_layer.h"

enum {
    TOKENS = 70,
    FEW_TOKENS = 30, /* so few pairs that no list is made, but where the run is traced */
    EXPERTS = 24,
    TOP_K = 2
};

/* Slots of 60, 20, 10 and 2 or 3 tokens: mean 5, so that tiles of up to 16 columns are the usual ones. `alike`: all
 * tokens have the same experts. */
static void skew(test_layer *layer, bool alike)
{
    int32_t *ids = test_layer_own(layer, sizeof *ids * TOKENS * TOP_K);
    float *weights = test_layer_own(layer, sizeof *weights * TOKENS * TOP_K);
    for (int32_t t = 0; t < TOKENS; t++) {
        ids[TOP_K * t] = t < 60 || alike ? 0 : 1;
        ids[TOP_K * t + 1] = t < 20 || alike ? 2 : 3 + t % (EXPERTS - 3);
        weights[TOP_K * t] = 0.75f;
        weights[TOP_K * t + 1] = 0.25f;
    }
    layer->args.ids = ids;
    layer->args.weights = weights;
    layer->args.logits = NULL;
}

/* A check traces the run. */
static void check_bounds(test_layer *layer, int64_t tokens, uint64_t seed)
{
    test_report report = { 0 };
    moxie_error error = { 0 };
    layer->args.tokens = tokens;
    assert_ok(test_plan_check(layer->plan, &layer->weights, &layer->args, &report, &error), &error);
    if (!(report.worst_ratio <= 1))
        fail_msg("%s, %lld tokens: beyond the bounds (seed %llu)", layer->text, (long long)tokens,
                 (unsigned long long)seed);
}

/* Of a token in batches of other sizes: fewer tokens make other tiles and another cut of the work. */
static void check_prefixes(test_layer *layer, uint64_t seed)
{
    static const int64_t prefixes[] = { 40, 64, 8 };
    void *all = test_layer_output(layer, layer->plan);
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        test_layer_check_prefix(layer, all, prefixes[i], seed);
    free(all);
}

/* `group`: columns of a scale of W2's weights; 0: as many as of W13's. */
static void check_skewed(const char *weight, int32_t group, const char *act, bool sums, bool alike, uint64_t *seed)
{
    test_weight_quant down = *test_weight_quant_named(weight);
    down.quant.group_cols = group > 0 ? group : down.quant.group_cols;
    const test_layer_limits limits = { .tokens = TOKENS,
                                       .experts = EXPERTS,
                                       .top_k = TOP_K,
                                       .largest = 270,
                                       .plain_routing = true,
                                       .plain_acts = true,
                                       .no_parallel = true,
                                       .decoded = !sums,
                                       .blocks = sums,
                                       .weight = test_weight_quant_named(weight),
                                       .down = &down,
                                       .act = test_act_quant_named(act) };
    test_layer layer;
    test_layer_make_large(&layer, &limits, seed);
    skew(&layer, alike);
    const moxie_options options = test_layer_cuda_options(&layer);
    test_layer_plan(&layer, &options);
    check_bounds(&layer, FEW_TOKENS, *seed);
    check_bounds(&layer, TOKENS, *seed);
    check_prefixes(&layer, *seed);
    test_layer_free(&layer);
}

static void skewed_batches(void **state)
{
    static const struct {
        const char *weight, *act;
        bool sums, alike; /* scales multiply sums of chunks; all tokens have the same experts */
        int32_t group;
    } kinds[] = { { "mxfp4", "none", false, false },
                  { "mxfp4", "none", false, true },
                  { "int4 words g32", "none", false, true },
                  { "awq", "none", true, true },
                  { "fp8 block 128x128", "fp8 1x128", true, false },
                  { "fp8 block 128x128", "none", true, true },
                  /* The products' kernels have other narrow tiles, and one list. */
                  { "awq", "none", true, true, 128 },
                  { "int4 words g128 zero", "none", true, true, 32 } };
    uint64_t seed = test_seed(54000);
    test_cuda_set_device(*state);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        check_skewed(kinds[i].weight, kinds[i].group, kinds[i].act, kinds[i].sums, kinds[i].alike, &seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        { "skewed_batches sm_90", skewed_batches, test_cuda_begin, test_cuda_end, (void *)(uintptr_t) "sm_90" },
        { "skewed_batches sm_80", skewed_batches, test_cuda_begin, test_cuda_end, (void *)(uintptr_t) "sm_80" },
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
