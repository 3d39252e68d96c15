/* SPDX-License-Identifier: Apache-2.0
 *
 * test_adapters.c - LoRA adapters on random layers of every kind:
 *
 *     bounds   every stage within its bound of the oracle, for 0 to 8 adapters of ranks 1 to 512, tokens mixed
 *     bytes    a token without adapter has the bytes of a layer without; every token's bytes depend on its own
 *              adapter alone: not on the neighbours', on T or on threads
 *
 * MOXIE_TEST_CONFIGS says how many layers (default 200 and 60, in a quick run 60 and 20; the long form is 3000). Each
 * layer has its own seed, printed on failure; MOXIE_TEST_SEED=<seed> MOXIE_TEST_CONFIGS=1 repeats it alone.
 */
#include "random_adapter.h"

enum { MAX_ADAPTERS = 8 };

typedef struct adapted {
    test_layer layer;
    moxie_adapters *adapters;
    int32_t count;
    int32_t *ids; /* [T] */
    int32_t max_rank;
} adapted;

/* Ranks are mostly small, because the oracle is slow. */
static int32_t any_rank(test_rng *rng)
{
    const int64_t limits[] = { 1, 4, 16, 16, 16, 16, 16, 16, 64, 512 };
    return (int32_t)test_range(rng, 1, limits[test_below(rng, 10)]);
}

static void set_adapters(adapted *a, test_rng *rng, int32_t count)
{
    moxie_error error = { 0 };
    a->count = count;
    assert_ok(moxie_adapters_create(a->layer.built, MAX_ADAPTERS, &a->adapters, &error), &error);
    for (int32_t i = 0; i < count; i++) {
        random_adapter adapter;
        random_adapter_make(&adapter, rng, &a->layer.config, a->max_rank);
        assert_ok(moxie_adapters_set(a->adapters, i, &adapter.lora, &error), &error);
        random_adapter_free(&adapter); /* the factors were copied */
        assert_true(moxie_adapters_rank(a->adapters, i) >= 1 && moxie_adapters_rank(a->adapters, i) <= a->max_rank);
    }
    if (count > 1 && test_below(rng, 4) == 0)
        assert_ok(moxie_adapters_enable(a->adapters, count - 1, 0, &error), &error);
    a->ids = test_layer_own(&a->layer, (size_t)a->layer.args.tokens * sizeof *a->ids);
    for (int64_t t = 0; t < a->layer.args.tokens; t++)
        a->ids[t] = (int32_t)test_range(rng, -1, count - 1);
    a->layer.args.adapters = a->adapters;
    a->layer.args.adapter_ids = a->ids;
}

static void discard(adapted *a)
{
    moxie_adapters_destroy(a->adapters);
    test_layer_free(&a->layer);
}

/* ---- bounds ------------------------------------------------------------------------------------------------ */

static void print_report(const test_layer *layer, const test_report *report)
{
    print_error("%s\n", layer->text);
    for (int s = 0; s < report->n_stages; s++) {
        const moxie_stage_report *r = &report->stages[s];
        print_error("  %-15s %8lld elements, %lld beyond, worst %g: got %.9g want %.9g bound %g (token %lld slot %lld "
                    "expert %lld column %lld)\n",
                    r->stage, (long long)r->elements, (long long)r->beyond, r->worst_ratio, r->got, r->want, r->bound,
                    (long long)r->token, (long long)r->slot, (long long)r->expert, (long long)r->column);
    }
}

static bool check_layer(adapted *a, test_rng *rng, const moxie_executor *pool, int64_t *elements)
{
    moxie_error error = { 0 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    test_report report = { 0 };
    test_layer *layer = &a->layer;
    options.mode = test_below(rng, 2) == 0 ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST;
    options.backend = test_below(rng, 6) == 0 ? MOXIE_BACKEND_REF : MOXIE_BACKEND_CPU;
    options.isa = test_below(rng, 6) == 0 ? "scalar" : NULL;
    options.max_tokens = layer->args.tokens + 1;
    options.executor = test_below(rng, 2) == 0 ? pool : NULL;
    options.max_adapter_rank = a->max_rank = any_rank(rng);
    moxie_status status = test_layer_try(layer, &options, &error);
    if (status == MOXIE_OK) {
        set_adapters(a, rng, (int32_t)test_below(rng, MAX_ADAPTERS + 1));
        status = test_plan_check(layer->plan, &layer->weights, &layer->args, &report, &error);
    }
    if (status != MOXIE_OK)
        print_error("%s\n  %s: %s\n", layer->text, moxie_status_name(status), error.text);
    else if (!(report.worst_ratio <= 1))
        print_report(layer, &report);
    for (int s = 0; s < report.n_stages; s++)
        *elements += report.stages[s].elements;
    return status == MOXIE_OK && report.worst_ratio <= 1;
}

static void bounds(void **state)
{
    (void)state;
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", test_quick() ? 60 : 200);
    const uint64_t first = test_seed(29029);
    const test_layer_limits limits[] = { { .tokens = -1, .largest = 80 },
                                         { .tokens = -1, .largest = 80, .features = true },
                                         { .tokens = -1 } };
    moxie_executor *pool = NULL;
    moxie_error error;
    assert_ok(moxie_executor_create(2, &pool, &error), &error);
    int64_t elements = 0, failed = 0;
    for (int64_t i = 0; i < configs && failed < 5; i++) {
        const uint64_t seed = first + (uint64_t)i;
        test_rng rng = { seed };
        adapted a = { 0 };
        test_layer_make(&a.layer, &rng, &limits[seed % 8 == 0 ? 2 : seed % 3 == 0]);
        if (!check_layer(&a, &rng, pool, &elements)) {
            print_error("repeat with MOXIE_TEST_SEED=%llu MOXIE_TEST_CONFIGS=1\n", (unsigned long long)seed);
            failed++;
        }
        discard(&a);
    }
    moxie_executor_destroy(pool);
    assert_int_equal(failed, 0);
    print_message("%lld layers with adapters, %lld elements compared\n", (long long)configs, (long long)elements);
}

/* ---- bytes ------------------------------------------------------------------------------------------------- */

static char *run(const adapted *a)
{
    return test_layer_output(&a->layer, a->layer.plan);
}

/* The output where every token has adapter `id`. */
static char *run_all(adapted *a, int32_t id)
{
    int32_t *const mixed = a->ids;
    int32_t *all = malloc(((size_t)a->layer.args.tokens + 1) * sizeof *all);
    for (int64_t t = 0; t < a->layer.args.tokens; t++)
        all[t] = id;
    a->layer.args.adapter_ids = all;
    char *output = run(a);
    a->layer.args.adapter_ids = mixed;
    free(all);
    return output;
}

static void compare_rows(const adapted *a, const char *mixed, const char *alike, int32_t id, const char *what)
{
    const size_t row = (size_t)(a->layer.config.hidden * mox_dtype_bytes(a->layer.config.dtype));
    for (int64_t t = 0; t < a->layer.args.tokens; t++)
        if (a->ids[t] == id && memcmp(mixed + (size_t)t * row, alike + (size_t)t * row, row) != 0)
            fail_msg("%s: token %lld with adapter %d: other bytes %s", a->layer.text, (long long)t, (int)id, what);
}

/* Tokens one at a time, by rows of the arguments. */
static void compare_single(adapted *a, const char *mixed)
{
    const moxie_layer_config *c = &a->layer.config;
    const moxie_run_args whole = a->layer.args;
    const size_t row = (size_t)(c->hidden * mox_dtype_bytes(c->dtype));
    for (int64_t t = 0; t < whole.tokens; t += 1 + whole.tokens / 3) {
        moxie_run_args *one = &a->layer.args;
        moxie_error error = { 0 };
        char *output = malloc(row);
        *one = whole;
        one->tokens = 1;
        one->hidden = (const char *)whole.hidden + (size_t)t * row;
        one->ids = whole.ids + t * c->top_k;
        one->weights = whole.weights + t * c->top_k;
        one->adapter_ids = whole.adapter_ids + t;
        one->output = output;
        one->router_hidden = NULL, one->logits = NULL, one->token_ids = NULL, one->padding = NULL;
        one->bias_choice = NULL, one->ids_out = NULL, one->weights_out = NULL, one->logits_out = NULL;
        assert_ok(moxie_plan_run(a->layer.plan, one, &error), &error);
        if (memcmp(output, mixed + (size_t)t * row, row) != 0)
            fail_msg("%s: token %lld alone has other bytes", a->layer.text, (long long)t);
        free(output);
    }
    a->layer.args = whole;
}

/* Ids and weights of the plan's own routing, so that a run of one token has them, too. */
static void fix_choices(adapted *a)
{
    moxie_run_args *args = &a->layer.args;
    const size_t choices = (size_t)(args->tokens * a->layer.config.top_k) + 1;
    int32_t *ids = test_layer_own(&a->layer, choices * sizeof *ids);
    float *weights = test_layer_own(&a->layer, choices * sizeof *weights);
    args->ids_out = ids, args->weights_out = weights;
    free(run(a));
    args->ids = ids, args->weights = weights;
    args->ids_out = NULL, args->weights_out = NULL, args->padding = NULL, args->bias_choice = NULL;
}

static void compare_layer(uint64_t seed, const moxie_executor *pool)
{
    const test_layer_limits limits = { .tokens = -1, .largest = 80, .plain_routing = true, .plain_acts = true };
    test_rng rng = { seed };
    adapted a = { 0 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error = { 0 };
    test_layer_make(&a.layer, &rng, &limits);
    options.mode = test_below(&rng, 2) == 0 ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST;
    options.max_tokens = a.layer.args.tokens + 1;
    assert_ok(test_layer_try(&a.layer, &options, &error), &error);
    fix_choices(&a);
    char *without = run(&a);
    options.max_adapter_rank = a.max_rank = any_rank(&rng);
    options.executor = pool;
    assert_ok(test_layer_try(&a.layer, &options, &error), &error);
    set_adapters(&a, &rng, 1 + (int32_t)test_below(&rng, 3));
    char *mixed = run(&a);
    compare_rows(&a, mixed, without, -1, "than in a layer without");
    for (int32_t id = -1; id < a.count; id++) {
        char *alike = run_all(&a, id);
        compare_rows(&a, mixed, alike, id, "beside other adapters");
        if (id == -1)
            assert_memory_equal(alike, without, test_layer_output_bytes(&a.layer));
        free(alike);
    }
    compare_single(&a, mixed);
    free(without);
    free(mixed);
    discard(&a);
}

static void bytes(void **state)
{
    (void)state;
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", test_quick() ? 20 : 60);
    const uint64_t first = test_seed(29429);
    moxie_executor *pool = NULL;
    moxie_error error;
    assert_ok(moxie_executor_create(3, &pool, &error), &error);
    for (int64_t i = 0; i < configs; i++)
        compare_layer(first + (uint64_t)i, i % 2 ? pool : NULL);
    moxie_executor_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(bounds), cmocka_unit_test(bytes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
