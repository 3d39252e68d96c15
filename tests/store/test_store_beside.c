/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_beside.c - experts without a slot on a GPU that the CPU computes where they lie (compute_where_it_lies),
 * without a GPU (test_cuda_table.h). Each choice's row must have the bytes of the layer that is all on the GPU, or of
 * the layer that is all on the CPU, by where its expert lies; both layers are checked against the oracle. Outputs are
 * the sums of such rows. test_store_beside_emulated is the same with emulated kernels of sm_90.
 * MOXIE_TEST_GPU=sm90 or sm80: on the GPU that is there, with the kernels of such cards.
 */
#include "test_cuda_table.h"
#include "test_trio.h"

#include <moxie/moxie_comm.h>
#include <moxie/moxie_cuda.h>

#include "base/memory.h"
#include "layer/plan/plan_fetch.h"
#include "store/store.h"

#ifdef MOX_TEST_EMULATED
enum { CONFIGS = 2, SANITIZED = 2 };
#define PRESET "sm_90"
static const int64_t token_counts[] = { 20, 0, 1 };
#else
enum { CONFIGS = 10, SANITIZED = 5 };
#define PRESET "sm_80"
static const int64_t token_counts[] = { 120, 0, 1, 7 };
#endif
enum { COUNTS = sizeof token_counts / sizeof token_counts[0] };

static int begin(void **state)
{
    test_trio_begin();
    if (test_store_on_gpu() != NULL)
        return 0;
    test_cuda_begin(state);
    test_cuda_set_device(PRESET);
    return 0;
}

static int end(void **state)
{
    test_trio_end();
    return test_store_on_gpu() != NULL ? 0 : test_cuda_end(state);
}

/* Rows [tokens, K, H] of one of the three plans; the caller frees them. */
static float *rows_of(test_trio *x, moxie_plan *plan, int64_t tokens)
{
    const size_t n = (size_t)(tokens * x->t.config.top_k * x->t.config.hidden);
    moxie_run_args args = x->t.args;
    moxie_error error;
    float *rows = malloc((n + 1) * sizeof *rows);
    memset(rows, 0xee, n * sizeof *rows);
    args.tokens = tokens;
    args.workspace = plan == x->cpu ? x->cpu_space : plan == x->plan ? args.workspace : x->gpu_space;
    args.workspace_bytes = plan == x->cpu ? x->cpu_bytes : plan == x->plan ? args.workspace_bytes : x->gpu_bytes;
    assert_ok(moxie_plan_experts(plan, &args, rows, &error), &error);
    return rows;
}

static void *output_of(test_trio *x, int64_t tokens)
{
    x->t.args.tokens = tokens;
    return test_layer_output(&x->t, x->plan);
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

typedef enum processor { CPU, GPU, EITHER } processor;

static processor processor_of(int32_t expert, const bool *on_gpu)
{
    return on_gpu == NULL ? EITHER : on_gpu[expert] ? GPU : CPU;
}

/* Each row is its processor's; choices of none are 0. */
static void compare_rows(test_trio *x, int64_t tokens, const bool *on_gpu)
{
    const int64_t hidden = x->t.config.hidden;
    const size_t bytes = (size_t)hidden * sizeof(float);
    float *got = rows_of(x, x->plan, tokens), *gpu = rows_of(x, x->t.plan, tokens), *cpu = rows_of(x, x->cpu, tokens);
    for (int64_t i = 0; i < tokens * x->t.config.top_k; i++) {
        const processor want = x->ids[i] < 0 ? EITHER : processor_of(x->ids[i], on_gpu);
        const bool is_gpu = memcmp(got + i * hidden, gpu + i * hidden, bytes) == 0,
                   is_cpu = memcmp(got + i * hidden, cpu + i * hidden, bytes) == 0;
        if (!(want == GPU ? is_gpu : want == CPU ? is_cpu : is_gpu || is_cpu))
            fail_msg("choice %lld of %lld tokens, expert %d, is not the row of processor %d (it is the GPU's: %d, the "
                     "CPU's: %d): %s",
                     (long long)i, (long long)tokens, (int)x->ids[i], (int)want, is_gpu, is_cpu, x->t.text);
    }
    free(got);
    free(gpu);
    free(cpu);
}

/* The output of a layer without a shared expert is the sum of the rows. */
static void compare_output(test_trio *x, int64_t tokens)
{
    const moxie_layer_config *c = &x->t.config;
    const size_t bytes = (size_t)(tokens * c->hidden * mox_dtype_bytes(c->dtype));
    moxie_error error;
    if (c->shared.intermediate > 0 || tokens == 0)
        return;
    void *got = output_of(x, tokens);
    float *rows = rows_of(x, x->plan, tokens);
    moxie_run_args args = x->t.args;
    args.workspace = x->gpu_space;
    args.workspace_bytes = x->gpu_bytes;
    memset(args.output, 0xdd, bytes);
    assert_ok(moxie_plan_combine(x->t.plan, &args, rows, &error), &error);
    assert_memory_equal(got, args.output, bytes);
    free(got);
    free(rows);
}

static void check_against_oracle(test_trio *x)
{
    moxie_run_args args = x->t.args;
    moxie_error error;
    test_report report;
    args.tokens = 7;
    args.workspace = x->cpu_space;
    args.workspace_bytes = x->cpu_bytes;
    assert_ok(test_plan_check(x->cpu, &x->t.weights, &args, &report, &error), &error);
    if (!(report.worst_ratio <= 1))
        test_report_print_beyond(&report);
    assert_true(report.worst_ratio <= 1);
}

/* All slots are those of the first experts, for good; then whatever the policy says, in chunks of a few tokens. */
static void one_layer(uint64_t seed, const test_layer_limits *limits, int *compared)
{
    test_trio x;
    bool on_gpu[MOXIE_MAX_EXPERTS] = { false };
    int64_t pinned[2 * MOXIE_MAX_EXPERTS];
    const bool fits = test_trio_make(&x, seed, limits, test_store_gpu_target(PRESET));
    const int64_t slots = fits ? x.t.built->slots / 2 : 0;
    if (slots == 0) {
        test_trio_free(&x);
        return;
    }
    int64_t n = 0;
    for (int32_t e = 0; e < x.t.config.experts && n < slots; e++)
        if (x.t.built->slot_of[e] >= 0) {
            pinned[2 * n] = 7;
            pinned[2 * n++ + 1] = e;
            on_gpu[e] = true;
        }
    check_against_oracle(&x);
    for (int policy = 0; policy < 2; policy++) {
        moxie_store_options o = test_trio_store(&x, slots, policy == 0 ? x.t.config.experts : 1);
        o.pinned = policy == 0 ? pinned : NULL;
        o.n_pinned = policy == 0 ? n : 0;
        test_trio_open(&x, &o);
        if (policy == 1)
            x.plan->fetch->beside->tokens = 3;
        for (int i = 0; i < COUNTS; i++) {
            compare_rows(&x, token_counts[i], policy == 0 ? on_gpu : NULL);
            if (policy == 0)
                compare_output(&x, token_counts[i]);
        }
        const moxie_store_counters c = test_store_counters(x.store);
        assert_true(c.host_uses > 0 && c.failed_reads == 0);
        assert_true(policy == 1 || c.copies <= slots * COUNTS * 2);
        test_trio_close(&x);
    }
    ++*compared;
    test_trio_free(&x);
}

static void test_random_layers(void **state)
{
    (void)state;
    const int64_t count = test_env("MOXIE_TEST_CONFIGS", test_sanitized() || test_quick() ? SANITIZED : CONFIGS);
    int compared = 0;
    for (uint64_t seed = 0; seed < (uint64_t)count; seed++)
        one_layer(test_seed(9100 + seed),
                  &(test_layer_limits) {
                      .tokens = token_counts[0], .features = seed % 2 == 1, .rounds = true, .largest = 60 },
                  &compared);
    assert_true(compared > 0);
}

/* ---- single cases ---------------------------------------------------------------------------------------- */

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
            got[life][i] = output_of(&x, 60);
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
    free(output_of(&x, 60));
    for (int i = 0; i < 60 * 4; i++)
        x.ids[i] = -1;
    x.ids[5] = 3;
    free(output_of(&x, 60));
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
    free(output_of(&x, 7));
    void *want = output_of(&x, 7);
    for (int n = 1; n < 2000; n++) {
        moxie_error error = { 0 };
        test_cuda_fail_at(n);
        const moxie_status status = moxie_plan_run(x.plan, &x.t.args, &error);
        const bool did = test_cuda_fail_at(0);
        failed += did;
        assert_true(status == MOXIE_OK || error.text[0] != '\0');
        if (!did)
            break;
        void *got = output_of(&x, 7);
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
        free(output_of(&x, 7)); /* the plan is still good */
        test_trio_close(&x);
    }
    test_trio_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_layers, begin, end),
        cmocka_unit_test_setup_teardown(test_frozen, begin, end),
        cmocka_unit_test_setup_teardown(test_last_run, begin, end),
        cmocka_unit_test_setup_teardown(test_steps, begin, end),
        cmocka_unit_test_setup_teardown(test_failures, begin, end),
        cmocka_unit_test_setup_teardown(test_allocations, begin, end),
        cmocka_unit_test_setup_teardown(test_caps, begin, end),
        cmocka_unit_test_setup_teardown(test_refusals, begin, end),
        cmocka_unit_test_setup_teardown(test_runs_refused, begin, end),
    };
#ifdef MOX_TEST_EMULATED
    cmocka_set_test_filter("test_random_layers"); /* the others do not depend on kernels */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
