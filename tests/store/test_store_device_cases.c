/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_device_cases.c - the GPU's tier of a store: counters, policies, lookahead, calls and allocations that
 * fail, rows of moxie_plan_experts, refusals. Its runs are compared in test_store_device.c.
 */
#include "test_store_gpu.h"

#include <moxie/moxie_cuda.h>

#include "base/memory.h"
#include "layer/weights/layer.h"

#define PRESET "sm_80"

static const test_layer_limits usual = { .tokens = 300, TEST_STORE_USUAL };

static void make(test_layer *t, const moxie_options *options)
{
    for (uint64_t seed = 9500;; seed++) {
        test_store_make(t, seed, &usual);
        if (test_store_gpu_fits(t, options, test_store_gpu_target(PRESET)))
            return;
        test_layer_free(t);
    }
}

/* A layer and a store of it. */
typedef struct one_case {
    test_layer t;
    test_store_opened s;
} one_case;

static void make_case(one_case *x, int64_t slots, int32_t buffers, int64_t ram_slots)
{
    const moxie_options options = test_store_gpu_options();
    make(&x->t, &options);
    const moxie_store_options o = test_store_gpu_store(slots, buffers, ram_slots);
    test_store_gpu_open(&x->t, &o, &options, &x->s);
}

static void free_case(one_case *x)
{
    test_store_gpu_close(&x->s);
    test_layer_free(&x->t);
}

static bool counts_calls(void)
{
    return test_store_on_gpu() == NULL && !test_cuda_is_lazy();
}

/* ---- single cases ---------------------------------------------------------------------------------------- */

/* With a slot for every expert nothing is copied twice. */
static void test_counters(void **state)
{
    (void)state;
    one_case x;
    make_case(&x, 12, 4, 12);
    for (int i = 0; i < 3; i++)
        free(test_store_gpu_output(&x.t, x.s.plan, 300));
    const moxie_store_counters c = test_store_counters(x.s.store);
    moxie_store_info info = MOXIE_STORE_INFO_INIT;
    assert_int_equal(moxie_store_get_info(x.s.store, &info, NULL), MOXIE_OK);
    assert_int_equal(info.device_slots, 12);
    assert_int_equal(info.device_buffers, 4);
    assert_int_equal(c.copies, c.device_uses / 3);
    assert_int_equal(c.copied_bytes, (uint64_t)c.copies * x.s.layer->record_bytes);
    assert_int_equal(c.device_hits, c.device_uses / 3 * 2);
    assert_int_equal(c.reads, c.copies);
    free_case(&x);
}

/* Pinned experts, and a set that stays: bytes do not change, and what is pinned is copied once. */
static void test_policies(void **state)
{
    (void)state;
    static const int64_t pinned[] = { 7, 3, 7, 5 };
    test_layer t;
    moxie_options options = test_store_gpu_options();
    make(&t, &options);
    void *want = test_store_gpu_output(&t, t.plan, 300);
    for (int i = 0; i < 3; i++) {
        moxie_store_options o = test_store_gpu_store(3, 2, 12);
        test_store_opened s;
        o.policy = i == 1 ? "frozen" : i == 2 ? "pinned" : NULL;
        o.warm_runs = i > 0 ? 2 : 0;
        o.pinned = i == 0 ? pinned : NULL;
        o.n_pinned = i == 0 ? 2 : 0;
        test_store_gpu_open(&t, &o, &options, &s);
        for (int run = 0; run < 6; run++) {
            void *got = test_store_gpu_output(&t, s.plan, 300);
            assert_memory_equal(got, want, test_layer_output_bytes(&t));
            free(got);
        }
        assert_true(test_store_counters(s.store).device_hits > 0);
        test_store_gpu_close(&s);
    }
    free(want);
    test_layer_free(&t);
}

/* What the router of a layer would choose is read into RAM, and a run copies it from there. */
static void test_lookahead(void **state)
{
    (void)state;
    one_case x;
    moxie_error error;
    make_case(&x, 3, 2, 12);
    const moxie_layer_config *c = &x.t.config;
    x.t.args.tokens = 1;
    assert_ok(moxie_store_lookahead(x.s.plan, &x.t.args, &error), &error);
    const moxie_store_counters guessed = test_store_counters(x.s.store);
    assert_in_range(guessed.prefetches, 1, c->top_k);
    void *got = test_store_gpu_output(&x.t, x.s.plan, 1);
    const moxie_store_counters run = test_store_counters(x.s.store);
    assert_int_equal(run.reads, guessed.prefetches); /* none but these */
    assert_int_equal(run.prefetches_used, run.copies);
    assert_int_equal(run.prefetches_wasted, 0);
    void *want = test_store_gpu_output(&x.t, x.t.plan, 1);
    assert_memory_equal(got, want, (size_t)c->hidden * (size_t)mox_dtype_bytes(c->dtype));
    free(got);
    free(want);
    free_case(&x);
}

/* A run in which any call of the table fails says so, and the next one is right. */
static void test_failures(void **state)
{
    (void)state;
    if (!counts_calls())
        skip();
    one_case x;
    make_case(&x, 3, 2, 4);
    void *want = test_store_gpu_output(&x.t, x.t.plan, 7);
    x.t.args.tokens = 7;
    int failed = 0;
    for (int n = 1; n < 2000; n++) {
        moxie_run_args args = x.t.args;
        moxie_error error = { 0 };
        args.output = malloc(test_layer_output_bytes(&x.t));
        args.ids_out = NULL;
        args.weights_out = NULL;
        args.logits_out = NULL;
        test_cuda_fail_at(n);
        const moxie_status status = moxie_plan_run(x.s.plan, &args, &error);
        const bool did = test_cuda_fail_at(0);
        free(args.output);
        failed += did;
        assert_true(status == MOXIE_OK || error.text[0] != '\0');
        if (!did)
            break;
        void *got = test_store_gpu_output(&x.t, x.s.plan, 7);
        assert_memory_equal(got, want, test_layer_output_bytes(&x.t));
        free(got);
    }
    assert_true(failed > 20);
    free(want);
    free_case(&x);
}

/* Checks of which one call of the table, or one allocation, fails. Returns how many do. */
static int fail_checks(test_layer *t, moxie_plan *plan, bool of_table, int step)
{
    int failed = 0;
    for (bool did = true; did; failed += did) {
        moxie_check_report *report = NULL;
        moxie_error error = { 0 };
        if (of_table)
            (void)test_cuda_fail_at(1 + failed * step);
        else
            mox_alloc_fail_at((uint64_t)(1 + failed * step));
        const moxie_status status = moxie_plan_check(plan, &t->weights, &t->args, &report, &error);
        did = of_table ? test_cuda_fail_at(0) : status != MOXIE_OK;
        mox_alloc_fail_at(0);
        assert_int_equal(status, !did ? MOXIE_OK : of_table ? MOXIE_ERR_IO : MOXIE_ERR_MEMORY);
        assert_true(!did || (error.text[0] != '\0' && report == NULL));
        moxie_check_report_destroy(report);
    }
    return failed;
}

/* A check that fails says so, leaves nothing behind (end), and the next one is right. */
static void test_checks_that_fail(void **state)
{
    (void)state;
    if (!counts_calls())
        skip();
    one_case x;
    make_case(&x, 3, 2, 4);
    x.t.args.tokens = 2;
    assert_true(fail_checks(&x.t, x.s.plan, true, test_sanitized() ? 31 : 17) > 5);
    assert_true(fail_checks(&x.t, x.s.plan, false, test_sanitized() ? 7 : 5) > 5);
    test_store_gpu_check(&x.t, x.s.plan);
    free_case(&x);
}

/* Rows of moxie_plan_experts. */
static void test_rows(void **state)
{
    (void)state;
    test_layer t;
    test_store_opened s;
    moxie_error error;
    moxie_options options = test_store_gpu_options();
    make(&t, &options);
    const size_t choices = (size_t)(t.args.tokens * t.config.top_k), n = choices * (size_t)t.config.hidden;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    test_store_choose(&t, 5);
    memset(want, 0xee, n * sizeof *want);
    memset(got, 0xdd, n * sizeof *got);
    assert_ok(moxie_plan_experts(t.plan, &t.args, want, &error), &error);
    const moxie_store_options o = test_store_gpu_store(2, 2, 2);
    test_store_gpu_open(&t, &o, &options, &s);
    assert_ok(moxie_plan_experts(s.plan, &t.args, got, &error), &error);
    assert_memory_equal(got, want, n * sizeof *want);
    memset((void *)(uintptr_t)t.args.ids, 0xff, choices * sizeof *t.args.ids); /* -1: nothing to compute */
    assert_ok(moxie_plan_experts(s.plan, &t.args, got, &error), &error);
    for (size_t i = 0; i < n; i++)
        assert_true(got[i] == 0);
    test_store_gpu_close(&s);
    free(want);
    free(got);
    test_layer_free(&t);
}

/* ---- refusals ------------------------------------------------------------------------------------------- */

static void refuse_open(const moxie_store_options *o, moxie_status status, const char *words)
{
    const char *const path = test_store_gpu_folder;
    moxie_store *store = NULL;
    moxie_error error = { 0 };
    assert_int_equal(moxie_store_open(&path, 1, o, &store, &error), status);
    assert_null(store);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void test_refusals(void **state)
{
    (void)state;
    test_layer t;
    test_store_opened s;
    moxie_error error = { 0 };
    moxie_options options = test_store_gpu_options(), cpu = MOXIE_OPTIONS_INIT;
    moxie_layer *layer = NULL;
    make(&t, &options);
    moxie_store_options o = test_store_gpu_store(1, 2, 2);
    o.device_bytes -= 1;
    refuse_open(&o, MOXIE_ERR_MEMORY, "bytes on the GPU: 1 layers need at least");
    o = test_store_gpu_store(1, 2, 2);
    o.device_bytes = 0;
    refuse_open(&o, MOXIE_ERR_ARGUMENT, "device_bytes is 0");
    o = test_store_gpu_store(1, 2, 2);
    o.device = "first";
    refuse_open(&o, MOXIE_ERR_ARGUMENT, "options.device is \"first\"");
    o = test_store_gpu_store(1, 2, 2);
    o.ram_bytes = 4096;
    refuse_open(&o, MOXIE_ERR_MEMORY, "a budget of 4096 bytes");
    o = test_store_gpu_store(2, 2, 2);
    test_store_gpu_open(&t, &o, &options, &s);
    assert_int_equal(moxie_store_layer(s.store, 7, NULL, &cpu, &layer, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "--backend cuda"));
    assert_int_equal(moxie_layer_verify(s.layer, &error), MOXIE_ERR_UNSUPPORTED);
    moxie_plan *plans[] = { s.plan };
    const moxie_run_args *args[] = { &t.args };
    void *graph = NULL;
    assert_int_equal(moxie_cuda_plan_capture(plans, args, 1, &graph, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "outside of graphs"));
    test_store_gpu_close(&s);
    o = (moxie_store_options)MOXIE_STORE_OPTIONS_INIT;
    o.ram_bytes = test_store_budget(test_store_gpu_folder, 2, 2);
    s.store = test_store_open(test_store_gpu_folder, &o, NULL);
    assert_int_equal(moxie_store_layer(s.store, 7, NULL, &options, &layer, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "--budget-gpu"));
    moxie_store_close(s.store);
    test_layer_free(&t);
}

static int begin(void **state)
{
    return test_store_gpu_begin(state, PRESET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_counters, begin, test_store_gpu_end),
        cmocka_unit_test_setup_teardown(test_policies, begin, test_store_gpu_end),
        cmocka_unit_test_setup_teardown(test_lookahead, begin, test_store_gpu_end),
        cmocka_unit_test_setup_teardown(test_failures, begin, test_store_gpu_end),
        cmocka_unit_test_setup_teardown(test_checks_that_fail, begin, test_store_gpu_end),
        cmocka_unit_test_setup_teardown(test_rows, begin, test_store_gpu_end),
        cmocka_unit_test_setup_teardown(test_refusals, begin, test_store_gpu_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
