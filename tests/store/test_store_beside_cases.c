/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_beside_cases.c - experts that the CPU computes where they lie, case by case: placements that stay,
 * counters, steps of a plan, calls and allocations that fail, budgets, refusals. Random layers and their rows are in
 * test_store_beside.c.
 */
#include "test_cuda_table.h"
#include "test_trio.h"

#include <moxie/moxie_comm.h>
#include <moxie/moxie_cuda.h>

#include "base/memory.h"
#include "layer/plan/plan_fetch.h"
#include "store/store.h"

#define PRESET "sm_80"

static int begin(void **state)
{
    return test_trio_begin(state, PRESET);
}

static const test_layer_limits usual = { .tokens = 60, TEST_STORE_USUAL };

static void make_usual(test_trio *x)
{
    for (uint64_t seed = 9700; !test_trio_make(x, seed, &usual, test_store_gpu_target(PRESET)); seed++)
        test_trio_free(x);
}

/* With a placement that stays, runs repeat byte for byte; and so does a whole life of a store. */
static void test_frozen(void **state)
{
    (void)state;
    enum { WARM = 2, RUNS = 6 };
    test_trio x;
    void *got[2][RUNS];
    make_usual(&x);
    moxie_store_options o = test_trio_store(&x, 4, 3);
    o.policy = "frozen";
    o.warm_runs = WARM;
    for (int life = 0; life < 2; life++) {
        test_trio_open(&x, &o);
        for (int i = 0; i < RUNS; i++)
            got[life][i] = test_trio_output(&x, 60);
        const moxie_store_counters c = test_store_counters(x.store);
        assert_int_equal(c.runs, RUNS);
        assert_int_equal(c.device_uses, c.device_hits + c.copies + c.host_uses);
        assert_int_equal(c.copies, 4);
        assert_int_equal(c.uses, c.copies + c.host_uses);
        assert_true(c.hits > 0 && c.hits < c.uses && c.host_seconds > 0);
        test_trio_close(&x);
    }
    const size_t bytes = test_layer_output_bytes(&x.t);
    for (int i = 0; i < RUNS; i++) {
        assert_memory_equal(got[0][i], got[1][i], bytes);
        assert_true(i < WARM || memcmp(got[0][i], got[0][WARM], bytes) == 0);
    }
    for (int i = 0; i < 2 * RUNS; i++)
        free(got[i / RUNS][i % RUNS]);
    test_trio_free(&x);
}

/* The last run's counters are its own, whatever the CPU did in it. */
static void test_last_run(void **state)
{
    (void)state;
    test_trio x;
    moxie_store_counters last = MOXIE_STORE_COUNTERS_INIT;
    make_usual(&x);
    const moxie_store_options o = test_trio_store(&x, 4, 3);
    test_trio_open(&x, &o);
    x.plan->fetch->beside->tokens = 7;
    free(test_trio_output(&x, 60));
    for (int i = 0; i < 60 * 4; i++)
        x.ids[i] = -1;
    x.ids[5] = 3;
    free(test_trio_output(&x, 60));
    assert_int_equal(moxie_store_get_counters(x.store, 7, 1, &last, NULL), MOXIE_OK);
    assert_int_equal(last.runs, 1);
    assert_int_equal(last.device_uses, 1);
    assert_int_equal(last.device_hits + last.copies + last.host_uses, 1);
    assert_true(last.reads <= 1);
    test_trio_close(&x);
    test_trio_free(&x);
}

/* The plan names both kernels, and says what the bits depend on. */
static void test_steps(void **state)
{
    (void)state;
    test_trio x;
    int gpu = 0, cpu = 0;
    make_usual(&x);
    const moxie_store_options o = test_trio_store(&x, 4, 3);
    test_trio_open(&x, &o);
    for (int32_t i = 0; i < moxie_plan_step_count(x.plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(x.plan, i);
        if (!step->chosen || strcmp(step->family, "expert_gemm") != 0)
            continue;
        gpu += strcmp(step->role, "w13") == 0 || strcmp(step->role, "w2") == 0;
        if (strcmp(step->role, "host w13") == 0 || strcmp(step->role, "host w2") == 0) {
            cpu++;
            assert_non_null(strstr(step->reason, "bits depend on which"));
        }
    }
    assert_int_equal(gpu, 2);
    assert_int_equal(cpu, 2);
    test_trio_close(&x);
    test_trio_free(&x);
}

/* A run in which any call of the table fails says so, and the next one is right. */
static void test_failures(void **state)
{
    (void)state;
    if (test_cuda_is_lazy())
        skip();
    if (test_store_on_gpu() != NULL)
        skip();
    test_trio x;
    int failed = 0;
    make_usual(&x);
    moxie_store_options o = test_trio_store(&x, 4, 3);
    o.policy = "frozen";
    o.warm_runs = 1;
    test_trio_open(&x, &o);
    free(test_trio_output(&x, 7));
    void *want = test_trio_output(&x, 7);
    for (int n = 1; n < 2000; n++) {
        moxie_error error = { 0 };
        test_cuda_fail_at(n);
        const moxie_status status = moxie_plan_run(x.plan, &x.t.args, &error);
        const bool did = test_cuda_fail_at(0);
        failed += did;
        assert_true(status == MOXIE_OK || error.text[0] != '\0');
        if (!did)
            break;
        void *got = test_trio_output(&x, 7);
        assert_memory_equal(got, want, test_layer_output_bytes(&x.t));
        free(got);
    }
    assert_true(failed > 20);
    free(want);
    test_trio_close(&x);
    test_trio_free(&x);
}

/* ---- refusals -------------------------------------------------------------------------------------------- */

static void refuse_open(const moxie_store_options *o, moxie_status status, const char *words)
{
    const char *const path = test_trio_gpu;
    moxie_store *store = NULL;
    moxie_store_info info = MOXIE_STORE_INFO_INIT;
    moxie_error error = { 0 };
    assert_int_equal(moxie_store_open(&path, 1, o, &store, &error), status);
    assert_null(store);
    if (strstr(error.text, words) == NULL && strstr(error.file, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    assert_int_equal(moxie_store_describe(&path, 1, o, &info, &error), status);
}

static void test_refusals(void **state)
{
    (void)state;
    test_trio x, other;
    const char *const path = test_trio_gpu;
    moxie_store_info info = MOXIE_STORE_INFO_INIT;
    moxie_error error = { 0 };
    make_usual(&x);
    moxie_store_options o = test_trio_store(&x, 4, 3);
    assert_ok(moxie_store_describe(&path, 1, &o, &info, &error), &error);
    assert_int_equal(info.slots, 0);
    assert_int_equal(info.read_buffers, 3);
    assert_int_equal(info.device_slots, 4);
    assert_int_equal(info.host_slots, 3);
    assert_int_equal(info.host_read_buffers, 2);
    o.ram_bytes = 3 * test_trio_record(test_trio_gpu, 4096);
    refuse_open(&o, MOXIE_ERR_MEMORY, "experts that the CPU computes");
    o = test_trio_store(&x, 4, 3);
    o.device_bytes = 0;
    o.device = NULL;
    o.device_buffers = 0;
    refuse_open(&o, MOXIE_ERR_ARGUMENT, "device_bytes is 0");
    o = test_trio_store(&x, 4, 3);
    o.compute_where_it_lies = "/nowhere";
    refuse_open(&o, MOXIE_ERR_IO, "/nowhere");
    o.compute_where_it_lies = test_trio_gpu; /* the CPU does not read these */
    const moxie_options gpu = test_trio_options(MOXIE_BACKEND_CUDA);
    moxie_layer *layer = NULL;
    o.ram_bytes *= 2;
    x.store = test_store_open(test_trio_gpu, &o, NULL);
    const moxie_status status = moxie_store_layer(x.store, 7, NULL, &gpu, &layer, &error);
    assert_true(status == MOXIE_OK || strstr(error.text, "moxie-cpu") != NULL);
    moxie_layer_destroy(layer);
    moxie_store_close(x.store);
    x.store = NULL;
    o = test_trio_store(&x, 4, 3);
    test_layer_limits more = usual;
    more.experts = 10;
    test_store_make(&other.t, 9800, &more);
    test_store_write(test_trio_cpu, 7, &other.t, "moxie-cpu");
    test_layer_free(&other.t);
    o.ram_bytes *= 8;
    refuse_open(&o, MOXIE_ERR_MISMATCH, "a layer of 10 experts");
    test_trio_free(&x);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

/* Whether the n-th allocation of a store, its layer and a plan was reached. */
static bool open_failing(test_trio *x, const moxie_store_options *o, uint64_t n)
{
    const moxie_options gpu = test_trio_options(MOXIE_BACKEND_CUDA);
    const char *const path = test_trio_gpu;
    moxie_error error = { 0 };
    const uint64_t before = mox_alloc_count();
    mox_alloc_fail_at(n);
    moxie_status status = moxie_store_open(&path, 1, o, &x->store, &error);
    if (status == MOXIE_OK)
        status = moxie_store_layer(x->store, 7, NULL, &gpu, &x->layer, &error);
    if (status == MOXIE_OK)
        status = moxie_plan_create(x->layer, &gpu, &x->plan, &error);
    mox_alloc_fail_at(0);
    const bool reached = mox_alloc_count() - before >= n;
    assert_true(status == MOXIE_OK || (reached && status == MOXIE_ERR_MEMORY));
    test_trio_close(x);
    return reached;
}

/* Any allocation may fail, and a run makes none. */
static void test_allocations(void **state)
{
    (void)state;
    if (test_store_on_gpu() != NULL)
        skip();
    test_trio x;
    moxie_error error;
    uint64_t n = 1;
    make_usual(&x);
    const moxie_store_options o = test_trio_store(&x, 4, 3);
    while (open_failing(&x, &o, n))
        n++;
    assert_in_range(n, 40, 800);
    test_trio_open(&x, &o);
    moxie_run_args args = x.t.args;
    args.workspace_bytes = (args.workspace_bytes + 255) / 256 * 256;
    void *workspace = args.workspace = aligned_alloc(256, args.workspace_bytes);
    const uint64_t before = mox_alloc_count();
    assert_ok(moxie_cuda_plan_run(x.plan, &args, NULL, &error), &error);
    assert_int_equal(mox_alloc_count(), before);
    assert_true(test_store_counters(x.store).host_uses > 0);
    test_trio_close(&x); /* which waits for the run */
    free(workspace);
    test_trio_free(&x);
}

/* ---- caps ------------------------------------------------------------------------------------------------- */

static const mox_cuda_table *real;
static mox_cuda_table counting;
static uint64_t on_device, in_pinned;

static moxie_status count_device(uint64_t bytes, void **out, moxie_error *error)
{
    on_device += bytes;
    return real->allocate(bytes, out, error);
}

static moxie_status count_pinned(uint64_t bytes, void **out, moxie_error *error)
{
    in_pinned += bytes;
    return real->allocate_pinned(bytes, out, error);
}

/* What a store takes of either memory is in its budgets; a layer adds routers and tables, a run nothing. */
static void test_caps(void **state)
{
    (void)state;
    if (test_store_on_gpu() != NULL)
        skip();
    test_trio x;
    moxie_store_info info = MOXIE_STORE_INFO_INIT;
    moxie_error error;
    make_usual(&x);
    assert_int_equal(mox_cuda_open(&real, NULL), MOXIE_OK);
    counting = *real;
    counting.allocate = count_device;
    counting.allocate_pinned = count_pinned;
    mox_cuda_replace(&counting);
    const moxie_store_options o = test_trio_store(&x, 4, 3);
    on_device = in_pinned = 0;
    test_trio_open(&x, &o);
    assert_ok(moxie_store_get_info(x.store, &info, &error), &error);
    assert_true(info.buffer_bytes > 0 && in_pinned >= info.buffer_bytes);
    const uint64_t for_host = (uint64_t)(info.host_slots + info.host_read_buffers) * info.host_record_bytes;
    assert_true(info.buffer_bytes + for_host <= o.ram_bytes);
    const uint64_t router = (uint64_t)(x.t.config.experts * x.t.config.hidden) * sizeof(float);
    assert_true(on_device > 4 * info.device_record_bytes);
    assert_in_range(on_device, 0, o.device_bytes + 100000 + router);
    moxie_run_args args = x.t.args;
    args.workspace_bytes = (args.workspace_bytes + 255) / 256 * 256;
    void *workspace = args.workspace = aligned_alloc(256, args.workspace_bytes);
    const uint64_t device = on_device, pinned = in_pinned;
    for (int i = 0; i < 3; i++)
        assert_ok(moxie_cuda_plan_run(x.plan, &args, NULL, &error), &error);
    assert_null(x.plan->replay); /* in each call the host decides */
    assert_int_equal(on_device, device);
    assert_int_equal(in_pinned, pinned);
    test_trio_close(&x); /* which waits for the runs */
    free(workspace);
    test_trio_free(&x);
}

/* ---- refused runs ---------------------------------------------------------------------------------------- */

/* What no run with a store on a GPU can have: graphs, ranks; adapters and checks where the CPU computes experts. Each
 * error says what to do. */
static void test_runs_refused(void **state)
{
    (void)state;
    test_trio x;
    moxie_comm *comm = NULL;
    moxie_plan *plan = NULL;
    moxie_check_report *report = NULL;
    moxie_error error = { 0 };
    void *graph = NULL;
    make_usual(&x);
    for (int where = 0; where < 2; where++) {
        moxie_store_options o = test_trio_store(&x, 4, 3);
        moxie_options options = test_trio_options(MOXIE_BACKEND_CUDA);
        o.compute_where_it_lies = where ? test_trio_cpu : NULL;
        o.ram_bytes *= 2;
        x.store = test_store_open(test_trio_gpu, &o, NULL);
        assert_ok(moxie_store_layer(x.store, 7, NULL, &options, &x.layer, &error), &error);
        assert_ok(moxie_plan_create(x.layer, &options, &x.plan, &error), &error);
        test_layer_workspace(&x.t, x.plan);
        moxie_plan *plans[] = { x.plan };
        const moxie_run_args *args[] = { &x.t.args };
        assert_int_equal(moxie_cuda_plan_capture(plans, args, 1, &graph, &error), MOXIE_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "outside of graphs, or give the GPU all experts"));
        assert_int_equal(moxie_plan_check(x.plan, &x.t.weights, &x.t.args, &report, &error),
                         where ? MOXIE_ERR_UNSUPPORTED : MOXIE_OK);
        assert_true(!where || strstr(error.text, "check a plan of a store without compute_where_it_lies") != NULL);
        moxie_check_report_destroy(report);
        report = NULL;
        options.max_adapter_rank = 8;
        assert_int_equal(moxie_plan_create(x.layer, &options, &plan, &error), where ? MOXIE_ERR_UNSUPPORTED : MOXIE_OK);
        assert_true(!where || strstr(error.text, "or open the store without compute_where_it_lies") != NULL);
        moxie_plan_destroy(plan);
        plan = NULL;
        options.max_adapter_rank = 0;
        assert_ok(moxie_comm_local_create(1, NULL, &comm, &error), &error);
        options.comm = comm;
        assert_int_equal(moxie_plan_create(x.layer, &options, &plan, &error), MOXIE_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "does not exchange rows with other ranks on a GPU yet"));
        assert_null(plan);
        moxie_comm_destroy(comm);
        free(test_trio_output(&x, 7)); /* the plan is still good */
        test_trio_close(&x);
    }
    test_trio_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_frozen, begin, test_trio_end),
        cmocka_unit_test_setup_teardown(test_last_run, begin, test_trio_end),
        cmocka_unit_test_setup_teardown(test_steps, begin, test_trio_end),
        cmocka_unit_test_setup_teardown(test_failures, begin, test_trio_end),
        cmocka_unit_test_setup_teardown(test_allocations, begin, test_trio_end),
        cmocka_unit_test_setup_teardown(test_caps, begin, test_trio_end),
        cmocka_unit_test_setup_teardown(test_refusals, begin, test_trio_end),
        cmocka_unit_test_setup_teardown(test_runs_refused, begin, test_trio_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
