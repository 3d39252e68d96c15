/* SPDX-License-Identifier: Apache-2.0
 *
 * test_matrix.c - weights are the exact real products that the checkpoint formats define; extents of groups; invalid
 * matrices and descriptions are rejected with a text.
 */
#include "test_support.h"

#include <math.h>

#include "quant/quant.h"

/* E2M1 as a list of values, E8M0 by its definition: expected values do not use src/format. */
static const double e2m1[16] = { 0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6 };

static double e4m3(unsigned code)
{
    const int e = code >> 3 & 15, m = code & 7;
    const double magnitude = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return code & 0x80 ? -magnitude : magnitude;
}

static void fill(test_rng *rng, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)test_u64(rng);
}

static void ok(const moxie_matrix *m, const moxie_quant *q, bool bias)
{
    moxie_error error = { 0 };
    assert_ok(mox_quant_check_weight(q, "weights", &error), &error);
    assert_ok(mox_matrix_check(m, q, m->codes.rows, m->codes.cols, bias, "weights", &error), &error);
}

static void mxfp4_weights(void **state)
{
    enum { N = 3, K = 80 }; /* two and a half groups */
    uint8_t codes[N * K / 2], scales[N * 3];
    test_rng rng = { test_seed(21) };
    (void)state;
    fill(&rng, codes, sizeof codes);
    for (size_t i = 0; i < sizeof scales; i++)
        scales[i] = (uint8_t)test_below(&rng, 255);
    scales[0] = 0; /* 2^-127 */
    const moxie_quant q = { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_rows = 1, .group_cols = 32 };
    const moxie_matrix m = { .codes = mox_grid_dense(codes, MOXIE_F4_E2M1, N, K),
                             .scale = mox_grid_dense(scales, MOXIE_F8_E8M0, N, 3) };
    ok(&m, &q, false);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) {
            const int at = n * K + k, code = k % 2 ? codes[at / 2] >> 4 : codes[at / 2] & 15;
            assert_true(mox_matrix_weight(&m, &q, n, k) == ldexp(e2m1[code], scales[n * 3 + k / 32] - 127));
        }
}

/* The global is one number, or one per row; multiplied, or divided by. */
static void nvfp4_weights(void **state)
{
    enum { N = 4, K = 48 };
    uint8_t codes[N * K / 2], scales[N * 3];
    float global[N];
    test_rng rng = { test_seed(22) };
    (void)state;
    fill(&rng, codes, sizeof codes);
    for (size_t i = 0; i < sizeof scales; i++)
        scales[i] = (uint8_t)test_below(&rng, 0x7f);
    for (int n = 0; n < N; n++)
        global[n] = 0.001f + fabsf(test_normal(&rng));
    for (int variant = 0; variant < 4; variant++) {
        const bool divide = variant % 2, per_row = variant / 2;
        const moxie_quant q = { .element = MOXIE_F4_E2M1,
                                .scale = MOXIE_F8_E4M3,
                                .group_rows = 1,
                                .group_cols = 16,
                                .global = divide ? MOXIE_GLOBAL_DIVIDE : MOXIE_GLOBAL_MULTIPLY };
        const moxie_matrix m = { .codes = mox_grid_dense(codes, MOXIE_F4_E2M1, N, K),
                                 .scale = mox_grid_dense(scales, MOXIE_F8_E4M3, N, 3),
                                 .global = mox_grid_dense(global, MOXIE_F32, per_row ? N : 1, 1) };
        ok(&m, &q, false);
        for (int n = 0; n < N; n++)
            for (int k = 0; k < K; k++) {
                const int at = n * K + k, code = k % 2 ? codes[at / 2] >> 4 : codes[at / 2] & 15;
                const double g = global[per_row ? n : 0], s = e2m1[code] * e4m3(scales[n * 3 + k / 16]);
                assert_true(mox_matrix_weight(&m, &q, n, k) == (divide ? s / g : s * g));
            }
    }
}

/* Blocks of 128 x 128 with a partial block at both edges, and bf16 scales. */
static void fp8_block_weights(void **state)
{
    enum { N = 130, K = 257 };
    static uint8_t codes[N * K];
    const uint16_t scales[2][3] = { { 0x3f80, 0x4000, 0x3f00 }, { 0xbf80, 0x4040, 0x3e80 } };
    const double values[2][3] = { { 1, 2, .5 }, { -1, 3, .25 } };
    test_rng rng = { test_seed(23) };
    (void)state;
    for (int i = 0; i < N * K; i++)
        codes[i] = (uint8_t)(test_below(&rng, 0x7f) | (test_u64(&rng) & 0x80));
    const moxie_quant q = { .element = MOXIE_F8_E4M3, .scale = MOXIE_BF16, .group_rows = 128, .group_cols = 128 };
    const moxie_matrix m = { .codes = mox_grid_dense(codes, MOXIE_F8_E4M3, N, K),
                             .scale = mox_grid_dense(scales, MOXIE_BF16, 2, 3) };
    ok(&m, &q, false);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++)
            assert_true(mox_matrix_weight(&m, &q, n, k) == e4m3(codes[n * K + k]) * values[n / 128][k / 128]);
}

/* GPTQ v1: zero points are stored minus one, columns in act order. w = (q - (z + 1)) * s. */
static void gptq_weights_in_act_order(void **state)
{
    enum { N = 2, K = 16, GROUPS = 2 };
    static const int32_t group_index[K] = { 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 0, 1 };
    uint8_t codes[N * K / 2];
    const uint8_t zeros[N * GROUPS / 2] = { 0x7f, 0x60 }; /* row 0: 15, 7; row 1: 0, 6 */
    const int z[N][GROUPS] = { { 15, 7 }, { 0, 6 } };
    const float scales[N][GROUPS] = { { 0.125f, 0.3f }, { 1.7f, -0.01f } };
    test_rng rng = { test_seed(24) };
    (void)state;
    fill(&rng, codes, sizeof codes);
    const moxie_quant q = {
        .element = MOXIE_U4B8, .scale = MOXIE_F32, .group_rows = 1, .group_cols = 8, .has_zero = 1
    };
    const moxie_matrix m = { .codes = mox_grid_dense(codes, MOXIE_U4B8, N, K),
                             .scale = mox_grid_dense(scales, MOXIE_F32, N, GROUPS),
                             .zero = mox_grid_dense(zeros, MOXIE_U4B8, N, GROUPS),
                             .zero_add = 1,
                             .group_index = group_index };
    ok(&m, &q, false);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) {
            const int at = n * K + k, code = k % 2 ? codes[at / 2] >> 4 : codes[at / 2] & 15, g = group_index[k];
            assert_true(mox_matrix_weight(&m, &q, n, k) == (code - (z[n][g] + 1)) * (double)scales[n][g]);
        }
}

static void plain_and_float_zero(void **state)
{
    const float plain[2] = { 0.1f, -3 }, scale = 0.5f, zero = 1.5f;
    const int8_t codes[2] = { -128, 5 };
    const moxie_quant p = { .element = MOXIE_F32 };
    const moxie_quant q = {
        .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = -1, .group_cols = -1, .has_zero = 1
    };
    const moxie_matrix mp = { .codes = mox_grid_dense(plain, MOXIE_F32, 1, 2) };
    const moxie_matrix mq = { .codes = mox_grid_dense(codes, MOXIE_I8, 1, 2),
                              .scale = mox_grid_dense(&scale, MOXIE_F32, 1, 1),
                              .zero = mox_grid_dense(&zero, MOXIE_F32, 1, 1) };
    (void)state;
    ok(&mp, &p, false);
    ok(&mq, &q, false);
    assert_true(mox_matrix_weight(&mp, &p, 0, 0) == (double)0.1f);
    assert_true(mox_matrix_weight(&mq, &q, 0, 0) == -64.75);
    assert_true(mox_matrix_weight(&mq, &q, 0, 1) == 1.75);
    assert_true(mox_quant_is_plain(&p) && !mox_quant_is_plain(&q) && !mox_quant_is_none(&q));
}

static void group_extents(void **state)
{
    static const struct {
        int32_t group_rows, group_cols;
        int64_t rows, cols, want[4]; /* group rows, group cols, scale rows, scale cols of [rows, cols] */
    } cases[] = {
        { 0, 0, 5, 7, { 1, 7, 5, 1 } },
        { -1, -1, 5, 7, { 5, 7, 1, 1 } },
        { 1, 32, 5, 70, { 1, 32, 5, 3 } },
        { 128, 128, 5, 7, { 5, 7, 1, 1 } },
        { 128, 128, 256, 257, { 128, 128, 2, 3 } },
        { -1, -1, 0, 0, { 1, 1, 0, 0 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const moxie_quant q = { .group_rows = cases[i].group_rows, .group_cols = cases[i].group_cols };
        assert_int_equal(mox_group_rows(&q, cases[i].rows), cases[i].want[0]);
        assert_int_equal(mox_group_cols(&q, cases[i].cols), cases[i].want[1]);
        assert_int_equal(mox_scale_rows(&q, cases[i].rows), cases[i].want[2]);
        assert_int_equal(mox_scale_cols(&q, cases[i].cols), cases[i].want[3]);
    }
}

/* ---- rejections ---------------------------------------------------------------------------------------- */

static void mismatch(const moxie_matrix *m, const moxie_quant *q, bool bias, const char *because)
{
    moxie_error error = { 0 };
    const moxie_status status = mox_matrix_check(m, q, 2, 64, bias, "expert 3 down", &error);
    if (status == MOXIE_OK || !strstr(error.text, because) || !strstr(error.text, "expert 3 down"))
        fail_msg("status %d, \"%s\" does not say \"%s\"", status, error.text, because);
}

static void a_matrix_must_be_what_its_quantization_says(void **state)
{
    static const uint8_t bytes[512];
    const moxie_quant q = { .element = MOXIE_U4B8,
                            .scale = MOXIE_F16,
                            .group_rows = 1,
                            .group_cols = 32,
                            .has_zero = 1,
                            .global = MOXIE_GLOBAL_MULTIPLY };
    const moxie_quant plain = { .element = MOXIE_BF16 };
    const moxie_matrix good = { .codes = mox_grid_dense(bytes, MOXIE_U4B8, 2, 64),
                                .scale = mox_grid_dense(bytes, MOXIE_F16, 2, 2),
                                .zero = mox_grid_dense(bytes, MOXIE_U4B8, 2, 2),
                                .global = mox_grid_dense(bytes, MOXIE_F32, 2, 1),
                                .bias = mox_grid_dense(bytes, MOXIE_BF16, 2, 1) };
    int32_t index[64] = { 0 };
    moxie_matrix bad;
    moxie_error error = { 0 };
    (void)state;
    assert_ok(mox_matrix_check(&good, &q, 2, 64, true, "expert", &error), &error);
#define BAD(change, because)                                                                                           \
    bad = good;                                                                                                        \
    bad.change;                                                                                                        \
    mismatch(&bad, &q, true, because)
    BAD(codes.rows = 3, "codes: shape [3, 64], expected [2, 64]");
    BAD(codes.dtype = MOXIE_I4, "codes: dtype i4, but the quantization says u4b8");
    BAD(codes.bytes = 63, "takes 64 bytes, but only 63");
    BAD(scale.data = NULL, "scale: the quantization calls for it");
    BAD(scale.cols = 1, "scale: shape [2, 1], expected [2, 2]");
    BAD(scale.dtype = MOXIE_BF16, "scale: dtype bf16");
    BAD(zero.data = NULL, "zero points: the quantization calls for it");
    BAD(zero.dtype = MOXIE_F8_E4M3, "zero points: dtype f8_e4m3");
    BAD(zero_add = NAN, "zero_add is nan; it must be a number from -255 to 255");
    BAD(zero_add = -INFINITY, "zero_add is -inf");
    BAD(zero_add = 3e9f, "zero_add is 3e+09");
    BAD(global.rows = 3, "global: shape [3, 1], expected [1, 1]");
    BAD(global.dtype = MOXIE_I8, "global: dtype i8");
    BAD(bias.data = NULL, "bias: the quantization calls for it");
    mismatch(&good, &q, false, "bias: given, but");
    index[63] = 2;
    BAD(group_index = index, "group_index[63] is 2, but there are 2 groups");
    index[63] = -1;
    BAD(group_index = index, "group_index[63] is -1");
    bad = (moxie_matrix) { .codes = mox_grid_dense(bytes, MOXIE_BF16, 2, 64) };
    assert_ok(mox_matrix_check(&bad, &plain, 2, 64, false, "expert", &error), &error);
    bad.zero_add = 1;
    mismatch(&bad, &plain, false, "zero_add");
    bad.zero_add = 0;
    bad.group_index = index;
    mismatch(&bad, &plain, false, "no scales");
    bad.group_index = NULL;
    bad.scale = good.scale;
    mismatch(&bad, &plain, false, "scale: given, but");
}

static const struct {
    moxie_quant quant;
    moxie_status weight, act;
    const char *text;
} described[] = {
    { { 0 }, MOXIE_ERR_ARGUMENT, MOXIE_OK, "none" },
    { { .element = MOXIE_BF16 }, MOXIE_OK, MOXIE_ERR_ARGUMENT, "bf16" },
    { { .element = MOXIE_BF16, .scale = MOXIE_F32 }, MOXIE_ERR_ARGUMENT, MOXIE_ERR_UNSUPPORTED, "bf16 per row f32" },
    { { .element = MOXIE_F32, .global = 1 }, MOXIE_ERR_ARGUMENT, MOXIE_ERR_ARGUMENT, "f32 *global" },
    { { .element = MOXIE_F8_E8M0 }, MOXIE_ERR_ARGUMENT, MOXIE_ERR_UNSUPPORTED, "f8_e8m0" },
    { { .element = MOXIE_F8_E4M3 }, MOXIE_ERR_ARGUMENT, MOXIE_ERR_UNSUPPORTED, "f8_e4m3" },
    { { MOXIE_F8_E4M3, MOXIE_F32, .group_rows = 1, .group_cols = -1 }, MOXIE_OK, MOXIE_OK, "f8_e4m3 per row f32" },
    { { MOXIE_F8_E4M3, MOXIE_F32, .group_rows = 128, .group_cols = 128 },
      MOXIE_OK,
      MOXIE_ERR_UNSUPPORTED,
      "f8_e4m3 128x128 f32" },
    { { MOXIE_F8_E4M3, MOXIE_F32, .group_rows = -1, .group_cols = -1, .is_static = 1 },
      MOXIE_ERR_ARGUMENT,
      MOXIE_OK,
      "f8_e4m3 per tensor f32 static" },
    { { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, 32, .rule = MOXIE_RULE_QUARK_EVEN },
      MOXIE_OK,
      MOXIE_OK,
      "f4_e2m1 1x32 f8_e8m0 quark_even" },
    { { MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, 32, .rule = MOXIE_RULE_VLLM_FLOOR },
      MOXIE_OK,
      MOXIE_ERR_UNSUPPORTED,
      "f4_e2m1 1x32 f8_e8m0 vllm_floor" },
    { { MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_DIVIDE },
      MOXIE_OK,
      MOXIE_OK,
      "f4_e2m1 1x16 f8_e4m3 /global" },
    { { MOXIE_U4B8, MOXIE_F16, 1, 128, .has_zero = 1 }, MOXIE_OK, MOXIE_ERR_UNSUPPORTED, "u4b8 1x128 f16 zero" },
    { { MOXIE_F4_E2M1, MOXIE_F16, 1, 128, .has_zero = 1 },
      MOXIE_ERR_ARGUMENT,
      MOXIE_ERR_UNSUPPORTED,
      "f4_e2m1 1x128 f16 zero" },
    { { MOXIE_I8, MOXIE_F32, 1, -1, .rounding = MOXIE_ROUND_AWAY }, MOXIE_OK, MOXIE_OK, "i8 per row f32 round_away" },
    { { MOXIE_I8, MOXIE_F32, -1, .group_cols = 64 }, MOXIE_OK, MOXIE_ERR_UNSUPPORTED, "i8 *x64 f32" },
    { { MOXIE_I8, MOXIE_F32, -2, .group_cols = 0 }, MOXIE_ERR_ARGUMENT, MOXIE_ERR_ARGUMENT, "i8 *x* f32" },
    { { MOXIE_I8, MOXIE_I8, 1, .group_cols = 0 }, MOXIE_ERR_ARGUMENT, MOXIE_ERR_UNSUPPORTED, "i8 per row i8" },
    { { MOXIE_I8, MOXIE_F32, 1, 0, .global = 3 }, MOXIE_ERR_ARGUMENT, MOXIE_ERR_ARGUMENT, "i8 per row f32" },
    { { MOXIE_I8, MOXIE_F32, 1, 0, .rule = 8 }, MOXIE_ERR_ARGUMENT, MOXIE_ERR_ARGUMENT, "i8 per row f32" },
    { { MOXIE_I8, MOXIE_F32, 1, 0, .rounding = -1 }, MOXIE_ERR_ARGUMENT, MOXIE_ERR_ARGUMENT, "i8 per row f32" },
};

static void descriptions(void **state)
{
    char text[128];
    moxie_error error;
    (void)state;
    for (size_t i = 0; i < sizeof described / sizeof described[0]; i++) {
        assert_string_equal(mox_quant_describe(&described[i].quant, text, sizeof text), described[i].text);
        error.text[0] = '\0';
        assert_int_equal(mox_quant_check_weight(&described[i].quant, "w13", &error), described[i].weight);
        assert_true((described[i].weight == MOXIE_OK) == (error.text[0] == '\0'));
        assert_int_equal(mox_quant_check_act(&described[i].quant, "a13", NULL), described[i].act);
    }
    assert_string_equal(mox_quant_dtype_name(MOXIE_DTYPE_NONE), "none");
    assert_string_equal(mox_quant_dtype_name(MOXIE_I32), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mxfp4_weights),
        cmocka_unit_test(nvfp4_weights),
        cmocka_unit_test(fp8_block_weights),
        cmocka_unit_test(gptq_weights_in_act_order),
        cmocka_unit_test(plain_and_float_zero),
        cmocka_unit_test(group_extents),
        cmocka_unit_test(a_matrix_must_be_what_its_quantization_says),
        cmocka_unit_test(descriptions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
