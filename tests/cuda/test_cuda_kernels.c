/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_kernels.c - every CUDA kernel on a GPU, in random layers:
 *
 *     stages    the simple kernels: the output of each stage equals that of the host's scalar kernels, byte by byte
 *               (two NaNs are equal, whatever their payloads)
 *     oracle    the kernels that the plan chooses: every stage is within its bound of double precision
 *               (moxie_plan_check)
 *     fast      the same for layers that tensor-core kernels accept, until each kernel was chosen often
 *
 * Device memory lies between guards and is filled with NaN first. MOXIE_TEST_CONFIGS sets the number of layers (default
 * 200), MOXIE_TEST_SEED the first seed; MOXIE_TEST_FILTER="*as_fp8*" runs the tests whose names match. With
 * MOXIE_TEST_TELL=1 each layer is printed before it runs. Skipped without a GPU.
 */
#include <math.h>

#include "cuda/expert_gemm/cuda_expert_gemm.h"
#include "device_support.h"
#include "layer/run/plan_run.h"

static const mox_cuda_table *table;

/* ---- without the fast kernels -------------------------------------------------------------------------- */

static mox_cuda_table plain;

/* The features of the device without those that its tensor cores' kernels need: only the simple ones are left. */
static moxie_status plain_features(int32_t device, mox_cuda_features *out, moxie_error *error)
{
    MOX_TRY(table->features(device, out, error));
    out->sm = 80;
    out->shared_bytes = 0;
    return MOXIE_OK;
}

/* ---- stages -------------------------------------------------------------------------------------------- */

/* The outputs of all stages of a run: arrays of 4-byte numbers. */
typedef struct trail {
    struct {
        mox_stage stage;
        const char *what;
        int64_t count;
        bool is_float;
        uint32_t *numbers;
    } items[128];
    int count;
} trail;

static void keep(trail *t, mox_stage stage, const char *what, const void *numbers, int64_t count, bool is_float)
{
    if (numbers == NULL || count == 0)
        return;
    assert_true(t->count < 128);
    uint32_t *copy = malloc((size_t)count * 4);
    memcpy(copy, numbers, (size_t)count * 4);
    t->items[t->count].stage = stage;
    t->items[t->count].what = what;
    t->items[t->count].count = count;
    t->items[t->count].is_float = is_float;
    t->items[t->count++].numbers = copy;
}

static void keep_activations(trail *t, mox_stage stage, const mox_activations *a, int64_t rows)
{
    keep(t, stage, "values", a->values, rows * a->stride, true);
    keep(t, stage, "scales", a->scales, rows * a->scale_cols, true);
    keep(t, stage, "globals", a->global, rows, true);
}

static moxie_status after(void *user, const mox_run *run, mox_stage stage, const mox_expert_pass *pass,
                          moxie_error *error)
{
    trail *t = user;
    const moxie_layer_config *c = &run->plan->config;
    const int64_t choices = run->args.tokens * c->top_k;
    const int64_t pairs = pass != NULL ? pass->offsets[pass->slots] : 0;
    const int64_t rows13 = pass != NULL && pass->source == NULL ? pass->rows13 : pairs;
    (void)error;
    if (pass != NULL && pairs == 0)
        return MOXIE_OK;
    switch (stage) {
    case MOX_STAGE_ROUTER_NORM: /* no layer here has norms: tests/layer compares them */
    case MOX_STAGE_EXPERT_NORM: break;
    case MOX_STAGE_ROUTER:
        keep(t, stage, "logits", run->logits, run->args.tokens * (c->experts + c->routing.zero_experts), true);
        break;
    case MOX_STAGE_TOPK:
        keep(t, stage, "ids", run->ids, choices, false);
        keep(t, stage, "weights", run->weights, choices, true);
        break;
    case MOX_STAGE_QUANT13: keep_activations(t, stage, &pass->traced[MOX_W13], rows13); break;
    case MOX_STAGE_GEMM13: keep(t, stage, "h", pass->h, pairs * pass->experts->n13, true); break;
    case MOX_STAGE_GLU: keep(t, stage, "act", pass->act, pairs * pass->experts->shape.intermediate, true); break;
    case MOX_STAGE_QUANT2: keep_activations(t, stage, &pass->traced[MOX_W2], pairs); break;
    case MOX_STAGE_GEMM2: keep(t, stage, "y", pass->y, pairs * pass->experts->shape.hidden, true); break;
    case MOX_STAGE_SHARED_GATE: keep(t, stage, "weights", run->shared_weight, run->tokens, true); break;
    case MOX_STAGE_COMBINE:
        keep(t, stage, "position", run->permutation.position, 2 * run->tokens * c->top_k, false);
        break;
    }
    return MOXIE_OK;
}

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* True when the outputs agree; else prints the first difference. */
static bool same_trail(const trail *host, const trail *device)
{
    static const char *const names[] = { "router", "topk",  "quant13",     "gemm13", "glu",
                                         "quant2", "gemm2", "shared gate", "combine" };
    if (host->count != device->count) {
        print_error("  the host wrote %d arrays, the device %d\n", host->count, device->count);
        return false;
    }
    for (int i = 0; i < host->count; i++)
        for (int64_t n = 0; n < host->items[i].count; n++) {
            const uint32_t a = host->items[i].numbers[n], b = device->items[i].numbers[n];
            float x, y;
            if (a == b || (host->items[i].is_float && is_nan(a) && is_nan(b)))
                continue;
            memcpy(&x, &a, 4);
            memcpy(&y, &b, 4);
            print_error("  %s, %s, number %lld of %lld: host %.9g (%08x), device %.9g (%08x)\n",
                        names[host->items[i].stage], host->items[i].what, (long long)n, (long long)host->items[i].count,
                        (double)x, a, (double)y, b);
            return false;
        }
    return true;
}

static void free_trail(trail *t)
{
    while (t->count > 0)
        free(t->items[--t->count].numbers);
}

/* Runs the layer with `options` and records the outputs of its stages. When it fails, prints why and returns false. */
static bool run_and_keep(test_layer *layer, const moxie_options *options, trail *t)
{
    moxie_error error = { 0 };
    const mox_probe probe = { t, after };
    moxie_status status = test_layer_try(layer, options, &error);
    if (status == MOXIE_OK)
        status = mox_plan_run(layer->plan, MOX_RUN_WHOLE, &layer->args, NULL, &probe, &error);
    test_layer_discard(layer);
    if (status != MOXIE_OK)
        print_error("  %s\n", error.text);
    return status == MOXIE_OK;
}

static bool stages_agree(test_layer *layer, device_guards *guards)
{
    static trail host, device;
    const size_t bytes = test_layer_output_bytes(layer);
    const moxie_cuda_allocator allocator = device_guarded(guards);
    moxie_options on_host = device_options(layer->args.tokens), on_device = on_host;
    on_host.backend = MOXIE_BACKEND_CPU;
    on_host.device = NULL;
    on_host.isa = "scalar";
    on_device.device_memory = &allocator;
    char *output = malloc(bytes + 1);
    bool good = run_and_keep(layer, &on_host, &host);
    memcpy(output, layer->args.output, bytes);
    memset(layer->args.output, 0x5a, bytes);
    good = good && run_and_keep(layer, &on_device, &device) && same_trail(&host, &device);
    if (good && memcmp(output, layer->args.output, bytes) != 0) {
        print_error("  the outputs differ\n");
        good = false;
    }
    if (guards->broken > 0)
        print_error("  %d bytes of guards were written\n", guards->broken);
    free(output);
    free_trail(&host);
    free_trail(&device);
    return good && guards->broken == 0;
}

static moxie_mode mode = MOXIE_MODE_FAST; /* of the checks below */

/* ---- the oracle ---------------------------------------------------------------------------------------- */

static bool within_bounds(test_layer *layer, device_guards *guards)
{
    const moxie_cuda_allocator allocator = device_guarded(guards);
    moxie_options options = device_options(layer->args.tokens);
    options.mode = mode;
    options.device_memory = &allocator;
    moxie_error error = { 0 };
    test_report report = { 0 };
    const moxie_status status = test_layer_check(layer, &options, &report, &error);
    test_layer_discard(layer); /* freeing its memory checks the guards */
    if (status != MOXIE_OK)
        print_error("  %s\n", error.text);
    for (int s = 0; s < report.n_stages; s++)
        if (!(report.stages[s].worst_ratio <= 1))
            print_error("  %s: worst %g: got %.9g want %.9g bound %g\n", report.stages[s].stage,
                        report.stages[s].worst_ratio, report.stages[s].got, report.stages[s].want,
                        report.stages[s].bound);
    if (guards->broken > 0)
        print_error("  %d bytes of guards were written\n", guards->broken);
    return status == MOXIE_OK && report.worst_ratio <= 1 && guards->broken == 0;
}

static int times_chosen[MOX_CUDA_ROWS_expert_gemm];

static void count_kernels(const test_layer *layer)
{
    moxie_options options = device_options(layer->args.tokens);
    moxie_plan *plan = NULL;
    options.mode = mode;
    assert_int_equal(moxie_plan_explain(&layer->config, &options, &plan, NULL), MOXIE_OK);
    for (int32_t s = 0; s < moxie_plan_step_count(plan); s++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, s);
        for (int32_t i = 0; i < MOX_CUDA_ROWS_expert_gemm; i++)
            times_chosen[i] += step->chosen && !strcmp(step->family, "expert_gemm") &&
                               !strcmp(step->kernel, mox_cuda_expert_gemm_at(i)->cuda.base.name);
    }
    moxie_plan_destroy(plan);
}

static bool fast_within_bounds(test_layer *layer, device_guards *guards)
{
    count_kernels(layer);
    return within_bounds(layer, guards);
}

/* ---- random layers ------------------------------------------------------------------------------------- */

/* Stages are compared in a single pass, and the host's passes are short. */
static bool fits_one_pass(const test_layer *layer)
{
    return layer->config.routing.select != MOXIE_SELECT_CUSTOM && layer->args.tokens <= MOX_PASS_TOKENS;
}

static bool fits(const test_layer *layer)
{
    return layer->config.routing.select != MOXIE_SELECT_CUSTOM;
}

static void walk(uint64_t first, const test_layer_limits *limits, bool (*accepts)(const test_layer *layer),
                 bool (*check)(test_layer *layer, device_guards *guards))
{
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", 200);
    device_guards guards = { .table = table };
    int64_t wrong = 0, run = 0;
    for (int64_t i = 0; i < configs && wrong < 5; i++) {
        test_rng rng = { first + (uint64_t)i };
        test_layer layer;
        test_layer_make(&layer, &rng, limits);
        if (accepts(&layer)) {
            if (test_env("MOXIE_TEST_TELL", 0) != 0)
                print_message("%llu: %s\n", (unsigned long long)(first + (uint64_t)i), layer.text);
            run++;
            guards.broken = 0;
            if (!check(&layer, &guards)) {
                print_error("%s\nrepeat with MOXIE_TEST_SEED=%llu MOXIE_TEST_CONFIGS=1\n", layer.text,
                            (unsigned long long)(first + (uint64_t)i));
                wrong++;
            }
        }
        test_layer_free(&layer);
    }
    print_message("%lld layers\n", (long long)run);
    assert_int_equal(wrong, 0);
}

static void stages_equal_the_hosts(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = -1, .features = true };
    const test_layer_limits short_groups = { .tokens = -1, .largest = 1100, .short_groups = true };
    walk(test_seed(40000), &limits, fits_one_pass, stages_agree);
    walk(test_seed(60000), &short_groups, fits_one_pass, stages_agree); /* short groups have separate kernels */
}

static int without_tensor_cores(void **state)
{
    (void)state;
    plain = *table;
    plain.features = plain_features;
    mox_cuda_replace(&plain);
    return 0;
}

/* After a failure, too: the tests that follow are about the device as it is. */
static int with_tensor_cores(void **state)
{
    (void)state;
    mox_cuda_replace(NULL);
    return 0;
}

static void stages_are_within_bounds(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = -1, .features = true };
    walk(test_seed(80000), &limits, fits, within_bounds);
}

/* One layer with many chunks, row tiles or tokens. */
static void check_large(uint64_t seed, const test_layer_limits *limits)
{
    device_guards guards = { .table = table };
    test_rng rng = { seed };
    test_layer layer;
    test_layer_make(&layer, &rng, limits);
    if (fits(&layer) && !fast_within_bounds(&layer, &guards))
        fail_msg("%s", layer.text);
    test_layer_free(&layer);
}

static void fast_kernels_are_within_bounds(void **state)
{
    (void)state;
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", 200);
    mox_cuda_features device;
    moxie_error error = { 0 };
    const test_layer_limits small = { .tokens = -1, .mma = true };
    const test_layer_limits many = { .tokens = 350, .largest = 400, .mma = true };
    const test_layer_limits wide = { .tokens = 20, .largest = 2200, .mma = true };
    const test_layer_limits decoded = { .tokens = -1, .decoded = true };
    const test_layer_limits many_decoded = { .tokens = 350, .largest = 400, .decoded = true };
    const test_layer_limits wide_decoded = { .tokens = 20, .largest = 2200, .decoded = true };
    const test_layer_limits acts = { .tokens = -1, .decoded_acts = true };
    const test_layer_limits many_acts = { .tokens = 350, .largest = 400, .decoded_acts = true };
    const test_layer_limits wide_acts = { .tokens = 20, .largest = 2200, .decoded_acts = true };
    const test_layer_limits fp8 = { .tokens = -1, .to_fp8 = true };
    const test_layer_limits many_fp8 = { .tokens = 350, .largest = 400, .to_fp8 = true };
    const test_layer_limits wide_fp8 = { .tokens = 20, .largest = 2200, .to_fp8 = true };
    const test_layer_limits blocks = { .tokens = -1, .largest = 500, .blocks = true };
    const test_layer_limits many_blocks = { .tokens = 350, .largest = 400, .blocks = true };
    const test_layer_limits wide_blocks = { .tokens = 20, .largest = 2200, .blocks = true };
    const test_layer_limits *const larger[] = { &many,      &wide,      &many_decoded, &wide_decoded,
                                                &many_acts, &wide_acts, &many_fp8,     &wide_fp8 };
    walk(test_seed(120000), &small, fits, fast_within_bounds);
    walk(test_seed(140000), &decoded, fits, fast_within_bounds);
    walk(test_seed(200000), &acts, fits, fast_within_bounds);
    walk(test_seed(220000), &fp8, fits, fast_within_bounds);
    for (uint64_t i = 0; i < 40 && (int64_t)i < configs / 5; i++)
        check_large(test_seed(160000) + i, larger[i % 8]);
    mode = MOXIE_MODE_EXACT;
    walk(test_seed(240000), &blocks, fits, fast_within_bounds);
    for (uint64_t i = 0; i < 10 && (int64_t)i < configs / 20; i++)
        check_large(test_seed(260000) + i, i % 2 == 0 ? &many_blocks : &wide_blocks);
    mode = MOXIE_MODE_FAST;
    assert_ok(mox_cuda_device(table, 0, &device, &error), &error);
    for (int32_t i = 0; i < MOX_CUDA_ROWS_expert_gemm; i++) {
        const mox_cuda_kernel *kernel = &mox_cuda_expert_gemm_at(i)->cuda;
        print_message("%s: %d\n", kernel->base.name, times_chosen[i]);
        if (configs >= 100 && getenv("MOXIE_TEST_DEVICE") == NULL && kernel->needs & MOX_CUDA_WGMMA &&
            !(kernel->needs & ~device.flags))
            assert_true(times_chosen[i] > configs / 60);
    }
}

/* Columns in act order, on the kernels that read them sorted. */
static void act_order_is_within_bounds(void **state)
{
    (void)state;
    static const char *const weights[] = { "gptq act order", "gptq 8 bit whole groups" };
    static const int64_t tokens[] = { 1, 13, 90, 350 };
    mode = MOXIE_MODE_EXACT;
    for (uint64_t i = 0; i < 24; i++) {
        const test_layer_limits limits = { .tokens = tokens[i / 2 % 4],
                                           .largest = i % 3 == 0 ? 2200 : 400,
                                           .blocks = true,
                                           .weight = test_weight_quant_named(weights[i % 2]),
                                           .act = test_act_quant_named("none") };
        check_large(test_seed(280000) + i, &limits);
    }
    mode = MOXIE_MODE_FAST;
}

/* Weights that become FP8, in tiles of few columns and in wide ones. */
static void weights_as_fp8_are_within_bounds(void **state)
{
    (void)state;
    static const char *const kinds[][2] = { { "int4 words g128", "fp8 token" },
                                            { "mxfp4", "fp8 1x128" },
                                            { "int4 words g128", "fp8 tensor static" },
                                            { "mxfp4", "fp8 1x128 ue8m0" } };
    static const int64_t tokens[] = { 1, 13, 40, 90, 350 };
    for (uint64_t i = 0; i < 20; i++) {
        test_weight_quant weight = *test_weight_quant_named(kinds[i % 4][0]);
        if (i % 3 == 0 && weight.quant.element == MOXIE_U4B8)
            weight.quant.group_cols = i % 4 == 0 ? 256 : -1;
        if (i % 8 == 4)
            weight.quant.element = MOXIE_I4;
        const test_layer_limits limits = { .tokens = tokens[i / 4 % 5],
                                           .experts = 2,
                                           .top_k = 1,
                                           .largest = i % 3 == 0 && i / 4 % 5 < 3 ? 1100 : 400,
                                           .to_fp8 = true,
                                           .weight = &weight,
                                           .act = test_act_quant_named(kinds[i % 4][1]) };
        check_large(test_seed(300000) + i, &limits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stages_equal_the_hosts, without_tensor_cores, with_tensor_cores),
        cmocka_unit_test(stages_are_within_bounds),
        cmocka_unit_test(fast_kernels_are_within_bounds),
        cmocka_unit_test(act_order_is_within_bounds),
        cmocka_unit_test(weights_as_fp8_are_within_bounds),
    };
    cmocka_set_test_filter(getenv("MOXIE_TEST_FILTER"));
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that the output of a program that hangs shows where */
    table = device_or_skip();
    return table != NULL ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
