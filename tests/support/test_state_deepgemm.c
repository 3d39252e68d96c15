/* SPDX-License-Identifier: Apache-2.0
 *
 * test_state_deepgemm.c - DeepGEMM's layouts by reshape and permute. Source: what its Python functions do to tensors.
 */
#include "test_statements.h"

/* Bits of a power of two as its exponent. */
static uint32_t exponent(uint32_t bits)
{
    return bits >> 23 & 255;
}

static test_array exponents(test_array s, moxie_dtype dtype)
{
    return dtype == MOXIE_F32 ? test_map(s, exponent) : s;
}

/* Each row `times` times. */
static test_array repeat_rows(test_array s, int64_t times)
{
    const int64_t rows = s.shape[0], cols = s.shape[1];
    test_array all = TEST_RESHAPE(s, 1, rows * cols);
    const int64_t count[] = { times, rows * cols };
    test_array wide = test_array_new(2, count);
    for (int64_t t = 0; t < times; t++)
        memcpy(wide.data + t * rows * cols, all.data, (size_t)(rows * cols) * sizeof *all.data);
    test_array_free(&all);
    return TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(wide, times, rows, cols), 1, 0, 2), rows * times, cols);
}

/* [mn][k] exponents to [k / 4][mn][4], both padded by zeros: MN-major words of four. */
static test_array pack_words(test_array s)
{
    s = test_pad(s, 4, 4);
    const int64_t rows = s.shape[0], cols = s.shape[1];
    return TEST_PERMUTE(TEST_RESHAPE(s, rows, cols / 4, 4), 1, 0, 2);
}

/* [gate | up] to runs of 8 rows of each. */
static test_array interleave_8(test_array w)
{
    const int64_t rows = w.shape[0], cols = w.shape[1];
    return TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(w, 2, rows / 16, 8, cols), 1, 0, 2, 3), rows, cols);
}

/* Every 128 rows, as 4 of 32, turned over. */
static test_array transpose_lanes(test_array s)
{
    const int64_t rows = s.shape[0], cols = s.shape[1];
    return TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(s, rows / 128, 4, 32, cols), 0, 2, 1, 3), rows, cols);
}

int test_state_deepgemm_sm90(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    (void)plan;
    out[0] = (test_stated) { "w13_weight", test_stack(&e->gate.codes, &e->up.codes, 0), 8 };
    out[1] = (test_stated) { "w13_weight_scale_inv", test_stack(&e->gate.scale, &e->up.scale, 0), 32 };
    out[2] = (test_stated) { "w2_weight", test_array_of(&e->down.codes), 8 };
    out[3] = (test_stated) { "w2_weight_scale_inv", test_array_of(&e->down.scale), 32 };
    return 4;
}

static test_array spread_words(test_array s, const moxie_matrix *matrix)
{
    return pack_words(repeat_rows(exponents(s, matrix->scale.dtype), matrix->codes.rows / matrix->scale.rows));
}

int test_state_deepgemm_sm100(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const moxie_dtype dtype = plan->shape.w13.scale;
    const int bits = dtype == MOXIE_F32 ? 32 : 8;
    out[0] = (test_stated) { "w13_weight", test_stack(&e->gate.codes, &e->up.codes, 0), 8 };
    out[1] =
        (test_stated) { "w13_weight_scale_inv", spread_words(test_stack(&e->gate.scale, &e->up.scale, 0), &e->up), 8 };
    out[2] = (test_stated) { "w2_weight", test_array_of(&e->down.codes), 8 };
    out[3] = (test_stated) { "w2_weight_scale_inv", spread_words(test_array_of(&e->down.scale), &e->down), 8 };
    out[4] = (test_stated) { "moxie.w13_scale", test_stack(&e->gate.scale, &e->up.scale, 0), bits };
    out[5] = (test_stated) { "moxie.w2_scale", test_array_of(&e->down.scale), bits };
    return 6;
}

int test_state_deepgemm_mega(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const moxie_dtype dtype = plan->shape.w13.scale;
    test_array s13 = exponents(test_stack(&e->gate.scale, &e->up.scale, 0), dtype);
    test_array s2 = exponents(test_array_of(&e->down.scale), dtype);
    out[0] = (test_stated) { "w13_weight", interleave_8(test_stack(&e->gate.codes, &e->up.codes, 0)), 4 };
    out[1] = (test_stated) { "w13_weight_scale", pack_words(transpose_lanes(interleave_8(s13))), 8 };
    out[2] = (test_stated) { "w2_weight", test_array_of(&e->down.codes), 4 };
    out[3] = (test_stated) { "w2_weight_scale", pack_words(transpose_lanes(s2)), 8 };
    return 4;
}
