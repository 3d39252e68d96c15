/* SPDX-License-Identifier: Apache-2.0
 *
 * test_weight_quant.c - quantization of weights. Scales are compared with values computed by hand from the formats'
 * rules. In random groups every code must be the nearest of all (each is tried, its value read by mox_matrix_weight),
 * and the error must stay within the format's bound.
 */
#include "test_support.h"

#include <float.h>
#include <math.h>

#include "base/cpu_features.h"
#include "quant/quant.h"
#include "quant/weight_codes.h"

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

/* ---- the loops of all instruction sets ---------------------------------------------------------------------- */

/* Zeros of both signs, subnormal numbers and numbers in the middle between two codes among normal ones. */
static float any_weight(test_rng *rng)
{
    static const float odd[] = { 0.0f, -0.0f, 0x1p-149f, -0x1p-130f, 0x1p-126f };
    if (test_below(rng, 4) == 0)
        return odd[test_below(rng, sizeof odd / sizeof odd[0])];
    return test_below(rng, 2) ? test_normal(rng) : 0.125f * (float)test_range(rng, -40, 40);
}

static void compare_ranges(const mox_weight_loops *a, const mox_weight_loops *b, const float *w, int64_t count)
{
    const mox_weight_range one = a->range(w, count), two = b->range(w, count);
    float ends[2][2] = { { -0.01f, 0.01f }, { -0.01f, 0.01f } };
    assert_memory_equal(&one.low, &two.low, sizeof one.low);
    assert_memory_equal(&one.high, &two.high, sizeof one.high);
    assert_int_equal(one.finite, two.finite);
    assert_true(one.squares == two.squares || !one.finite);
    a->extent(w, count, &ends[0][0], &ends[0][1]);
    b->extent(w, count, &ends[1][0], &ends[1][1]);
    if (one.finite)
        assert_memory_equal(ends[0], ends[1], sizeof ends[0]);
}

static void compare_codes(const mox_weight_loops *a, const mox_weight_loops *b, moxie_dtype element, const float *w,
                          int64_t count)
{
    const float largest = mox_format_of(element)->max;
    const bool integer = mox_format_of(element)->kind == MOX_KIND_INTEGER;
    for (int zero = 0; zero <= (integer ? 3 : 0); zero += 3) {
        const mox_weight_step step = { element, 0.25f, (float)zero, -largest - 1, largest };
        uint8_t codes[2][80];
        memset(codes, 0xa5, sizeof codes);
        a->codes(&step, w, count, codes[0]);
        b->codes(&step, w, count, codes[1]);
        assert_memory_equal(codes[0], codes[1], sizeof codes[0]);
        assert_int_equal(codes[0][count], 0xa5);
        const mox_weight_error one = a->error(&step, w, codes[0], count), two = b->error(&step, w, codes[0], count);
        assert_true(one.squares == two.squares && one.worst == two.worst);
        float worst = 0; /* plainly */
        for (int64_t i = 0; i < count; i++)
            worst = fmaxf(worst, fabsf((mox_format_of(element)->decode(codes[0][i]) - step.zero) * step.scale - w[i]));
        assert_true(one.worst == worst);
    }
}

/* Scales that are powers of two, so that products with their inverses are quotients: errors are those of the codes. */
static void compare_tries(const mox_weight_loops *a, const mox_weight_loops *b, moxie_dtype element, const float *w,
                          int64_t count, int32_t tries)
{
    const float largest = mox_format_of(element)->max;
    const bool integer = mox_format_of(element)->kind == MOX_KIND_INTEGER;
    mox_weight_tries all = mox_weight_tries_begin(mox_format_of(element), largest);
    float p[80];
    double squares[2][MOX_FIT_TRIES] = { { 0 } };
    for (int32_t t = 0; t < tries; t++)
        all.scale[t] = ldexpf(1, t % 5 - 4), all.zero[t] = integer ? (float)(t % 3) : 0;
    for (int64_t i = 0; i < count; i++)
        p[i] = 0.5f + (float)(i % 4);
    const float *weights = count % 2 ? p : NULL;
    mox_weight_tries_set(&all, tries);
    a->tries(&all, w, weights, count, squares[0]);
    b->tries(&all, w, weights, count, squares[1]);
    assert_memory_equal(squares[0], squares[1], sizeof squares[0]);
    for (int32_t t = 0; t < tries; t++) {
        const mox_weight_step step = { element, all.scale[t], all.zero[t], -largest - 1, largest };
        uint8_t codes[80];
        double sum = 0;
        a->codes(&step, w, count, codes);
        for (int64_t i = 0; i < count; i++) {
            const double value = (double)mox_format_of(element)->decode(codes[i]) - (double)all.zero[t];
            const double off = value * (double)all.scale[t] - (double)w[i];
            sum += (weights ? (double)weights[i] : 1) * off * off;
        }
        assert_true(fabs(squares[0][t] - sum) <= 80 * 0x1p-23 * sum);
    }
}

static bool is_for_weights(moxie_dtype dtype)
{
    const mox_format *f = mox_format_of(dtype);
    return f != NULL && f->bits <= 8 && (f->kind == MOX_KIND_FLOAT || f->kind == MOX_KIND_INTEGER);
}

/* Every count around whole vectors. The last weight is the largest, so that no loop may miss it. */
static void same_bits(void **state)
{
    const mox_weight_loops *const loops[] = { mox_weight_loops_best(), &mox_weight_loops_avx2 };
    test_rng rng = { test_seed(43) };
    (void)state;
    for (int64_t count = 1; count <= 79; count++)
        for (int l = 0; l < 2; l++) {
            float w[79];
            if (loops[l]->range == NULL || mox_cpu()->allowed < (l ? MOX_ISA_AVX2 : MOX_ISA_SCALAR))
                continue;
            for (int64_t i = 0; i < count; i++)
                w[i] = any_weight(&rng);
            w[count - 1] = test_below(&rng, 2) ? 50.0f : -50.0f;
            compare_ranges(loops[l], &mox_weight_loops_any, w, count);
            for (moxie_dtype dtype = 1; dtype < 256; dtype++)
                if (is_for_weights(dtype))
                    compare_codes(loops[l], &mox_weight_loops_any, dtype, w, count),
                        compare_tries(loops[l], &mox_weight_loops_any, dtype, w, count, count % 3 ? 12 : 3);
            const float special[] = { NAN, INFINITY, -INFINITY };
            w[test_below(&rng, (uint64_t)count)] = special[test_below(&rng, 3)];
            compare_ranges(loops[l], &mox_weight_loops_any, w, count);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(scales_by_hand),
        cmocka_unit_test(codes_are_nearest),
        cmocka_unit_test(zero_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
