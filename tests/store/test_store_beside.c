/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_beside.c - experts without a slot on a GPU that the CPU computes where they lie (compute_where_it_lies),
 * without a GPU (test_cuda_table.h). Each choice's row must have the bytes of the layer that is all on the GPU, or of
 * the layer that is all on the CPU, by where its expert lies; both layers are checked against the oracle. Outputs are
 * the sums of such rows. Single cases are in test_store_beside_cases.c. test_store_beside_emulated is the same with
 * emulated kernels of sm_90.
 * MOXIE_TEST_GPU=sm90 or sm80: on the GPU that is there, with the kernels of such cards.
 */
#include "test_cuda_table.h"
#include "test_trio.h"

#include "layer/plan/plan_fetch.h"

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
    return test_trio_begin(state, PRESET);
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
    void *got = test_trio_output(x, tokens);
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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(test_random_layers, begin, test_trio_end) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
