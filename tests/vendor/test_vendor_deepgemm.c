/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_deepgemm.c - what DeepGEMM reads, by literal examples of the published layouts, and decoded as its
 * kernels decode it. test_vendor.c compares undo, and whole experts with independent statements.
 */
#include <math.h>

#include "vendor/vendor_parts.h"
#include "test_problem.h"

static void scales_of_activations_lie_column_by_column(void **state)
{
    (void)state;
    const mox_vendor_matrix m = { 8, 3, 12, 32, 4 };
    float matrix[8][3] = { { 0 } }, tensor[24];
    const uint8_t *rows[8];
    for (int r = 0; r < 8; r++) {
        for (int c = 0; c < 3; c++)
            matrix[r][c] = r < 5 ? (float)(1 + 3 * r + c) : 0;
        rows[r] = (const uint8_t *)matrix[r];
    }
    mox_order_f32_columns.put(&m, 0, 8, rows, (uint8_t *)tensor);
    /* (4,0) -> 4, (0,1) -> 8, (4,2) -> 20 of 5 rows, which are padded to 8 */
    assert_true(tensor[4] == matrix[4][0] && tensor[8] == matrix[0][1] && tensor[20] == matrix[4][2]);
    assert_true(tensor[5] == 0 && tensor[23] == 0);
    assert_int_equal(mox_order_f32_columns.pad_rows, 4);
    float back[8][3];
    uint8_t *out[8];
    for (int r = 0; r < 8; r++)
        out[r] = (uint8_t *)back[r];
    mox_order_f32_columns.get(&m, 0, 8, out, (const uint8_t *)tensor);
    assert_memory_equal(back, matrix, sizeof matrix);
}

static void exponents_are_four_in_a_word(void **state)
{
    (void)state;
    static const float scales[2][5] = { { 1, 2, 4, 8, 16 }, { 0.5f, 0.25f, 1, 1, 2 } };
    static const uint32_t words[8] = { 0x8281807f, 0x7f7f7d7e, 0, 0, 0x83, 0x80, 0, 0 };
    const mox_vendor_matrix m = { 4, 8, 8, 8, 4 };
    const mox_vendor_code *code = &mox_code_f32_to_e8m0;
    uint8_t staged[4][8] = { { 0 } };
    const uint8_t *rows[4] = { staged[0], staged[1], staged[2], staged[3] };
    for (int r = 0; r < 2; r++) {
        assert_null(code->reject(NULL, (const uint8_t *)scales[r], 5));
        code->forward(NULL, (const uint8_t *)scales[r], 5, staged[r]);
        float back[5];
        code->backward(NULL, staged[r], 5, (uint8_t *)back);
        assert_memory_equal(back, scales[r], sizeof back);
    }
    uint32_t tensor[8];
    mox_order_word_columns.put(&m, 0, 4, rows, (uint8_t *)tensor);
    assert_memory_equal(tensor, words, sizeof words);
}

static void scales_without_an_exponent_of_their_own_are_refused(void **state)
{
    (void)state;
    static const float wrong[] = { 0.0f, -0.0f, -1.0f, 1.5f, 0x1p-127f, 0x1.000002p0f, INFINITY, NAN };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const float scales[2] = { 1.0f, wrong[i] };
        assert_non_null(mox_code_f32_to_e8m0.reject(NULL, (const uint8_t *)scales, 2));
    }
    const float ends[2] = { 0x1p-126f, 0x1p127f };
    assert_null(mox_code_f32_to_e8m0.reject(NULL, (const uint8_t *)ends, 2));
}

static void rows_are_permuted_as_published(void **state)
{
    (void)state;
    static const int64_t lanes[] = { 0, 32, 64, 96, 1, 33, 65, 97 };
    static const int64_t runs[32] = { 0, 1, 2,  3,  4,  5,  6,  7,  16, 17, 18, 19, 20, 21, 22, 23,
                                      8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31 };
    for (int64_t r = 0; r < 8; r++)
        assert_int_equal(mox_rows_lanes.source(r, 256), lanes[r]);
    assert_int_equal(mox_rows_lanes.source(128 + 5, 256), 128 + 33);
    for (int64_t r = 0; r < 32; r++)
        assert_int_equal(mox_rows_runs_8.source(r, 32), runs[r]);
}

/* ---- whole experts ---- */

typedef struct packed {
    test_expert expert;
    mox_record_shape shape;
    mox_vendor_plan plan;
    uint8_t *data[MOX_VENDOR_TENSORS];
    moxie_status status;
    moxie_error error;
} packed;

/* `power`: scales in f32 are made powers of two. */
static void pack(packed *p, const char *layout, const char *quant, bool power)
{
    const test_expert_spec spec = { .hidden = 384,
                                    .intermediate = 256,
                                    .gated = true,
                                    .w13 = test_weight_quant_named(quant),
                                    .w2 = test_weight_quant_named(quant) };
    test_rng rng = { test_seed(3) };
    *p = (packed) { .shape = test_record_shape(&spec) };
    test_expert_make(&p->expert, &rng, &spec);
    const moxie_grid *scales[] = { &p->expert.view.gate.scale, &p->expert.view.up.scale, &p->expert.view.down.scale };
    for (int g = 0; power && g < 3; g++)
        for (int64_t i = 0; i < scales[g]->rows * scales[g]->cols; i++)
            mox_grid_store(scales[g], i / scales[g]->cols, i % scales[g]->cols,
                           (uint32_t)test_range(&rng, 110, 130) << 23);
    assert_ok(
        mox_vendor_plan_make(mox_vendor_by_name(layout), &p->shape, NULL, &p->expert.view, false, &p->plan, &p->error),
        &p->error);
    for (int32_t i = 0; i < p->plan.count; i++)
        p->data[i] = malloc((size_t)p->plan.tensors[i].bytes);
    p->status = mox_vendor_pack(&p->plan, &p->expert.view, (void *const *)p->data, &mox_executor_serial, &p->error);
}

static void release(packed *p)
{
    for (int32_t i = 0; i < p->plan.count; i++)
        free(p->data[i]);
    test_expert_free(&p->expert);
}

static const uint8_t *tensor_named(const packed *p, const char *name)
{
    int32_t i = 0;
    while (strcmp(p->plan.tensors[i].name, name) != 0)
        i++;
    return p->data[i];
}

/* The exponent of row n, group q: byte q % 4 of word (q / 4, n). */
static double scale_at(const uint8_t *words, int64_t rows, int64_t n, int64_t q)
{
    uint32_t word;
    memcpy(&word, words + 4 * (q / 4 * rows + n), sizeof word);
    return moxie_decode(MOXIE_F8_E8M0, word >> (8 * (q % 4)) & 255);
}

static void expect_fp8(const packed *p, const char *weight, const char *scale, int64_t row, const moxie_matrix *matrix,
                       const moxie_quant *quant, int64_t rows)
{
    const uint8_t *codes = tensor_named(p, weight), *words = tensor_named(p, scale);
    const int64_t cols = matrix->codes.cols;
    for (int64_t n = 0; n < matrix->codes.rows; n++)
        for (int64_t k = 0; k < cols; k++) {
            const double code = moxie_decode(MOXIE_F8_E4M3, codes[(row + n) * cols + k]);
            const double got = code * scale_at(words, rows, row + n, k / quant->group_cols);
            const double want = mox_matrix_weight(matrix, quant, n, k);
            assert_true(got == want || (isnan(got) && isnan(want)));
        }
}

static void a_kernel_reads_fp8_weights(void **state)
{
    (void)state;
    static const char *const quants[] = { "fp8 block 128x128", "fp8 block ue8m0", "mxfp8" };
    for (size_t i = 0; i < sizeof quants / sizeof quants[0]; i++) {
        packed p;
        pack(&p, "deepgemm-fp8-sm100", quants[i], i == 0);
        assert_ok(p.status, &p.error);
        expect_fp8(&p, "w13_weight", "w13_weight_scale_inv", 0, &p.expert.view.gate, &p.shape.w13, 512);
        expect_fp8(&p, "w13_weight", "w13_weight_scale_inv", 256, &p.expert.view.up, &p.shape.w13, 512);
        expect_fp8(&p, "w2_weight", "w2_weight_scale_inv", 0, &p.expert.view.down, &p.shape.w2, 384);
        release(&p);
    }
}

static void other_scales_are_refused_with_the_reason(void **state)
{
    (void)state;
    packed p;
    pack(&p, "deepgemm-fp8-sm100", "fp8 block 128x128", false);
    assert_int_equal(p.status, MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(p.error.text, "power of two"));
    release(&p);
}

/* The fused kernel's row n of w13 is gate or up by its bit 3; its scale lies in lane order. */
static void the_fused_kernel_reads_fp4_weights(void **state)
{
    (void)state;
    packed p;
    pack(&p, "deepgemm-mega-fp4", "mxfp4", false);
    assert_ok(p.status, &p.error);
    const uint8_t *codes = tensor_named(&p, "w13_weight"), *words = tensor_named(&p, "w13_weight_scale");
    for (int64_t n = 0; n < 512; n++) {
        const moxie_matrix *half = n & 8 ? &p.expert.view.up : &p.expert.view.gate;
        const int64_t row = n / 16 * 8 + n % 8, lane = n / 128 * 128 + n % 32 * 4 + n % 128 / 32;
        for (int64_t k = 0; k < 384; k++) {
            const uint32_t code = codes[n * 192 + k / 2] >> (k % 2 * 4) & 15;
            assert_true(moxie_decode(MOXIE_F4_E2M1, code) * scale_at(words, 512, lane, k / 32) ==
                        mox_matrix_weight(half, &p.shape.w13, row, k));
        }
    }
    codes = tensor_named(&p, "w2_weight");
    words = tensor_named(&p, "w2_weight_scale");
    for (int64_t n = 0; n < 384; n++)
        for (int64_t k = 0; k < 256; k++) {
            const int64_t lane = n / 128 * 128 + n % 32 * 4 + n % 128 / 32;
            const uint32_t code = codes[n * 128 + k / 2] >> (k % 2 * 4) & 15;
            assert_true(moxie_decode(MOXIE_F4_E2M1, code) * scale_at(words, 384, lane, k / 32) ==
                        mox_matrix_weight(&p.expert.view.down, &p.shape.w2, n, k));
        }
    release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_of_activations_lie_column_by_column),
        cmocka_unit_test(exponents_are_four_in_a_word),
        cmocka_unit_test(scales_without_an_exponent_of_their_own_are_refused),
        cmocka_unit_test(rows_are_permuted_as_published),
        cmocka_unit_test(a_kernel_reads_fp8_weights),
        cmocka_unit_test(other_scales_are_refused_with_the_reason),
        cmocka_unit_test(the_fused_kernel_reads_fp4_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
