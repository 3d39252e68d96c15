/* SPDX-License-Identifier: Apache-2.0
 *
 * test_static_scales.c - static scales and globals that a checkpoint stores with its experts: the fallback for experts
 * without one, and what a replaced expert changes.
 */
#include "layer/weights/layer.h"
#include "test_layer.h"

/* Creates a layer of three experts, quantized by `quant`, with these static scales for both products' activations.
 * Returns the status of preparing it. */
static moxie_status prepare_calibrated(test_layer *t, const moxie_quant *quant, const float scales[3],
                                       moxie_error *error)
{
    const test_layer_limits limits = { .tokens = 1, .experts = 3, .largest = 16, .no_parallel = true };
    test_rng rng = { 7902 };
    test_layer_make(t, &rng, &limits);
    t->config.a13 = t->config.a2 = *quant;
    t->config.shared = (moxie_shared_config) { 0 };
    for (int e = 0; e < 3; e++)
        t->experts[e].a13_scale = t->experts[e].a2_scale = scales[e];
    assert_ok(moxie_layer_create(&t->config, NULL, &t->built, error), error);
    return moxie_layer_prepare(t->built, &t->weights, NULL, error);
}

static void expect_scales(const test_layer *t, float first, float second, float third)
{
    const mox_static_scale *const both[2] = { &t->built->static_scale[MOX_W13], &t->built->static_scale[MOX_W2] };
    for (int i = 0; i < 2; i++) {
        const float *resolved = both[i]->resolved;
        assert_true(resolved[0] == first && resolved[1] == second && resolved[2] == third);
        assert_int_equal(both[i]->uniform, first == second && second == third);
    }
}

static const moxie_quant static_fp8 = { MOXIE_F8_E4M3, MOXIE_F32, .group_rows = -1, .group_cols = -1, .is_static = 1 };
static const moxie_quant dividing_nvfp4 = { MOXIE_F4_E2M1, MOXIE_F8_E4M3, .group_cols = 16,
                                            .global = MOXIE_GLOBAL_DIVIDE };

/* An expert without a scale gets the largest of the others, or the smallest global that divides: so no value saturates
 * that would not saturate with theirs. */
static void missing_scales_are_cautious(void **state)
{
    (void)state;
    const float some[3] = { 0.5f, 0.0f, 2.0f }, none[3] = { 0 }, bad[3] = { 1.0f, -1.0f, 1.0f };
    test_layer t;
    moxie_error error;
    assert_ok(prepare_calibrated(&t, &static_fp8, some, &error), &error);
    expect_scales(&t, 0.5f, 2.0f, 2.0f);
    test_layer_free(&t);
    assert_ok(prepare_calibrated(&t, &dividing_nvfp4, some, &error), &error);
    expect_scales(&t, 0.5f, 0.5f, 2.0f);
    test_layer_free(&t);
    assert_int_equal(prepare_calibrated(&t, &static_fp8, none, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "a13_scale"));
    test_layer_free(&t);
    assert_int_equal(prepare_calibrated(&t, &static_fp8, bad, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "expert 1 a13_scale"));
    test_layer_free(&t);
}

/* A replaced expert brings its scales, and fallbacks of other experts follow. A rejected replacement changes nothing.
 */
static void scales_follow_replacements(void **state)
{
    (void)state;
    const float some[3] = { 0.5f, 0.0f, 0.0f };
    test_layer t;
    moxie_error error;
    assert_ok(prepare_calibrated(&t, &static_fp8, some, &error), &error);
    expect_scales(&t, 0.5f, 0.5f, 0.5f);
    moxie_expert other = t.experts[0];
    other.a2_scale = -1;
    assert_int_equal(moxie_layer_update_expert(t.built, 0, &other, &error), MOXIE_ERR_ARGUMENT);
    expect_scales(&t, 0.5f, 0.5f, 0.5f);
    other.a13_scale = 8;
    other.a2_scale = 0;
    assert_int_equal(moxie_layer_update_expert(t.built, 0, &other, &error), MOXIE_ERR_MISMATCH);
    expect_scales(&t, 0.5f, 0.5f, 0.5f);
    other.a13_scale = other.a2_scale = 4;
    assert_ok(moxie_layer_update_expert(t.built, 1, &other, &error), &error);
    expect_scales(&t, 0.5f, 4.0f, 4.0f);
    assert_ok(moxie_layer_verify(t.built, &error), &error);
    test_layer_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_scales_are_cautious),
        cmocka_unit_test(scales_follow_replacements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
