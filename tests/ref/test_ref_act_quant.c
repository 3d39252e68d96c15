/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ref_act_quant.c - two implementations of docs/quantizers.md agree bit by bit: the quantizers, and the oracle's
 * search for scales and codes. The oracle also agrees with rows computed by hand.
 *
 * MOXIE_TEST_ROWS sets the number of rows per description.
 */
#include "test_support.h"

#include <float.h>
#include <math.h>

#include "ref/ref.h"

#define MOST 200

/* ---- by hand ------------------------------------------------------------------------------------- */

static void expect_row(const moxie_quant *quant, float static_scale, const float *x, int64_t cols, double scale,
                       const double *values)
{
    uint8_t codes[MOST];
    double scales[MOST];
    mox_ref_act_quant_row(quant, static_scale, 0, x, cols, codes, scales);
    assert_close(scales[0], scale, fabs(scale) * 1e-7);
    for (int64_t k = 0; k < cols; k++)
        assert_close(mox_format_decode(quant->element, codes[k]), values[k], 0);
}

static void test_rows_by_hand(void **state)
{
    (void)state;
    const moxie_quant token = { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32 };
    expect_row(&token, 0, (const float[]) { 1, 2, -3, 0.01f }, 4, 0.0066964286,
               (const double[]) { 144, 288, -448, 1.5 });
    /* amax 3 of the tensor: global 896. bf16(0.1 i - 0.75): the block's own amax is 0.75. */
    const moxie_quant nvfp4 = {
        .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_cols = 16, .global = MOXIE_GLOBAL_DIVIDE
    };
    float x[16];
    for (int i = 0; i < 16; i++)
        x[i] = mox_bf16_decode(mox_bf16_narrow((float)(0.1 * i - 0.75)));
    expect_row(&nvfp4, 896, x, 16, 112, (const double[]) { -6, -6, -4, -4, -3, -2, -1, -.5, .5, 1, 2, 3, 4, 4, 6, 6 });
    /* -2.5, 0.5 and 1.5 steps of 0.02: halves to even, away, toward zero. */
    moxie_quant int8 = { .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = -1, .is_static = 1 };
    const float halves[3] = { -5, 1, 3 };
    expect_row(&int8, 2, halves, 3, 2, (const double[]) { -2, 0, 2 });
    int8.rounding = MOXIE_ROUND_AWAY;
    expect_row(&int8, 2, halves, 3, 2, (const double[]) { -3, 1, 2 });
    int8.rounding = MOXIE_ROUND_TRUNCATE;
    expect_row(&int8, 2, halves, 3, 2, (const double[]) { -2, 0, 1 });
}

/* Scales of one block by its largest magnitude, under each rule. */
static void test_mx_scales_by_hand(void **state)
{
    (void)state;
    static const struct {
        moxie_dtype element;
        int32_t rule;
        float amax[4];
        double scale[4];
    } cases[] = {
        { MOXIE_F4_E2M1, MOXIE_RULE_CEIL, { 6, 6.5f, 7.5f, 3.4f }, { 1, 2, 2, 1 } },
        { MOXIE_F4_E2M1, MOXIE_RULE_QUARK_EVEN, { 6, 6.5f, 7.5f, 3.4f }, { 1, 1, 2, 0.5 } },
        { MOXIE_F4_E2M1, MOXIE_RULE_OCP_FLOOR, { 6, 6.5f, 7.5f, 3.4f }, { 1, 1, 1, 0.5 } },
        { MOXIE_F8_E4M3, MOXIE_RULE_CEIL, { 448, 450, 300, 1 }, { 1, 2, 1, 0x1p-8 } },
        { MOXIE_F8_E4M3, MOXIE_RULE_OCP_FLOOR, { 448, 450, 300, 1 }, { 1, 1, 1, 0x1p-8 } },
        { MOXIE_F8_E4M3, MOXIE_RULE_VLLM_FLOOR, { 448, 450, 300, 1 }, { 256, 256, 256, 1 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const moxie_quant quant = {
            .element = cases[i].element, .scale = MOXIE_F8_E8M0, .group_cols = 32, .rule = cases[i].rule
        };
        for (int n = 0; n < 4; n++) {
            const float x[2] = { -cases[i].amax[n], 0 };
            uint8_t codes[2];
            double scale;
            mox_ref_act_quant_row(&quant, 0, 0, x, 2, codes, &scale);
            assert_true(scale == cases[i].scale[n]);
        }
    }
}

/* ---- against the quantizers ---------------------------------------------------------------------- */

static float draw(test_rng *rng, int32_t kind)
{
    switch (kind) {
    case 0: return test_normal(rng);
    case 1: return test_normal(rng) * ldexpf(1, (int)test_range(rng, -40, 40));
    case 2: return (float)test_range(rng, -24, 24) * 0.25f; /* on and between codes */
    case 3: return test_uniform(rng) * ldexpf(1, (int)test_range(rng, -149, -100));
    case 4: return test_below(rng, 6) ? test_normal(rng) : test_below(rng, 2) ? (float)NAN : -INFINITY;
    case 5: return test_below(rng, 2) ? 0.0f : -0.0f;
    default: return test_uniform(rng) * FLT_MAX;
    }
}

static void compare_rows(const moxie_quant *quant, int64_t rows, uint64_t seed)
{
    test_rng rng = { seed };
    char words[96];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t cols = test_range(&rng, 1, MOST);
        const float static_scale =
            test_below(&rng, 2) ? 0.03f : ldexpf(1 + test_uniform(&rng) * 0.9f, (int)test_range(&rng, -20, 20));
        float x[MOST], scales[MOST];
        double want_scales[MOST];
        uint8_t codes[MOST], want[MOST];
        const int32_t kind = (int32_t)test_below(&rng, 7);
        for (int64_t k = 0; k < cols; k++)
            x[k] = draw(&rng, kind);
        const mox_act_quantizer quantizer = { quant, static_scale, mox_amax(x, cols) };
        mox_act_quant_row(&quantizer, x, cols, codes, scales);
        mox_ref_act_quant_row(quant, static_scale, quantizer.amax, x, cols, want, want_scales);
        const int64_t size = mox_act_group_cols(quant, cols);
        for (int64_t k = 0; k < cols; k++)
            if (codes[k] != want[k] || scales[k / size] != want_scales[k / size])
                fail_msg("seed %llu, %s rule %d, row %d, column %d: x %.9g gives code %02x scale %.9g, want %02x %.9g",
                         (unsigned long long)seed, mox_quant_describe(quant, words, sizeof words), (int)quant->rule,
                         (int)r, (int)k, (double)x[k], codes[k], (double)scales[k / size], want[k],
                         want_scales[k / size]);
    }
}

/* Every description that some quantizer serves, out of all combinations of the fields. */
static void test_every_quantizer(void **state)
{
    (void)state;
    static const moxie_dtype elements[] = { MOXIE_F8_E4M3, MOXIE_F8_E5M2, MOXIE_F6_E3M2,
                                            MOXIE_F6_E2M3, MOXIE_F4_E2M1, MOXIE_I8 };
    static const moxie_dtype scales[] = { MOXIE_F32, MOXIE_F8_E8M0, MOXIE_F8_E4M3 };
    static const int32_t groups[][2] = { { 1, 32 }, { 1, 16 }, { 1, -1 }, { -1, -1 } };
    const uint64_t seed = test_seed(21);
    const int64_t rows = test_env("MOXIE_TEST_ROWS", 60 / test_one_in(3, "rows"));
    int64_t served = 0;
    for (uint32_t n = 0; n < 6 * 3 * 4 * 7 * 3 * 3 * 2; n++) {
        uint32_t rest = n;
        moxie_quant quant = { 0 };
        quant.element = elements[rest % 6], rest /= 6;
        quant.scale = scales[rest % 3], rest /= 3;
        quant.group_rows = groups[rest % 4][0];
        quant.group_cols = groups[rest % 4][1], rest /= 4;
        quant.rule = (int32_t)(rest % 7), rest /= 7;
        quant.rounding = (int32_t)(rest % 3), rest /= 3;
        quant.global = (int32_t)(rest % 3), rest /= 3;
        quant.is_static = (int32_t)rest;
        if (!mox_act_quant_is_defined(&quant))
            continue;
        compare_rows(&quant, rows, seed + n);
        served++;
    }
    assert_true(served >= 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_by_hand),
        cmocka_unit_test(test_mx_scales_by_hand),
        cmocka_unit_test(test_every_quantizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
