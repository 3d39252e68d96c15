/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_humming.c - MXFP4 for FP8 activations on Hopper: signs where published, scales split as published;
 * experts that the split cannot represent are rejected, and originals are stored for undo.
 */
#include <math.h>

#include "vendor/vendor_parts.h"
#include "test_orders.h"

static uint32_t first_word(uint16_t low, uint16_t high)
{
    uint8_t rows[16][32] = { { 0 } }, tensor[16 * 32];
    const uint8_t *pointers[16];
    for (int r = 0; r < 16; r++)
        pointers[r] = rows[r];
    memcpy(rows[0], &low, sizeof low);
    memcpy(rows[8], &high, sizeof high);
    const mox_vendor_matrix m = { 16, 64, 32, 4, 1 };
    mox_order_sm90_fp4_fp8.put(&m, 0, 16, pointers, tensor);
    uint32_t word;
    memcpy(&word, tensor, sizeof word);
    return word;
}

static void signs_are_where_published(void **state)
{
    (void)state;
    assert_int_equal(first_word(0xffff, 0), 0x8080f7f7);
    assert_int_equal(first_word(0, 0xffff), 0x7f7f0808);
    for (int i = 0; i < 8; i++) {
        const uint32_t sign = 8u << (4 * i);
        assert_int_equal(first_word((uint16_t)sign, (uint16_t)(sign >> 16)), 1u << (i < 4 ? 8 * i + 7 : 8 * i - 29));
    }
}

static void minus_zeros_are_dropped_and_told_apart(void **state)
{
    (void)state;
    const uint8_t in[4] = { 0x08, 0x80, 0x19, 0x88 }, want[4] = { 0x00, 0x00, 0x19, 0x00 };
    uint8_t out[4], bits = 0;
    mox_code_fp4_no_minus_zero.forward(NULL, in, 8, out);
    mox_code_fp4_minus_zeros.forward(NULL, in, 8, &bits);
    assert_memory_equal(out, want, 4);
    assert_int_equal(bits, 1 << 0 | 1 << 3 | 1 << 6 | 1 << 7);
    mox_code_fp4_minus_zeros.backward(NULL, &bits, 8, out);
    assert_memory_equal(out, in, 4);
}

/* ---- an expert whose scales are 120, but for one of each projection, of row 3, columns 32 .. 63 ---- */

enum { SIZE = 128, ROW = 3, GROUP = 1, COMMON = 120 };

static void make_expert(test_expert *out, mox_record_shape *shape, uint32_t scale)
{
    const test_weight_quant *q = test_weight_quants;
    while (strcmp(q->name, "mxfp4") != 0)
        q++;
    const test_expert_spec spec = { .hidden = SIZE, .intermediate = SIZE, .gated = true, .w13 = q, .w2 = q };
    test_rng rng = { 3 };
    *shape = test_record_shape(&spec);
    test_expert_make(out, &rng, &spec);
    const moxie_matrix *all[] = { &out->view.gate, &out->view.up, &out->view.down };
    for (int i = 0; i < 3; i++)
        for (int64_t r = 0; r < SIZE; r++)
            for (int64_t g = 0; g < SIZE / 32; g++)
                mox_grid_store(&all[i]->scale, r, g,
                               i != 0 && r == ROW && g == GROUP ? scale : COMMON); /* up and down */
}

/* Codes of the group with the other scale. */
static void fill_group(const moxie_expert *e, uint32_t code)
{
    for (int64_t k = 32 * GROUP; k < 32 * (GROUP + 1); k++) {
        mox_grid_store(&e->up.codes, ROW, k, code);
        mox_grid_store(&e->down.codes, ROW, k, code);
    }
}

static moxie_status check(const test_expert *expert, const mox_record_shape *shape, moxie_error *error)
{
    mox_vendor_plan plan;
    const mox_vendor_layout *layout = mox_vendor_by_name("flashinfer-sm90-mxfp4-fp8");
    assert_ok(mox_vendor_plan_make(layout, shape, NULL, &expert->view, false, &plan, error), error);
    return mox_vendor_check(&plan, &expert->view, error);
}

static float float_of(const test_packed *packed, const char *name)
{
    float value;
    memcpy(&value, test_packed_named(packed, name, NULL), sizeof value);
    return value;
}

static void expect_split(uint32_t scale, uint32_t code, int low, int offset, int common)
{
    test_expert expert, twin;
    mox_record_shape shape;
    moxie_error error = { 0 };
    make_expert(&expert, &shape, scale);
    fill_group(&expert.view, code);
    assert_ok(check(&expert, &shape, &error), &error);
    test_packed packed;
    test_packed_make(&packed, mox_vendor_by_name("flashinfer-sm90-mxfp4-fp8"), &shape, NULL, &expert.view, false);
    assert_true(float_of(&packed, "w13_residual") == ldexpf(1, low - 127) / 2);
    assert_true(float_of(&packed, "w2_residual") == ldexpf(1, low - 127) / 2);
    const uint8_t *s13 = test_packed_named(&packed, "w13_weight_scale", NULL); /* up is first: row 3, folded */
    assert_int_equal(s13[ROW * 16 + GROUP], offset);
    assert_int_equal(s13[ROW * 16], common);
    test_expert_twin(&twin, &expert);
    assert_ok(mox_vendor_unpack(&packed.plan, packed.data, &twin.view, &mox_executor_serial, &error), &error);
    const char *differs = "";
    if (!test_expert_equal(&expert.view, &twin.view, &differs))
        fail_msg("scale %d: %s does not come back", (int)scale, differs);
    test_packed_free(&packed);
    test_expert_free(&twin);
    test_expert_free(&expert);
}

static void scales_are_split_as_published(void **state)
{
    (void)state;
    expect_split(COMMON, 5, COMMON, 1, 1);            /* all the same: range 0 */
    expect_split(COMMON + 4, 5, COMMON, 5, 1);        /* range 4 */
    expect_split(COMMON - 11, 5, COMMON - 11, 1, 12); /* range 11, the largest */
    expect_split(COMMON - 12, 8, COMMON - 11, 1, 12); /* beyond it, for groups of zeros, minus zeros too */
    expect_split(0, 0, COMMON - 11, 1, 12);
}

static void scales_too_far_apart_are_refused(void **state)
{
    (void)state;
    test_expert expert;
    mox_record_shape shape;
    moxie_error error = { 0 };
    make_expert(&expert, &shape, COMMON - 12);
    fill_group(&expert.view, 0);
    mox_grid_store(&expert.view.down.codes, ROW, 32 * GROUP + 7, 9);
    assert_int_equal(check(&expert, &shape, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "2^-19 to 2^-7"));
    test_expert_free(&expert);
}

static void nan_scales_are_refused(void **state)
{
    (void)state;
    test_expert expert;
    mox_record_shape shape;
    moxie_error error = { 0 };
    make_expert(&expert, &shape, 255);
    mox_vendor_plan plan;
    const mox_vendor_layout *layout = mox_vendor_by_name("flashinfer-sm90-mxfp4-fp8");
    assert_ok(mox_vendor_plan_make(layout, &shape, NULL, &expert.view, false, &plan, &error), &error);
    void *data[MOX_VENDOR_TENSORS];
    for (int32_t i = 0; i < plan.count; i++)
        data[i] = malloc((size_t)plan.tensors[i].bytes);
    assert_int_equal(mox_vendor_pack(&plan, &expert.view, data, &mox_executor_serial, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "NaN"));
    for (int32_t i = 0; i < plan.count; i++)
        free(data[i]);
    test_expert_free(&expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signs_are_where_published),     cmocka_unit_test(minus_zeros_are_dropped_and_told_apart),
        cmocka_unit_test(scales_are_split_as_published), cmocka_unit_test(scales_too_far_apart_are_refused),
        cmocka_unit_test(nan_scales_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
