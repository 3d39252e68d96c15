/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_layers.c - the cuda back end above the launch table, without a GPU: random layers are prepared, planned,
 * run and compared with the oracle (random_layers.h). test_cuda_sums.c has those whose scales multiply sums, and
 * test_cuda_calls.c single layers.
 *
 * MOXIE_TEST_FILTER="*sm_80" runs the tests whose names match.
 */
#include "random_layers.h"

#include <moxie/moxie_cuda.h>

#include "layer/weights/layer.h"

/* ---- random layers ------------------------------------------------------------------------------------- */

static void random_layers(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = -1, .largest = 90, .features = true };
    walk_layers(&limits, test_seed(501), random_configs(), MOXIE_MODE_FAST);
}

enum { NATIVE = 1 << MOX_ACTIVATIONS_NATIVE, CODES = 1 << MOX_ACTIVATIONS_CODES };

static void random_undecoded_layers(void **state)
{
    const test_layer_limits limits = { .tokens = -1, .largest = 200, .mma = true };
    walk_tiles(set_device(state), &limits, test_seed(20501), MOXIE_MODE_FAST, "hopper", NATIVE | CODES);
}

static void random_decoded_layers(void **state)
{
    const test_layer_limits limits = { .tokens = -1, .largest = 200, .decoded = true };
    walk_tiles(set_device(state), &limits, test_seed(25501), MOXIE_MODE_FAST, "hopper_codes", NATIVE);
}

static void random_layers_of_decoded_acts(void **state)
{
    const test_layer_limits limits = { .tokens = -1, .largest = 200, .decoded_acts = true };
    walk_tiles(set_device(state), &limits, test_seed(29501), MOXIE_MODE_EXACT, "hopper_codes", CODES);
}

static void random_layers_of_blocks(void **state)
{
    const test_layer_limits limits = { .tokens = -1, .largest = 500, .blocks = true };
    walk_tiles(set_device(state), &limits, test_seed(37501), MOXIE_MODE_EXACT, "hopper_codes", NATIVE | CODES);
}

static void random_layers_of_fp8(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = -1, .largest = 300, .to_fp8 = true };
    test_cuda_set_device("sm_90");
    walk_tiles("sm_90", &limits, test_seed(33501), MOXIE_MODE_FAST, "hopper_fp8", CODES);
}

/* Pairs of blocks, and token tiles with more columns than a lane holds factors. */
static void wide_tiles_of_decoded_acts(void **state)
{
    const test_layer_limits limits = { .tokens = 290, .experts = 2, .largest = 130, .decoded_acts = true };
    set_device(state);
    walk_layers(&limits, test_seed(30501), few_cases() ? 3 : 10, MOXIE_MODE_EXACT);
}

/* A layer of every weight format that Hopper's kernels decode. */
static void every_decoded_format(void **state)
{
    uint64_t seed = test_seed(45000);
    const char *device = set_device(state);
    for (int i = 0; i < test_weight_quant_count; i++) {
        const test_weight_quant *which = &test_weight_quants[i];
        const test_layer_limits limits = { .tokens = 13,
                                           .experts = EXPERTS,
                                           .largest = 130,
                                           .plain_routing = true,
                                           .no_parallel = true,
                                           .decoded = true,
                                           .weight = which };
        test_layer layer;
        if (!test_layer_decodes(&which->quant))
            continue;
        test_layer_make_large(&layer, &limits, &seed);
        const bool is_accepted = /* by the layout */
            (!which->act_order || which->whole_groups) && which->zero_dtype == MOXIE_DTYPE_NONE;
        check_decoded(device, &layer, MOXIE_MODE_FAST, is_accepted, seed);
        test_layer_free(&layer);
    }
}

/* Columns in act order: kernels of the set read them sorted, and gather the activations in that order. The list is
 * made inline or by its own kernel; groups and rows end inside a chunk. */
static void act_order(void **state)
{
    static const char *const weights[] = { "gptq act order", "gptq 8 bit whole groups" };
    static const int64_t tokens[] = { 13, 90 };
    uint64_t seed = test_seed(49500);
    const char *device = set_device(state);
    for (uint64_t i = 0; i < (few_cases() ? 4 : 16); i++) {
        const test_layer_limits limits = { .tokens = tokens[i / 2 % 2],
                                           .experts = EXPERTS,
                                           .largest = i % 4 < 2 ? 270 : 130,
                                           .plain_routing = true,
                                           .no_parallel = true,
                                           .blocks = true,
                                           .weight = test_weight_quant_named(weights[i % 2]),
                                           .act = test_act_quant_named("none") };
        test_layer layer;
        test_layer_make_large(&layer, &limits, &seed);
        check_decoded(device, &layer, MOXIE_MODE_EXACT, true, seed);
        test_layer_free(&layer);
    }
}

/* How often the kernel `name` was chosen. */
static int count_chosen(const char *name)
{
    int times = 0;
    for (int32_t r = 0; r < MOX_CUDA_ROWS_expert_gemm; r++)
        times += strcmp(mox_cuda_expert_gemm_at(r)->cuda.base.name, name) == 0 ? times_chosen[r] : 0;
    return times;
}

/* One scale of an expert is 2^-13 of its neighbour. Layout hopper_fp8 rejects this; the next choice must be
 * hopper_codes, not rowmajor. */
static void far_scales_are_decoded(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 13,
                                       .experts = 3,
                                       .largest = 130,
                                       .plain_routing = true,
                                       .no_parallel = true,
                                       .to_fp8 = true,
                                       .weight = test_weight_quant_named("mxfp4"),
                                       .act = test_act_quant_named("fp8 token") };
    uint64_t seed = test_seed(46000);
    test_layer layer;
    const char *device = "sm_90";
    test_cuda_set_device(device);
    test_layer_make_large(&layer, &limits, &seed);
    const moxie_grid *scale = &layer.weights.experts[1].down.scale;
    for (int far = 0; far < 2; far++) {
        if (far)
            mox_grid_store(scale, 3, 1, mox_grid_code(scale, 3, 0) - 13);
        check_decoded(device, &layer, MOXIE_MODE_FAST, true, seed);
        assert_int_equal(count_chosen("sm90_dequant_qact") > 0, far);
    }
    test_layer_free(&layer);
}

/* A layer whose weights become FP8, as tiles of few columns, as such ones in the kernel of wide tiles, or multiplied in
 * halves of their columns. Rows of up to 390 columns leave chunks over. */
static void check_as_fp8(const test_weight_quant *weight, const test_act_quant *act, uint64_t width, uint64_t *seed)
{
    static const int64_t tokens[] = { 5, 40, 100 };
    const test_layer_limits limits = { .tokens = tokens[width % 3],
                                       .experts = 1,
                                       .top_k = 1,
                                       .largest = 390,
                                       .plain_routing = true,
                                       .no_parallel = true,
                                       .to_fp8 = true,
                                       .weight = weight,
                                       .act = act };
    test_layer layer;
    test_cuda_set_device("sm_90");
    test_layer_make_large(&layer, &limits, seed);
    check_decoded("sm_90", &layer, MOXIE_MODE_FAST, true, *seed);
    assert_true(count_chosen("sm90_w4a8_fp8") > 0);
    test_layer_free(&layer);
}

/* Both kinds of codes; groups of a chunk, of two, of rows. */
static void integers_as_fp8(void **state)
{
    static const int32_t groups[] = { 128, 256, -1 };
    uint64_t seed = test_seed(53000);
    (void)state;
    for (uint64_t i = 0; i < (few_cases() ? 6 : 18); i++) {
        const test_weight_quant weight = { .name = "int4",
                                           .packing = TEST_DENSE,
                                           .quant = { .element = i % 2 == 0 ? MOXIE_I4 : MOXIE_U4B8,
                                                      .scale = MOXIE_BF16,
                                                      .group_rows = 1,
                                                      .group_cols = groups[i / 2 % 3] } };
        check_as_fp8(&weight, NULL, i + i / 6, &seed);
    }
}

/* By activations with a scale for each chunk, and for each row. */
static void mxfp4_as_fp8(void **state)
{
    static const char *const acts[] = { "fp8 1x128", "fp8 1x128 ue8m0", "fp8 token" };
    uint64_t seed = test_seed(54000);
    (void)state;
    for (uint64_t i = 0; i < (few_cases() ? 3 : 9); i++)
        check_as_fp8(test_weight_quant_named("mxfp4"), test_act_quant_named(acts[i % 3]), i + i / 3, &seed);
}

/* Whether another gated activation fits the weights' shapes. */
static bool all_gated(const moxie_layer_config *config)
{
    return moxie_act_is_gated(config->activation.kind) &&
           (!config->has_shared_activation || moxie_act_is_gated(config->shared_activation.kind));
}

/* Fills the hidden states with numbers near the ends of f32's range, alone in a row or among others. The activation's
 * limits keep the numbers behind the first product small. */
static void fill_extreme_numbers(test_layer *layer)
{
    static const float sizes[] = { 0x1p-133f, 0x1p-127f, 0x1p-120f, 0x1p-60f, 0x1p60f, 1.0f, 0x1p-126f };
    const int64_t cols = layer->config.hidden;
    uint16_t *hidden = (uint16_t *)(uintptr_t)layer->args.hidden;
    test_rng rng = { 77 };
    layer->config.activation = (moxie_activation) { .kind = MOXIE_ACT_SILU, .gate_limit = 1.0f, .up_limit = 1.0f };
    layer->config.shared_activation = layer->config.activation;
    for (int64_t t = 0; t < layer->args.tokens; t++) {
        for (int64_t k = 0; k < cols; k++)
            hidden[t * cols + k] = (uint16_t)moxie_encode(MOXIE_BF16, test_normal(&rng) * sizes[t % 7]);
        if (t % 3 != 0)
            hidden[t * cols + t % cols] =
                t % 2 == 0 ? 0x7f7f : 0xff7f; /* the greatest number; some quantizers round up */
    }
}

/* A layer of every kind of activations and three kinds of weights (one in a quick run). Kernels that decode accept the
 * activations that bf16 holds exactly. */
static void every_kind_of_acts(void **state)
{
    static const char *const weights[] = { "mxfp4", "int8 per channel", "mxfp8" };
    uint64_t seed = test_seed(47000);
    const char *device = set_device(state);
    for (int i = 0; i < 3 * test_act_quant_count; i++) {
        const test_act_quant *act = &test_act_quants[i / 3];
        const test_layer_limits limits = { .tokens = 13,
                                           .experts = 3,
                                           .largest = 270,
                                           .plain_routing = true,
                                           .no_parallel = true,
                                           .decoded_acts = true,
                                           .weight = test_weight_quant_named(weights[i % 3]),
                                           .act = act };
        test_layer layer;
        if (act->quant.element == MOXIE_DTYPE_NONE)
            continue;
        test_layer_make_large(&layer, &limits,
                              &seed); /* also if skipped below, so that a quick run has the same seeds */
        const bool wanted = !few_cases() || i % 3 == i / 3 % 3;
        if (wanted)
            check_decoded(device, &layer, MOXIE_MODE_EXACT, test_layer_decodes_acts(&act->quant), seed);
        if (wanted && layer.config.dtype == MOXIE_BF16 && all_gated(&layer.config)) {
            fill_extreme_numbers(&layer);
            check_decoded(device, &layer, MOXIE_MODE_EXACT, test_layer_decodes_acts(&act->quant), seed);
        }
        test_layer_free(&layer);
    }
}

/* Hidden states such that products with MXFP4 weights are small integers times a power of two, and many of w2's
 * activations lie halfway between two codes. */
static void fill_small_integers(uint16_t *hidden, int64_t tokens, int64_t cols)
{
    memset(hidden, 0, (size_t)(tokens * cols) * sizeof *hidden);
    for (int64_t t = 0; t < tokens; t++) {
        hidden[t * cols] = (uint16_t)moxie_encode(MOXIE_BF16, 1.0);
        hidden[t * cols + 1] = (uint16_t)moxie_encode(MOXIE_BF16, t % 2 == 0 ? 2.0 : -1.0);
    }
}

static void fill_small_numbers(uint16_t *hidden, int64_t tokens, int64_t cols)
{
    test_rng rng = { 78 };
    for (int64_t i = 0; i < tokens * cols; i++)
        hidden[i] = (uint16_t)moxie_encode(MOXIE_BF16, test_normal(&rng) * 0x1p-30f);
}

/* Products of gate and up are infinite, they themselves are not. */
static void fill_large_numbers(uint16_t *hidden, int64_t tokens, int64_t cols)
{
    test_rng rng = { 79 };
    for (int64_t i = 0; i < tokens * cols; i++)
        hidden[i] = (uint16_t)moxie_encode(MOXIE_BF16, test_normal(&rng) * 0x1p66f);
}

/* Some of w2's activations are NaN, and their neighbours are not. */
static void put_nan_biases(test_layer *layer)
{
    for (int64_t e = 0; e < layer->config.experts; e++) {
        const moxie_grid *bias = &layer->experts[e].up.bias;
        const uint32_t nan = moxie_encode(bias->dtype, NAN);
        for (int64_t row = 5; row < bias->rows; row += 11)
            mox_grid_store(bias, row, 0, nan);
    }
}

/* W13's kernel quantizes w2's activations by the rule, to the bit, where random numbers do not show it: halfway between
 * two codes, where UE8M0 bounds the scale below, where the largest number of a group is infinite, and beside NaN. */
static void ends_of_group_scales(void **state)
{
    static const test_act_quant floor = { "mxfp8 ocp floor",
                                          { .element = MOXIE_F8_E4M3,
                                            .scale = MOXIE_F8_E8M0,
                                            .group_rows = 1,
                                            .group_cols = 32,
                                            .rule = MOXIE_RULE_OCP_FLOOR } };
    const struct {
        const test_act_quant *act;
        void (*fill)(uint16_t *hidden, int64_t tokens, int64_t cols);
        bool nan;
    } cases[] = { { test_act_quant_named("mxfp8"), fill_small_integers },
                  { test_act_quant_named("mxfp4"), fill_small_integers },
                  { test_act_quant_named("fp8 1x32 ue8m0"), fill_small_numbers },
                  { &floor, fill_large_numbers },
                  { test_act_quant_named("mxfp8"), fill_small_integers, .nan = true },
                  { test_act_quant_named("mxfp4"), fill_small_integers, .nan = true } };
    (void)state;
    test_cuda_set_device("sm_90");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t seed = test_seed(48000 + i);
        const test_layer_limits limits = { .tokens = 13,
                                           .experts = 3,
                                           .largest = 270,
                                           .plain_routing = true,
                                           .no_parallel = true,
                                           .decoded_acts = true,
                                           .weight = test_weight_quant_named("mxfp4"),
                                           .act = cases[i].act };
        test_layer layer;
        test_layer_make_large(&layer, &limits, &seed);
        while (layer.config.dtype != MOXIE_BF16 || !all_gated(&layer.config) ||
               (cases[i].nan && layer.experts[0].up.bias.data == NULL)) {
            test_layer_free(&layer);
            test_layer_make_large(&layer, &limits, &seed);
        }
        if (cases[i].nan)
            put_nan_biases(&layer);
        layer.config.activation = layer.config.shared_activation = (moxie_activation) { .kind = MOXIE_ACT_RELU };
        cases[i].fill((uint16_t *)(uintptr_t)layer.args.hidden, layer.args.tokens, layer.config.hidden);
        check_decoded("sm_90", &layer, MOXIE_MODE_EXACT, true, seed);
        test_layer_free(&layer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_layers, test_cuda_begin, test_cuda_end),
        ON_BOTH(random_undecoded_layers),
        ON_BOTH(random_decoded_layers),
        ON_BOTH(random_layers_of_decoded_acts),
        ON_BOTH(random_layers_of_blocks),
        cmocka_unit_test_setup_teardown(random_layers_of_fp8, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(integers_as_fp8, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(mxfp4_as_fp8, test_cuda_begin, test_cuda_end),
        ON_BOTH(wide_tiles_of_decoded_acts),
        ON_BOTH(every_decoded_format),
        ON_BOTH(act_order),
        cmocka_unit_test_setup_teardown(far_scales_are_decoded, test_cuda_begin, test_cuda_end),
        ON_BOTH(every_kind_of_acts),
        cmocka_unit_test_setup_teardown(ends_of_group_scales, test_cuda_begin, test_cuda_end),
    };
    cmocka_set_test_filter(getenv("MOXIE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
