/* SPDX-License-Identifier: Apache-2.0
 *
 * test_act_quant.c - the activation quantizers of docs/quantizers.md:
 *
 *     check values      computed by hand from the rules
 *     scales            the rule restated over exact doubles, powers of two found by walking up from the smallest
 *     codes             the nearest of all codes of the format, found by trying each; ties to the even code
 *     edges             zeros, NaN, infinities, subnormals, short last groups, empty arrays
 */
#include "test_support.h"

#include <float.h>
#include <math.h>

#include "quant/quant.h"

/* ---- expected values, without src/format -------------------------------------------------------------- */

typedef struct minifloat {
    moxie_dtype dtype;
    int exponent_bits, mantissa_bits, bias;
    double max;
    int nan_code; /* the code of a NaN */
} minifloat;

static const minifloat formats[] = {
    { MOXIE_F8_E4M3, 4, 3, 7, 448, 0x7f }, { MOXIE_F8_E5M2, 5, 2, 15, 57344, 0x7f },
    { MOXIE_F6_E3M2, 3, 2, 3, 28, 0x1f },  { MOXIE_F6_E2M3, 2, 3, 1, 7.5, 0x1f },
    { MOXIE_F4_E2M1, 2, 1, 1, 6, 0x07 },
};
#define FORMATS (sizeof formats / sizeof formats[0])

static double magnitude_of(const minifloat *f, int code)
{
    const int e = code >> f->mantissa_bits, m = code & ((1 << f->mantissa_bits) - 1);
    return e ? ldexp(m + (1 << f->mantissa_bits), e - f->bias - f->mantissa_bits)
             : ldexp(m, 1 - f->bias - f->mantissa_bits);
}

/* The nearest code, by trying all finite ones. */
static int nearest(const minifloat *f, double v)
{
    const int sign = 1 << (f->exponent_bits + f->mantissa_bits);
    if (isnan(v))
        return f->nan_code;
    const double a = fmin(fabs(v), f->max);
    int best = 0;
    for (int code = 1; code < sign && magnitude_of(f, code) <= f->max; code++) {
        const double now = fabs(magnitude_of(f, code) - a), before = fabs(magnitude_of(f, best) - a);
        if (now < before || (now == before && code % 2 == 0))
            best = code;
    }
    return signbit(v) ? best | sign : best;
}

static double power_of_two(int e)
{
    return ldexp(1, e);
}

/* The smallest e in [-127, 127] with limit(e) >= amax, by walking. */
static int walk_up(double amax, double largest)
{
    int e = -127;
    while (e < 127 && largest * power_of_two(e) < amax)
        e++;
    return e;
}

static int floor_log2(double v)
{
    int e = -300;
    while (power_of_two(e + 1) <= v)
        e++;
    return e;
}

static int clamp_exponent(int e)
{
    return e < -127 ? -127 : e > 127 ? 127 : e;
}

/* ---- helpers ---------------------------------------------------------------------------------------------- */

static void quantize(const moxie_quant *q, const float *x, int64_t rows, int64_t cols, float static_scale,
                     uint8_t *codes, float *scales)
{
    moxie_error error = { 0 };
    assert_ok(mox_quantize_activations(q, x, rows, cols, static_scale, codes, scales, &error), &error);
}

/* Numbers of very different sizes, with zeros, ties of every format and both signs. */
static float random_value(test_rng *rng)
{
    switch (test_below(rng, 8)) {
    case 0: return 0.0f;
    case 1: return -0.0f;
    case 2: return ldexpf((float)test_range(rng, -32, 32), (int)test_range(rng, -6, 3));
    case 3: return ldexpf(test_normal(rng), (int)test_range(rng, -30, 30));
    default: return test_normal(rng);
    }
}

/* Replaces most of `x` by numbers at most two ulps from a tie between two codes under `scale`, where the order of
 * operations decides the rounding. The caller recomputes everything from the new x. */
static void toward_ties(test_rng *rng, const minifloat *f, double scale, float *x, int count)
{
    const int codes = f ? (1 << (f->exponent_bits + f->mantissa_bits)) - 2 : 126;
    for (int i = 0; i < count; i++) {
        const int code = (int)test_below(rng, (uint64_t)codes);
        const double tie = f ? (magnitude_of(f, code) + magnitude_of(f, code + 1)) / 2 : code + 0.5;
        if (fabsf(x[i]) > FLT_MAX || isnan(x[i]) || (f && tie > f->max) || test_below(rng, 8) == 0)
            continue;
        x[i] = (float)(tie * scale);
        for (int64_t ulps = test_range(rng, -2, 2); ulps != 0; ulps += ulps < 0 ? 1 : -1)
            x[i] = nextafterf(x[i], ulps < 0 ? 0 : INFINITY);
        x[i] = copysignf(x[i], (float)test_range(rng, 0, 1) - 0.5f);
    }
}

static float group_amax(const float *x, int count)
{
    float amax = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(x[i]))
            amax = fmaxf(amax, fminf(fabsf(x[i]), FLT_MAX));
    return amax;
}

/* ---- check values ------------------------------------------------------------------------------------------- */

static float mx_scale(moxie_dtype element, int32_t rule, float amax)
{
    const moxie_quant q = {
        .element = element, .scale = MOXIE_F8_E8M0, .group_rows = 1, .group_cols = 32, .rule = rule
    };
    const float x[3] = { 0.25f * amax, -amax, 0 };
    uint8_t codes[3];
    float scale;
    quantize(&q, x, 1, 3, 0, codes, &scale);
    return scale;
}

static void mx_scales(void **state)
{
    static const struct {
        moxie_dtype element;
        float amax, ceil, quark, ocp, vllm;
    } cases[] = {
        { MOXIE_F4_E2M1, 6.0f, 1, 1, 1, 0 },
        { MOXIE_F4_E2M1, 6.5f, 2, 1, 1, 0 },
        { MOXIE_F4_E2M1, 7.5f, 2, 2, 1, 0 },
        { MOXIE_F4_E2M1, 3.4f, 1, 0.5f, 0.5f, 0 },
        { MOXIE_F4_E2M1, 0x1.8p-20f, 0x1p-22f, 0x1p-22f, 0x1p-22f, 0 },
        { MOXIE_F4_E2M1, 0x1.800002p-20f, 0x1p-21f, 0x1p-22f, 0x1p-22f, 0 },
        { MOXIE_F8_E4M3, 448, 1, 2, 1, 256 },
        { MOXIE_F8_E4M3, 450, 2, 2, 1, 256 },
        { MOXIE_F8_E4M3, 300, 1, 1, 1, 256 },
        { MOXIE_F8_E4M3, 1, 0x1p-8f, 0x1p-8f, 0x1p-8f, 1 },
        { MOXIE_F6_E2M3, 7.5f, 1, 2, 1, 0 },
        { MOXIE_F6_E3M2, 28.5f, 2, 2, 1, 0 },
        { MOXIE_F8_E5M2, 57344, 1, 2, 1, 0 },
        { MOXIE_F4_E2M1, 0, 0x1p-127f, 0x1p-127f, 0x1p-127f, 0 },
        { MOXIE_F4_E2M1, 0x1p-140f, 0x1p-127f, 0x1p-127f, 0x1p-127f, 0 },
        { MOXIE_F4_E2M1, FLT_MAX, 0x1p126f, 0x1p126f, 0x1p125f, 0 },
        { MOXIE_F8_E4M3, INFINITY, 0x1p120f, 0x1p120f, 0x1p119f, 0x1p127f },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(mx_scale(cases[i].element, MOXIE_RULE_DEFAULT, cases[i].amax) == cases[i].ceil);
        assert_true(mx_scale(cases[i].element, MOXIE_RULE_CEIL, cases[i].amax) == cases[i].ceil);
        assert_true(mx_scale(cases[i].element, MOXIE_RULE_QUARK_EVEN, cases[i].amax) == cases[i].quark);
        assert_true(mx_scale(cases[i].element, MOXIE_RULE_OCP_FLOOR, cases[i].amax) == cases[i].ocp);
        if (cases[i].vllm != 0)
            assert_true(mx_scale(cases[i].element, MOXIE_RULE_VLLM_FLOOR, cases[i].amax) == cases[i].vllm);
    }
}

static void fp8_per_token_row(void **state)
{
    const moxie_quant q = { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1 };
    const float x[4] = { 1, 2, -3, 0.01f };
    const double values[4] = { 144, 288, -448, 1.5 };
    uint8_t codes[4];
    float scale;
    (void)state;
    quantize(&q, x, 1, 4, 0, codes, &scale);
    assert_true(scale == 3.0f / 448.0f);
    assert_close(scale, 0.0066964286, 1e-10);
    for (int i = 0; i < 4; i++)
        assert_int_equal(codes[i], nearest(&formats[0], values[i]));
}

/* Tensor maximum 3, so gs = 448 * 6 / 3 = 896; block x_i = bf16(0.1 i - 0.75). */
static void nvfp4_block(void **state)
{
    static const uint8_t want[8] = { 0xff, 0xee, 0xcd, 0x9a, 0x21, 0x54, 0x66, 0x77 };
    float x[16];
    (void)state;
    for (int i = 0; i < 16; i++)
        x[i] = mox_bf16_decode(mox_bf16_encode((float)(0.1 * i - 0.75)));
    for (int variant = 0; variant < 2; variant++) {
        const moxie_quant q = { .element = MOXIE_F4_E2M1,
                                .scale = MOXIE_F8_E4M3,
                                .group_rows = 1,
                                .group_cols = 16,
                                .global = variant ? MOXIE_GLOBAL_MULTIPLY : MOXIE_GLOBAL_DIVIDE,
                                .is_static = 1 };
        uint8_t codes[16];
        float scale;
        quantize(&q, x, 1, 16, variant ? 1.0f / 896.0f : 896.0f, codes, &scale);
        assert_true(scale == 112.0f);
        for (int i = 0; i < 8; i++)
            assert_int_equal(codes[2 * i] | codes[2 * i + 1] << 4, want[i]);
    }
}

/* With amax 127 the scale is 127 / 127 = 1, so x itself is rounded. */
static void int8_roundings(void **state)
{
    static const float x[8] = { 127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.75f, 2.25f };
    static const int8_t want[3][8] = {
        [MOXIE_ROUND_EVEN] = { 127, 0, 2, 2, 0, -2, -3, 2 },
        [MOXIE_ROUND_AWAY] = { 127, 1, 2, 3, -1, -2, -3, 2 },
        [MOXIE_ROUND_TRUNCATE] = { 127, 0, 1, 2, 0, -1, -2, 2 },
    };
    static const struct {
        int32_t group_rows, group_cols, is_static;
    } kinds[] = { { -1, -1, 1 }, { -1, -1, 0 }, { 1, -1, 0 }, { 1, 8, 0 } };
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int32_t rounding = 0; rounding < 3; rounding++) {
            const moxie_quant q = { .element = MOXIE_I8,
                                    .scale = MOXIE_F32,
                                    .group_rows = kinds[k].group_rows,
                                    .group_cols = kinds[k].group_cols,
                                    .is_static = kinds[k].is_static,
                                    .rounding = rounding };
            uint8_t codes[8];
            float scale;
            quantize(&q, x, 1, 8, 1, codes, &scale);
            assert_true(scale == 1);
            for (int i = 0; i < 8; i++)
                assert_int_equal((int8_t)codes[i], want[rounding][i]);
        }
}

static void int8_static_saturates(void **state)
{
    const moxie_quant q = {
        .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = -1, .group_cols = -1, .is_static = 1
    };
    const float x[6] = { 1000, -1000, INFINITY, -INFINITY, NAN, -64.25f };
    const int8_t want[6] = { 127, -128, 127, -128, 0, -128 };
    uint8_t codes[6];
    float scale;
    (void)state;
    quantize(&q, x, 1, 6, 0.5f, codes, &scale);
    assert_true(scale == 0.5f);
    for (int i = 0; i < 6; i++)
        assert_int_equal((int8_t)codes[i], want[i]);
}

/* ---- every rule on random rows --------------------------------------------------------------------------------- */

enum { ROWS = 3, COLS = 75 };

static void random_rows(test_rng *rng, float x[ROWS * COLS])
{
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = random_value(rng);
    if (test_below(rng, 2))
        x[test_below(rng, ROWS * COLS)] = NAN;
    if (test_below(rng, 4) == 0)
        x[test_below(rng, ROWS * COLS)] = -INFINITY;
    if (test_below(rng, 3) == 0)
        memset(x + 32, 0, 16 * sizeof *x);
}

static int mx_exponent(const minifloat *f, int32_t rule, double amax)
{
    if (amax == 0)
        return -127;
    const double over = amax / power_of_two(floor_log2(amax));
    switch (rule) {
    case MOXIE_RULE_OCP_FLOOR: return clamp_exponent(floor_log2(amax) - floor_log2(f->max));
    case MOXIE_RULE_QUARK_EVEN: return clamp_exponent(floor_log2(amax) + (over >= 1.75) - floor_log2(f->max));
    case MOXIE_RULE_VLLM_FLOOR: return clamp_exponent(floor_log2(amax));
    default: return walk_up(amax, f->max);
    }
}

static void mx_rows(void **state)
{
    static const int32_t rules[] = { MOXIE_RULE_DEFAULT, MOXIE_RULE_CEIL, MOXIE_RULE_QUARK_EVEN, MOXIE_RULE_OCP_FLOOR,
                                     MOXIE_RULE_VLLM_FLOOR };
    test_rng rng = { test_seed(31) };
    (void)state;
    for (int round = 0; round < 200; round++) {
        const minifloat *f = &formats[test_below(&rng, FORMATS)];
        const int32_t rule = rules[test_below(&rng, f->dtype == MOXIE_F8_E4M3 ? 5 : 4)];
        const int32_t group = (int32_t[]) { 32, 16, 1, 100 }[test_below(&rng, 4)];
        const int groups = (COLS + group - 1) / group;
        const moxie_quant q = { .element = f->dtype, .scale = MOXIE_F8_E8M0, .group_cols = group, .rule = rule };
        float x[ROWS * COLS], scales[ROWS * COLS];
        uint8_t codes[ROWS * COLS];
        random_rows(&rng, x);
        quantize(&q, x, ROWS, COLS, 0, codes, scales);
        for (int r = 0; r < ROWS; r++)
            for (int g = 0; g < groups; g++) {
                const int first = g * group, count = COLS - first < group ? COLS - first : group;
                const int e = mx_exponent(f, rule, group_amax(x + r * COLS + first, count));
                assert_true(scales[r * groups + g] == power_of_two(e));
                for (int k = first; k < first + count; k++)
                    assert_int_equal(codes[r * COLS + k], nearest(f, x[r * COLS + k] / power_of_two(e)));
            }
    }
}

/* fp8: the number to round, one f32 operation at a time as docs/quantizers.md says; then the nearest code. */
static void fp8_rows(void **state)
{
    test_rng rng = { test_seed(32) };
    (void)state;
    for (int round = 0; round < 300; round++) {
        const minifloat *f = &formats[test_below(&rng, 2)];
        const float max = (float)f->max, static_scale = 0.01f + fabsf(test_normal(&rng));
        const int kind = (int)test_below(&rng, 5); /* static, dynamic, token, group, group with UE8M0 */
        const int32_t group = kind >= 3 ? 32 : COLS;
        const moxie_quant q = { .element = f->dtype,
                                .scale = MOXIE_F32,
                                .group_rows = kind < 2 ? -1 : 1,
                                .group_cols = kind >= 3 ? group : -1,
                                .is_static = kind == 0,
                                .rule = kind == 4 ? MOXIE_RULE_UE8M0 : MOXIE_RULE_AMAX };
        const int groups = (COLS + group - 1) / group;
        float x[ROWS * COLS], scales[ROWS * COLS];
        uint8_t codes[ROWS * COLS];
        random_rows(&rng, x);
        quantize(&q, x, ROWS, COLS, static_scale, codes, scales);
        toward_ties(&rng, f, scales[0], x, group);
        quantize(&q, x, ROWS, COLS, static_scale, codes, scales);
        for (int i = 0; i < ROWS * COLS; i++) {
            const int r = i / COLS, g = i % COLS / group, first = r * COLS + g * group;
            const float amax = kind < 2 ? group_amax(x, ROWS * COLS)
                                        : group_amax(x + first, COLS - g * group < group ? COLS - g * group : group);
            float s = static_scale;
            if (kind == 1)
                s = amax == 0 ? 1 : fmaxf(amax / max, FLT_MIN);
            else if (kind == 2)
                s = fmaxf(amax / max, 1.0f / (max * 512.0f));
            else if (kind >= 3)
                s = fmaxf(amax, 1e-10f) / max;
            if (kind == 4)
                s = (float)power_of_two(walk_up(fmaxf(s, 1e-10f), 1));
            assert_true(scales[kind < 2 ? 0 : r * groups + g] == s);
            const float reciprocal = 1.0f / s, v = kind < 2 ? x[i] * reciprocal : x[i] / s;
            assert_int_equal(codes[i], nearest(f, v));
        }
    }
}

static void int8_rows(void **state)
{
    test_rng rng = { test_seed(33) };
    (void)state;
    for (int round = 0; round < 300; round++) {
        const float static_scale = 0.01f + fabsf(test_normal(&rng));
        const int kind = (int)test_below(&rng, 4); /* static, dynamic, token, group */
        const int32_t rounding = (int32_t)test_below(&rng, 3), group = kind == 3 ? 16 : COLS;
        const moxie_quant q = { .element = MOXIE_I8,
                                .scale = MOXIE_F32,
                                .group_rows = kind < 2 ? -1 : 1,
                                .group_cols = kind == 3 ? group : -1,
                                .is_static = kind == 0,
                                .rounding = rounding };
        const int groups = (COLS + group - 1) / group;
        float x[ROWS * COLS], scales[ROWS * COLS];
        uint8_t codes[ROWS * COLS];
        random_rows(&rng, x);
        quantize(&q, x, ROWS, COLS, static_scale, codes, scales);
        toward_ties(&rng, NULL, scales[0], x, group);
        quantize(&q, x, ROWS, COLS, static_scale, codes, scales);
        for (int i = 0; i < ROWS * COLS; i++) {
            const int r = i / COLS, g = i % COLS / group, first = r * COLS + g * group;
            const float amax = kind < 2 ? group_amax(x, ROWS * COLS)
                                        : group_amax(x + first, COLS - g * group < group ? COLS - g * group : group);
            const float a = fmaxf(amax, 1e-10f), s = kind == 0 ? static_scale : a / 127.0f, reciprocal = 127.0f / a;
            const double v = kind == 2 ? x[i] * reciprocal : x[i] / s;
            /* lrint rounds to even; floor(|v| + 1/2) and the cast are exact for doubles of this size. */
            double want = 0;
            if (!isnan(v) && fabs(v) < 1000) {
                const double away = copysign(floor(fabs(v) + 0.5), v);
                want = rounding == MOXIE_ROUND_EVEN ? (double)lrint(v) : rounding == MOXIE_ROUND_AWAY ? away : (int)v;
            } else if (!isnan(v)) {
                want = v;
            }
            want = want > 127 ? 127 : want < -128 ? -128 : want;
            assert_true(scales[kind < 2 ? 0 : r * groups + g] == s);
            assert_int_equal((int8_t)codes[i], (int)want);
        }
    }
}

/* llama.cpp's Q8_0 and Q8_K. Of the latter the scale's sign is left out, and the codes' with it. */
static void ggml_rows(void **state)
{
    test_rng rng = { test_seed(35) };
    (void)state;
    for (int round = 0; round < 300; round++) {
        const bool half = test_below(&rng, 2) == 0;
        const int32_t group = 16, groups = (COLS + group - 1) / group;
        const moxie_quant q = { .element = MOXIE_I8,
                                .scale = half ? MOXIE_F16 : MOXIE_F32,
                                .group_cols = group,
                                .rule = half ? MOXIE_RULE_DEFAULT : MOXIE_RULE_INVERSE };
        float x[ROWS * COLS], scales[ROWS * COLS];
        uint8_t codes[ROWS * COLS];
        for (int i = 0; i < ROWS * COLS; i++)
            x[i] = round % 7 == 0 && i < group ? 0.0f : test_normal(&rng);
        quantize(&q, x, ROWS, COLS, 0, codes, scales);
        for (int i = 0; i < ROWS * COLS; i++) {
            const int r = i / COLS, g = i % COLS / group, first = r * COLS + g * group;
            const float amax = group_amax(x + first, COLS - g * group < group ? COLS - g * group : group);
            const float by = amax == 0 ? 0.0f : 127.0f / amax, v = x[i] * by, ratio = amax / 127.0f;
            float s = by == 0 ? 0.0f : 1.0f / by;
            if (half) { /* the nearest multiple of the unit of f16, which is exact in f32 */
                const float unit = ldexpf(1.0f, (int)fmax(ilogbf(ratio), -14) - 10);
                s = amax == 0 ? 0.0f : rintf(ratio / unit) * unit;
            }
            assert_true(scales[r * groups + g] == s);
            assert_int_equal((int8_t)codes[i], (int)lrintf(v));
        }
    }
}

static void nvfp4_rows(void **state)
{
    const minifloat *e4m3 = &formats[0], *e2m1 = &formats[4];
    test_rng rng = { test_seed(34) };
    (void)state;
    for (int round = 0; round < 300; round++) {
        const int32_t global = (int32_t)test_below(&rng, 3), group = 16, groups = (COLS + group - 1) / group;
        const float static_scale = ldexpf(1 + fabsf(test_normal(&rng)), (int)test_range(&rng, -12, 12));
        const moxie_quant q = {
            .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_cols = group, .global = global
        };
        const float gs = global == 0 ? 1 : global == MOXIE_GLOBAL_DIVIDE ? static_scale : 1.0f / static_scale;
        const float inverse = global == 0 ? 1 : global == MOXIE_GLOBAL_DIVIDE ? 1.0f / static_scale : static_scale;
        float x[ROWS * COLS], scales[ROWS * COLS];
        uint8_t codes[ROWS * COLS];
        random_rows(&rng, x);
        quantize(&q, x, ROWS, COLS, static_scale, codes, scales);
        toward_ties(&rng, e2m1, scales[0] / (double)gs, x, 16);
        toward_ties(&rng, e4m3, 6 / (double)gs, x + COLS, 1); /* the maximum of a group, where the scale is a tie */
        memset(x + COLS + 1, 0, 15 * sizeof *x);
        quantize(&q, x, ROWS, COLS, static_scale, codes, scales);
        for (int i = 0; i < ROWS * COLS; i++) {
            const int r = i / COLS, g = i % COLS / group, first = r * COLS + g * group;
            const float amax = group_amax(x + first, COLS - g * group < group ? COLS - g * group : group);
            const float sixth = gs * (1.0f / 6.0f), wanted = amax * sixth;
            const float s = (float)magnitude_of(e4m3, nearest(e4m3, wanted)), product = s * inverse;
            const float mul = amax == 0 ? 0 : fminf(1.0f / product, FLT_MAX), v = x[i] * mul;
            assert_true(scales[r * groups + g] == s);
            assert_int_equal(codes[i], nearest(e2m1, v));
        }
    }
}

/* ---- edges ------------------------------------------------------------------------------------------------------- */

static void zero_groups(void **state)
{
    static const struct {
        moxie_quant quant;
        float scale;
    } cases[] = {
        { { MOXIE_F8_E4M3, MOXIE_F32, -1, .group_cols = -1 }, 1 },
        { { MOXIE_F8_E4M3, MOXIE_F32, 1, .group_cols = -1 }, 1.0f / (448.0f * 512.0f) },
        { { MOXIE_F8_E4M3, MOXIE_F32, 1, .group_cols = 128 }, 1e-10f / 448.0f },
        { { MOXIE_F8_E4M3, MOXIE_F32, 1, .group_cols = 128, .rule = MOXIE_RULE_UE8M0 }, 0x1p-33f }, /* >= 1e-10 */
        { { MOXIE_I8, MOXIE_F32, -1, .group_cols = -1 }, 1e-10f / 127.0f },
        { { MOXIE_I8, MOXIE_F32, 1, .group_cols = -1 }, 1e-10f / 127.0f },
        { { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, .group_cols = 32 }, 0x1p-127f },
        { { MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, .group_cols = 16 }, 0 },
    };
    const float x[4] = { 0, 0, 0, 0 };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t codes[4] = { 9, 9, 9, 9 };
        float scale = -1;
        quantize(&cases[i].quant, x, 1, 4, 1, codes, &scale);
        assert_true(scale == cases[i].scale);
        for (int k = 0; k < 4; k++)
            assert_int_equal(codes[k], 0);
    }
}

/* A group of NaNs has amax 0. The result in E5M2 is never an infinity, though the format has them. */
static void nan_and_infinity(void **state)
{
    const moxie_quant fp8 = { MOXIE_F8_E5M2, MOXIE_F32, -1, .group_cols = -1, .is_static = 1 };
    const moxie_quant mx = { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, .group_cols = 32 };
    const float x[4] = { NAN, INFINITY, -INFINITY, 1 };
    uint8_t codes[4];
    float scale;
    (void)state;
    quantize(&fp8, x, 1, 4, 1, codes, &scale);
    assert_int_equal(codes[0], 0x7f);
    assert_int_equal(codes[1], 0x7b);
    assert_int_equal(codes[2], 0xfb);
    quantize(&mx, x, 1, 1, 0, codes, &scale);
    assert_true(scale == 0x1p-127f);
    assert_int_equal(codes[0], 7);
    quantize(&mx, x, 1, 4, 0, codes, &scale);
    assert_true(scale == 0x1p126f);
    assert_int_equal(codes[1], 7);
    assert_int_equal(codes[2], 15);
    assert_true(mox_amax(x, 4) == FLT_MAX);
    assert_true(mox_amax(x, 1) == 0);
    assert_true(mox_amax(NULL, 0) == 0);
}

/* The buffers have exactly the documented size and end at an inaccessible page. */
static void writes_what_it_says(void **state)
{
    const moxie_quant q = { MOXIE_F8_E4M3, MOXIE_F32, 1, .group_cols = 32 };
    const size_t rows = 3, cols = 65, groups = 3;
    float *x = test_guarded(rows * cols * sizeof *x), *scales = test_guarded(rows * groups * sizeof *scales);
    uint8_t *codes = test_guarded(rows * cols);
    (void)state;
    quantize(&q, x, (int64_t)rows, (int64_t)cols, 0, codes, scales);
    quantize(&q, x, 0, (int64_t)cols, 0, codes, scales);
    quantize(&q, NULL, 5, 0, 0, NULL, NULL);
    const moxie_quant tensor = { MOXIE_F8_E4M3, MOXIE_F32, -1, .group_cols = -1 };
    quantize(&tensor, x, (int64_t)rows, (int64_t)cols, 0, codes, scales + rows * groups - 1);
    test_guarded_free(x, rows * cols * sizeof *x);
    test_guarded_free(scales, rows * groups * sizeof *scales);
    test_guarded_free(codes, rows * cols);
}

static void rejections(void **state)
{
    const moxie_quant none = { 0 };
    const moxie_quant fixed = { MOXIE_F8_E4M3, MOXIE_F32, -1, .group_cols = -1, .is_static = 1 };
    const moxie_quant token = { MOXIE_F8_E4M3, MOXIE_F32, 1, .group_cols = -1 };
    const moxie_quant weights = { MOXIE_U4B8, MOXIE_F16, 1, .group_cols = 128 };
    const moxie_quant global = { MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_DIVIDE };
    const float bad_given[] = { 0, -1, NAN, INFINITY, 0x1p-127f, 0x1.000002p126f };
    const float x[1] = { 1 };
    uint8_t codes[1] = { 0xee };
    float scales[1] = { -5 };
    moxie_error error = { 0 };
    (void)state;
    assert_int_equal(mox_quantize_activations(&none, x, 1, 1, 1, codes, scales, &error), MOXIE_ERR_UNSUPPORTED);
    assert_int_equal(mox_quantize_activations(&weights, x, 1, 1, 1, codes, scales, &error), MOXIE_ERR_UNSUPPORTED);
    assert_int_equal(mox_quantize_activations(&token, NULL, 1, 1, 1, codes, scales, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(mox_quantize_activations(&token, x, -1, 1, 1, codes, scales, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(mox_quantize_activations(&token, x, INT64_MAX, INT64_MAX, 1, codes, scales, &error),
                     MOXIE_ERR_ARGUMENT);
    assert_int_equal(mox_quantize_activations(&token, x, (int64_t)1 << 31, (int64_t)1 << 30, 1, codes, scales, &error),
                     MOXIE_ERR_ARGUMENT);
    for (size_t i = 0; i < sizeof bad_given / sizeof bad_given[0]; i++) {
        assert_int_equal(mox_quantize_activations(&fixed, x, 1, 1, bad_given[i], codes, scales, &error),
                         MOXIE_ERR_ARGUMENT);
        assert_int_equal(mox_quantize_activations(&global, x, 1, 1, bad_given[i], codes, scales, NULL),
                         MOXIE_ERR_ARGUMENT);
    }
    assert_int_equal(codes[0], 0xee);
    assert_true(scales[0] == -5);
    quantize(&token, x, 1, 1, 0, codes, scales);
    assert_true(mox_act_quant_needs_static_scale(&fixed) && mox_act_quant_needs_static_scale(&global));
    assert_true(!mox_act_quant_needs_static_scale(&token) && !mox_act_quant_needs_amax(&fixed));
    assert_true(!mox_act_quant_needs_amax(&none) && !mox_act_quant_needs_amax(&token));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mx_scales),
        cmocka_unit_test(fp8_per_token_row),
        cmocka_unit_test(nvfp4_block),
        cmocka_unit_test(int8_roundings),
        cmocka_unit_test(int8_static_saturates),
        cmocka_unit_test(mx_rows),
        cmocka_unit_test(fp8_rows),
        cmocka_unit_test(int8_rows),
        cmocka_unit_test(ggml_rows),
        cmocka_unit_test(nvfp4_rows),
        cmocka_unit_test(zero_groups),
        cmocka_unit_test(nan_and_infinity),
        cmocka_unit_test(writes_what_it_says),
        cmocka_unit_test(rejections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
