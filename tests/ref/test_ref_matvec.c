/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ref_matvec.c - the oracle's product on small matrices, with results computed by hand.
 */
#include "test_support.h"

#include <math.h>

#include "format/block_parts.h"
#include "ref/ref.h"
#include "ref/ref_bounds.h"

/* w = (1 -2 0.5; 3 0 -1), x = (2, 1, -4), b = (10, -0.25). */
static void test_plain(void **state)
{
    (void)state;
    const float codes[6] = { 1, -2, 0.5f, 3, 0, -1 }, bias[2] = { 10, -0.25f };
    const moxie_quant quant = { .element = MOXIE_F32 };
    moxie_matrix matrix = { .codes = mox_grid_dense(codes, MOXIE_F32, 2, 3),
                            .bias = mox_grid_dense(bias, MOXIE_F32, 2, 1) };
    const double x[3] = { 2, 1, -4 };
    double out[2], magnitude[2];
    mox_ref_matvec(&matrix, &quant, x, out, magnitude);
    assert_true(out[0] == 2 - 2 - 2 + 10 && out[1] == 6 + 0 + 4 - 0.25);
    assert_true(magnitude[0] == 2 + 2 + 2 + 10 && magnitude[1] == 6 + 0 + 4 + 0.25);
    matrix.bias = (moxie_grid) { 0 };
    mox_ref_matvec(&matrix, &quant, x, out, magnitude);
    assert_true(out[0] == -2 && out[1] == 10 && magnitude[0] == 6 && magnitude[1] == 10);
}

/* One row of 64 e2m1 codes, 0x7 = 6 then 0x9 = -0.5; scales 2^1 and 2^-3; global 4, divided. */
static void test_mx_with_global(void **state)
{
    (void)state;
    uint8_t codes[32];
    const uint8_t scales[2] = { 128, 124 };
    const float global = 4;
    memset(codes, 0x97, sizeof codes); /* low nibble first: 6, -0.5, 6, -0.5, ... */
    const moxie_quant quant = {
        .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32, .global = MOXIE_GLOBAL_DIVIDE
    };
    const moxie_matrix matrix = { .codes = mox_grid_dense(codes, MOXIE_F4_E2M1, 1, 64),
                                  .scale = mox_grid_dense(scales, MOXIE_F8_E8M0, 1, 2),
                                  .global = mox_grid_dense(&global, MOXIE_F32, 1, 1) };
    double row[64], x[64], out, magnitude;
    for (int k = 0; k < 64; k++)
        x[k] = k < 32 ? 1 : 8;
    mox_ref_weight_row(&matrix, &quant, 0, row);
    assert_true(row[0] == 3 && row[1] == -0.25 && row[31] == -0.25 && row[32] == 0.1875 && row[63] == -0.015625);
    mox_ref_matvec(&matrix, &quant, x, &out, &magnitude);
    /* 16 (3 - 0.25) + 16 * 8 (0.1875 - 0.015625) */
    assert_true(out == 44 + 22 && magnitude == 52 + 26);
}

/* u4b8 with zero points and act order: w = (code - zero) scale of the column's group. */
static void test_zero_points_and_group_index(void **state)
{
    (void)state;
    const uint8_t codes[2] = { 0x1f, 0x80 }; /* 15, 1, 0, 8 */
    const uint8_t zeros[1] = { 0x39 };       /* 9, 3 */
    const float scales[2] = { 0.5f, 2 };
    const int32_t group_index[4] = { 1, 0, 1, 0 };
    const moxie_quant quant = { .element = MOXIE_U4B8, .scale = MOXIE_F32, .group_cols = 2, .has_zero = 1 };
    const moxie_matrix matrix = { .codes = mox_grid_dense(codes, MOXIE_U4B8, 1, 4),
                                  .scale = mox_grid_dense(scales, MOXIE_F32, 1, 2),
                                  .zero = mox_grid_dense(zeros, MOXIE_U4B8, 1, 2),
                                  .zero_add = 1,
                                  .group_index = group_index };
    double row[4];
    mox_ref_weight_row(&matrix, &quant, 0, row);
    assert_true(row[0] == (15 - 4) * 2.0 && row[1] == (1 - 10) * 0.5 && row[2] == (0 - 4) * 2.0 &&
                row[3] == (8 - 10) * 0.5);
}

/* A plain fp32 sum (forwards, backwards, in four lanes) is within the bound. Without its largest product it is not.
 */
static void test_bound_of_sums(void **state)
{
    (void)state;
    test_rng rng = { test_seed(11) };
    for (int64_t k = 1; k <= 4096; k = k * 3 + 1) {
        float *w = calloc((size_t)k, sizeof *w), *x = calloc((size_t)k, sizeof *x);
        double *wide = calloc((size_t)k, sizeof *wide), out, magnitude;
        float forward = 0, backward = 0, largest = 0, lanes[4] = { 0 };
        for (int64_t i = 0; i < k; i++) {
            w[i] = test_normal(&rng);
            wide[i] = x[i] = test_normal(&rng);
        }
        for (int64_t i = 0; i < k; i++) {
            forward += w[i] * x[i];
            largest = fmaxf(largest, fabsf(w[i] * x[i]));
            backward = fmaf(w[k - 1 - i], x[k - 1 - i], backward);
            lanes[i % 4] += w[i] * x[i];
        }
        const moxie_quant quant = { .element = MOXIE_F32 };
        const moxie_matrix matrix = { .codes = mox_grid_dense(w, MOXIE_F32, 1, k) };
        mox_ref_matvec(&matrix, &quant, wide, &out, &magnitude);
        const double bound = mox_bound_dot(k, k, magnitude);
        assert_close(forward, out, bound);
        assert_close(backward, out, bound);
        assert_close((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]), out, bound);
        assert_true(largest > 2 * bound);
        free(w);
        free(x);
        free(wide);
    }
}

/* A row of q4_k whose weights are all 0 = S level - M, with S level = M = 63 d. As avx2_block_bytes sums it, S I is
 * rounded before M D is subtracted: 0 is missed by more than the other bounds allow, and by less than that for
 * minimums. */
static void test_bound_of_minimums(void **state)
{
    (void)state;
    enum { CODE = 7, S = 9, T = 63, COLS = 256, Q4_K = MOX_BLOCK_DTYPE + 12 };
    const float d = 1.0f + 0x7p-10f, unit = 3.0f / 127.0f;
    mox_block_parts parts = { .d = { 0x07, 0x3c }, .m = { 0x07, 0x3c } };
    uint8_t block[144];
    double row[COLS], minimum[COLS], x[COLS], out, magnitude, minimums = 0;
    float sum = 0;
    memset(parts.code, CODE, sizeof parts.code);
    memset(parts.s, S, sizeof parts.s);
    memset(parts.t, T, sizeof parts.t);
    mox_block_join(mox_block_fields_of(Q4_K), &parts, block);
    const moxie_quant quant = { .element = Q4_K };
    const moxie_matrix matrix = { .codes = mox_grid_dense(block, Q4_K, 1, COLS) };
    mox_ref_weight_row(&matrix, &quant, 0, row);
    mox_ref_minimum_row(&matrix, 0, minimum);
    for (int k = 0; k < COLS; k += 32) {
        int total = 0;
        for (int i = k; i < k + 32; i++) {
            const int byte = i % 127 - 13;
            assert_true(row[i] == 0.0 && minimum[i] == (double)(d * T));
            total += byte;
            x[i] = (double)((float)byte * unit);
            minimums += fabs(x[i]) * minimum[i];
        }
        sum += fmaf(-(float)total, d * T, (float)(CODE * total) * (d * S)) * unit;
    }
    mox_ref_matvec(&matrix, &quant, x, &out, &magnitude);
    assert_true(out == 0.0 && magnitude == 0.0);
    assert_true(fabs((double)sum) > mox_bound_dot(COLS, COLS, magnitude) + mox_bound_bytes(magnitude));
    assert_close(sum, out, mox_bound_minimums(magnitude, minimums));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_mx_with_global),
        cmocka_unit_test(test_zero_points_and_group_index),
        cmocka_unit_test(test_bound_of_sums),
        cmocka_unit_test(test_bound_of_minimums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
