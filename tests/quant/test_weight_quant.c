/* SPDX-License-Identifier: Apache-2.0
 *
 * test_weight_quant.c - quantization of weights. Scales are compared with values computed by hand from the formats'
 * rules. In random groups every code must be the nearest of all (each is tried, its value read by mox_matrix_weight),
 * and the error must stay within the format's bound.
 */
#include "test_support.h"

#include <float.h>
#include <math.h>

#include "quant/quant.h"

static void scales_by_hand(void **state)
{
    static const struct {
        moxie_quant quant;
        float extent, global, want;
    } cases[] = {
        { { MOXIE_F8_E4M3, MOXIE_F32, 128, .group_cols = 128 }, 448, 1, 1 },
        { { MOXIE_F8_E4M3, MOXIE_F32, 128, .group_cols = 128 }, 3, 1, (float)(3.0 / 448) },
        { { MOXIE_F8_E4M3, MOXIE_F32, 128, .group_cols = 128, .rule = MOXIE_RULE_UE8M0 }, 3, 1, 0x1p-7f },
        { { MOXIE_F8_E4M3, MOXIE_F32, 128, .group_cols = 128, .rule = MOXIE_RULE_UE8M0 }, 3.5f, 1, 0x1p-7f },
        { { MOXIE_F8_E4M3, MOXIE_F32, 128, .group_cols = 128, .rule = MOXIE_RULE_UE8M0 }, 3.6f, 1, 0x1p-6f },
        /* 1/127 is 1.0078 * 2^-7, in bf16 1.0078125 * 2^-7 */
        { { MOXIE_I8, MOXIE_BF16, 1, .group_cols = -1 }, 1, 1, 0x1.02p-7f },
        { { MOXIE_U4B8, MOXIE_F16, 1, .group_cols = 32 }, 3.5f, 1, 0.5f },
        { { MOXIE_U4B8, MOXIE_F16, 1, .group_cols = 32, .has_zero = 1 }, 7.5f, 1, 0.5f },
        { { MOXIE_U8B128, MOXIE_F16, 1, .group_cols = 32, .has_zero = 1 }, 255, 1, 1 },
        { { MOXIE_I4, MOXIE_F8_E4M3, 1, 128, .global = MOXIE_GLOBAL_MULTIPLY }, 7, 0.5f, 2 },
        /* MX, amax 6.5: ceil 2, even 1, floor 1; 7.5: 2, 2, 1 */
        { { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, .group_cols = 32 }, 6.5f, 1, 2 },
        { { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, .group_cols = 32, .rule = MOXIE_RULE_QUARK_EVEN }, 6.5f, 1, 1 },
        { { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, .group_cols = 32, .rule = MOXIE_RULE_QUARK_EVEN }, 7.5f, 1, 2 },
        { { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, .group_cols = 32, .rule = MOXIE_RULE_OCP_FLOOR }, 7.5f, 1, 1 },
        { { MOXIE_F8_E4M3, MOXIE_F8_E8M0, 1, .group_cols = 32 }, 448, 1, 1 },
        { { MOXIE_F6_E3M2, MOXIE_F8_E8M0, 1, .group_cols = 32 }, 28.5f, 1, 2 },
        /* NVFP4: amax / (6 global) as e4m3, held within [2^-9, 448] */
        { { MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_MULTIPLY }, 12, 0.125f, 16 },
        { { MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_DIVIDE }, 12, 8, 16 },
        { { MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_MULTIPLY }, 1e-6f, 1, 0x1p-9f },
        { { MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_MULTIPLY }, 1e6f, 1, 448 },
        /* nothing to scale, and nothing that the scale's dtype could hold */
        { { MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_MULTIPLY }, 0, 1, 1 },
        { { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, .group_cols = 32 }, 0, 1, 1 },
        { { MOXIE_F8_E4M3, MOXIE_F32, 1, .group_cols = -1 }, 0, 1, 1 },
        { { MOXIE_I8, MOXIE_F16, 1, .group_cols = -1 }, 1e-20f, 1, 0x1p-24f },
        { { MOXIE_I8, MOXIE_F16, 1, .group_cols = -1 }, 1e20f, 1, 65504 },
        { { MOXIE_F8_E4M3, MOXIE_F32, 1, .group_cols = -1, .rule = MOXIE_RULE_UE8M0 }, 1e-44f, 1, FLT_MIN },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const float got = mox_weight_group_scale(&cases[i].quant, cases[i].extent, cases[i].global);
        if (got != cases[i].want)
            fail_msg("case %zu: %a, want %a", i, (double)got, (double)cases[i].want);
    }
}

/* ---- random groups ------------------------------------------------------------------------------------------ */

enum { COUNT = 32 };

typedef struct group {
    float w[COUNT], scale, global, zero;
} group;

static void random_group(test_rng *rng, const moxie_quant *q, group *g)
{
    float amax = 0, low = 0, high = 0;
    for (int i = 0; i < COUNT; i++) {
        g->w[i] = 0.02f * test_normal(rng) + (q->has_zero ? 0.01f : 0);
        amax = fmaxf(amax, fabsf(g->w[i]));
        low = fminf(low, g->w[i]);
        high = fmaxf(high, g->w[i]);
    }
    g->global = q->global == MOXIE_GLOBAL_DIVIDE ? 30000.0f : q->global ? 1.0f / 30000.0f : 1;
    g->scale = mox_weight_group_scale(q, q->has_zero ? high - low : amax, g->global);
    g->zero = q->has_zero ? mox_weight_zero(q, low, g->scale, g->global) : 0;
}

/* The weight that `code` means, read as a checkpoint of one element. */
static double value_of(const moxie_quant *q, const group *g, uint32_t code)
{
    const float global = g->global, zero = g->zero;
    uint8_t scale[4];
    const uint32_t scale_code = mox_format_of(q->scale)->encode(g->scale);
    for (int i = 0; i < 4; i++)
        scale[i] = (uint8_t)(scale_code >> (8 * i));
    const uint8_t word[3] = { (uint8_t)code, 0, 0 }; /* 6-bit codes come four to three bytes */
    moxie_matrix m = { .codes = mox_grid_dense(word, q->element, 1, 1),
                       .scale = mox_grid_dense(scale, q->scale, 1, 1) };
    if (q->has_zero)
        m.zero = mox_grid_dense(&zero, MOXIE_F32, 1, 1);
    if (q->global)
        m.global = mox_grid_dense(&global, MOXIE_F32, 1, 1);
    moxie_error error = { 0 };
    assert_ok(mox_matrix_check(&m, q, 1, 1, false, "weight", &error), &error);
    return mox_matrix_weight(&m, q, 0, 0);
}

static void codes_are_nearest(void **state)
{
    /* The bound of the error, relative to the group's extent: half the widest step between codes; more where the rule
     * lets the largest values saturate, or rounds the scale. */
    static const struct {
        moxie_quant quant;
        double bound;
    } cases[] = {
        { { MOXIE_F8_E4M3, MOXIE_F32, 1, .group_cols = -1 }, 16.0 / 448 * 1.001 },
        { { MOXIE_F8_E4M3, MOXIE_BF16, 128, .group_cols = 128 }, 16.0 / 448 * 1.01 },
        { { MOXIE_F8_E4M3, MOXIE_F32, 128, .group_cols = 128, .rule = MOXIE_RULE_UE8M0 }, 2 * 16.0 / 448 },
        { { MOXIE_F8_E5M2, MOXIE_F32, 1, .group_cols = -1 }, 4096.0 / 57344 * 1.001 },
        { { MOXIE_F8_E4M3, MOXIE_F8_E8M0, 1, .group_cols = 32 }, 2 * 16.0 / 448 },
        { { MOXIE_F6_E2M3, MOXIE_F8_E8M0, 1, .group_cols = 32 }, 2 * 0.25 / 7.5 },
        { { MOXIE_F6_E3M2, MOXIE_F8_E8M0, 1, .group_cols = 32 }, 2 * 2 / 28.0 },
        { { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, .group_cols = 32 }, 2 * 1 / 6.0 },
        { { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, .group_cols = 32, .rule = MOXIE_RULE_OCP_FLOOR }, 2 / 8.0 },
        { { MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_MULTIPLY }, 1 / 6.0 * 1.07 },
        { { MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_DIVIDE }, 1 / 6.0 * 1.07 },
        { { MOXIE_I8, MOXIE_F32, 1, .group_cols = -1 }, 0.5 / 127 * 1.001 },
        { { MOXIE_I4, MOXIE_F32, 1, .group_cols = 128 }, 0.5 / 7 * 1.001 },
        { { MOXIE_I4, MOXIE_F8_E4M3, 1, 128, .global = MOXIE_GLOBAL_MULTIPLY }, 0.5 / 7 * 2 },
        { { MOXIE_U4B8, MOXIE_F16, 1, .group_cols = 128 }, 0.5 / 7 * 1.02 },
        { { MOXIE_U8B128, MOXIE_F16, 1, .group_cols = 128 }, 0.5 / 127 * 1.2 },
        /* A rounded zero point may move one end out of range by half a step, so the error is at most one step. */
        { { MOXIE_U4B8, MOXIE_F16, 1, 128, .has_zero = 1 }, 1.0 / 15 * 1.02 },
        { { MOXIE_U8B128, MOXIE_F32, 1, 128, .has_zero = 1 }, 1.0 / 255 * 1.001 },
    };
    test_rng rng = { test_seed(41) };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const moxie_quant *q = &cases[c].quant;
        for (int round = 0; round < 20; round++) {
            group g;
            random_group(&rng, q, &g);
            double low = 0, high = 0, worst = 0;
            for (int i = 0; i < COUNT; i++) {
                /* Not fmin() and fmax(): gcc 12 for aarch64 ends with an internal error in such a loop. */
                low = g.w[i] < low ? g.w[i] : low;
                high = g.w[i] > high ? g.w[i] : high;
            }
            const double extent = fmax(-low, high);
            for (int i = 0; i < COUNT; i++) {
                const double got = value_of(q, &g, mox_weight_code(q, g.w[i], g.scale, g.global, g.zero));
                double best = INFINITY;
                for (uint32_t code = 0; code < 1u << mox_dtype_bits(q->element); code++) {
                    const double value = value_of(q, &g, code);
                    if (!isnan(value))
                        best = fmin(best, fabs(value - g.w[i]));
                }
                /* The quotient is rounded to f32 before it is encoded, so next to a tie either neighbour is right. */
                assert_true(fabs(got - g.w[i]) <= best + 1e-6 * extent);
                worst = fmax(worst, fabs(got - g.w[i]));
            }
            if (worst > cases[c].bound * (q->has_zero ? high - low : extent))
                fail_msg("case %zu: worst error %g of the extent, bound %g", c,
                         worst / (q->has_zero ? high - low : extent), cases[c].bound);
        }
    }
}

/* z = 8 in u4b8 terms is the value 0; low = 0 puts the zero at the lowest code. */
static void zero_points(void **state)
{
    const moxie_quant u4 = { MOXIE_U4B8, MOXIE_F16, 1, 128, .has_zero = 1 };
    const moxie_quant i8 = { MOXIE_I8, MOXIE_F32, 1, 128, .has_zero = 1 };
    (void)state;
    assert_true(mox_weight_zero(&u4, 0, 0.5f, 1) == -8);
    assert_true(mox_weight_zero(&u4, -4, 0.5f, 1) == 0);
    assert_true(mox_weight_zero(&u4, -7.5f, 0.5f, 1) == 7);
    assert_true(mox_weight_zero(&u4, -100, 0.5f, 1) == 7);
    assert_true(mox_weight_zero(&i8, -31.875f, 0.25f, 1) == 0); /* -128 + 127.5, to even */
    assert_int_equal(mox_weight_code(&u4, 0, 0.5f, 1, -8), 0);
    assert_int_equal(mox_weight_code(&u4, 7.5f, 0.5f, 1, -8), 15);
    assert_int_equal(mox_weight_code(&u4, -4, 0.5f, 1, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_by_hand),
        cmocka_unit_test(codes_are_nearest),
        cmocka_unit_test(zero_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
