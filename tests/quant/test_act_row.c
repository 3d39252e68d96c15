/* SPDX-License-Identifier: Apache-2.0
 *
 * test_act_row.c - quantized rows as they travel: every quantizer's codes and scales come back, in as many bytes as the
 * format says.
 */
#include "quant/act_row.h"
#include "test_problem.h"

enum { COLS = 300 };

/* Bytes by hand: bits of all codes, then scales of one, two or four bytes. */
static int64_t bytes_of(const moxie_quant *q, int64_t cols)
{
    const int64_t bits = q->element == MOXIE_F4_E2M1                                  ? 4
                         : q->element == MOXIE_F6_E3M2 || q->element == MOXIE_F6_E2M3 ? 6
                                                                                      : 8;
    const int64_t group = q->group_cols > 0 ? q->group_cols : cols;
    return (cols * bits + 7) / 8 + (cols + group - 1) / group *
                                       (q->scale == MOXIE_F32   ? 4
                                        : q->scale == MOXIE_F16 ? 2
                                                                : 1);
}

static void check_row(const moxie_quant *q, test_rng *rng, int64_t cols)
{
    float x[COLS], scales[COLS], scales_back[COLS];
    uint8_t codes[COLS], codes_back[COLS], row[5 * COLS + 2];
    const mox_act_quantizer quantizer = { .quant = q, .static_scale = 0.25f, .amax = 3 };
    const int64_t bytes = mox_act_row_bytes(q, cols);
    for (int64_t i = 0; i < cols; i++)
        x[i] = test_below(rng, 9) == 0 ? 0 : ldexpf(test_normal(rng), (int)test_range(rng, -40, 40));
    if (test_below(rng, 8) == 0)
        memset(x, 0, sizeof x);
    mox_act_quant_row(&quantizer, x, cols, codes, scales);
    memset(row, 0xa5, sizeof row);
    memset(codes_back, 0xee, sizeof codes_back);
    memset(scales_back, 0xee, sizeof scales_back);
    mox_act_row_store(q, codes, scales, cols, row + 1);
    mox_act_row_load(q, row + 1, cols, codes_back, scales_back);
    assert_int_equal(bytes, bytes_of(q, cols));
    assert_int_equal(row[0], 0xa5);
    assert_int_equal(row[1 + bytes], 0xa5);
    assert_memory_equal(codes_back, codes, (size_t)cols);
    assert_memory_equal(scales_back, scales, (size_t)mox_scale_cols(q, cols) * sizeof *scales);
    if (cols < COLS)
        assert_int_equal(codes_back[cols], 0xee);
}

static void rows_come_back(void **state)
{
    (void)state;
    test_rng rng = { test_seed(7171) };
    for (int i = 0; i < test_act_quant_count; i++)
        for (int n = 0; n < 200 && test_act_quants[i].quant.element != MOXIE_DTYPE_NONE; n++)
            check_row(&test_act_quants[i].quant, &rng, test_range(&rng, 1, COLS));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows_come_back) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
