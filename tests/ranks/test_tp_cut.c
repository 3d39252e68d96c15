/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tp_cut.c - which rows of W13 and W2 a tensor parallel rank has, and how many bytes its layer then takes.
 */
#include <moxie/moxie_parallel.h>

#include "test_ranks.h"

#include "layer/config/tp_slice.h"
#include "layer/plan/plan.h"

static void expect_cut(const moxie_layer_config *config, int32_t size, const int64_t *begin13, const int64_t *begin2)
{
    moxie_error error;
    for (int32_t r = 0; r < size; r++) {
        int64_t w13[2], w2[2];
        assert_ok(moxie_tp_slice(config, size, r, w13, w2, &error), &error);
        assert_int_equal(w13[0], begin13[r]);
        assert_int_equal(w13[1], begin13[r + 1]);
        assert_int_equal(w2[0], begin2[r]);
        assert_int_equal(w2[1], begin2[r + 1]);
    }
}

static void test_cut(void **state)
{
    (void)state;
    const moxie_quant plain = { .element = MOXIE_BF16 };
    const moxie_quant blocks = { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 128, .group_cols = 128 };
    const moxie_quant tensor = { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = -1, .group_cols = -1 };
    const moxie_layer_config even = test_config_of(64, 96, plain), odd = test_config_of(50, 20, plain);
    const moxie_layer_config block = test_config_of(300, 640, blocks), whole = test_config_of(64, 96, tensor);
    const moxie_layer_config small = test_config_of(100, 128, blocks);
    expect_cut(&even, 2, (int64_t[]) { 0, 48, 96 }, (int64_t[]) { 0, 32, 64 });
    expect_cut(&whole, 2, (int64_t[]) { 0, 48, 96 }, (int64_t[]) { 0, 32, 64 });
    /* 4 units of rows of down, the last with 2 rows; 2 units of gate. */
    expect_cut(&odd, 3, (int64_t[]) { 0, 0, 16, 20 }, (int64_t[]) { 0, 16, 32, 50 });
    expect_cut(&block, 2, (int64_t[]) { 0, 256, 640 }, (int64_t[]) { 0, 128, 300 });
    /* One group of scales covers all rows: every rank keeps its scale. */
    expect_cut(&small, 2, (int64_t[]) { 0, 64, 128 }, (int64_t[]) { 0, 48, 100 });
}

static void test_cut_refuses(void **state)
{
    (void)state;
    const moxie_layer_config config = test_config();
    int64_t w13[2] = { 7, 7 }, w2[2] = { 7, 7 };
    moxie_error error;
    assert_int_equal(moxie_tp_slice(&config, 2, 2, w13, w2, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "tp_rank is 2 of tp_size 2"));
    assert_int_equal(moxie_tp_slice(&config, 0, 0, w13, w2, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_tp_slice(NULL, 1, 0, w13, w2, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(w13[0], 7);
}

/* A plan that only explains needs no comm. */
static void test_explains(void **state)
{
    (void)state;
    moxie_layer_config config = test_config();
    moxie_plan *plan;
    moxie_error error;
    config.tp_size = 3;
    config.tp_rank = 2;
    assert_ok(moxie_plan_explain(&config, NULL, &plan, &error), &error);
    assert_true(moxie_plan_workspace_bytes(plan) > 0);
    moxie_plan_destroy(plan);
}

static void test_bytes(void **state)
{
    (void)state;
    moxie_layer_config config = test_config_of(256, 256, (moxie_quant) { .element = MOXIE_BF16 });
    moxie_layer *whole, *half;
    moxie_error error;
    assert_ok(moxie_layer_create(&config, NULL, &whole, &error), &error);
    config.tp_size = 2;
    assert_ok(moxie_layer_create(&config, NULL, &half, &error), &error);
    assert_true(2 * moxie_layer_bytes(half) < moxie_layer_bytes(whole) + 2 * 8 * sizeof(mox_record_header));
    moxie_layer_destroy(half);
    moxie_layer_destroy(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_cut), cmocka_unit_test(test_cut_refuses),
                                        cmocka_unit_test(test_explains), cmocka_unit_test(test_bytes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
