/* SPDX-License-Identifier: Apache-2.0
 *
 * test_invariance.c - a token's output bytes depend only on its own input: not on its neighbours, the batch size, the
 * passes of the batch, the threads, the rank that owns its experts, or the call that ran it.
 */
#include "test_layer.h"

#include "base/memory.h"
#include "base/sizes.h"

static uint64_t step = 1; /* a quick run takes one of so many seeds */

static int64_t row_bytes(const test_layer *layer, int64_t width)
{
    return width * mox_dtype_bytes(layer->config.dtype);
}

/* The arguments of token t alone. */
static moxie_run_args one_token(const test_layer *layer, int64_t t, void *output)
{
    const moxie_layer_config *c = &layer->config;
    moxie_run_args a = layer->args;
    a.tokens = 1;
    a.hidden = (const char *)a.hidden + t * row_bytes(layer, c->hidden);
    if (a.router_hidden != NULL)
        a.router_hidden = (const char *)a.router_hidden + t * row_bytes(layer, c->router_width);
    if (a.logits != NULL)
        a.logits =
            (const char *)a.logits + t * (c->experts + c->routing.zero_experts) * mox_dtype_bytes(a.logits_dtype);
    if (a.token_ids != NULL)
        a.token_ids += t;
    if (a.padding != NULL)
        a.padding += t;
    if (a.bias_choice != NULL)
        a.bias_choice += t;
    if (a.ids != NULL) {
        a.ids += t * c->top_k;
        a.weights += t * c->top_k;
    }
    a.output = output;
    return a;
}

static void run(const test_layer *layer, const moxie_run_args *args)
{
    moxie_error error;
    assert_ok(moxie_plan_run(layer->plan, args, &error), &error);
}

/* Layers of `count` seeds from `first` on, planned; `change` (or NULL) changes them before. Every other layer may have
 * what few layers have. */
static void each_layer(uint64_t first, uint64_t count, const test_layer_limits *limits,
                       void (*change)(test_layer *layer, uint64_t seed), void (*check)(test_layer *layer))
{
    for (uint64_t seed = 0; seed < count; seed += step) {
        test_rng rng = { test_seed(first) + seed };
        test_layer layer;
        test_layer_limits own = *limits;
        own.features = seed % 2 == 1;
        test_layer_make(&layer, &rng, &own);
        if (change != NULL)
            change(&layer, seed);
        test_layer_plan(&layer, NULL);
        check(&layer);
        test_layer_free(&layer);
    }
}

static void compare_alone(test_layer *layer, int64_t t)
{
    const int64_t bytes = row_bytes(layer, layer->config.hidden);
    void *alone = malloc((size_t)bytes);
    const moxie_run_args args = one_token(layer, t, alone);
    run(layer, &args);
    if (memcmp(alone, (const char *)layer->args.output + t * bytes, (size_t)bytes) != 0)
        fail_msg("token %lld alone differs from token %lld of %lld: %s", (long long)t, (long long)t,
                 (long long)layer->args.tokens, layer->text);
    free(alone);
}

static void check_each_token(test_layer *layer)
{
    run(layer, &layer->args);
    for (int64_t t = 0; t < layer->args.tokens; t++)
        compare_alone(layer, t);
}

static void alone_and_in_a_batch(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 19, .plain_routing = true, .plain_acts = true };
    each_layer(7000, 40, &limits, NULL, check_each_token);
}

static void check_ends_of_passes(test_layer *layer)
{
    static const int64_t tokens[] = { 0, 1, 255, 256, 257, 511, 512, 599 };
    run(layer, &layer->args);
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        compare_alone(layer, tokens[i]);
}

/* Long enough for three passes of 256 tokens. */
static void across_passes(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 600, .largest = 24, .plain_routing = true, .plain_acts = true };
    each_layer(7100, 10, &limits, NULL, check_ends_of_passes);
}

static void check_threads(test_layer *layer)
{
    static const int32_t threads[] = { 2, 4 };
    void *serial = test_layer_output(layer, layer->plan);
    for (size_t i = 0; i < 2; i++) {
        moxie_error error;
        moxie_options options = MOXIE_OPTIONS_INIT;
        moxie_executor *pool;
        moxie_plan *plan;
        assert_ok(moxie_executor_create(threads[i], &pool, &error), &error);
        options.executor = pool;
        assert_ok(moxie_plan_create(layer->built, &options, &plan, &error), &error);
        test_layer_workspace(layer, plan);
        void *output = test_layer_output(layer, plan);
        if (memcmp(serial, output, test_layer_output_bytes(layer)) != 0)
            fail_msg("%d threads differ from one: %s", (int)threads[i], layer->text);
        free(output);
        moxie_plan_destroy(plan);
        moxie_executor_destroy(pool);
    }
    free(serial);
}

/* Callbacks, simulated strategies and batch-wide scales included: threads change nothing for them either. */
static void any_number_of_threads(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 33 };
    each_layer(7200, 30, &limits, NULL, check_threads);
}

static void drop_shared(test_layer *layer, uint64_t seed)
{
    (void)seed;
    layer->config.shared = (moxie_shared_config) { 0 };
}

static void check_modular(test_layer *layer)
{
    moxie_error error;
    const int64_t choices = layer->args.tokens * layer->config.top_k;
    const size_t bytes = test_layer_output_bytes(layer);
    void *one_call = test_layer_output(layer, layer->plan);
    float *rows = test_layer_own(layer, (size_t)(choices * layer->config.hidden) * sizeof *rows);
    memset(layer->args.output, 0xee, bytes);
    moxie_run_args args = layer->args;
    if (args.ids == NULL) {
        args.ids_out = test_layer_own(layer, (size_t)choices * sizeof *args.ids_out);
        args.weights_out = test_layer_own(layer, (size_t)choices * sizeof *args.weights_out);
        assert_ok(moxie_plan_route(layer->plan, &args, &error), &error);
        args.ids = args.ids_out;
        args.weights = args.weights_out;
    }
    moxie_run_args needed = args; /* only what the header asks for */
    needed.output = NULL;
    needed.weights = layer->config.routing.on_input ? args.weights : NULL;
    needed.ids_out = NULL;
    needed.weights_out = NULL;
    assert_ok(moxie_plan_experts(layer->plan, &needed, rows, &error), &error);
    assert_ok(moxie_plan_combine(layer->plan, &args, rows, &error), &error);
    if (memcmp(one_call, args.output, bytes) != 0)
        fail_msg("the modular calls differ from the one call: %s", layer->text);
    free(one_call);
}

/* route, experts and combine against the one call. Only the one call runs the shared expert. */
static void modular_and_in_one_call(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 300, .largest = 40, .plain_acts = true };
    each_layer(7300, 30, &limits, drop_shared, check_modular);
}

static float *rows_of_rank(test_layer *layer, int32_t ranks, int32_t rank)
{
    const int64_t count = layer->args.tokens * layer->config.top_k * layer->config.hidden;
    float *rows = malloc(((size_t)count + 1) * sizeof *rows);
    memset(rows, 0x5a, (size_t)count * sizeof *rows);
    moxie_error error;
    layer->config.ep_size = ranks;
    layer->config.ep_rank = rank;
    test_layer_plan(layer, NULL);
    assert_ok(moxie_plan_experts(layer->plan, &layer->args, rows, &error), &error);
    return rows;
}

static bool is_zero(const float *row, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (row[i] != 0)
            return false;
    return true;
}

enum { RANKS = 3 };

/* Which rank owns each expert. */
static void find_owners(const moxie_layer_config *c, int32_t owner[MOXIE_MAX_EXPERTS])
{
    int32_t local[MOXIE_MAX_EXPERTS], count;
    for (int32_t r = 0; r < RANKS; r++) {
        assert_int_equal(
            moxie_expert_map((moxie_expert_map_kind)c->ep_map, (int32_t)c->experts, RANKS, r, local, &count, NULL),
            MOXIE_OK);
        for (int64_t e = 0; e < c->experts; e++)
            owner[e] = local[e] >= 0 ? r : owner[e];
    }
}

static void check_ranks(test_layer *layer)
{
    const moxie_layer_config *c = &layer->config;
    int32_t owner[MOXIE_MAX_EXPERTS];
    if (layer->args.ids == NULL)
        return;
    float *alone = rows_of_rank(layer, 1, 0), *of[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        of[r] = rows_of_rank(layer, RANKS, r);
    find_owners(c, owner);
    for (int64_t i = 0; i < layer->args.tokens * c->top_k; i++) {
        const int32_t id = layer->args.ids[i];
        const bool exists = id >= 0 && id < c->experts;
        const float *got = of[exists ? owner[id] : 0];
        for (int32_t r = 0; r < RANKS; r++)
            if (!exists || owner[id] != r)
                assert_true(is_zero(of[r] + i * c->hidden, c->hidden));
        if (memcmp(got + i * c->hidden, alone + i * c->hidden, (size_t)c->hidden * sizeof *got) != 0)
            fail_msg("choice %lld (expert %d) differs between ranks: %s", (long long)i, (int)id, layer->text);
    }
    for (int32_t r = 0; r < RANKS; r++)
        free(of[r]);
    free(alone);
}

/* The rank that owns an expert computes its pairs, with the same bytes as a single rank. */
static void on_any_rank(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 9, .plain_acts = true };
    each_layer(7400, 30, &limits, NULL, check_ranks);
}

static void take_batch_wide_scales(test_layer *layer, uint64_t seed)
{
    const moxie_quant whole = { MOXIE_F8_E4M3, MOXIE_F32, .group_rows = -1, .group_cols = -1 };
    moxie_layer_config *c = &layer->config;
    const bool shared = c->shared.intermediate > 0;
    moxie_quant *const first = shared ? &c->shared.a13 : &c->a13, *const second = shared ? &c->shared.a2 : &c->a2;
    *(seed % 2 == 0 ? first : second) = whole;
}

/* A copy of the rows in reverse order, freed with the fixture. */
static void *reversed_rows(test_layer *layer, const void *rows, int64_t bytes)
{
    char *reversed = test_layer_own(layer, (size_t)(layer->args.tokens * bytes));
    for (int64_t t = 0; t < layer->args.tokens; t++)
        memcpy(reversed + t * bytes, (const char *)rows + (layer->args.tokens - 1 - t) * bytes, (size_t)bytes);
    return reversed;
}

static void check_reversed(test_layer *layer)
{
    const int64_t bytes = row_bytes(layer, layer->config.hidden), k = layer->config.top_k;
    moxie_run_args forward = layer->args;
    forward.ids_out = test_layer_own(layer, (size_t)(forward.tokens * k) * sizeof *forward.ids_out);
    forward.weights_out = test_layer_own(layer, (size_t)(forward.tokens * k) * sizeof *forward.weights_out);
    run(layer, &forward);
    moxie_run_args reversed = layer->args;
    reversed.hidden = reversed_rows(layer, forward.hidden, bytes);
    reversed.ids = reversed_rows(layer, forward.ids_out, k * (int64_t)sizeof *reversed.ids);
    reversed.weights = reversed_rows(layer, forward.weights_out, k * (int64_t)sizeof *reversed.weights);
    reversed.padding = reversed.bias_choice = NULL; /* ids say it */
    reversed.output = test_layer_own(layer, test_layer_output_bytes(layer));
    run(layer, &reversed);
    const char *want = reversed_rows(layer, forward.output, bytes);
    for (int64_t t = 0; t < reversed.tokens; t++)
        if (memcmp((const char *)reversed.output + t * bytes, want + t * bytes, (size_t)bytes) != 0)
            fail_msg("token %lld depends on its place in the batch: %s", (long long)t, layer->text);
}

/* One activation scale is for the whole batch, even when it is longer than a pass: the reversed batch gives the same
 * rows in reverse. */
static void batch_wide_scales_span_passes(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 600, .largest = 16, .plain_routing = true, .plain_acts = true };
    each_layer(7450, 8, &limits, take_batch_wide_scales, check_reversed);
}

static void check_two_workspaces(test_layer *layer)
{
    memset(layer->args.workspace, 0x00, layer->args.workspace_bytes);
    const uint64_t before = mox_alloc_count();
    void *first = test_layer_output(layer, layer->plan);
    memset(layer->args.workspace, 0xff, layer->args.workspace_bytes);
    void *second = test_layer_output(layer, layer->plan);
    assert_int_equal(mox_alloc_count(), before);
    if (memcmp(first, second, test_layer_output_bytes(layer)) != 0)
        fail_msg("the old content of the workspace changed the output: %s", layer->text);
    free(first);
    free(second);
}

/* Two workspaces of different content, two runs: the same bytes, and no allocation. */
static void runs_allocate_nothing(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = -1 };
    each_layer(7500, 40, &limits, NULL, check_two_workspaces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_and_in_a_batch),  cmocka_unit_test(across_passes),
        cmocka_unit_test(any_number_of_threads), cmocka_unit_test(modular_and_in_one_call),
        cmocka_unit_test(on_any_rank),           cmocka_unit_test(batch_wide_scales_span_passes),
        cmocka_unit_test(runs_allocate_nothing),
    };
    step = (uint64_t)test_one_in(5, "layers");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
