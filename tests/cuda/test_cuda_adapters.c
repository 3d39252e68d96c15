/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_adapters.c - LoRA adapters on the cuda back end, on a launch table without a GPU (test_cuda_table.h).
 * Random layers for the simple kernels, for Hopper's and for those of every card:
 *
 *     layers     every stage within its bound of the oracle; bytes of tokens depend on their own adapter alone, and
 *                are those of a layer without where they have none, also where that fuses the activation
 *     table      adapters are added, replaced, disabled and removed while a captured run stays as it is; ids out of
 *                range are none
 *     failures   the n-th call of the table fails
 *
 * test_cuda_adapters_emulated runs the kernels' own sources on the emulator, and compares lora's bytes with the host's.
 * MOXIE_TEST_CONFIGS sets the number of layers of each kind, MOXIE_TEST_SEED repeats one.
 */
#include <moxie/moxie_cuda.h>

#include "adapted_layers.h"
#include "test_cuda_table.h"

#ifdef MOX_TEST_EMULATED
enum { CONFIGS = 2, QUICK_CONFIGS = 1, LARGEST = 70 };
#else
enum { CONFIGS = 16, QUICK_CONFIGS = 8, LARGEST = 130 };
#endif

#ifndef MOX_TEST_EMULATED
/* Adapters beside sorted columns, where no product fuses the activation, and beside block types, where W13's does. */
static void other_layouts(void **state)
{
    (void)state;
    static const char *const devices[] = { "sm_90", "sm_80" };
    int fused[2] = { 0 };
    for (uint64_t i = 0; i < 8; i++) {
        const bool sorted = i % 4 < 2;
        const test_layer_limits limits = { .tokens = i < 4 ? 7 : 70,
                                           .largest = sorted ? 200 : 300,
                                           .plain_routing = true,
                                           .plain_acts = true,
                                           .blocks = true,
                                           .weight = sorted ? test_weight_quant_named("gptq act order")
                                                            : test_weight_quant_named(i < 4 ? "q4_k" : "q6_k"),
                                           .act = test_act_quant_named("none") };
        test_cuda_set_device(devices[i % 2]);
        fused[sorted] += adapted_check_layer(&limits, test_seed(29651) + i, MOXIE_MODE_EXACT);
    }
    assert_true(fused[false] > 0 && fused[true] < 4);
}
#endif

static void layers(void **state)
{
    (void)state;
    const int64_t quick = test_sanitized() ? 1 : QUICK_CONFIGS;
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", test_quick() ? quick : CONFIGS);
    const int fused = adapted_walk(configs, test_seed(29601), LARGEST, test_cuda_set_device);
    assert_true(configs < 2 || fused > 0);
}

/* ---- the table -------------------------------------------------------------------------------------------- */

/* A small layer whose tokens 0, 1, 2, ... have adapters 0, 1, none, 0, ... */
static void make_adapted(test_adapted *a, test_rng *rng)
{
    const test_layer_limits limits = { .tokens = 9, .largest = 60, .plain_routing = true, .plain_acts = true };
    moxie_error error = { 0 };
    test_layer_make(&a->layer, rng, &limits);
    moxie_options options = adapted_options(a, MOXIE_MODE_EXACT);
    options.max_adapter_rank = a->max_rank = 5;
    assert_ok(test_layer_try(&a->layer, &options, &error), &error);
    test_adapted_fix_choices(a);
    test_adapted_set(a, rng, 2);
    assert_ok(moxie_adapters_enable(a->adapters, 1, 1, &error), &error);
    for (int64_t t = 0; t < 9; t++)
        a->ids[t] = t % 3 < 2 ? (int32_t)(t % 3) : -1;
}

/* A graph of one run. The table's device memory is the host's, so the run's own arrays can be captured. */
typedef struct captured {
    const mox_cuda_table *table;
    const test_adapted *a;
    void *graph;
    char *output, *workspace;
} captured;

static void capture(captured *c, const test_adapted *a)
{
    moxie_error error = { 0 };
    moxie_run_args args = a->layer.args;
    *c = (captured) { .a = a, .output = calloc(test_layer_output_bytes(&a->layer) + 1, 1) };
    args.output = c->output;
    args.workspace_bytes = moxie_plan_workspace_bytes(a->layer.plan);
    args.workspace = c->workspace = aligned_alloc(256, (args.workspace_bytes + 256) / 256 * 256);
    assert_ok(mox_cuda_open(&c->table, &error), &error);
    assert_ok(c->table->capture_begin(NULL, &error), &error);
    assert_ok(moxie_cuda_plan_run(a->layer.plan, &args, NULL, &error), &error);
    assert_ok(c->table->capture_end(NULL, &c->graph, &error), &error);
}

/* The graph's output is that of a run with ids `ids`. */
static void launch_equals(const captured *c, const int32_t *ids)
{
    const size_t bytes = test_layer_output_bytes(&c->a->layer);
    test_layer now = c->a->layer;
    now.args.adapter_ids = ids;
    char *want = test_layer_output(&now, now.plan);
    memset(c->output, 0xee, bytes);
    assert_int_equal(c->table->graph_launch(c->graph, NULL, NULL), MOXIE_OK);
    assert_memory_equal(c->output, want, bytes);
    free(want);
}

static void set_random(const test_adapted *a, test_rng *rng, int32_t number, int64_t max_rank)
{
    moxie_error error = { 0 };
    random_adapter adapter;
    do {
        random_adapter_make(&adapter, rng, &a->layer.config, max_rank);
        assert_ok(moxie_adapters_set(a->adapters, number, &adapter.lora, &error), &error);
        random_adapter_free(&adapter);
    } while (max_rank > a->max_rank && moxie_adapters_rank(a->adapters, number) <= a->max_rank);
}

static void table(void **state)
{
    (void)state;
    test_rng rng = { test_seed(29701) };
    test_adapted a = { 0 };
    moxie_error error = { 0 };
    captured c;
    make_adapted(&a, &rng);
    capture(&c, &a);
    const int32_t first_alone[] = { 0, -1, -1, 0, -1, -1, 0, -1, -1 };
    launch_equals(&c, a.ids);
    set_random(&a, &rng, 0, a.max_rank);
    launch_equals(&c, a.ids);
    assert_ok(moxie_adapters_enable(a.adapters, 1, 0, &error), &error);
    launch_equals(&c, first_alone);
    assert_ok(moxie_adapters_enable(a.adapters, 1, 1, &error), &error);
    launch_equals(&c, a.ids);
    for (int64_t t = 1; t < 9; t += 3) /* no such adapters */
        a.ids[t] = t == 1 ? TEST_MAX_ADAPTERS : t == 4 ? -7 : 5;
    launch_equals(&c, first_alone);
    set_random(&a, &rng, 1, 40); /* too large for the plan: none, and new runs are refused */
    for (int64_t t = 1; t < 9; t += 3)
        a.ids[t] = 1;
    assert_int_equal(moxie_plan_run(a.layer.plan, &a.layer.args, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "up to rank 5"));
    assert_int_equal(c.table->graph_launch(c.graph, NULL, NULL), MOXIE_OK);
    assert_ok(moxie_adapters_remove(a.adapters, 1, &error), &error);
    char *large = malloc(test_layer_output_bytes(&a.layer));
    memcpy(large, c.output, test_layer_output_bytes(&a.layer));
    launch_equals(&c, first_alone);
    assert_memory_equal(large, c.output, test_layer_output_bytes(&a.layer));
    free(large);
    c.table->graph_destroy(c.graph);
    free(c.output);
    free(c.workspace);
    test_adapted_free(&a);
}

/* ---- failures --------------------------------------------------------------------------------------------- */

/* Every call of the table fails once. An adapter that could not be replaced or disabled stays as it was. */
static void failures(void **state)
{
    (void)state;
    test_rng rng = { test_seed(29801) };
    test_adapted a = { 0 };
    random_adapter other;
    make_adapted(&a, &rng);
    random_adapter_make(&other, &rng, &a.layer.config, a.max_rank);
    char *before = test_adapted_run(&a);
    bool reached = true;
    for (int n = 1; reached; n++) {
        moxie_error error = { 0 };
        moxie_adapters *more = NULL;
        assert_true(n < 200);
        test_cuda_fail_at(n);
        moxie_status status = moxie_adapters_create(a.layer.built, 2, &more, &error);
        if (status == MOXIE_OK)
            status = moxie_adapters_set(more, 1, &other.lora, &error);
        if (status == MOXIE_OK)
            status = moxie_adapters_enable(more, 1, 0, &error);
        if (status == MOXIE_OK)
            status = moxie_adapters_set(a.adapters, 0, &other.lora, &error);
        reached = test_cuda_fail_at(0);
        assert_int_equal(status, reached ? MOXIE_ERR_IO : MOXIE_OK);
        moxie_adapters_destroy(more);
        char *after = test_adapted_run(&a);
        assert_int_equal(memcmp(before, after, test_layer_output_bytes(&a.layer)) == 0, reached);
        free(after);
    }
    free(before);
    random_adapter_free(&other);
    test_adapted_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(table, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(failures, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(layers, test_cuda_begin, test_cuda_end),
#ifndef MOX_TEST_EMULATED
        cmocka_unit_test_setup_teardown(other_layouts, test_cuda_begin, test_cuda_end),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
