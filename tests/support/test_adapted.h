/* SPDX-License-Identifier: Apache-2.0
 *
 * test_adapted.h - a random layer whose tokens have adapters, and the comparisons of its output's bytes, for tests of
 * any back end:
 *
 *     a token without adapter     has the bytes of a layer without
 *     every token                 has bytes that depend on its own adapter alone, not on the neighbours' or on T
 */
#ifndef TEST_ADAPTED_H
#define TEST_ADAPTED_H

#include "random_adapter.h"

enum { TEST_MAX_ADAPTERS = 8 };

typedef struct test_adapted {
    test_layer layer;
    moxie_adapters *adapters;
    int32_t count;
    int32_t *ids; /* [T] */
    int32_t max_rank;
} test_adapted;

/* Ranks are mostly small, because the oracle is slow. */
static inline int32_t test_adapted_rank(test_rng *rng)
{
    const int64_t limits[] = { 1, 4, 16, 16, 16, 16, 16, 16, 64, 512 };
    return (int32_t)test_range(rng, 1, limits[test_below(rng, 10)]);
}

static inline void test_adapted_set(test_adapted *a, test_rng *rng, int32_t count)
{
    moxie_error error = { 0 };
    a->count = count;
    assert_ok(moxie_adapters_create(a->layer.built, TEST_MAX_ADAPTERS, &a->adapters, &error), &error);
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

static inline void test_adapted_free(test_adapted *a)
{
    moxie_adapters_destroy(a->adapters);
    test_layer_free(&a->layer);
}

static inline char *test_adapted_run(const test_adapted *a)
{
    return test_layer_output(&a->layer, a->layer.plan);
}

/* The output where every token has adapter `id`. */
static inline char *test_adapted_run_all(test_adapted *a, int32_t id)
{
    int32_t *const mixed = a->ids;
    int32_t *all = malloc(((size_t)a->layer.args.tokens + 1) * sizeof *all);
    for (int64_t t = 0; t < a->layer.args.tokens; t++)
        all[t] = id;
    a->layer.args.adapter_ids = all;
    char *output = test_adapted_run(a);
    a->layer.args.adapter_ids = mixed;
    free(all);
    return output;
}

static inline void test_adapted_compare_rows(const test_adapted *a, const char *mixed, const char *alike, int32_t id,
                                             const char *what)
{
    const size_t row = (size_t)(a->layer.config.hidden * mox_dtype_bytes(a->layer.config.dtype));
    for (int64_t t = 0; t < a->layer.args.tokens; t++)
        if (a->ids[t] == id && memcmp(mixed + (size_t)t * row, alike + (size_t)t * row, row) != 0)
            fail_msg("%s: token %lld with adapter %d: other bytes %s", a->layer.text, (long long)t, (int)id, what);
}

/* Tokens one at a time, by rows of the arguments. */
static inline void test_adapted_compare_single(test_adapted *a, const char *mixed)
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
static inline void test_adapted_fix_choices(test_adapted *a)
{
    moxie_run_args *args = &a->layer.args;
    const size_t choices = (size_t)(args->tokens * a->layer.config.top_k) + 1;
    int32_t *ids = test_layer_own(&a->layer, choices * sizeof *ids);
    float *weights = test_layer_own(&a->layer, choices * sizeof *weights);
    args->ids_out = ids, args->weights_out = weights;
    free(test_adapted_run(a));
    args->ids = ids, args->weights = weights;
    args->ids_out = NULL, args->weights_out = NULL, args->padding = NULL, args->bias_choice = NULL;
}

/* Compares a run of tokens with mixed adapters with runs where all tokens have one adapter, or none, and with tokens
 * alone. `without`: the output of a plan without adapters. */
static inline void test_adapted_compare(test_adapted *a, const char *without)
{
    char *mixed = test_adapted_run(a);
    test_adapted_compare_rows(a, mixed, without, -1, "than in a layer without");
    for (int32_t id = -1; id < a->count; id++) {
        char *alike = test_adapted_run_all(a, id);
        test_adapted_compare_rows(a, mixed, alike, id, "beside other adapters");
        if (id == -1)
            assert_memory_equal(alike, without, test_layer_output_bytes(&a->layer));
        free(alike);
    }
    test_adapted_compare_single(a, mixed);
    free(mixed);
}

#endif
