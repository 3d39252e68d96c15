/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_timing.c - timed runs in a graph, and measured limits of a GPU. Both run on a launch table without a GPU.
 *
 *     limits    the probes that count on each device
 *     graphs    a chain of runs that the caller launches; failures at every call
 *     host      the host's time of calls
 *     runs      runs in a graph compute what single runs compute; number and times of launches; failures at every call
 */
#include <math.h>
#include <string.h>

#include <moxie/moxie_cuda.h>

#include "base/memory.h"
#include "test_cuda_table.h"
#include "test_layer.h"

/* ---- limits -------------------------------------------------------------------------------------------- */

static moxie_limits limits_of(const char *device)
{
    moxie_limits limits = MOXIE_LIMITS_INIT;
    moxie_error error = { 0 };
    test_cuda_set_device(device);
    assert_ok(moxie_cuda_measure_limits(NULL, &limits, &error), &error);
    return limits;
}

static void about(double a, double b)
{
    if (!(fabs(a - b) <= 1e-3 * b))
        fail_msg("%g is not %g", a, b);
}

/* The rates that the table's clock gives to each instruction (test_cuda_graph.h). */
static void best_probe_counts(void **state)
{
    (void)state;
    moxie_limits l = limits_of("sm_80");
    about(l.read_gb_s, 4000);
    about(l.bf16_tflop_s, 400);
    assert_true(l.fp8_tflop_s == 0 && *l.fp8_how == '\0');
    assert_string_equal(l.isa, "cuda");
    assert_int_equal(l.workers, 108);
    assert_int_equal(l.cache_bytes, 40 << 20);
    assert_non_null(strstr(l.bf16_how, "mma.sync"));
    l = limits_of("sm_90");
    about(l.read_gb_s, 4500);
    about(l.bf16_tflop_s, 800);
    about(l.fp8_tflop_s, 1500);
    assert_string_equal(l.isa, "cuda wgmma");
    assert_non_null(strstr(l.read_how, "bulk"));
    assert_non_null(strstr(l.fp8_how, "wgmma"));
    l = limits_of("sm_100");
    about(l.read_gb_s, 4500);
    about(l.bf16_tflop_s, 400);
    about(l.fp8_tflop_s, 700);
    assert_true(l.copy_gb_s == 0 && l.f32_tflop_s == 0 && l.int8_top_s == 0);
}

static void limits_reject(void **state)
{
    (void)state;
    moxie_limits limits = MOXIE_LIMITS_INIT;
    moxie_error error = { 0 };
    assert_int_equal(moxie_cuda_measure_limits("1", &limits, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "this machine has 1"));
    assert_int_equal(moxie_cuda_measure_limits("sm_90", &limits, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_measure_limits(NULL, NULL, &error), MOXIE_ERR_ARGUMENT);
    bool reached = true;
    test_cuda_set_l2(1 << 20);
    for (int n = 1; reached; n++) {
        assert_true(n < 500);
        test_cuda_fail_at(n);
        const moxie_status status = moxie_cuda_measure_limits(NULL, &limits, &error);
        reached = test_cuda_fail_at(0);
        assert_int_equal(status, reached ? MOXIE_ERR_IO : MOXIE_OK);
    }
    mox_alloc_fail_at(1);
    assert_int_equal(moxie_cuda_measure_limits(NULL, &limits, &error), MOXIE_ERR_MEMORY);
    mox_alloc_fail_at(0);
}

/* ---- timed runs ---------------------------------------------------------------------------------------- */

#define RUNS 3

/* Three runs of a layer: each has its own routing; they share hidden states and workspace. */
typedef struct timed {
    test_layer layer;
    moxie_run_args args[RUNS];
    moxie_cuda_timed_run runs[RUNS];
    size_t bytes;
} timed;

/* A layer without a shared expert; the caller passes its routing. */
static void open_timed(timed *t)
{
    const test_layer_limits limits = { .tokens = 5, .largest = 40, .plain_routing = true, .plain_acts = true };
    moxie_options options = MOXIE_OPTIONS_INIT;
    uint64_t seed = 21000;
    for (;; seed++) {
        test_rng rng = { seed };
        test_layer_make(&t->layer, &rng, &limits);
        if (t->layer.args.ids != NULL && t->layer.config.shared.intermediate == 0 && t->layer.config.experts > 2)
            break;
        test_layer_free(&t->layer);
    }
    options.backend = MOXIE_BACKEND_CUDA;
    options.max_tokens = 5;
    test_layer_plan(&t->layer, &options);
    t->bytes = test_layer_output_bytes(&t->layer);
    for (int r = 0; r < RUNS; r++) {
        const int64_t choices = 5 * t->layer.config.top_k;
        int32_t *ids = test_layer_own(&t->layer, (size_t)choices * sizeof *ids);
        for (int64_t i = 0; i < choices; i++)
            ids[i] = (t->layer.args.ids[i] + r) % (int32_t)t->layer.config.experts;
        t->args[r] = t->layer.args;
        t->args[r].ids = ids;
        t->args[r].ids_out = NULL;
        t->args[r].weights_out = NULL;
        t->args[r].logits_out = NULL;
        t->args[r].output = test_layer_own(&t->layer, t->bytes + 1);
        t->runs[r] = (moxie_cuda_timed_run) { t->layer.plan, &t->args[r] };
    }
}

static int count_of(const char *name)
{
    int count = 0;
    const char *at = test_cuda_log();
    while ((at = strstr(at, name)) != NULL) {
        count++;
        at += strlen(name);
    }
    return count;
}

static void graph_computes(void **state)
{
    (void)state;
    timed t;
    double seconds[2];
    moxie_error error = { 0 };
    open_timed(&t);
    test_cuda_clear();
    assert_ok(moxie_cuda_time_runs(t.runs, RUNS, 2, seconds, &error), &error);
    assert_int_equal(count_of("graph "), 3);              /* the first warms up */
    assert_int_equal(count_of("combine "), 1 + 3 * RUNS); /* and one single run before the graph */
    assert_null(strstr(strstr(test_cuda_log(), "start "), "copy graph"));
    /* A microsecond each: all launches of the runs, the launch of the graph, and the start event. */
    const int launches = count_of("permute ") + count_of("quant_act ") + count_of("expert_gemm") + count_of("glu ") +
                         count_of("row_norm ") + count_of("combine ");
    const int each = launches / (1 + 3 * RUNS);
    about(seconds[0], 1e-6 * (each * RUNS + 1 + 1));
    about(seconds[1], seconds[0]);
    for (int r = 0; r < RUNS; r++) {
        moxie_run_args alone = t.args[r];
        alone.output = test_layer_own(&t.layer, t.bytes + 1);
        assert_ok(moxie_plan_run(t.layer.plan, &alone, &error), &error);
        assert_memory_equal(alone.output, t.args[r].output, t.bytes);
    }
    assert_memory_not_equal(t.args[0].output, t.args[1].output, t.bytes);
    test_layer_free(&t.layer);
}

/* ---- graphs for the caller -------------------------------------------------------------------------------- */

/* Captures of a chain that fail: at its second run, which is refused when the first is on its way and must be waited
 * for; and at every call of the launch table. They leave nothing behind. */
static void capture_fails(moxie_plan *const *plans, const moxie_run_args *const *args)
{
    moxie_error error = { 0 };
    void *none = &error;
    moxie_run_args refused = *args[1];
    refused.tokens = 1 << 20;
    const moxie_run_args *const too_many[] = { args[0], &refused };
    test_cuda_clear();
    assert_int_equal(moxie_cuda_plan_capture(plans, too_many, 2, &none, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(test_cuda_log(), "wait"));
    bool reached = true;
    for (int n = 1; reached; n++) {
        assert_ptr_equal(none, &error);
        assert_true(n < 500);
        test_cuda_fail_at(n);
        const moxie_status status = moxie_cuda_plan_capture(plans, args, 2, &none, &error);
        reached = test_cuda_fail_at(0);
        assert_int_equal(status, reached ? MOXIE_ERR_IO : MOXIE_OK);
    }
    moxie_cuda_graph_destroy(none);
}

/* A chain: the second run reads the hidden states that the first wrote. Each launch routes anew. */
static void captured_chain(void **state)
{
    (void)state;
    timed t;
    void *graph = NULL;
    moxie_error error = { 0 };
    open_timed(&t);
    moxie_plan *const plans[] = { t.layer.plan, t.layer.plan };
    moxie_run_args first = t.args[0], second = t.args[1];
    const size_t ids_bytes = (size_t)(5 * t.layer.config.top_k) * sizeof(int32_t);
    int32_t *ids =
        aligned_alloc(256, (ids_bytes + 255) / 256 * 256); /* "device" memory of the plain table is the host's */
    void *hidden = aligned_alloc(256, (t.bytes + 256) / 256 * 256),
         *between = aligned_alloc(256, (t.bytes + 256) / 256 * 256);
    memcpy(hidden, t.layer.args.hidden, t.bytes);
    void *workspace = NULL;
    const mox_cuda_table *table = NULL;
    assert_ok(mox_cuda_open(&table, &error), &error);
    assert_ok(table->allocate(first.workspace_bytes, &workspace, &error), &error);
    first.workspace = second.workspace = workspace;
    first.hidden = hidden;
    first.ids = ids;
    first.output = between;
    second.hidden = between;
    const moxie_run_args *const args[] = { &first, &second };
    memcpy(ids, t.args[2].ids, ids_bytes);
    assert_ok(moxie_cuda_plan_capture(plans, args, 2, &graph, &error), &error);
    for (int r = 0; r < RUNS; r++) {
        moxie_run_args alone[2] = { t.args[r], t.args[1] };
        alone[0].output = test_layer_own(&t.layer, t.bytes + 1);
        alone[1].output = test_layer_own(&t.layer, t.bytes + 1);
        alone[1].hidden = alone[0].output;
        for (int i = 0; i < 2; i++)
            assert_ok(moxie_plan_run(t.layer.plan, &alone[i], &error), &error);
        memcpy(ids, t.args[r].ids, ids_bytes);
        memset(second.output, 0x5a, t.bytes);
        assert_ok(moxie_cuda_graph_launch(graph, NULL, &error), &error);
        assert_memory_equal(between, alone[0].output, t.bytes);
        assert_memory_equal(second.output, alone[1].output, t.bytes);
    }
    moxie_cuda_graph_destroy(graph);
    moxie_cuda_graph_destroy(NULL);
    capture_fails(plans, args);
    table->release(workspace);
    free(ids);
    free(hidden);
    free(between);
    test_layer_free(&t.layer);
}

static void capture_rejects(void **state)
{
    (void)state;
    timed t;
    void *graph = NULL;
    moxie_error error = { 0 };
    open_timed(&t);
    moxie_plan *plans[] = { t.layer.plan, NULL };
    const moxie_run_args *args[] = { &t.args[0], &t.args[1] };
    assert_int_equal(moxie_cuda_plan_capture(plans, args, 0, &graph, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_plan_capture(plans, args, 2, &graph, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "run 1"));
    assert_int_equal(moxie_cuda_plan_capture(NULL, args, 1, &graph, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_plan_capture(plans, NULL, 1, &graph, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_plan_capture(plans, args, 1, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_graph_launch(NULL, NULL, &error), MOXIE_ERR_ARGUMENT);
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer *built;
    options.max_tokens = 5;
    options.backend = MOXIE_BACKEND_CPU;
    test_layer_build(&t.layer, &options, &built, &plans[1]);
    assert_int_equal(moxie_cuda_plan_capture(plans, args, 2, &graph, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "plan 1 runs on the host"));
    assert_null(graph);
    moxie_plan_destroy(plans[1]);
    moxie_layer_destroy(built);
    test_layer_free(&t.layer);
}

static void timing_rejects(void **state)
{
    (void)state;
    timed t;
    double seconds[1];
    moxie_error error = { 0 };
    open_timed(&t);
    assert_int_equal(moxie_cuda_time_runs(t.runs, 0, 1, seconds, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_time_runs(t.runs, 1, 0, seconds, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_time_runs(NULL, 1, 1, seconds, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_time_runs(t.runs, 1, 1, NULL, &error), MOXIE_ERR_ARGUMENT);
    t.args[1].tokens = 6; /* a run in the middle is invalid */
    assert_int_equal(moxie_cuda_time_runs(t.runs, RUNS, 1, seconds, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "this plan runs 0 to 5"));
    t.args[1].tokens = 5;
    void *const output = t.args[2].output; /* a run that cannot be captured */
    t.args[2].output = NULL;
    assert_int_equal(moxie_cuda_time_runs(t.runs, RUNS, 1, seconds, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "output is NULL"));
    t.args[2].output = output;
    bool reached = true;
    for (int n = 1; reached; n++) {
        assert_true(n < 500);
        test_cuda_fail_at(n);
        const moxie_status status = moxie_cuda_time_runs(t.runs, RUNS, 1, seconds, &error);
        reached = test_cuda_fail_at(0);
        assert_int_equal(status, reached ? MOXIE_ERR_IO : MOXIE_OK);
    }
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer *built;
    moxie_plan *plan;
    options.max_tokens = 5;
    options.backend = MOXIE_BACKEND_CPU;
    test_layer_build(&t.layer, &options, &built, &plan);
    t.runs[1].plan = plan;
    assert_int_equal(moxie_cuda_time_runs(t.runs, RUNS, 1, seconds, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "share a device"));
    moxie_plan_destroy(plan);
    moxie_layer_destroy(built);
    test_layer_free(&t.layer);
}

/* Calls that equal each other, of the first run: outputs are those of the run; most are launches of its graph. */
static void host_is_timed(void **state)
{
    (void)state;
    enum { CALLS = 24 };
    timed t;
    double equal[CALLS], kernels[CALLS];
    moxie_error error = { 0 };
    open_timed(&t);
    test_cuda_clear();
    assert_ok(moxie_cuda_time_host(t.runs, CALLS, equal, kernels, &error), &error);
    assert_true(count_of("graph ") > CALLS);
    assert_true(count_of("combine ") >= 2 * CALLS);
    for (int i = 0; i < CALLS; i++)
        assert_true(equal[i] > 0 && equal[i] < 60 && kernels[i] > 0 && kernels[i] < 60);
    char *timed_output = malloc(t.bytes);
    memcpy(timed_output, t.args[0].output, t.bytes);
    assert_ok(moxie_plan_run(t.layer.plan, &t.args[0], &error), &error);
    assert_memory_equal(timed_output, t.args[0].output, t.bytes);
    free(timed_output);
    assert_int_equal(moxie_cuda_time_host(t.runs, 0, equal, kernels, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_time_host(NULL, 1, equal, kernels, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_time_host(t.runs, 1, NULL, kernels, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_cuda_time_host(t.runs, 1, equal, NULL, &error), MOXIE_ERR_ARGUMENT);
    t.args[0].tokens = 6;
    assert_int_equal(moxie_cuda_time_host(t.runs, 1, equal, kernels, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "this plan runs 0 to 5"));
    test_layer_free(&t.layer);
}

/* Graphs of a few launches each, as short timings make them, do not keep the next timing from having one. */
static void timings_do_not_depend_on_earlier_ones(void **state)
{
    (void)state;
    timed t;
    double equal[1], kernels[1];
    moxie_error error = { 0 };
    open_timed(&t);
    for (int i = 0; i < 5; i++) {
        t.args[0].tokens = 5 - i % 2;
        test_cuda_clear();
        assert_ok(moxie_cuda_time_host(t.runs, 1, equal, kernels, &error), &error);
        assert_int_equal(count_of("graph "), 3); /* of four equal calls */
    }
    test_layer_free(&t.layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(best_probe_counts, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(limits_reject, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(graph_computes, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(captured_chain, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(capture_rejects, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(host_is_timed, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(timings_do_not_depend_on_earlier_ones, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(timing_rejects, test_cuda_begin, test_cuda_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
