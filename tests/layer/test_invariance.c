/* SPDX-License-Identifier: Apache-2.0
 *
 * test_invariance.c - a token's output bytes depend on its own input alone: not on its neighbours, the batch size,
 * the passes a batch is cut into, the threads, the rank that owns its experts, or the call that was used.
 */
#include "test_layer.h"

#include "base/memory.h"
#include "base/sizes.h"

static uint64_t step = 1; /* one in so many of the seeds */

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
        a.logits = (const char *)a.logits + t * c->experts * mox_dtype_bytes(a.logits_dtype);
    if (a.token_ids != NULL)
        a.token_ids += t;
    if (a.ids != NULL) {
        a.ids += t * c->top_k;
        a.weights += t * c->top_k;
    }
    a.output = output;
    return a;
}

static void run(moxie_plan *plan, const moxie_run_args *args)
{
    moxie_error error;
    assert_ok(moxie_plan_run(plan, args, &error), &error);
}

static void compare_alone(test_layer *layer, moxie_plan *plan, int64_t t)
{
    const int64_t bytes = row_bytes(layer, layer->config.hidden);
    void *alone = malloc((size_t)bytes);
    const moxie_run_args args = one_token(layer, t, alone);
    run(plan, &args);
    if (memcmp(alone, (const char *)layer->args.output + t * bytes, (size_t)bytes) != 0)
        fail_msg("token %lld alone differs from token %lld of %lld: %s", (long long)t, (long long)t,
                 (long long)layer->args.tokens, layer->text);
    free(alone);
}

static void alone_and_in_a_batch(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 19, .plain_routing = true, .plain_acts = true };
    for (uint64_t seed = 0; seed < 40; seed += step) {
        test_rng rng = { test_seed(7000) + seed };
        test_layer layer;
        moxie_layer *built;
        moxie_plan *plan;
        test_layer_make(&layer, &rng, &limits);
        test_layer_build(&layer, NULL, &built, &plan);
        test_layer_workspace(&layer, plan);
        run(plan, &layer.args);
        for (int64_t t = 0; t < layer.args.tokens; t++)
            compare_alone(&layer, plan, t);
        test_layer_close(&layer, built, plan);
    }
}

/* Long enough for three passes of 256 tokens. */
static void across_passes(void **state)
{
    (void)state;
    static const int64_t tokens[] = { 0, 1, 255, 256, 257, 511, 512, 599 };
    const test_layer_limits limits = { .tokens = 600, .largest = 24, .plain_routing = true, .plain_acts = true };
    for (uint64_t seed = 0; seed < 10; seed += step) {
        test_rng rng = { test_seed(7100) + seed };
        test_layer layer;
        moxie_layer *built;
        moxie_plan *plan;
        test_layer_make(&layer, &rng, &limits);
        test_layer_build(&layer, NULL, &built, &plan);
        test_layer_workspace(&layer, plan);
        run(plan, &layer.args);
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
            compare_alone(&layer, plan, tokens[i]);
        test_layer_close(&layer, built, plan);
    }
}

/* Callbacks, simulated strategies and batch-wide scales included: threads change nothing for them either. */
static void any_number_of_threads(void **state)
{
    (void)state;
    static const int32_t threads[] = { 2, 4 };
    const test_layer_limits limits = { .tokens = 33 };
    for (uint64_t seed = 0; seed < 30; seed += step) {
        test_rng rng = { test_seed(7200) + seed };
        test_layer layer;
        moxie_layer *built;
        moxie_plan *plan;
        test_layer_make(&layer, &rng, &limits);
        test_layer_build(&layer, NULL, &built, &plan);
        test_layer_workspace(&layer, plan);
        run(plan, &layer.args);
        moxie_plan_destroy(plan);
        const size_t bytes = test_layer_output_bytes(&layer);
        void *serial = malloc(bytes);
        memcpy(serial, layer.args.output, bytes);
        for (size_t i = 0; i < 2; i++) {
            moxie_error error;
            moxie_options options = MOXIE_OPTIONS_INIT;
            moxie_executor *pool;
            assert_ok(moxie_executor_create(threads[i], &pool, &error), &error);
            options.executor = pool;
            assert_ok(moxie_plan_create(built, &options, &plan, &error), &error);
            test_layer_workspace(&layer, plan);
            memset(layer.args.output, 0xee, bytes);
            run(plan, &layer.args);
            if (memcmp(serial, layer.args.output, bytes) != 0)
                fail_msg("%d threads differ from one: %s", (int)threads[i], layer.text);
            moxie_plan_destroy(plan);
            moxie_executor_destroy(pool);
        }
        free(serial);
        moxie_layer_destroy(built);
        test_layer_free(&layer);
    }
}

/* route, experts, combine against the one call. The shared expert belongs to the one call alone. */
static void modular_and_in_one_call(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 300, .largest = 40, .plain_acts = true };
    for (uint64_t seed = 0; seed < 30; seed += step) {
        test_rng rng = { test_seed(7300) + seed };
        test_layer layer;
        moxie_layer *built;
        moxie_plan *plan;
        moxie_error error;
        test_layer_make(&layer, &rng, &limits);
        layer.config.shared = (moxie_shared_config) { 0 };
        test_layer_build(&layer, NULL, &built, &plan);
        test_layer_workspace(&layer, plan);
        run(plan, &layer.args);

        const int64_t choices = layer.args.tokens * layer.config.top_k;
        const size_t bytes = test_layer_output_bytes(&layer);
        void *one_call = malloc(bytes);
        float *rows = test_layer_own(&layer, (size_t)(choices * layer.config.hidden) * sizeof *rows);
        memcpy(one_call, layer.args.output, bytes);
        memset(layer.args.output, 0xee, bytes);
        moxie_run_args args = layer.args;
        if (args.ids == NULL) {
            args.ids_out = test_layer_own(&layer, (size_t)choices * sizeof *args.ids_out);
            args.weights_out = test_layer_own(&layer, (size_t)choices * sizeof *args.weights_out);
            assert_ok(moxie_plan_route(plan, &args, &error), &error);
            args.ids = args.ids_out;
            args.weights = args.weights_out;
        }
        moxie_run_args least = args; /* what the header says that the experts need */
        least.output = NULL;
        least.weights = layer.config.routing.on_input ? args.weights : NULL;
        least.ids_out = NULL;
        least.weights_out = NULL;
        assert_ok(moxie_plan_experts(plan, &least, rows, &error), &error);
        assert_ok(moxie_plan_combine(plan, &args, rows, &error), &error);
        if (memcmp(one_call, args.output, bytes) != 0)
            fail_msg("the modular calls differ from the one call: %s", layer.text);
        free(one_call);
        test_layer_close(&layer, built, plan);
    }
}

static float *rows_of_rank(test_layer *layer, int32_t ranks, int32_t rank)
{
    const int64_t count = layer->args.tokens * layer->config.top_k * layer->config.hidden;
    float *rows = malloc(((size_t)count + 1) * sizeof *rows);
    memset(rows, 0x5a, (size_t)count * sizeof *rows);
    moxie_layer *built;
    moxie_plan *plan;
    moxie_error error;
    layer->config.ep_size = ranks;
    layer->config.ep_rank = rank;
    test_layer_build(layer, NULL, &built, &plan);
    test_layer_workspace(layer, plan);
    assert_ok(moxie_plan_experts(plan, &layer->args, rows, &error), &error);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(built);
    return rows;
}

static bool is_zero(const float *row, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (row[i] != 0)
            return false;
    return true;
}

/* Each choice is computed by the one rank that owns its expert, with the bytes that a single rank gives it. */
static void on_any_rank(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    const test_layer_limits limits = { .tokens = 9, .plain_acts = true };
    for (uint64_t seed = 0; seed < 30; seed += step) {
        test_rng rng = { test_seed(7400) + seed };
        test_layer layer;
        test_layer_make(&layer, &rng, &limits);
        const moxie_layer_config *c = &layer.config;
        if (layer.args.ids != NULL) {
            float *alone = rows_of_rank(&layer, 1, 0), *of[RANKS];
            int32_t local[MOXIE_MAX_EXPERTS], owner[MOXIE_MAX_EXPERTS], count;
            for (int32_t r = 0; r < RANKS; r++) {
                of[r] = rows_of_rank(&layer, RANKS, r);
                assert_int_equal(moxie_expert_map((moxie_expert_map_kind)c->ep_map, (int32_t)c->experts, RANKS, r,
                                                  local, &count, NULL),
                                 MOXIE_OK);
                for (int64_t e = 0; e < c->experts; e++)
                    owner[e] = local[e] >= 0 ? r : owner[e];
            }
            for (int64_t i = 0; i < layer.args.tokens * c->top_k; i++) {
                const int32_t id = layer.args.ids[i];
                const bool exists = id >= 0 && id < c->experts;
                const float *got = of[exists ? owner[id] : 0];
                for (int32_t r = 0; r < RANKS; r++)
                    if (!exists || owner[id] != r)
                        assert_true(is_zero(of[r] + i * c->hidden, c->hidden));
                if (memcmp(got + i * c->hidden, alone + i * c->hidden, (size_t)c->hidden * sizeof *got) != 0)
                    fail_msg("choice %lld (expert %d) differs between ranks: %s", (long long)i, (int)id, layer.text);
            }
            for (int32_t r = 0; r < RANKS; r++)
                free(of[r]);
            free(alone);
        }
        test_layer_free(&layer);
    }
}

/* One scale for the whole batch means just that: a batch longer than a pass, turned round, gives the same rows turned
 * round. */
static void batch_wide_scales_span_passes(void **state)
{
    (void)state;
    const moxie_quant whole = { MOXIE_F8_E4M3, MOXIE_F32, .group_rows = -1, .group_cols = -1 };
    const test_layer_limits limits = { .tokens = 600, .largest = 16, .plain_routing = true, .plain_acts = true };
    for (uint64_t seed = 0; seed < 8; seed += step) {
        test_rng rng = { test_seed(7450) + seed };
        test_layer layer;
        moxie_layer *built;
        moxie_plan *plan;
        test_layer_make(&layer, &rng, &limits);
        moxie_layer_config *c = &layer.config;
        const bool shared = c->shared.intermediate > 0;
        moxie_quant *const first = shared ? &c->shared.a13 : &c->a13, *const second = shared ? &c->shared.a2 : &c->a2;
        *(seed % 2 == 0 ? first : second) = whole;
        test_layer_build(&layer, NULL, &built, &plan);
        test_layer_workspace(&layer, plan);
        const int64_t bytes = row_bytes(&layer, layer.config.hidden), tokens = layer.args.tokens;
        const moxie_run_args forward = layer.args;
        char *turned_output = malloc((size_t)(tokens * bytes)), *hidden = malloc((size_t)(tokens * bytes));
        moxie_run_args turned = forward;
        int32_t *ids = malloc((size_t)(tokens * layer.config.top_k) * sizeof *ids);
        float *weights = malloc((size_t)(tokens * layer.config.top_k) * sizeof *weights);
        turned.ids_out = ids;
        turned.weights_out = weights;
        run(plan, &turned);
        turned.ids_out = NULL;
        turned.weights_out = NULL;
        const int64_t k = layer.config.top_k;
        int32_t *turned_ids = malloc((size_t)(tokens * k) * sizeof *ids);
        float *turned_weights = malloc((size_t)(tokens * k) * sizeof *weights);
        for (int64_t t = 0; t < tokens; t++) {
            const int64_t from = tokens - 1 - t;
            memcpy(hidden + t * bytes, (const char *)forward.hidden + from * bytes, (size_t)bytes);
            memcpy(turned_ids + t * k, ids + from * k, (size_t)k * sizeof *ids);
            memcpy(turned_weights + t * k, weights + from * k, (size_t)k * sizeof *weights);
        }
        turned.hidden = hidden;
        turned.ids = turned_ids;
        turned.weights = turned_weights;
        turned.output = turned_output;
        run(plan, &turned);
        for (int64_t t = 0; t < tokens; t++)
            if (memcmp(turned_output + t * bytes, (char *)forward.output + (tokens - 1 - t) * bytes, (size_t)bytes) !=
                0)
                fail_msg("token %lld depends on its place in the batch: %s", (long long)t, layer.text);
        free(turned_output);
        free(hidden);
        free(ids);
        free(weights);
        free(turned_ids);
        free(turned_weights);
        test_layer_close(&layer, built, plan);
    }
}

/* Two workspaces of different content, two runs: the same bytes, and no allocation. */
static void runs_allocate_nothing(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = -1 };
    for (uint64_t seed = 0; seed < 40; seed += step) {
        test_rng rng = { test_seed(7500) + seed };
        test_layer layer;
        moxie_layer *built;
        moxie_plan *plan;
        test_layer_make(&layer, &rng, &limits);
        test_layer_build(&layer, NULL, &built, &plan);
        test_layer_workspace(&layer, plan);
        const size_t bytes = test_layer_output_bytes(&layer);
        void *first = malloc(bytes + 1);
        memset(layer.args.workspace, 0x00, layer.args.workspace_bytes);
        const uint64_t before = mox_alloc_count();
        run(plan, &layer.args);
        memcpy(first, layer.args.output, bytes);
        memset(layer.args.workspace, 0xff, layer.args.workspace_bytes);
        run(plan, &layer.args);
        assert_int_equal(mox_alloc_count(), before);
        if (memcmp(first, layer.args.output, bytes) != 0)
            fail_msg("what lay in the workspace before changed the output: %s", layer.text);
        free(first);
        test_layer_close(&layer, built, plan);
    }
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
