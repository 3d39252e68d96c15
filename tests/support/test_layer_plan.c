/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layer_plan.c - the fixture of tests of layers (test_layer.h): a random layer prepared and planned, run, checked.
 */
#include "test_layer.h"

#include "base/status.h"

void test_layer_discard(test_layer *layer)
{
    moxie_plan_destroy(layer->plan);
    moxie_layer_destroy(layer->built);
    layer->plan = NULL;
    layer->built = NULL;
}

size_t test_layer_output_bytes(const test_layer *layer)
{
    return (size_t)(layer->args.tokens * layer->config.hidden * mox_dtype_bytes(layer->config.dtype));
}

void *test_layer_output(const test_layer *layer, moxie_plan *plan)
{
    moxie_error error;
    const size_t bytes = test_layer_output_bytes(layer);
    void *copy = malloc(bytes + 1);
    memset(layer->args.output, 0xee, bytes);
    assert_ok(moxie_plan_run(plan, &layer->args, &error), &error);
    memcpy(copy, layer->args.output, bytes);
    return copy;
}

void test_layer_check_prefix(test_layer *layer, const void *all, int64_t tokens, uint64_t seed)
{
    layer->args.tokens = tokens;
    void *some = test_layer_output(layer, layer->plan);
    if (memcmp(all, some, test_layer_output_bytes(layer)) != 0)
        fail_msg("%s: the first %lld tokens alone give other bytes (seed %llu)", layer->text, (long long)tokens,
                 (unsigned long long)seed);
    free(some);
}

void test_layer_workspace(test_layer *layer, const moxie_plan *plan)
{
    layer->args.workspace_bytes = moxie_plan_workspace_bytes(plan);
    layer->args.workspace = test_layer_own(layer, layer->args.workspace_bytes);
}

void test_layer_build(const test_layer *layer, const moxie_options *options, moxie_layer **built, moxie_plan **plan)
{
    moxie_error error;
    assert_ok(moxie_layer_create(&layer->config, options, built, &error), &error);
    assert_ok(moxie_layer_prepare(*built, &layer->weights, options, &error), &error);
    assert_ok(moxie_plan_create(*built, options, plan, &error), &error);
}

void test_layer_make_large(test_layer *layer, const test_layer_limits *limits, uint64_t *seed)
{
    for (;; test_layer_free(layer)) {
        test_rng rng = { ++*seed };
        test_layer_make(layer, &rng, limits);
        if (layer->config.hidden > limits->largest / 2 && layer->config.intermediate > limits->largest / 2 &&
            strstr(layer->text, "fill random") != NULL)
            return;
    }
}

moxie_options test_layer_cuda_options(const test_layer *layer)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.max_tokens = layer->args.tokens + (layer->args.tokens == 0);
    return options;
}

moxie_status test_layer_try(test_layer *layer, const moxie_options *options, moxie_error *error)
{
    test_layer_discard(layer);
    MOX_TRY(moxie_layer_create(&layer->config, options, &layer->built, error));
    MOX_TRY(moxie_layer_prepare(layer->built, &layer->weights, options, error));
    MOX_TRY(moxie_plan_create(layer->built, options, &layer->plan, error));
    test_layer_workspace(layer, layer->plan);
    return MOXIE_OK;
}

void test_layer_plan(test_layer *layer, const moxie_options *options)
{
    moxie_error error;
    assert_ok(test_layer_try(layer, options, &error), &error);
}

void test_layer_begin(test_layer *out, uint64_t seed, const test_layer_limits *limits, const moxie_options *options)
{
    test_rng rng = { seed };
    test_layer_make(out, &rng, limits);
    test_layer_plan(out, options);
}

moxie_status test_plan_check(moxie_plan *plan, const moxie_weights *weights, const moxie_run_args *args,
                             test_report *out, moxie_error *error)
{
    moxie_check_report *report = NULL;
    const moxie_status status = moxie_plan_check(plan, weights, args, &report, error);
    if (status != MOXIE_OK)
        return status;
    *out = (test_report) { .worst_ratio = moxie_check_report_worst(report) };
    const moxie_stage_report *stage;
    while ((stage = moxie_check_report_stage_at(report, out->n_stages)) != NULL)
        out->stages[out->n_stages++] = *stage;
    assert_int_equal(out->n_stages, moxie_check_report_stage_count(report));
    moxie_check_report_destroy(report);
    return MOXIE_OK;
}

void test_report_print(const test_layer *layer, const test_report *report)
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

void test_report_print_beyond(const test_report *report)
{
    for (int32_t i = 0; i < report->n_stages; i++) {
        const moxie_stage_report *r = &report->stages[i];
        if (!(r->worst_ratio <= 1))
            print_error(
                "%s: %lld of %lld beyond, ratio %g: %g for %g, bound %g; token %lld, expert %lld, column %lld\n",
                r->stage, (long long)r->beyond, (long long)r->elements, r->worst_ratio, r->got, r->want, r->bound,
                (long long)r->token, (long long)r->expert, (long long)r->column);
    }
}

moxie_status test_layer_check(test_layer *layer, const moxie_options *options, test_report *report, moxie_error *error)
{
    MOX_TRY(test_layer_try(layer, options, error));
    MOX_TRY(moxie_layer_verify(layer->built, error));
    return test_plan_check(layer->plan, &layer->weights, &layer->args, report, error);
}
