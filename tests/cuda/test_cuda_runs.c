/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_runs.c - whole runs on a GPU. Skipped without one.
 *
 *     batches   the bytes of a token's output do not depend on the batch, the run or the other tokens
 *     graphs    a graph is captured once and replayed with other contents
 *     streams   two streams at once
 *     host      the time that a call takes the host (printed)
 *     edges     extreme sizes and routings; weights of more than 2^31 elements
 */
#include <time.h>

#include "device_support.h"
#include "layer/plan/plan_replay.h"
#include "layer/weights/layer.h"
#include "layer/weights/layer_prepare.h"

static const mox_cuda_table *table;

/* The output of the first `tokens` tokens, from a run on host pointers. */
static void run_tokens(device_case *c, int64_t tokens, void *to)
{
    moxie_error error = { 0 };
    moxie_run_args args = c->layer.args;
    args.tokens = tokens;
    memset(args.output, 0x5a, test_layer_output_bytes(&c->layer));
    assert_ok(moxie_plan_run(c->layer.plan, &args, &error), &error);
    memcpy(to, args.output, test_layer_output_bytes(&c->layer));
}

static size_t row_bytes(const device_case *c)
{
    return (size_t)(c->layer.config.hidden * mox_dtype_bytes(c->layer.config.dtype));
}

/* ---- batches ------------------------------------------------------------------------------------------- */

static void prefixes_agree(device_case *c, const int64_t *tokens, int count)
{
    const size_t bytes = test_layer_output_bytes(&c->layer);
    char *all = malloc(bytes + 1), *some = malloc(bytes + 1);
    run_tokens(c, c->layer.args.tokens, all);
    run_tokens(c, c->layer.args.tokens, some);
    if (memcmp(all, some, bytes) != 0)
        fail_msg("%s: two runs differ", c->layer.text);
    for (int i = 0; i < count; i++) {
        run_tokens(c, tokens[i], some);
        if (memcmp(all, some, (size_t)tokens[i] * row_bytes(c)) != 0)
            fail_msg("%s: the first %lld tokens alone give other bytes", c->layer.text, (long long)tokens[i]);
    }
    free(all);
    free(some);
}

static void batches_do_not_matter(void **state)
{
    (void)state;
    int64_t every[65];
    const int64_t some[] = { 1, 63, 64, 65, 127, 129, 1000, 2047, 4095 };
    const test_layer_limits small = { .tokens = 65, .largest = 200, .plain_acts = true };
    const test_layer_limits large = { .tokens = 4096, .largest = 130, .plain_acts = true };
    const test_layer_limits fast = { .tokens = 65, .largest = 900, .plain_acts = true, .mma = true };
    const test_layer_limits fast_large = { .tokens = 4096, .largest = 400, .plain_acts = true, .mma = true };
    const test_layer_limits decoded = { .tokens = 65, .largest = 900, .plain_acts = true, .decoded = true };
    const test_layer_limits decoded_large = { .tokens = 4096, .largest = 400, .plain_acts = true, .decoded = true };
    const test_layer_limits acts = { .tokens = 65, .largest = 900, .plain_acts = true, .decoded_acts = true };
    const test_layer_limits acts_large = { .tokens = 4096, .largest = 400, .plain_acts = true, .decoded_acts = true };
    const test_layer_limits fp8 = { .tokens = 65, .largest = 900, .plain_acts = true, .to_fp8 = true };
    const test_layer_limits fp8_large = { .tokens = 4096, .largest = 400, .plain_acts = true, .to_fp8 = true };
    const test_layer_limits blocks = { .tokens = 65, .largest = 900, .plain_acts = true, .blocks = true };
    const test_layer_limits blocks_large = { .tokens = 4096, .largest = 400, .plain_acts = true, .blocks = true };
    const test_layer_limits *const kinds[] = { &small, &fast, &decoded, &acts, &fp8, &blocks };
    const test_layer_limits *const large_kinds[] = { &large,      &fast_large, &decoded_large,
                                                     &acts_large, &fp8_large,  &blocks_large };
    device_case c;
    for (int i = 0; i < 65; i++)
        every[i] = i + 1;
    for (uint64_t seed = 0; seed < 36; seed++) {
        device_case_make(&c, table, 300 + seed, kinds[seed % 6]);
        prefixes_agree(&c, every, 65);
        device_case_close(&c);
    }
    for (uint64_t seed = 0; seed < 18; seed++) {
        device_case_make(&c, table, 400 + seed, large_kinds[seed % 6]);
        prefixes_agree(&c, some, sizeof some / sizeof some[0]);
        device_case_close(&c);
    }
}

/* ---- graphs and streams ---------------------------------------------------------------------------------- */

static void graph_replays(void **state)
{
    (void)state;
    test_layer_limits limits = { .tokens = 40, .largest = 150, .plain_acts = true };
    for (uint64_t seed = 0; seed < 18; seed++) {
        limits.mma = seed % 6 == 1;
        limits.decoded = seed % 6 == 2;
        limits.decoded_acts = seed % 6 == 3;
        limits.to_fp8 = seed % 6 == 4;
        limits.blocks = seed % 6 == 5;
        device_case c;
        device_args d;
        moxie_error error = { 0 };
        void *stream, *graph;
        device_case_make(&c, table, 500 + seed, &limits);
        device_args_make(&c, &d);
        const size_t bytes = (size_t)d.output_bytes;
        char *got = malloc(bytes + 1), *want = malloc(bytes + 1);
        assert_ok(table->stream_create(&stream, &error), &error);
        assert_ok(table->capture_begin(stream, &error), &error);
        assert_ok(moxie_cuda_plan_run(c.layer.plan, &d.args, stream, &error), &error);
        assert_ok(table->capture_end(stream, &graph, &error), &error);
        for (int round = 0; round < 3; round++) {
            /* Hidden states in reverse order: another input, and another routing where the layer routes. */
            const size_t row = row_bytes(&c);
            char *hidden = (char *)(uintptr_t)c.layer.args.hidden, *spare = malloc(row);
            for (int64_t t = 0; t < c.layer.args.tokens / 2; t++) {
                char *a = hidden + (size_t)t * row, *b = hidden + (size_t)(c.layer.args.tokens - 1 - t) * row;
                memcpy(spare, a, row);
                memcpy(a, b, row);
                memcpy(b, spare, row);
            }
            free(spare);
            run_tokens(&c, c.layer.args.tokens, want);
            assert_ok(table->copy((void *)(uintptr_t)d.args.hidden, hidden, bytes, stream, &error), &error);
            assert_ok(table->stream_wait(stream, &error), &error);
            for (int equal = 0; equal < 2; equal++) { /* calls that equal the one before: the plan's own graph */
                void *on = equal && seed % 2 ? NULL : stream;
                assert_ok(table->fill(d.args.output, 0x5a, bytes, on, &error), &error);
                assert_ok(equal ? moxie_cuda_plan_run(c.layer.plan, &d.args, on, &error)
                                : table->graph_launch(graph, on, &error),
                          &error);
                device_output(table, &d, on, got);
                if (memcmp(got, want, bytes) != 0)
                    fail_msg("%s: %s %d gives other bytes", c.layer.text, equal ? "call" : "replay", round);
            }
        }
        assert_non_null(c.layer.plan->replay->graph);
        free(got);
        free(want);
        table->graph_destroy(graph);
        table->stream_destroy(stream);
        device_args_free(table, &d);
        device_case_close(&c);
    }
}

/* Two layers in one graph, the second reading what the first writes. */
static void graph_of_a_chain(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 9, .largest = 150, .plain_acts = true, .decoded = true };
    device_case c;
    device_args d;
    moxie_error error = { 0 };
    void *graph = NULL;
    device_case_make(&c, table, 700, &limits);
    device_args_make(&c, &d);
    const size_t bytes = (size_t)d.output_bytes;
    char *want = malloc(bytes + 1), *got = malloc(bytes + 1), *kept = (char *)(uintptr_t)c.layer.args.hidden;
    moxie_run_args second = d.args;
    second.hidden = d.args.output;
    void *after = device_copy_of(table, &d, c.layer.args.output, bytes);
    second.output = after;
    moxie_plan *const plans[] = { c.layer.plan, c.layer.plan };
    const moxie_run_args *const args[] = { &d.args, &second };
    assert_ok(moxie_cuda_plan_capture(plans, args, 2, &graph, &error), &error);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < row_bytes(&c); i++) { /* another token comes first */
            const char first = kept[i];
            kept[i] = kept[row_bytes(&c) + i];
            kept[row_bytes(&c) + i] = first;
        }
        run_tokens(&c, 9, want);
        memcpy(got, kept, bytes);
        memcpy(kept, want, bytes);
        run_tokens(&c, 9, want);
        memcpy(kept, got, bytes);
        assert_ok(table->copy((void *)(uintptr_t)d.args.hidden, kept, bytes, NULL, &error), &error);
        assert_ok(moxie_cuda_graph_launch(graph, NULL, &error), &error);
        assert_ok(table->copy(got, after, bytes, NULL, &error), &error);
        assert_ok(table->stream_wait(NULL, &error), &error);
        assert_memory_equal(got, want, bytes);
    }
    moxie_cuda_graph_destroy(graph);
    free(want);
    free(got);
    device_args_free(table, &d);
    device_case_close(&c);
}

/* ---- the host's time ------------------------------------------------------------------------------------- */

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median time of a call, which only enqueues. The GPU is idle before each, so no call waits for room. */
static double host_time(moxie_plan *plan, const device_args *d, void *graph)
{
    enum { CALLS = 301 };
    static double times[CALLS];
    moxie_error error = { 0 };
    for (int i = 0; i < CALLS; i++) {
        assert_ok(table->stream_wait(NULL, &error), &error);
        const double start = seconds_now();
        assert_ok(graph != NULL ? moxie_cuda_graph_launch(graph, NULL, &error)
                                : moxie_cuda_plan_run(plan, &d->args, NULL, &error),
                  &error);
        times[i] = seconds_now() - start;
    }
    assert_ok(table->stream_wait(NULL, &error), &error);
    qsort(times, CALLS, sizeof *times, by_size);
    return times[CALLS / 2];
}

static moxie_plan *plan_without_graphs(const device_case *c)
{
    moxie_error error = { 0 };
    moxie_plan *plan = NULL;
    moxie_options options = device_options(c->layer.args.tokens);
    options.mode = (int32_t)c->layer.plan->mode;
    options.call_graphs = 2;
    assert_ok(moxie_plan_create(c->layer.built, &options, &plan, &error), &error);
    return plan;
}

static void host_times(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        test_layer_limits limits;
    } layers[] = {
        { "16-bit, 1 token", { .tokens = 1, .experts = 16, .largest = 900, .no_parallel = true, .mma = true } },
        { "4-bit, 1 token", { .tokens = 1, .experts = 16, .largest = 900, .no_parallel = true, .decoded = true } },
        { "4-bit, 512 tokens", { .tokens = 512, .experts = 16, .largest = 900, .no_parallel = true, .decoded = true } },
        { "fp8, 64 tokens", { .tokens = 64, .experts = 16, .largest = 900, .no_parallel = true, .blocks = true } },
    };
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        device_case c;
        device_args d;
        moxie_error error = { 0 };
        void *graph = NULL;
        device_case_make(&c, table, 40 + i, &layers[i].limits);
        device_args_make(&c, &d);
        moxie_plan *const plans[] = { c.layer.plan };
        const moxie_run_args *const args[] = { &d.args };
        assert_ok(moxie_cuda_plan_capture(plans, args, 1, &graph, &error), &error);
        moxie_plan *plain = plan_without_graphs(&c);
        print_message("host time, %s: %.1f us a call that equals the one before, %.1f us kernel by kernel, %.1f us a "
                      "launch of its graph (%s)\n",
                      layers[i].name, 1e6 * host_time(c.layer.plan, &d, NULL), 1e6 * host_time(plain, &d, NULL),
                      1e6 * host_time(NULL, &d, graph), c.layer.text);
        moxie_plan_destroy(plain);
        moxie_cuda_graph_destroy(graph);
        device_args_free(table, &d);
        device_case_close(&c);
    }
}

/* ---- streams --------------------------------------------------------------------------------------------- */

static void check_two_streams(bool mma)
{
    const test_layer_limits limits = { .tokens = 64, .largest = 300, .plain_acts = true, .mma = mma };
    device_case c;
    device_args d[2];
    void *stream[2];
    moxie_error error = { 0 };
    moxie_plan *second;
    device_case_make(&c, table, 600, &limits);
    moxie_options options = device_options(64);
    options.mode = MOXIE_MODE_FAST;
    assert_ok(moxie_plan_create(c.layer.built, &options, &second, &error), &error);
    moxie_plan *const plans[2] = { c.layer.plan, second };
    const size_t bytes = test_layer_output_bytes(&c.layer);
    char *want = malloc(bytes + 1), *got = malloc(bytes + 1);
    run_tokens(&c, 64, want);
    for (int i = 0; i < 2; i++) {
        device_args_make(&c, &d[i]);
        assert_ok(table->stream_create(&stream[i], &error), &error);
    }
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < 2; i++)
            assert_ok(moxie_cuda_plan_run(plans[i], &d[i].args, stream[i], &error), &error);
    for (int i = 0; i < 2; i++) {
        device_output(table, &d[i], stream[i], got);
        assert_memory_equal(got, want, bytes);
        table->stream_destroy(stream[i]);
        device_args_free(table, &d[i]);
    }
    free(want);
    free(got);
    moxie_plan_destroy(second);
    device_case_close(&c);
}

static void two_streams(void **state)
{
    (void)state;
    check_two_streams(false);
    check_two_streams(true);
}

/* ---- edges ---------------------------------------------------------------------------------------------- */

static void check_case(device_case *c)
{
    moxie_error error = { 0 };
    test_report report = { 0 };
    assert_ok(test_plan_check(c->layer.plan, &c->layer.weights, &c->layer.args, &report, &error), &error);
    if (!(report.worst_ratio <= 1))
        fail_msg("%s: the worst error is %g of its bound", c->layer.text, report.worst_ratio);
}

static void edges_of_routing(void **state)
{
    (void)state;
    test_layer_limits limits = { .tokens = 50, .largest = 80, .plain_acts = true, .no_parallel = true };
    for (int round = 0; round < 8; round++) {
        const int kind = round / 2;
        limits.mma = round % 2 == 1;
        device_case c;
        device_case_make(&c, table, 700 + (uint64_t)kind, &limits);
        const int64_t choices = 50 * c.layer.config.top_k;
        int32_t *ids = test_layer_own(&c.layer, (size_t)choices * sizeof *ids);
        float *weights = test_layer_own(&c.layer, (size_t)choices * sizeof *weights);
        for (int64_t i = 0; i < choices; i++) {
            const int32_t last = (int32_t)c.layer.config.experts - 1;
            ids[i] = kind == 0 ? last : kind == 1 ? -1 : kind == 2 ? (i % 3 == 0 ? last : INT32_MAX) : (int32_t)-i;
            weights[i] = 0.5f;
        }
        c.layer.args.ids = ids;
        c.layer.args.weights = weights;
        check_case(&c);
        c.layer.args.tokens = 0;
        assert_int_equal(moxie_plan_run(c.layer.plan, &c.layer.args, NULL), MOXIE_OK);
        c.layer.args.tokens = 50;
        device_case_close(&c);
    }
}

static void most_experts(void **state)
{
    (void)state;
    test_layer_limits limits = { .tokens = 33, .experts = 1024, .top_k = 32, .largest = 40, .plain_acts = true };
    for (uint64_t seed = 0; seed < 4; seed++) {
        limits.mma = seed % 2 == 1;
        device_case c;
        device_case_make(&c, table, 800 + seed, &limits);
        check_case(&c);
        device_case_close(&c);
    }
}

/* 210 experts of 3 x 2048 x 2048 MXFP4 codes: 2.6 * 10^9 elements. All experts are equal, so every routing gives the
 * same bytes. */
static void many_elements(void **state)
{
    (void)state;
    enum { EXPERTS = 210, SIZE = 2048, TOKENS = EXPERTS };
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_weights weights = MOXIE_WEIGHTS_INIT;
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    moxie_error error = { 0 };
    const moxie_quant mxfp4 = { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32 };
    config.dtype = MOXIE_BF16;
    config.experts = EXPERTS;
    config.top_k = 1;
    config.hidden = config.intermediate = SIZE;
    config.w13 = config.w2 = mxfp4;
    static uint8_t codes[SIZE * SIZE / 2], scales[SIZE * SIZE / 32];
    static uint16_t hidden[TOKENS * SIZE], output[TOKENS * SIZE];
    static int32_t ids[TOKENS];
    static float ones[TOKENS];
    static moxie_expert experts[EXPERTS];
    test_rng rng = { 4242 };
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)test_below(&rng, 256);
    memset(scales, 122, sizeof scales);
    const moxie_matrix matrix = { .codes = mox_grid_dense(codes, MOXIE_F4_E2M1, SIZE, SIZE),
                                  .scale = mox_grid_dense(scales, MOXIE_F8_E8M0, SIZE, SIZE / 32) };
    for (int e = 0; e < EXPERTS; e++)
        experts[e] = (moxie_expert) { .gate = matrix, .up = matrix, .down = matrix };
    weights.n_experts = EXPERTS;
    weights.experts = experts;
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = t;
        ones[t] = 1;
        for (int k = 0; k < SIZE; k++)
            hidden[t * SIZE + k] = t > 0 ? hidden[k] : (uint16_t)moxie_encode(MOXIE_BF16, test_normal(&rng));
    }
    moxie_layer *layer;
    moxie_plan *plan;
    const moxie_options options = device_options(TOKENS);
    assert_ok(moxie_layer_create(&config, &options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, &weights, &options, &error), &error);
    assert_ok(moxie_plan_create(layer, &options, &plan, &error), &error);
    args.tokens = TOKENS;
    args.hidden = hidden;
    args.ids = ids;
    args.weights = ones;
    args.output = output;
    args.workspace_bytes = moxie_plan_workspace_bytes(plan);
    args.workspace = aligned_alloc(256, (size_t)(args.workspace_bytes + 256) / 256 * 256);
    assert_ok(moxie_plan_run(plan, &args, &error), &error);
    for (int t = 1; t < TOKENS; t++)
        assert_memory_equal(output, output + t * SIZE, SIZE * sizeof *output);
    assert_true(output[0] != output[1] || output[1] != output[2]);
    free(args.workspace);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_do_not_matter), cmocka_unit_test(graph_replays),
        cmocka_unit_test(graph_of_a_chain),      cmocka_unit_test(host_times),
        cmocka_unit_test(two_streams),           cmocka_unit_test(edges_of_routing),
        cmocka_unit_test(most_experts),          cmocka_unit_test(many_elements),
    };
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that the output of a program that hangs shows where */
    table = device_or_skip();
    return table != NULL ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
