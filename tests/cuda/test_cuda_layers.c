/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_layers.c - the cuda back end above the launch table, without a GPU: random layers are prepared, planned,
 * run and compared with the oracle. Other tests check the work that a run enqueues, failures at every call, memory of
 * the caller, and records or plans of the wrong back end.
 *
 * MOXIE_TEST_CONFIGS sets the number of random layers of each kind (CONFIGS, in a quick run QUICK_CONFIGS; gpu-check
 * has thousands on a GPU). MOXIE_TEST_SEED repeats one layer. MOXIE_TEST_FILTER="*sm_80" runs the tests whose names
 * match.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_cuda.h>

#include "base/memory.h"
#include "cuda/expert_gemm/cuda_expert_gemm.h"
#include "layer/weights/layer.h"
#include "test_cuda_table.h"
#include "test_layer.h"

static moxie_options cuda_options(const test_layer *layer)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.max_tokens = layer->args.tokens + (layer->args.tokens == 0);
    return options;
}

/* The emulator takes a second for what a GPU does in a millisecond; MOXIE_TEST_ALL=1 takes all cases on it, too. */
#ifdef MOX_TEST_EMULATED
enum { CONFIGS = 9, QUICK_CONFIGS = 6, EXPERTS = 1, EMULATED = 1 };
#else
enum { CONFIGS = 60, QUICK_CONFIGS = 30, EXPERTS = 3, EMULATED = 0 };
#endif

static bool few_cases(void)
{
    return test_quick() || (EMULATED && test_env("MOXIE_TEST_ALL", 0) == 0);
}

static int64_t random_configs(void)
{
    const int64_t quick = test_sanitized() ? QUICK_CONFIGS / 6 : QUICK_CONFIGS;
    return test_env("MOXIE_TEST_CONFIGS", test_quick() ? quick : CONFIGS);
}

/* ---- random layers ------------------------------------------------------------------------------------- */

static int times_chosen[MOX_CUDA_ROWS_expert_gemm];

static void count_kernels(const moxie_plan *plan)
{
    for (int32_t s = 0; s < moxie_plan_step_count(plan); s++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, s);
        for (int32_t i = 0; i < MOX_CUDA_ROWS_expert_gemm; i++)
            times_chosen[i] += step->chosen && !strcmp(step->family, "expert_gemm") &&
                               !strcmp(step->kernel, mox_cuda_expert_gemm_at(i)->cuda.base.name);
    }
}

/* NULL, or a text that says what is wrong. */
static const char *check_layer(test_layer *layer, moxie_mode mode, moxie_error *error)
{
    moxie_options options = cuda_options(layer);
    options.mode = mode;
    test_report report = { 0 };
    const moxie_status status = test_layer_check(layer, &options, &report, error);
    if (layer->plan != NULL)
        count_kernels(layer->plan);
    if (status != MOXIE_OK)
        return error->text;
    for (int s = 0; s < report.n_stages; s++)
        if (!(report.stages[s].worst_ratio <= 1))
            return report.stages[s].stage;
    return NULL;
}

static void walk_layers(const test_layer_limits *limits, uint64_t first, int64_t configs, moxie_mode mode)
{
    int wrong = 0, rejected = 0;
    for (int64_t i = 0; i < configs && wrong < 5; i++) {
        test_rng rng = { first + (uint64_t)i };
        test_layer layer;
        moxie_error error = { 0 };
        test_layer_make(&layer, &rng, limits);
        const bool custom = layer.config.routing.select == MOXIE_SELECT_CUSTOM;
        const char *what = check_layer(&layer, mode, &error);
        if (custom && what != NULL && strstr(what, "custom routing callback") != NULL) {
            rejected++;
        } else if (what != NULL || custom) {
            print_error("%s\n  %s\nrepeat with MOXIE_TEST_SEED=%llu MOXIE_TEST_CONFIGS=1\n", layer.text,
                        what != NULL ? what : "a callback was accepted",
                        (unsigned long long)first + (unsigned long long)i);
            wrong++;
        }
        test_layer_free(&layer);
    }
    assert_int_equal(wrong, 0);
    assert_true(configs < 50 || rejected > 0);
}

static void random_layers(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = -1, .largest = 90, .features = true };
    walk_layers(&limits, test_seed(501), random_configs(), MOXIE_MODE_FAST);
}

/* Tests of the kernels on layouts of tiles run once for each set of them: their state is a device, on which the set's
 * kernels are the best. */
static uint32_t needs_of(const char *device)
{
    return strcmp(device, "sm_90") == 0 ? (uint32_t)MOX_CUDA_HOPPER : (uint32_t)MOX_CUDA_MMA_BF16;
}

static const char *set_device(void **state)
{
    test_cuda_set_device(*state);
    return *state;
}

/* How often the rarest kernel of the device's set that reads `layout` was chosen, of those for these kinds of
 * activations. Kernels for scales of blocks count in layers of blocks, the others elsewhere. */
static int rarest_chosen(const char *device, const test_layer_limits *limits, const char *layout, uint32_t kinds)
{
    int rarest = INT32_MAX;
    for (int32_t i = 0; i < MOX_CUDA_ROWS_expert_gemm; i++) {
        const mox_cuda_expert_gemm_kernel *kernel = mox_cuda_expert_gemm_at(i);
        if (strcmp(kernel->cuda.base.layout, layout) == 0 && kernel->cuda.needs == needs_of(device) &&
            kinds >> kernel->activations & 1 && (kernel->sum == MOX_SUM_TENSOR_CHUNKS) == limits->blocks)
            rarest = times_chosen[i] < rarest ? times_chosen[i] : rarest;
    }
    return rarest;
}

/* Random layers for the device's kernels that read `layout`, one of tiles. Most layers are such that the kernels accept
 * them.
 * `kinds`: the kinds of activations whose kernels must be chosen in six layers; where a seed's layers choose one too
 * seldom, more layers follow, up to eight times as many. */
static void walk_tiles(const char *device, const test_layer_limits *limits, uint64_t first, moxie_mode mode,
                       const char *layout, uint32_t kinds)
{
    enum { WALKS = 8, TIMES = 6 };
    const int64_t configs = random_configs() / 2;
    const bool counts = configs >= 50;
    memset(times_chosen, 0, sizeof times_chosen);
    walk_layers(limits, first, configs, mode);
    for (int walk = 1; counts && walk < WALKS && rarest_chosen(device, limits, layout, kinds) < TIMES; walk++)
        walk_layers(limits, first + (uint64_t)(walk * configs), configs, mode);
    assert_true(!counts || rarest_chosen(device, limits, layout, kinds) >= TIMES);
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

/* A layer larger than half of `limits`, filled with random numbers. *seed moves on to the layer's seed. */
static void make_sized(test_layer *layer, const test_layer_limits *limits, uint64_t *seed)
{
    for (;; test_layer_free(layer)) {
        test_rng rng = { ++*seed };
        test_layer_make(layer, &rng, limits);
        if (layer->config.hidden > limits->largest / 2 && layer->config.intermediate > limits->largest / 2 &&
            strstr(layer->text, "fill random") != NULL)
            return;
    }
}

/* How often kernels of the device's set were chosen. */
static int set_times_chosen(const char *device)
{
    int times = 0;
    for (int32_t r = 0; r < MOX_CUDA_ROWS_expert_gemm; r++)
        if (mox_cuda_expert_gemm_at(r)->cuda.needs == needs_of(device) &&
            strcmp(mox_cuda_expert_gemm_at(r)->cuda.base.layout, "rowmajor") != 0)
            times += times_chosen[r];
    return times;
}

/* Checks the layer; if `wanted`, kernels of the device's set must compute both products. They decode the weights,
 * except where both weights and activations are integers. */
static void check_decoded(const char *device, test_layer *layer, moxie_mode mode, bool wanted, uint64_t seed)
{
    moxie_error error = { 0 };
    memset(times_chosen, 0, sizeof times_chosen);
    const char *what = check_layer(layer, mode, &error);
    if (what != NULL || (set_times_chosen(device) < 2 && wanted))
        fail_msg("%s: %s (seed %llu)", layer->text, what != NULL ? what : "simple kernels are chosen",
                 (unsigned long long)seed);
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
        make_sized(&layer, &limits, &seed);
        const bool is_accepted = !which->act_order && which->zero_dtype == MOXIE_DTYPE_NONE; /* by the layout */
        check_decoded(device, &layer, MOXIE_MODE_FAST, is_accepted, seed);
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
    const test_layer_limits limits = {
        .tokens = 13, .experts = 3, .largest = 130, .plain_routing = true, .no_parallel = true, .to_fp8 = true
    };
    uint64_t seed = test_seed(46000);
    test_layer layer;
    const char *device = "sm_90";
    test_cuda_set_device(device);
    make_sized(&layer, &limits, &seed);
    const moxie_grid *scale = &layer.weights.experts[1].down.scale;
    for (int far = 0; far < 2; far++) {
        if (far)
            mox_grid_store(scale, 3, 1, mox_grid_code(scale, 3, 0) - 13);
        check_decoded(device, &layer, MOXIE_MODE_FAST, true, seed);
        assert_int_equal(count_chosen("sm90_dequant_qact") > 0, far);
    }
    test_layer_free(&layer);
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
        make_sized(&layer, &limits, &seed); /* also if skipped below, so that a quick run has the same seeds */
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
        make_sized(&layer, &limits, &seed);
        check_decoded(device, &layer, MOXIE_MODE_EXACT, true, seed);
        test_layer_free(&layer);
    }
}

/* ---- batches ------------------------------------------------------------------------------------------- */

static void check_prefixes(const test_layer_limits *limits, moxie_mode mode, uint64_t seed)
{
    static const int64_t prefixes[] = { 1, 3, 8, 17, 40 };
    test_rng rng = { seed };
    test_layer layer;
    test_layer_make(&layer, &rng, limits);
    moxie_options options = cuda_options(&layer);
    options.mode = mode;
    test_layer_plan(&layer, &options);
    void *all = test_layer_output(&layer, layer.plan);
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        layer.args.tokens = prefixes[i];
        void *some = test_layer_output(&layer, layer.plan);
        if (memcmp(all, some, test_layer_output_bytes(&layer)) != 0)
            fail_msg("%s: the first %lld tokens alone give other bytes (seed %llu)", layer.text, (long long)prefixes[i],
                     (unsigned long long)seed);
        free(some);
    }
    free(all);
    test_layer_free(&layer);
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
    }
}

/* ---- one layer ----------------------------------------------------------------------------------------- */

/* A random layer that has a router. */
static void make_routed(test_layer *layer, uint64_t seed)
{
    const test_layer_limits limits = { .tokens = 6, .largest = 40, .plain_routing = true, .plain_acts = true };
    for (;; seed++) {
        test_rng rng = { seed };
        test_layer_make(layer, &rng, &limits);
        if (layer->config.router_width > 0 && layer->args.ids == NULL && layer->args.logits == NULL &&
            layer->config.shared.intermediate == 0)
            return;
        test_layer_free(layer);
    }
}

/* The layer's arguments for a run on device pointers, with a workspace that the caller frees. */
static moxie_run_args device_args(const test_layer *layer)
{
    moxie_run_args args = layer->args;
    args.workspace_bytes = moxie_plan_workspace_bytes(layer->plan);
    args.workspace = aligned_alloc(256, (size_t)(args.workspace_bytes + 256) / 256 * 256);
    args.ids_out = NULL;
    args.weights_out = NULL;
    args.logits_out = NULL;
    return args;
}

static void enqueues_and_returns(void **state)
{
    (void)state;
    test_layer layer;
    moxie_error error = { 0 };
    make_routed(&layer, 7000);
    const moxie_options options = cuda_options(&layer);
    test_layer_plan(&layer, &options);
    moxie_run_args args = device_args(&layer);
    const uint64_t before = mox_alloc_count();
    const int device_before = test_cuda_allocations();
    test_cuda_clear();
    assert_ok(moxie_cuda_plan_run(layer.plan, &args, NULL, &error), &error);
    assert_string_equal(test_cuda_log(), "dense topk permute quant_act expert_gemm glu quant_act expert_gemm combine ");
    assert_int_equal(mox_alloc_count(), before);
    assert_int_equal(test_cuda_allocations(), device_before);

    /* A run on host pointers gives the same bytes. */
    const size_t bytes = test_layer_output_bytes(&layer);
    void *first = malloc(bytes + 1);
    memcpy(first, args.output, bytes);
    assert_ok(moxie_plan_run(layer.plan, &layer.args, &error), &error);
    assert_memory_equal(first, layer.args.output, bytes);
    free(first);
    free(args.workspace);
    test_layer_free(&layer);
}

/* A layer whose hidden states kernels on layout hopper read without a copy. `seed` is the seed of such a layer, so that
 * the search ends at once. */
static void make_hopper(test_layer *layer, uint64_t seed, moxie_dtype weight)
{
    const test_layer_limits limits = {
        .tokens = 9, .largest = 150, .plain_routing = true, .plain_acts = true, .no_parallel = true, .mma = true
    };
    for (;; seed++) {
        test_rng rng = { seed };
        test_layer_make(layer, &rng, &limits);
        if (layer->config.hidden % 8 == 0 && layer->config.w13.element == weight && layer->args.ids != NULL &&
            layer->config.w2.element == weight && layer->config.shared.intermediate == 0 &&
            !layer->config.routing.on_input)
            return;
        test_layer_free(layer);
    }
}

/* Two launches compute the experts and read the hidden states in place, if these are aligned. */
static void fused_kernels_enqueue_two(void **state)
{
    (void)state;
    test_layer layer;
    moxie_error error = { 0 };
    test_cuda_set_device("sm_90");
    make_hopper(&layer, 31105, MOXIE_BF16);
    const moxie_options options = cuda_options(&layer);
    test_layer_plan(&layer, &options);
    const size_t bytes = test_layer_output_bytes(&layer);
    moxie_run_args args = device_args(&layer);
    char *hidden = aligned_alloc(16, (bytes + 31) / 16 * 16), *first = malloc(bytes + 1);
    memcpy(hidden, layer.args.hidden, bytes);
    args.hidden = hidden;
    test_cuda_clear();
    assert_ok(moxie_cuda_plan_run(layer.plan, &args, NULL, &error), &error);
    assert_string_equal(test_cuda_log(), "permute expert_gemm_fused expert_gemm_hopper combine ");
    memcpy(first, args.output, bytes);
    assert_ok(moxie_plan_run(layer.plan, &layer.args, &error), &error);
    assert_memory_equal(first, layer.args.output, bytes);
    args.hidden = hidden + 2;
    assert_int_equal(moxie_cuda_plan_run(layer.plan, &args, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "align it to 16 bytes"));
    free(first);
    free(hidden);
    free(args.workspace);
    test_layer_free(&layer);
}

/* Checks the launches of a run with activations quantized by `act`. */
static void check_log(const test_act_quant *act, const char *log)
{
    const test_layer_limits limits = { .tokens = 9,
                                       .largest = 150,
                                       .plain_routing = true,
                                       .no_parallel = true,
                                       .decoded_acts = true,
                                       .weight = test_weight_quant_named("mxfp4"),
                                       .act = act };
    test_layer layer;
    moxie_error error = { 0 };
    for (uint64_t seed = 39075;; test_layer_free(&layer)) {
        make_sized(&layer, &limits, &seed);
        if (layer.args.ids != NULL && layer.config.shared.intermediate == 0)
            break;
    }
    const moxie_options options = cuda_options(&layer);
    test_layer_plan(&layer, &options);
    moxie_run_args args = device_args(&layer);
    test_cuda_clear();
    assert_ok(moxie_cuda_plan_run(layer.plan, &args, NULL, &error), &error);
    assert_string_equal(test_cuda_log(), log);
    free(args.workspace);
    test_layer_free(&layer);
}

/* W13's kernel quantizes W2's activations when their scales are powers of two; other scales need a separate launch. */
static void products_quantize_with_powers_of_two(void **state)
{
    (void)state;
    static const char *const mx[] = { "mxfp8", "mxfp8 e5m2", "mxfp8 floor", "mxfp6 e2m3", "mxfp6 e3m2", "mxfp4" };
    static const char *const others[] = { "fp8 token", "fp8 1x128 ue8m0", "nvfp4 divide", "int8 token" };
    test_cuda_set_device("sm_90");
    for (size_t i = 0; i < sizeof mx / sizeof mx[0]; i++)
        check_log(test_act_quant_named(mx[i]), "permute quant_act expert_gemm_fused expert_gemm_hopper combine ");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        check_log(test_act_quant_named(others[i]),
                  "permute quant_act expert_gemm_fused quant_act expert_gemm_hopper combine ");
}

/* The first step of family expert_gemm in a plan. */
static const moxie_plan_step *first_product(const moxie_plan *plan)
{
    for (int32_t s = 0;; s++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, s);
        if (!strcmp(step->family, "expert_gemm"))
            return step;
    }
}

static void rejections_say_why(void **state)
{
    (void)state;
    test_layer layer;
    moxie_plan *plan = NULL;
    moxie_error error = { 0 };
    make_hopper(&layer, 33076, MOXIE_F8_E4M3);
    layer.config.a2 = layer.config.a13 = test_act_quant_named("fp8 1x128")->quant;
    static const struct {
        const char *device;
        int32_t mode;
        const char *reason;
    } cases[] = {
        { "sm_80", MOXIE_MODE_FAST, "needs bulk_copy dependent wgmma" },
        { "sm_100", MOXIE_MODE_FAST, "needs wgmma" },
        { "sm_90", MOXIE_MODE_EXACT, "class TOL" },
        { "sm_90", MOXIE_MODE_FAST, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        moxie_options options = cuda_options(&layer);
        options.device = cases[i].device;
        options.mode = cases[i].mode;
        assert_ok(moxie_plan_explain(&layer.config, &options, &plan, &error), &error);
        const moxie_plan_step *step = first_product(plan);
        assert_string_equal(step->kernel, "sm90_w8a8_fp8_glu");
        assert_int_equal(step->chosen, cases[i].reason == NULL);
        assert_true(cases[i].reason == NULL || strstr(step->reason, cases[i].reason) != NULL);
        moxie_plan_destroy(plan);
    }
    test_layer_free(&layer);
}

/* The reason why a kernel rejects the first product; NULL when it is chosen. */
static const char *reason_of(const moxie_plan *plan, const char *kernel)
{
    for (int32_t s = 0;; s++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, s);
        if (!strcmp(step->family, "expert_gemm") && !strcmp(step->kernel, kernel))
            return step->chosen ? NULL : step->reason;
    }
}

/* All integers have the greatest magnitude. With one more column, int32 could not hold their sum. */
static void sums_of_integers_fit(void **state)
{
    (void)state;
    test_layer layer;
    make_hopper(&layer, 34924, MOXIE_I8);
    layer.config.a2 = layer.config.a13 = test_act_quant_named("int8 token away")->quant;
    for (int64_t over = 0; over < 2; over++) {
        moxie_plan *plan = NULL;
        moxie_error error = { 0 };
        moxie_options options = cuda_options(&layer);
        options.device = "sm_90";
        layer.config.hidden = INT32_MAX / (128 * 128) + over;
        assert_ok(moxie_plan_explain(&layer.config, &options, &plan, &error), &error);
        const char *reason = reason_of(plan, "sm90_w8a8_int8_act");
        assert_true(over == 0 ? reason == NULL : reason != NULL && strstr(reason, "in 31 bits") != NULL);
        moxie_plan_destroy(plan);
    }
    test_layer_free(&layer);
}

static void failures_come_through(void **state)
{
    (void)state;
    test_layer layer;
    make_routed(&layer, 9000);
    const moxie_options options = cuda_options(&layer);
    bool reached = true;
    for (int n = 1; reached; n++) {
        moxie_error error = { 0 };
        assert_true(n < 500);
        test_cuda_fail_at(n);
        moxie_status status = test_layer_try(&layer, &options, &error);
        if (status == MOXIE_OK)
            status = moxie_plan_run(layer.plan, &layer.args, &error);
        reached = test_cuda_fail_at(0);
        assert_int_equal(status, reached ? MOXIE_ERR_IO : MOXIE_OK);
        if (reached)
            assert_non_null(strstr(error.text, "told to fail"));
        test_layer_discard(&layer);
    }
    test_layer_free(&layer);
}

/* An update that fails before it reaches the device does not change the static scales of the old expert. */
static void failed_update_keeps_scales(void **state)
{
    (void)state;
    const moxie_quant per_tensor = { MOXIE_F8_E4M3, MOXIE_F32, .group_rows = -1, .group_cols = -1, .is_static = 1 };
    test_layer t;
    make_routed(&t, 9100);
    t.config.a13 = t.config.a2 = per_tensor;
    for (int64_t e = 0; e < t.config.experts; e++)
        t.experts[e].a13_scale = t.experts[e].a2_scale = 0.5f;
    const moxie_options options = cuda_options(&t);
    moxie_error error = { 0 };
    assert_ok(moxie_layer_create(&t.config, &options, &t.built, &error), &error);
    assert_ok(moxie_layer_prepare(t.built, &t.weights, &options, &error), &error);
    moxie_expert other = t.experts[0];
    other.a13_scale = other.a2_scale = 4;
    bool reached = true;
    for (int n = 1; reached; n++) {
        test_cuda_fail_at(n);
        const moxie_status status = moxie_layer_update_expert(t.built, 0, &other, &error);
        reached = test_cuda_fail_at(0);
        assert_int_equal(status, reached ? MOXIE_ERR_IO : MOXIE_OK);
        for (int p = MOX_W13; p <= MOX_W2; p++)
            assert_true(t.built->static_scale[p].raw[0] == (reached ? 0.5f : 4.0f));
    }
    test_layer_discard(&t);
    test_layer_free(&t);
}

/* Simulated routing depends on a token's index in the batch, not on how the host splits the batch for routing. */
static void simulated_choices_agree(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 100, .largest = 20 };
    test_layer layer;
    moxie_error error = { 0 };
    uint64_t seed = 17000;
    for (;; seed++) {
        test_rng rng = { seed };
        test_layer_make(&layer, &rng, &limits);
        if (layer.config.routing.select == MOXIE_SELECT_SIM_UNIFORM && layer.args.ids == NULL)
            break;
        test_layer_free(&layer);
    }
    int32_t *ids[2];
    const size_t count = 100 * (size_t)layer.config.top_k;
    moxie_run_args args = layer.args;
    args.weights_out = test_layer_own(&layer, count * sizeof(float));
    for (int side = 0; side < 2; side++) {
        moxie_options options = cuda_options(&layer);
        options.backend = side == 0 ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_CUDA;
        test_layer_plan(&layer, &options);
        args.workspace = layer.args.workspace;
        args.workspace_bytes = layer.args.workspace_bytes;
        args.ids_out = ids[side] = test_layer_own(&layer, count * sizeof(int32_t));
        assert_ok(moxie_plan_route(layer.plan, &args, &error), &error);
    }
    assert_memory_equal(ids[0], ids[1], count * sizeof(int32_t));
    test_layer_free(&layer);
}

/* ---- memory of the caller, the wrong back end --------------------------------------------------------------- */

static int allocated, released;

static void *allocate(void *self, uint64_t bytes)
{
    assert_ptr_equal(self, &allocated);
    allocated++;
    return aligned_alloc(256, (size_t)(bytes + 511) / 256 * 256);
}

static void release(void *self, void *memory)
{
    assert_ptr_equal(self, &allocated);
    released++;
    free(memory);
}

static void memory_of_the_caller(void **state)
{
    (void)state;
    const moxie_cuda_allocator allocator = { &allocated, allocate, release };
    test_layer layer;
    moxie_error error = { 0 };
    make_routed(&layer, 11000);
    moxie_options options = cuda_options(&layer);
    options.device_memory = &allocator;
    const int pinned = 1, before = test_cuda_allocations();
    test_layer_plan(&layer, &options);
    assert_int_equal(test_cuda_allocations() - before, pinned); /* only the pinned ring */
    assert_true(allocated > 0);
    assert_ok(moxie_plan_run(layer.plan, &layer.args, &error), &error);
    test_layer_free(&layer);
    assert_int_equal(allocated, released);
}

static void the_wrong_back_end(void **state)
{
    (void)state;
    test_layer layer;
    moxie_plan *other = NULL;
    moxie_error error = { 0 };
    make_routed(&layer, 13000);
    moxie_options options = cuda_options(&layer);
    options.backend = MOXIE_BACKEND_CPU;
    test_layer_plan(&layer, &options);
    assert_int_equal(moxie_cuda_plan_run(layer.plan, &layer.args, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "runs on the host"));
    options.backend = MOXIE_BACKEND_CUDA;
    assert_int_equal(moxie_plan_create(layer.built, &options, &other, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "records are in the host's memory"));
    test_layer_free(&layer);
}

static void presets_explain(void **state)
{
    (void)state;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_plan *plan = NULL;
    moxie_layer *built = NULL;
    moxie_error error = { 0 };
    test_layer layer;
    make_routed(&layer, 15000);
    mox_cuda_replace(NULL); /* presets need no table */
    options.backend = MOXIE_BACKEND_CUDA;
    static const char *const names[] = { "sm_80", "sm_90", "sm_100" };
    for (int i = 0; i < 3; i++) {
        options.device = names[i];
        assert_ok(moxie_plan_explain(&layer.config, &options, &plan, &error), &error);
        const moxie_plan_step *last = moxie_plan_step_at(plan, moxie_plan_step_count(plan) - 1);
        assert_string_equal(last->family, "combine");
        assert_string_equal(last->isa, "cuda");
        assert_true(moxie_plan_workspace_bytes(plan) > 0);
        moxie_plan_destroy(plan);
        assert_int_equal(moxie_layer_create(&layer.config, &options, &built, &error), MOXIE_ERR_ARGUMENT);
        assert_non_null(strstr(error.text, "only explains plans"));
    }
    options.device = "sm_9000";
    assert_int_equal(moxie_plan_explain(&layer.config, &options, &plan, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "sm_80, sm_86, sm_89, sm_90, sm_100, sm_120"));
    options.backend = MOXIE_BACKEND_CPU;
    assert_int_equal(moxie_plan_explain(&layer.config, &options, &plan, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "not cuda"));
    test_layer_free(&layer);
    (void)test_cuda_begin(NULL);
}

static void names_of_devices(void **state)
{
    (void)state;
    char names[96];
    assert_string_equal(mox_cuda_flag_names(mox_cuda_flags_of(75), names, sizeof names), "");
    assert_string_equal(mox_cuda_flag_names(mox_cuda_flags_of(80), names, sizeof names), "mma_bf16");
    assert_string_equal(mox_cuda_flag_names(mox_cuda_flags_of(89), names, sizeof names), "mma_bf16 mma_fp8");
    assert_string_equal(mox_cuda_flag_names(mox_cuda_flags_of(90), names, sizeof names),
                        "mma_bf16 mma_fp8 bulk_copy dependent wgmma");
    assert_string_equal(mox_cuda_flag_names(mox_cuda_flags_of(100), names, sizeof names),
                        "mma_bf16 mma_fp8 bulk_copy dependent");
}

/* A test for each set of kernels on tiles. */
#define ON(test, device)                                                                                               \
    {                                                                                                                  \
#test " " device, test, test_cuda_begin, test_cuda_end, (void *)(uintptr_t)device                              \
    }
#define ON_BOTH(test) ON(test, "sm_90"), ON(test, "sm_80")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_layers, test_cuda_begin, test_cuda_end),
        ON_BOTH(random_undecoded_layers),
        ON_BOTH(random_decoded_layers),
        ON_BOTH(random_layers_of_decoded_acts),
        ON_BOTH(random_layers_of_blocks),
        cmocka_unit_test_setup_teardown(random_layers_of_fp8, test_cuda_begin, test_cuda_end),
        ON_BOTH(wide_tiles_of_decoded_acts),
        ON_BOTH(wide_tiles_of_ints),
        ON_BOTH(every_decoded_format),
        cmocka_unit_test_setup_teardown(far_scales_are_decoded, test_cuda_begin, test_cuda_end),
        ON_BOTH(every_kind_of_acts),
        ON_BOTH(bytes_with_zero_points),
        ON_BOTH(batches_do_not_matter),
        cmocka_unit_test_setup_teardown(enqueues_and_returns, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(fused_kernels_enqueue_two, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(products_quantize_with_powers_of_two, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(rejections_say_why, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(sums_of_integers_fit, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(failures_come_through, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(failed_update_keeps_scales, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(simulated_choices_agree, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(memory_of_the_caller, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(the_wrong_back_end, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(presets_explain, test_cuda_begin, test_cuda_end),
        cmocka_unit_test(names_of_devices),
    };
    cmocka_set_test_filter(getenv("MOXIE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
