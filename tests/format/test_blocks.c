/* SPDX-License-Identifier: Apache-2.0
 *
 * test_blocks.c - every block type against the weights that gguf-py makes of the same bytes
 * (tests/golden/gguf/make_gguf_golden.py), by itself, in runs and through grids.
 */
#include "test_support.h"

#include <moxie/moxie_ckpt.h>

#include "ckpt/safetensors/tensors.h"
#include "quant/quant.h"

enum { BLOCKS = 64 };
#define GOLDEN "tests/golden/gguf/blocks.safetensors"

typedef struct golden {
    mox_tensor_set *set;
    const mox_block *block;
    const uint8_t *bytes; /* [BLOCKS, block bytes] */
    const uint8_t *bits;  /* u32 [BLOCKS, weights], unaligned */
} golden;

static const uint8_t *data_of(const mox_tensor_set *set, const char *name, const char *part, int64_t cols)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, part);
    const mox_file_tensor *tensor = mox_tensor_set_find(set, full);
    if (!tensor)
        fail_msg("%s has no %s", GOLDEN, full);
    assert_int_equal(tensor->view.shape[0], BLOCKS);
    assert_int_equal(tensor->view.shape[1], cols);
    return tensor->view.data;
}

static uint32_t want_of(const golden *g, int64_t i)
{
    uint32_t bits;
    memcpy(&bits, g->bits + 4 * i, sizeof bits);
    return bits;
}

static void compare(const golden *g, int64_t i, float got)
{
    const uint32_t bits = isnan(got) ? 0x7fc00000u : mox_f32_encode(got), want = want_of(g, i);
    if (bits != want)
        fail_msg("%s block %d weight %d: %08x, gguf-py has %08x", g->block->format.name, (int)(i / g->block->weights),
                 (int)(i % g->block->weights), (unsigned)bits, (unsigned)want);
}

static void each_block(const golden *g)
{
    const int64_t n = g->block->weights;
    uint8_t *guarded = test_guarded((size_t)g->block->bytes);
    float *out = test_guarded((size_t)n * sizeof *out);
    for (int64_t b = 0; b < BLOCKS; b++) {
        memcpy(guarded, g->bytes + b * g->block->bytes, (size_t)g->block->bytes);
        memset(out, 0x5a, (size_t)n * sizeof *out);
        g->block->decode(guarded, out);
        for (int64_t i = 0; i < n; i++)
            compare(g, b * n + i, out[i]);
    }
    test_guarded_free(guarded, (size_t)g->block->bytes);
    test_guarded_free(out, (size_t)n * sizeof *out);
}

/* Runs that begin and end anywhere. */
static void runs(const golden *g)
{
    const int64_t n = g->block->weights;
    test_rng rng = { test_seed(3) };
    for (int round = 0; round < 40; round++) {
        const int64_t first = test_range(&rng, 0, BLOCKS * n - 1), most = BLOCKS * n - first;
        const int64_t count = test_range(&rng, 0, most < 3 * n ? most : 3 * n);
        float *out = test_guarded((size_t)(count + 1) * sizeof *out);
        mox_block_decode_run(g->block, g->bytes, first, count, out + 1);
        for (int64_t i = 0; i < count; i++)
            compare(g, first + i, out[1 + i]);
        test_guarded_free(out, (size_t)(count + 1) * sizeof *out);
    }
}

/* A grid of 4 rows of 16 blocks each, in any order of reading; a slice of its columns. */
static void grids(const golden *g)
{
    const int64_t n = g->block->weights, cols = 16 * n;
    moxie_grid grid = mox_grid_dense(g->bytes, g->block->format.dtype, 4, cols), slice;
    moxie_error error = { 0 };
    assert_ok(mox_grid_check(&grid, "golden", &error), &error);
    test_rng rng = { test_seed(4) };
    for (int round = 0; round < 500; round++) {
        const int64_t r = test_range(&rng, 0, 3), c = test_range(&rng, 0, cols - 1);
        compare(g, r * cols + c, (float)mox_grid_value(&grid, r, c));
    }
    const mox_rectangle whole = { 1, 2, n, 3 * n }, cut = { 0, 4, 1, n };
    assert_true(mox_grid_slice(&grid, &whole, &slice));
    assert_false(mox_grid_slice(&grid, &cut, &slice));
    assert_true(mox_grid_slice(&grid, &whole, &slice));
    compare(g, 2 * cols + 4 * n - 1, (float)mox_grid_value(&slice, 1, 3 * n - 1));
    grid.cols = cols - 1;
    assert_int_equal(mox_grid_check(&grid, "golden", &error), MOXIE_ERR_ARGUMENT);
    grid.cols = cols;
    grid.bytes--;
    assert_int_equal(mox_grid_check(&grid, "golden", &error), MOXIE_ERR_ARGUMENT);
}

static void for_each(void (*check)(const golden *g))
{
    golden g = { 0 };
    moxie_error error = { 0 };
    assert_ok(mox_tensor_set_open_file(GOLDEN, false, &g.set, &error), &error);
    int32_t count = 0;
    for (; (g.block = mox_block_at(count)) != NULL; count++) {
        g.bytes = data_of(g.set, g.block->format.name, "blocks", g.block->bytes);
        g.bits = data_of(g.set, g.block->format.name, "bits", g.block->weights);
        check(&g);
    }
    assert_int_equal(mox_tensor_set_count(g.set), 2 * count);
    mox_tensor_set_close(g.set);
}

static void test_each_block(void **state)
{
    (void)state;
    for_each(each_block);
}

static void test_runs(void **state)
{
    (void)state;
    for_each(runs);
}

static void test_grids(void **state)
{
    (void)state;
    for_each(grids);
}

static void test_list(void **state)
{
    (void)state;
    int32_t bytes = -1;
    assert_int_equal(moxie_dtype_block(MOXIE_BF16, &bytes), 0);
    assert_int_equal(bytes, -1);
    for (int32_t i = 0; mox_block_at(i); i++) {
        const mox_block *b = mox_block_at(i);
        assert_int_equal(moxie_dtype_block(b->format.dtype, &bytes), b->weights);
        assert_int_equal(bytes, b->bytes);
        assert_int_equal(moxie_dtype_from_name(b->format.name), b->format.dtype);
        assert_string_equal(moxie_dtype_name(b->format.dtype), b->format.name);
        assert_ptr_equal(mox_block_of(b->format.dtype), b);
        assert_int_equal(b->format.dtype, MOX_BLOCK_DTYPE + b->type);
        assert_in_range(b->weights, 1, MOX_BLOCK_MAX);
        for (int32_t j = 0; j < i; j++)
            assert_int_not_equal(mox_block_at(j)->type, b->type);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_block),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
