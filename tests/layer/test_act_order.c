/* SPDX-License-Identifier: Apache-2.0
 *
 * test_act_order.c - layers in act order (GPTQ's desc_act) on the kernels that read sorted columns: every stage against
 * the oracle, over random g_idx, shapes, instruction sets and quantized activations; one expert replaced; the cases
 * that keep the row-major kernels.
 */
#include "small_layer.h"

#include "layer/weights/layer.h"

static const char *const whole[] = { "gptq act order", "gptq 8 bit whole groups" };
static const char *const acts[] = { "none", "int8 token", "fp8 token", "fp8 tensor" };

static const char *layout_of(const test_layer *t)
{
    return t->built->layouts[MOX_ROUTED]->name;
}

/* Whether this machine's kernels for such a layer read panels. */
static bool has_panels(const test_layer *t)
{
    moxie_layer *layer;
    moxie_error error;
    assert_ok(moxie_layer_create(&t->config, NULL, &layer, &error), &error);
    const bool panels = strcmp(layer->layouts[MOX_ROUTED]->name, "panel16") == 0;
    moxie_layer_destroy(layer);
    return panels;
}

static small_spec random_spec(test_rng *rng, int64_t turn)
{
    static const int64_t sizes[] = { 32, 64, 96, 100, 160, 200, 264 };
    static const moxie_dtype dtypes[] = { MOXIE_BF16, MOXIE_F16, MOXIE_F32 };
    return (small_spec) { .weight = test_weight_quant_named(whole[turn % 2]),
                          .act = test_act_quant_named(acts[test_below(rng, 4)]),
                          .dtype = dtypes[test_below(rng, 3)],
                          .experts = 1 + (int64_t)test_below(rng, 5),
                          .top_k = 1,
                          .hidden = sizes[test_below(rng, 7)],
                          .intermediate = sizes[test_below(rng, 7)],
                          .tokens = (int64_t)test_below(rng, 40),
                          .bias = test_below(rng, 2) == 0,
                          .shared = test_below(rng, 3) == 0,
                          .on_input = test_below(rng, 4) == 0 };
}

/* Counts layers with sorted columns: one whose matrices have a single group has none. */
static int64_t sorted;

/* What a workspace had before a run changes nothing: padding of permuted activations is written. */
static void check_padding(test_layer *t)
{
    void *outputs[2];
    for (int i = 0; i < 2; i++) {
        memset(t->args.workspace, i == 0 ? 0 : 0xff, t->args.workspace_bytes);
        outputs[i] = test_layer_output(t, t->plan);
    }
    assert_memory_equal(outputs[0], outputs[1], test_layer_output_bytes(t));
    free(outputs[0]);
    free(outputs[1]);
}

/* The plan of weights that were not packed: the kernels, and the steps, that a run has. */
static void check_explained(const test_layer *t, const moxie_options *options)
{
    moxie_error error = { 0 };
    moxie_plan *explained = NULL;
    assert_ok(moxie_plan_explain_weights(&t->config, &t->weights, options, &explained, &error), &error);
    assert_int_equal(moxie_plan_step_count(explained), moxie_plan_step_count(t->plan));
    for (int32_t i = 0; i < moxie_plan_step_count(t->plan); i++) {
        const moxie_plan_step *a = moxie_plan_step_at(explained, i), *b = moxie_plan_step_at(t->plan, i);
        assert_string_equal(a->kernel, b->kernel);
        assert_string_equal(a->layout, b->layout);
        assert_string_equal(a->reason, b->reason);
        assert_int_equal(a->chosen, b->chosen);
    }
    moxie_plan_destroy(explained);
}

static void check(test_layer *t, const moxie_options *options, bool panels)
{
    moxie_error error = { 0 };
    test_report report = { 0 };
    assert_ok(test_layer_try(t, options, &error), &error);
    assert_ok(moxie_layer_verify(t->built, &error), &error);
    assert_ok(test_plan_check(t->plan, &t->weights, &t->args, &report, &error), &error);
    if (!(report.worst_ratio <= 1))
        fail_msg("a stage is %g times its bound: %s", report.worst_ratio, t->text);
    check_padding(t);
    check_explained(t, options);
    if (panels && options->isa == NULL)
        assert_string_not_equal(layout_of(t), "rowmajor");
    sorted += strcmp(layout_of(t), "panel16_order") == 0;
}

static void every_stage(void **state)
{
    (void)state;
    const int64_t turns = test_env("MOXIE_TEST_CONFIGS", test_quick() ? 40 : 400);
    const uint64_t first = test_seed(8820);
    bool panels = true;
    for (int64_t turn = 0; turn < turns; turn++) {
        test_rng rng = { first + (uint64_t)turn };
        moxie_options options = MOXIE_OPTIONS_INIT;
        const small_spec spec = random_spec(&rng, turn);
        test_layer t;
        small_layer_make(&t, &rng, &spec);
        options.max_tokens = spec.tokens + 1;
        options.mode = test_below(&rng, 2) == 0 ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST;
        options.isa = test_below(&rng, 6) == 0 ? "scalar" : NULL;
        panels = has_panels(&t);
        check(&t, &options, panels);
        test_layer_free(&t);
    }
    assert_true(!panels || turns < 10 || sorted > turns / 2);
}

/* An expert in another order, and one in natural order, replace experts of a layer in act order. */
static void replaced_experts(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8821) };
    const small_spec spec = { .weight = test_weight_quant_named("gptq act order"),
                              .act = test_act_quant_named("none"),
                              .dtype = MOXIE_BF16,
                              .experts = 4,
                              .top_k = 2,
                              .hidden = 96,
                              .intermediate = 160,
                              .tokens = 9 };
    test_layer t, other;
    small_layer_make(&t, &rng, &spec);
    small_layer_make(&other, &rng, &spec);
    test_layer_plan(&t, NULL);
    moxie_error error;
    test_report report = { 0 };
    moxie_expert natural = other.experts[1];
    natural.gate.group_index = natural.up.group_index = natural.down.group_index = NULL;
    assert_ok(moxie_layer_update_expert(t.built, 0, &other.experts[0], &error), &error);
    assert_ok(moxie_layer_update_expert(t.built, 3, &natural, &error), &error);
    t.experts[0] = other.experts[0];
    t.experts[3] = natural;
    assert_ok(moxie_layer_verify(t.built, &error), &error);
    assert_ok(test_plan_check(t.plan, &t.weights, &t.args, &report, &error), &error);
    assert_true(report.worst_ratio <= 1);
    test_layer_free(&other);
    test_layer_free(&t);
}

/* Activations in groups of columns, and orders that no permutation serves, keep layout rowmajor. */
static void row_major(void **state)
{
    (void)state;
    static const struct {
        const char *weight, *act;
    } cases[] = { { "gptq act order", "mxfp8" }, { "gptq 8 bit act order", "none" } };
    for (size_t i = 0; i < 2; i++) {
        test_rng rng = { test_seed(8822) + i };
        moxie_options options = MOXIE_OPTIONS_INIT;
        const small_spec spec = { .weight = test_weight_quant_named(cases[i].weight),
                                  .act = test_act_quant_named(cases[i].act),
                                  .dtype = MOXIE_BF16,
                                  .experts = 4,
                                  .top_k = 2,
                                  .hidden = 96,
                                  .intermediate = 64,
                                  .tokens = 5 };
        test_layer t;
        small_layer_make(&t, &rng, &spec);
        options.max_tokens = spec.tokens;
        check(&t, &options, false);
        assert_string_equal(layout_of(&t), "rowmajor");
        test_layer_free(&t);
    }
}

static void explained_wrong_views(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8823) };
    const small_spec spec = { .weight = test_weight_quant_named("gptq act order"),
                              .act = test_act_quant_named("none"),
                              .dtype = MOXIE_BF16,
                              .experts = 2,
                              .top_k = 1,
                              .hidden = 64,
                              .intermediate = 64,
                              .tokens = 1 };
    test_layer t;
    small_layer_make(&t, &rng, &spec);
    moxie_error error = { 0 };
    moxie_plan *plan = NULL;
    t.weights.n_experts = 1;
    assert_int_equal(moxie_plan_explain_weights(&t.config, &t.weights, NULL, &plan, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "1 experts, but the configuration has 2"));
    assert_null(plan);
    t.weights.n_experts = 2;
    assert_int_equal(moxie_plan_explain_weights(&t.config, NULL, NULL, &plan, &error), MOXIE_ERR_ARGUMENT);
    int32_t index[64] = { 1, 2 }; /* of two groups: 2 is not there */
    t.experts[1].down.group_index = index;
    assert_int_equal(moxie_plan_explain_weights(&t.config, &t.weights, NULL, &plan, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "expert 1 down: group_index[1] is 2, but there are 2 groups"));
    assert_null(plan);
    test_layer_free(&t);
}

/* Ranks cut W2 by columns in fast mode, whatever the order of W13's: an explanation is of a layer, not of a file. */
static void explained_cut(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8824) };
    const small_spec spec = { .weight = test_weight_quant_named("gptq act order"),
                              .weight2 = test_weight_quant_named("bf16"),
                              .act = test_act_quant_named("none"),
                              .dtype = MOXIE_BF16,
                              .experts = 2,
                              .top_k = 1,
                              .hidden = 64,
                              .intermediate = 256,
                              .tokens = 1 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    test_layer t;
    moxie_error error = { 0 };
    moxie_plan *plan = NULL;
    const moxie_plan_step *step;
    const char *cut = "none";
    small_layer_make(&t, &rng, &spec);
    t.config.tp_size = 2;
    options.mode = MOXIE_MODE_FAST;
    assert_ok(moxie_plan_explain_weights(&t.config, &t.weights, &options, &plan, &error), &error);
    for (int32_t i = 0; (step = moxie_plan_step_at(plan, i)) != NULL; i++)
        cut = strcmp(step->family, "tensor_parallel") == 0 ? step->kernel : cut;
    assert_string_equal(cut, "columns");
    moxie_plan_destroy(plan);
    test_layer_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage),           cmocka_unit_test(replaced_experts), cmocka_unit_test(row_major),
        cmocka_unit_test(explained_wrong_views), cmocka_unit_test(explained_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
