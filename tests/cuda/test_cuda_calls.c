/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_calls.c - the cuda back end above the launch table, without a GPU, on single layers: the work that a run
 * enqueues, refusals, failures at every call, memory of the caller, records or plans of the wrong back end, plans of
 * every preset. test_cuda_layers.c compares random layers with the oracle.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_cuda.h>

#include "base/memory.h"
#include "layer/weights/layer.h"
#include "test_cuda_table.h"
#include "test_layer.h"

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
    const moxie_options options = test_layer_cuda_options(&layer);
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
    const moxie_options options = test_layer_cuda_options(&layer);
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
        test_layer_make_large(&layer, &limits, &seed);
        if (layer.args.ids != NULL && layer.config.shared.intermediate == 0)
            break;
    }
    const moxie_options options = test_layer_cuda_options(&layer);
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
        moxie_options options = test_layer_cuda_options(&layer);
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
        moxie_options options = test_layer_cuda_options(&layer);
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
    const moxie_options options = test_layer_cuda_options(&layer);
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
    const moxie_options options = test_layer_cuda_options(&t);
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
        moxie_options options = test_layer_cuda_options(&layer);
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
    moxie_options options = test_layer_cuda_options(&layer);
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
    moxie_options options = test_layer_cuda_options(&layer);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
