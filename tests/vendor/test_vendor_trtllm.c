/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_trtllm.c - rows, orders and constants of FlashInfer's kernels, by literal examples of the published
 * layouts. Whole experts are compared in test_vendor.c and decoded in test_vendor_flashinfer.c.
 */
#include "vendor/vendor_parts.h"
#include "test_orders.h"

/* ---- rows ---- */

static void expect_rows(int64_t (*source)(int64_t, int64_t), int64_t rows, const int *want, int64_t count)
{
    for (int64_t r = 0; r < count; r++)
        if (source(r, rows) != want[r])
            fail_msg("row %d of %d is %d, published %d", (int)r, (int)rows, (int)source(r, rows), want[r]);
}

static void rows_are_those_published(void **state)
{
    (void)state;
    static const int by_32[] = { 0, 4, 8,  12, 16, 20, 24, 28, 1, 5, 9,  13, 17, 21, 25, 29,
                                 2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31 };
    static const int by_16[] = { 0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15 };
    static const int turns[] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    expect_rows(mox_rows_shuffle_32.source, 64, by_32, 32);
    expect_rows(mox_rows_shuffle_16.source, 64, by_16, 16);
    expect_rows(mox_rows_gated.source, 8, turns, 8);
    for (int64_t r = 0; r < 32; r++)
        assert_int_equal(mox_rows_shuffle_32.source(32 + r, 64), 32 + by_32[r]);
    /* The published composition is of [w3; w1]; the library's is of [w1; w3]: 32 rows further, or back. */
    static const int composed[] = { 0,  2,  4,  6,  8,  10, 12, 14, 32, 34, 36, 38, 40, 42, 44, 46,
                                    1,  3,  5,  7,  9,  11, 13, 15, 33, 35, 37, 39, 41, 43, 45, 47,
                                    16, 18, 20, 22, 24, 26, 28, 30, 48, 50, 52, 54, 56, 58, 60, 62,
                                    17, 19, 21, 23, 25, 27, 29, 31, 49, 51, 53, 55, 57, 59, 61, 63 };
    for (int64_t r = 0; r < 64; r++)
        assert_int_equal(mox_rows_shuffle_gated_w31.source(r, 64), (composed[r] + 32) % 64);
    for (int64_t r = 0; r < 64; r++)
        assert_int_equal(mox_rows_shuffle_gated_w31.single(r, 64), mox_rows_shuffle_32.source(r, 64));
}

/* gpt-oss's checkpoint has gate0, up0, gate1, ...; its preparation swaps pairs, then shuffles. */
static void swapped_pairs_are_gated_rows_of_w31(void **state)
{
    (void)state;
    for (int64_t rows = 64; rows <= 512; rows *= 2)
        for (int64_t r = 0; r < rows; r++) {
            const int64_t in_turn = mox_rows_shuffle_32.source(r, rows) ^ 1; /* row of the checkpoint */
            const int64_t stacked = in_turn % 2 * (rows / 2) + in_turn / 2;  /* the same row of [gate | up] */
            assert_int_equal(mox_rows_shuffle_gated_w31.source(r, rows), stacked);
        }
}

/* Byte (m, c) of a [w1; w3] checkpoint, as the published closed form of the whole MxInt4 path has it. */
static void mxint4_bytes_go_where_the_closed_form_says(void **state)
{
    (void)state;
    enum { ROWS = 64, BYTES = 256 };
    for (int64_t r = 0; r < ROWS; r++) {
        const int64_t m = mox_rows_shuffle_gated_w31.source(r, ROWS), q = (m + ROWS / 2) % ROWS;
        const int64_t pair = q < ROWS / 2 ? 2 * q : 2 * (q - ROWS / 2) + 1;
        assert_int_equal(r, 32 * (pair / 32) + 8 * (pair % 4) + pair % 32 / 4);
        for (int64_t c = 0; c < BYTES; c += 77)
            assert_int_equal(test_order_find(&mox_order_block_major, ROWS, 2 * BYTES, 4, r, c, false),
                             (c / 128 * ROWS + r) * 128 + c % 128);
    }
}

/* ---- orders ---- */

typedef struct position {
    int64_t row, col, at;
} position;

static void expect_positions(const mox_vendor_order *order, int64_t rows, int64_t cols, int32_t bits, const position *p,
                             size_t count, bool twiddled)
{
    for (size_t i = 0; i < count; i++) {
        const int64_t at = test_order_find(order, rows, cols, bits, p[i].row, p[i].col, twiddled);
        if (at != p[i].at)
            fail_msg("%s: byte (%d, %d) goes to %d, published %d", order->name, (int)p[i].row, (int)p[i].col, (int)at,
                     (int)p[i].at);
    }
}
#define EXPECT_POSITIONS(order, rows, cols, bits, list, twiddled)                                                      \
    expect_positions(order, rows, cols, bits, list, sizeof list / sizeof list[0], twiddled)

static void scales_lie_where_published(void **state)
{
    (void)state;
    static const position large[] = { { 0, 0, 0 },  { 0, 3, 3 },   { 0, 4, 512 },    { 1, 0, 16 },    { 31, 0, 496 },
                                      { 32, 0, 4 }, { 96, 1, 13 }, { 127, 7, 1023 }, { 128, 0, 1024 } };
    static const position small[] = { { 0, 4, 32 }, { 1, 0, 4 }, { 7, 3, 31 }, { 8, 0, 64 } };
    static const position mxfp4[] = { { 0, 3, 3 }, { 1, 0, 16 }, { 16, 0, 4 }, { 63, 3, 255 }, { 0, 4, 256 } };
    EXPECT_POSITIONS(&mox_order_scales_128x4, 256, 8, 8, large, false);
    EXPECT_POSITIONS(&mox_order_scales_128x4_2d, 256, 8, 8, large, false);
    EXPECT_POSITIONS(&mox_order_scales_8x4, 16, 8, 8, small, false);
    EXPECT_POSITIONS(&mox_order_sm90_folded_8, 64, 8, 8, mxfp4, false);
    /* Two bytes an element: positions are of its low byte. */
    static const position int4[] = { { 1, 0, 2 * 8 }, { 8, 0, 2 * 1 }, { 63, 0, 2 * 63 }, { 0, 2, 2 * 64 } };
    EXPECT_POSITIONS(&mox_order_sm90_folded_16, 64, 2, 16, int4, false);
    static const position wide[] = { { 0, 2, 2 }, { 1, 0, 32 }, { 32, 0, 8 } };
    EXPECT_POSITIONS(&mox_order_scales_128x4, 128, 4, 16, wide, false);
}

/* Linear scales (SfLayout 2) are rows; 128x4 and 8x4 without padding apply to multiples. */
static void scales_pad_only_what_is_no_multiple(void **state)
{
    (void)state;
    static const position linear[] = { { 0, 5, 5 }, { 1, 0, 6 }, { 2, 3, 15 } };
    EXPECT_POSITIONS(&mox_order_plain, 4, 6, 8, linear, false);
    assert_int_equal(mox_order_plain.pad_rows * mox_order_plain.pad_cols, 1);
    assert_int_equal(mox_order_scales_128x4.pad_rows, 128);
    assert_int_equal(mox_order_scales_128x4.pad_cols, 4);
    assert_int_equal(mox_order_scales_8x4.pad_rows, 8);
    assert_int_equal(mox_order_scales_8x4.pad_cols, 4);
    /* [[0, 1, 2], [100, 101, 102]], padded to 128 x 4. */
    uint8_t rows[128][4] = { { 0, 1, 2 }, { 100, 101, 102 } }, tensor[512];
    const uint8_t *pointers[128];
    for (int r = 0; r < 128; r++)
        pointers[r] = rows[r];
    const mox_vendor_matrix m = { 128, 4, 4, 8, 1 };
    mox_order_scales_128x4.put(&m, 0, 128, pointers, tensor);
    for (int i = 0; i < 512; i++)
        assert_int_equal(tensor[i], i == 1 ? 1 : i == 2 ? 2 : i >= 16 && i < 19 ? 84 + i : 0);
}

static void block_major_is_as_published(void **state)
{
    (void)state;
    static const position blocks[] = { { 0, 0, 0 }, { 0, 127, 127 }, { 1, 0, 128 }, { 0, 128, 256 }, { 1, 255, 511 } };
    EXPECT_POSITIONS(&mox_order_block_major, 2, 256, 8, blocks, false);
}

static void hopper_weights_lie_where_published(void **state)
{
    (void)state;
    /* (row, byte) -> (row, word, slot) in rows of 32 bytes. */
    static const position fp4[] = { { 0, 0, 0 },
                                    { 8, 0, 1 },
                                    { 0, 4, 2 },
                                    { 0, 8, 8 * 32 },
                                    { 3, 17, 3 * 32 + 5 * 4 },
                                    { 15, 31, 15 * 32 + 7 * 4 + 3 } };
    EXPECT_POSITIONS(&mox_order_sm90_fp4, 16, 64, 4, fp4, true);
    /* (row, unit of two bytes) -> (row, unit). */
    static const position int4[] = {
        { 8, 0, 2 * 1 }, { 0, 2 * 1, 2 * 2 }, { 0, 2 * 4, 8 * 32 }, { 9, 2 * 13, 9 * 32 + 2 * 11 }
    };
    EXPECT_POSITIONS(&mox_order_sm90_int4, 16, 64, 4, int4, false);
    static const position lines[] = { { 0, 3, 3 }, { 1, 0, 4 }, { 0, 4, 32 }, { 7, 7, 63 } };
    EXPECT_POSITIONS(&mox_order_lines, 8, 8, 8, lines, false);
    static const position pairs[] = { { 0, 3, 3 }, { 1, 0, 4 }, { 0, 4, 32 } }; /* 6 columns of bf16: two per line */
    EXPECT_POSITIONS(&mox_order_lines, 8, 6, 16, pairs, false);
}

/* ---- codes ---- */

static void int4_changes_its_sign_as_published(void **state)
{
    (void)state;
    const uint8_t in[4] = { 0x10, 0x32, 0x54, 0x76 }, want[4] = { 0x98, 0xba, 0xdc, 0xfe };
    uint8_t out[4], back[4];
    mox_code_u4b8_to_i4.forward(NULL, in, 8, out);
    mox_code_u4b8_to_i4.backward(NULL, out, 8, back);
    assert_memory_equal(out, want, 4);
    assert_memory_equal(back, in, 4);
}

static void block_scales_are_raised_and_negative_ones_refused(void **state)
{
    (void)state;
    const float in[] = { 0, 1e-23f, 1e-10f, 2e-10f, 3 }, want[] = { 1e-10f, 1e-10f, 1e-10f, 2e-10f, 3 };
    const float negative[] = { 1, -1e-30f };
    float out[5];
    mox_code_f32_at_least.forward(NULL, (const uint8_t *)in, 5, (uint8_t *)out);
    assert_memory_equal(out, want, sizeof want);
    assert_null(mox_code_f32_at_least.reject(NULL, (const uint8_t *)in, 5));
    assert_non_null(mox_code_f32_at_least.reject(NULL, (const uint8_t *)negative, 2));
    const uint16_t halves[] = { 0x3f80, 0, 0xbf80 };
    const mox_vendor_code *half = mox_code_f32_at_least.fallback;
    half->forward(NULL, (const uint8_t *)halves, 2, (uint8_t *)out);
    assert_true(out[0] == 1.0f && out[1] == 1e-10f);
    assert_null(half->reject(NULL, (const uint8_t *)halves, 2));
    assert_non_null(half->reject(NULL, (const uint8_t *)halves, 3));
}

/* ---- constants and rejections ---- */

static void make_expert(test_expert *out, mox_record_shape *shape, const char *quant, int64_t hidden,
                        int64_t intermediate)
{
    const test_weight_quant *q = test_weight_quant_named(quant);
    const test_expert_spec spec = { .hidden = hidden, .intermediate = intermediate, .gated = true, .w13 = q, .w2 = q };
    test_rng rng = { 7 };
    *shape = test_record_shape(&spec);
    test_expert_make(out, &rng, &spec);
    out->view.a13_scale = 0.5f;
    out->view.a2_scale = 0.25f;
}

static float constant_of(const test_packed *packed, const char *name)
{
    float value;
    memcpy(&value, test_packed_named(packed, name, NULL), sizeof value);
    return value;
}

/* Constants hold the largest activation scale of the layer, as in vLLM, for every expert. */
static void activation_scales_are_the_layers_largest(void **state)
{
    (void)state;
    test_expert first, second;
    mox_record_shape shape;
    make_expert(&first, &shape, "fp8 per tensor", 128, 128);
    make_expert(&second, &shape, "fp8 per tensor", 128, 128);
    mox_grid_store(&first.view.gate.scale, 0, 0, 0x3f000000); /* 0.5, 2 and 4 */
    mox_grid_store(&first.view.up.scale, 0, 0, 0x40000000);
    mox_grid_store(&first.view.down.scale, 0, 0, 0x40800000);
    second.view.a13_scale = 8;
    second.view.a2_scale = 0.125f;
    test_packed packed;
    moxie_error error = { 0 };
    const mox_vendor_layout *layout = mox_vendor_by_name("trtllm-fp8-tensor");
    test_packed_make(&packed, layout, &shape, NULL, &first.view, false);
    assert_ok(mox_vendor_survey(&packed.plan, &second.view, &error), &error);
    assert_ok(mox_vendor_pack(&packed.plan, &first.view, packed.data, &mox_executor_serial, &error), &error);
    assert_true(constant_of(&packed, "w13_input_scale") == 8);
    assert_true(constant_of(&packed, "w2_input_scale_inv") == 4);
    assert_true(constant_of(&packed, "output1_scales_gate_scalar") == 0.5f * 8);
    assert_true(constant_of(&packed, "output1_scales_scalar") == 2.0f * 8 * 4);
    assert_true(constant_of(&packed, "output2_scales_scalar") == 4 * 0.25f);
    test_packed_free(&packed);
    test_expert_free(&first);
    test_expert_free(&second);
}

/* Globals that divide are reciprocals of those that multiply; the largest 1 / a belongs to the smallest a. */
static void globals_that_divide_become_factors(void **state)
{
    (void)state;
    test_expert expert;
    mox_record_shape shape;
    make_expert(&expert, &shape, "nvfp4 divide", 256, 64);
    moxie_matrix *all[] = { &expert.view.gate, &expert.view.up, &expert.view.down };
    for (int i = 0; i < 3; i++) {
        all[i]->global.rows = 1;
        mox_grid_store(&all[i]->global, 0, 0, 0x40000000u + (uint32_t)i * 0x00800000u); /* 2, 4, 8 */
    }
    test_packed packed;
    test_packed_make(&packed, mox_vendor_by_name("trtllm-nvfp4"), &shape, NULL, &expert.view, false);
    assert_true(constant_of(&packed, "a1_gscale") == 0.5f); /* a13 0.5 divides: it multiplies by 2 */
    assert_true(constant_of(&packed, "a2_gscale") == 0.25f);
    assert_true(constant_of(&packed, "g1_alphas") == 0.5f * 2);
    assert_true(constant_of(&packed, "g1_scale_c") == 0.25f * 2 * 0.25f);
    assert_true(constant_of(&packed, "g2_alphas") == 0.125f * 4);
    test_packed_free(&packed);
    test_expert_free(&expert);
}

static void expect_rejection(const char *layout, const mox_record_shape *shape, const mox_vendor_use *use,
                             const moxie_expert *expert, const char *words)
{
    mox_vendor_plan plan;
    moxie_error error = { 0 };
    assert_ok(mox_vendor_plan_make(mox_vendor_by_name(layout), shape, use, expert, false, &plan, &error), &error);
    assert_int_equal(mox_vendor_check(&plan, expert, &error), MOXIE_ERR_UNSUPPORTED);
    if (strstr(error.text, words) == NULL)
        fail_msg("the rejection says nothing of %s: %s", words, error.text);
}

static void what_a_target_cannot_be_told_is_refused(void **state)
{
    (void)state;
    test_expert expert;
    mox_record_shape shape;
    make_expert(&expert, &shape, "fp8 per tensor", 128, 128);
    mox_grid_store(&expert.view.gate.scale, 0, 0, 0x3f000000);
    mox_grid_store(&expert.view.up.scale, 0, 0, 0x40000000);
    expect_rejection("flashinfer-cutlass-fp8", &shape, NULL, &expert.view, "gate's scalar is 0.5 and up's 2");
    const mox_vendor_use limits = { .activation = { .gate_limit = 7 } };
    const mox_vendor_use both = { .activation = { .gate_limit = 7, .up_limit = 7 } };
    expect_rejection("trtllm-fp8-tensor", &shape, &both, &expert.view, "alpha, beta or limit");
    expect_rejection("flashinfer-cutlass-fp8", &shape, &limits, &expert.view, "one limit");
    test_expert_free(&expert);
    make_expert(&expert, &shape, "nvfp4 multiply", 256, 64);
    /* No target accepts a global scale per row, or (here) columns in act order. */
    float each[256];
    for (int i = 0; i < 256; i++)
        each[i] = 1;
    expert.view.up.global = expert.view.gate.global = mox_grid_dense(each, MOXIE_F32, 64, 1);
    expert.view.down.global = mox_grid_dense(each, MOXIE_F32, 256, 1);
    expect_rejection("trtllm-nvfp4", &shape, NULL, &expert.view, "for each row");
    expert.view.up.global.rows = expert.view.gate.global.rows = expert.view.down.global.rows = 1;
    const int32_t order[256] = { 0 };
    expert.view.up.group_index = order;
    expect_rejection("trtllm-nvfp4", &shape, NULL, &expert.view, "columns in act order");
    test_expert_free(&expert);
}

static void static_scales_must_be_given(void **state)
{
    (void)state;
    test_expert expert;
    mox_record_shape shape;
    make_expert(&expert, &shape, "fp8 per tensor", 128, 128);
    mox_vendor_plan plan;
    moxie_error error = { 0 };
    expert.view.a2_scale = 0;
    assert_ok(
        mox_vendor_plan_make(mox_vendor_by_name("trtllm-fp8-tensor"), &shape, NULL, &expert.view, false, &plan, &error),
        &error);
    assert_ok(mox_vendor_survey(&plan, &expert.view, &error), &error);
    void *nowhere[MOX_VENDOR_TENSORS] = { NULL };
    assert_int_equal(mox_vendor_pack(&plan, &expert.view, nowhere, &mox_executor_serial, &error),
                     MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "no expert has one"));
    expert.view.a2_scale = -1;
    assert_int_equal(mox_vendor_survey(&plan, &expert.view, &error), MOXIE_ERR_UNSUPPORTED);
    test_expert_free(&expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_published),
        cmocka_unit_test(swapped_pairs_are_gated_rows_of_w31),
        cmocka_unit_test(mxint4_bytes_go_where_the_closed_form_says),
        cmocka_unit_test(scales_lie_where_published),
        cmocka_unit_test(scales_pad_only_what_is_no_multiple),
        cmocka_unit_test(block_major_is_as_published),
        cmocka_unit_test(hopper_weights_lie_where_published),
        cmocka_unit_test(int4_changes_its_sign_as_published),
        cmocka_unit_test(block_scales_are_raised_and_negative_ones_refused),
        cmocka_unit_test(activation_scales_are_the_layers_largest),
        cmocka_unit_test(globals_that_divide_become_factors),
        cmocka_unit_test(what_a_target_cannot_be_told_is_refused),
        cmocka_unit_test(static_scales_must_be_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
