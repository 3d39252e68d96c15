/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_marlin_read.c - Marlin's layouts decoded as the kernel decodes them: the field of a word by the published
 * formula, its bits moved into a float, times the permuted scale, times the global. What that gives must be the
 * checkpoint's weight, exactly.
 */
#include "test_orders.h"

/* ---- decoded as the kernel decodes it ---- */

static int64_t index_of(const int *list, int64_t count, int value)
{
    for (int64_t i = 0; i < count; i++)
        if (list[i] == value)
            return i;
    return -1;
}

/* Field (k, n) of N columns, by the published formula. */
static uint32_t field(const uint8_t *tensor, int64_t k, int64_t n, int64_t columns, int bits, bool a8)
{
    static const int pack4[] = { 0, 2, 4, 6, 1, 3, 5, 7 }, pack8[] = { 0, 2, 1, 3 };
    int64_t word, shift;
    if (!a8) {
        const int64_t tile = k / 16 * (columns / 64) + n / 64, warp = n % 64 / 16, half = n % 16 / 8;
        const int64_t lane = n % 8 * 4 + k % 8 / 2, i = k % 2 + 2 * (k % 16 / 8);
        word = bits == 4 ? tile * 128 + lane * 4 + warp : tile * 256 + lane * 8 + warp * 2 + half;
        shift = bits == 4 ? 4 * index_of(pack4, 8, (int)(4 * half + i)) : 8 * index_of(pack8, 4, (int)i);
    } else {
        const int64_t tile = k / 32 * (columns / 32) + n / 32, warp = n % 32 / 8, half = k % 32 / 16;
        const int64_t lane = n % 8 * 4 + k % 16 / 4, i = k % 4;
        word = bits == 4 ? tile * 128 + lane * 4 + warp : tile * 256 + lane * 8 + warp * 2 + half;
        shift = bits == 4 ? 4 * (2 * i + half) : 8 * i;
    }
    uint32_t w;
    memcpy(&w, tensor + 4 * word, sizeof w);
    return w >> shift & ((1u << bits) - 1);
}

/* Where row n's scale is among N of a group. */
static int64_t scale_at(int64_t n, bool single, bool swapped)
{
    int64_t p = single ? n / 32 * 32 + n % 8 / 2 * 8 + n % 32 / 8 * 2 + n % 2 : n / 64 * 64 + n % 8 * 8 + n % 64 / 8;
    if (swapped)
        p += p % 4 == 1 ? 1 : p % 4 == 2 ? -1 : 0;
    return p;
}

static float float_of(moxie_dtype dtype, uint32_t bits)
{
    return moxie_decode(dtype, bits);
}

static const uint8_t *tensor_of(const test_packed *p, int second, const char *name)
{
    char whole[64];
    snprintf(whole, sizeof whole, "%s_%s", second ? "w2" : "w13", name);
    return test_packed_named(p, whole, NULL);
}

/* How the kernel of one layout makes a weight of a field and a scale. */
typedef struct reader {
    const char *layout, *quant, *weight, *scale;
    bool a8, swapped;
    double (*value)(uint32_t field);
    double (*scale_value)(uint32_t bits);
    double constant; /* that the kernel applies itself */
    bool has_global;
    moxie_dtype scales; /* of the checkpoint, when they are not those of the format */
} reader;

static double u4_value(uint32_t f)
{
    return (double)f - 8;
}

static double u8_value(uint32_t f)
{
    return (double)f - 128;
}

/* t to e4m3, which is (n - 8) * 2^-9. */
static double s4m_value(uint32_t t)
{
    return (double)float_of(MOXIE_F8_E4M3, ((t & 7) | (t & 8) << 4) + (t >> 3));
}

static double fp4_as_bf16(uint32_t f)
{
    return (double)float_of(MOXIE_BF16, (f & 8) << 12 | (f & 7) << 6);
}

static double fp4_as_f16(uint32_t f)
{
    return (double)float_of(MOXIE_F16, (f & 8) << 12 | (f & 7) << 9);
}

static double fp4_as_e4m3(uint32_t f)
{
    return (double)float_of(MOXIE_F8_E4M3, (f & 8) << 4 | (f & 7) << 2);
}

static double fp8_as_bf16(uint32_t f)
{
    return (double)float_of(MOXIE_BF16, (f & 0x80) << 8 | (f & 0x7f) << 4);
}

static double fp8_as_f16(uint32_t f)
{
    return (double)float_of(MOXIE_F16, (f & 0x80) << 8 | (f & 0x7f) << 7);
}

static double fp8_value(uint32_t f)
{
    return (double)float_of(MOXIE_F8_E4M3, f);
}

static double f16_scale(uint32_t b)
{
    return (double)float_of(MOXIE_F16, b);
}

static double bf16_scale(uint32_t b)
{
    return (double)float_of(MOXIE_BF16, b);
}

static double e8m0_scale(uint32_t b)
{
    return (double)float_of(MOXIE_F8_E8M0, b);
}

static double s0e5m3_bf16(uint32_t b)
{
    return (double)float_of(MOXIE_BF16, (b & 0x80) << 7 | (b & 0x7f) << 4);
}

static double s0e5m3_f16(uint32_t b)
{
    return (double)float_of(MOXIE_F16, b << 7);
}

static const reader readers[] = {
    { "marlin-gptq", "int4 words g64", "qweight", "scales", false, false, u4_value, bf16_scale, 1, false },
    { "marlin-gptq", "int4 words channel", "qweight", "scales", false, false, u4_value, f16_scale, 1, false },
    { "marlin-gptq", "int8 words g64", "qweight", "scales", false, false, u8_value, bf16_scale, 1, false },
    { "marlin-ct", "mxint4", "weight_packed", "weight_scale", false, false, u4_value, bf16_scale, 1, false },
    { "marlin-gptq-fp8", "int4 words g32", "qweight", "scales", true, false, s4m_value, bf16_scale, 1, false },
    { "marlin-gptq-int8-channel", "int4 words channel", "qweight", "scales", true, false, u4_value, f16_scale, 1,
      false },
    { "marlin-mxfp4", "mxfp4", "weight", "weight_scale", false, true, fp4_as_bf16, e8m0_scale, 0x1p126, false },
    { "marlin-ct-fp8", "int4 words g32", "weight_packed", "weight_scale", true, false, s4m_value, bf16_scale, 1,
      false },
    { "marlin-mxfp4-fp8", "mxfp4", "weight", "weight_scale", true, false, fp4_as_e4m3, e8m0_scale, 1, false },
    { "marlin-nvfp4-bf16", "nvfp4 multiply", "weight", "weight_scale", false, true, fp4_as_bf16, s0e5m3_bf16, 1, true },
    { "marlin-nvfp4-f16", "nvfp4 multiply", "weight", "weight_scale", false, true, fp4_as_f16, s0e5m3_f16, 1, true },
    { "marlin-fp8-bf16", "fp8 block 128x128", "weight", "weight_scale", false, false, fp8_as_bf16, bf16_scale, 1,
      false },
    { "marlin-fp8-f16", "fp8 per channel", "weight", "weight_scale", false, false, fp8_as_f16, f16_scale, 1, false },
    { "marlin-fp8-fp8", "fp8 per tensor", "weight", "weight_scale", true, false, fp8_value, bf16_scale, 1, false },
    { "marlin-fp8-bf16", "fp8 block 128x128", "weight", "weight_scale", false, false, fp8_as_bf16, bf16_scale, 1, false,
      MOXIE_BF16 },
    { "marlin-fp8-bf16", "fp8 block 128x128", "weight", "weight_scale", false, false, fp8_as_bf16, bf16_scale, 1, false,
      MOXIE_F16 },
    { "marlin-fp8-f16", "fp8 block 128x128", "weight", "weight_scale", false, false, fp8_as_f16, f16_scale, 1, false,
      MOXIE_BF16 },
    { "marlin-fp8-f16", "fp8 block 128x128", "weight", "weight_scale", false, false, fp8_as_f16, f16_scale, 1, false,
      MOXIE_F16 },
    { "marlin-fp8-fp8", "fp8 per tensor", "weight", "weight_scale", true, false, fp8_value, bf16_scale, 1, false,
      MOXIE_BF16 },
    { "marlin-fp8-fp8", "fp8 per tensor", "weight", "weight_scale", true, false, fp8_value, bf16_scale, 1, false,
      MOXIE_F16 },
};

static double read_weight(const test_packed *p, const reader *r, int second, int64_t n, int64_t k, const moxie_quant *q)
{
    const int64_t columns = second ? p->plan.hidden : 2 * p->plan.intermediate;
    const int64_t depth = second ? p->plan.intermediate : p->plan.hidden, group = mox_group_cols(q, depth);
    const bool single = r->a8 || group == depth;
    const int64_t at = k / group * columns + scale_at(n, single, r->swapped);
    const uint8_t *s = tensor_of(p, second, r->scale);
    const bool wide = q->scale != MOXIE_F8_E4M3 && q->scale != MOXIE_F8_E8M0;
    const uint32_t bits = wide ? (uint32_t)(s[2 * at] | s[2 * at + 1] << 8) : s[at];
    float global = 1;
    if (r->has_global)
        memcpy(&global, tensor_of(p, second, "weight_scale_2"), sizeof global);
    const uint32_t f = field(tensor_of(p, second, r->weight), k, n, columns, moxie_dtype_bits(q->element), r->a8);
    return r->value(f) * r->scale_value(bits) * (double)global * r->constant;
}

static void unpack_expert(test_packed *p, const test_expert *expert)
{
    moxie_error error = { 0 };
    test_expert twin;
    test_expert_twin(&twin, expert);
    assert_ok(mox_vendor_unpack(&p->plan, p->data, &twin.view, &mox_executor_serial, &error), &error);
    const char *differs = "";
    if (!test_expert_equal(&expert->view, &twin.view, &differs))
        fail_msg("%s: %s does not come back", p->plan.layout->name, differs);
    test_expert_free(&twin);
    test_packed_free(p);
}

/* Scales that every target can represent: rounded to powers of two. */
static void round_scales(const moxie_grid *scale, bool also_halves)
{
    const uint32_t saved = scale->dtype == MOXIE_F32    ? 0xff800000u
                           : !also_halves               ? UINT32_MAX
                           : scale->dtype == MOXIE_BF16 ? 0xff80u
                                                        : 0xfc00u;
    for (int64_t r = 0; r < scale->rows; r++)
        for (int64_t c = 0; c < scale->cols; c++)
            mox_grid_store(scale, r, c, mox_grid_code(scale, r, c) & saved);
}

/* `scales`: their dtype, or NONE for the format's. */
static void make_expert(test_expert *expert, const char *quant, moxie_dtype scales, mox_record_shape *shape)
{
    test_weight_quant format = *test_weight_quant_named(quant);
    format.quant.scale = scales != MOXIE_DTYPE_NONE ? scales : format.quant.scale;
    const test_expert_spec spec = { .hidden = 256, .intermediate = 128, .gated = true, .w13 = &format, .w2 = &format };
    test_rng rng = { test_seed(7) };
    test_expert_make(expert, &rng, &spec);
    *shape = test_record_shape(&spec);
    moxie_matrix *const all[] = { &expert->view.gate, &expert->view.up, &expert->view.down };
    for (int i = 0; i < 3; i++) {
        round_scales(&all[i]->scale, scales != MOXIE_DTYPE_NONE);
        all[i]->global.rows = all[i]->global.data != NULL;
    }
    if (expert->view.gate.global.data != NULL)
        mox_grid_store(&expert->view.up.global, 0, 0, mox_grid_code(&expert->view.gate.global, 0, 0));
}

static void compare_weights(const test_packed *p, const reader *r, const moxie_expert *e, const mox_record_shape *shape)
{
    for (int second = 0; second < 2; second++) {
        const int64_t rows = second ? 256 : 2 * 128, cols = second ? 128 : 256;
        for (int64_t n = 0; n < rows; n++)
            for (int64_t k = 0; k < cols; k++) {
                const moxie_matrix *m = second ? &e->down : n < 128 ? &e->gate : &e->up;
                const moxie_quant *q = second ? &shape->w2 : &shape->w13;
                const double want = mox_matrix_weight(m, q, second ? n : n % 128, k);
                const double got = read_weight(p, r, second, n, k, q);
                if (got != want && (got == got || want == want))
                    fail_msg("%s: %s (%d, %d) is read as %g, the checkpoint's is %g", r->layout, second ? "w2" : "w13",
                             (int)n, (int)k, got, want);
            }
    }
}

static void kernels_read_the_checkpoints_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        const reader *r = &readers[i];
        test_expert expert;
        mox_record_shape shape;
        test_packed p;
        make_expert(&expert, r->quant, r->scales, &shape);
        test_packed_make(&p, mox_vendor_by_name(r->layout), &shape, NULL, &expert.view, false);
        compare_weights(&p, r, &expert.view, &shape);
        unpack_expert(&p, &expert);
        test_expert_free(&expert);
    }
}

/* ---- zero points of GPTQ ---- */

static void set_zeros(const moxie_expert *e, uint32_t value)
{
    const moxie_grid *const zeros[] = { &e->gate.zero, &e->up.zero, &e->down.zero };
    for (int i = 0; i < 3; i++)
        for (int64_t r = 0; r < zeros[i]->rows; r++)
            for (int64_t c = 0; c < zeros[i]->cols; c++)
                mox_grid_store(zeros[i], r, c, value);
}

static void symmetric_gptq_is_read_without_its_zero_points(void **state)
{
    (void)state;
    static const reader r = { "marlin-gptq", "gptq", "qweight", "scales", false, false, u4_value, f16_scale, 1, false };
    test_expert expert;
    mox_record_shape shape;
    test_packed p;
    make_expert(&expert, r.quant, MOXIE_DTYPE_NONE, &shape);
    set_zeros(&expert.view, 7);
    /* g_idx, which GPTQ files have without act order too. */
    int32_t index[256];
    for (int k = 0; k < 256; k++)
        index[k] = k / 32;
    expert.view.gate.group_index = expert.view.up.group_index = expert.view.down.group_index = index;
    test_packed_make(&p, mox_vendor_by_name(r.layout), &shape, NULL, &expert.view, false);
    compare_weights(&p, &r, &expert.view, &shape);
    mox_grid_store(&expert.view.down.zero, 3, 1, 6);
    moxie_error error = { 0 };
    assert_int_equal(mox_vendor_pack(&p.plan, &expert.view, p.data, &mox_executor_serial, &error),
                     MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "middle"));
    mox_grid_store(&expert.view.down.zero, 3, 1, 7);
    assert_ok(mox_vendor_pack(&p.plan, &expert.view, p.data, &mox_executor_serial, &error), &error);
    unpack_expert(&p, &expert);
    test_expert_free(&expert);
}

static double zero_of(const test_packed *p, int64_t g, int64_t n, int64_t columns)
{
    static const int pack4[] = { 0, 2, 4, 6, 1, 3, 5, 7 };
    const int64_t at = scale_at(n, false, false), nibble = at / 8 * 8 + index_of(pack4, 8, (int)(at % 8));
    const uint8_t *z = tensor_of(p, 0, "qzeros");
    return z[(g * columns + nibble) / 2] >> nibble % 2 * 4 & 15;
}

static void stored_zero_points_are_what_the_kernel_subtracts(void **state)
{
    (void)state;
    test_expert expert;
    mox_record_shape shape;
    test_packed p;
    make_expert(&expert, "gptq", MOXIE_DTYPE_NONE, &shape);
    for (int64_t r = 0; r < 128; r++)
        for (int64_t c = 0; c < 8; c++) {
            mox_grid_store(&expert.view.gate.zero, r, c, (uint32_t)(r + 3 * c) % 15);
            mox_grid_store(&expert.view.up.zero, r, c, (uint32_t)(2 * r + c) % 15);
        }
    for (int64_t r = 0; r < 256; r++)
        for (int64_t c = 0; c < 4; c++)
            mox_grid_store(&expert.view.down.zero, r, c, (uint32_t)(r + c) % 15);
    test_packed_make(&p, mox_vendor_by_name("marlin-awq"), &shape, NULL, &expert.view, false);
    for (int64_t n = 0; n < 256; n++)
        for (int64_t k = 0; k < 256; k++) {
            const moxie_matrix *m = n < 128 ? &expert.view.gate : &expert.view.up;
            const uint8_t *s = tensor_of(&p, 0, "scales") + 2 * (k / 32 * 256 + scale_at(n, false, false));
            const double scale = f16_scale((uint32_t)(s[0] | s[1] << 8));
            const double code = field(tensor_of(&p, 0, "qweight"), k, n, 256, 4, false);
            assert_true((code - zero_of(&p, k / 32, n, 256)) * scale == mox_matrix_weight(m, &shape.w13, n % 128, k));
        }
    mox_grid_store(&expert.view.up.zero, 5, 2, 15);
    moxie_error error = { 0 };
    assert_int_equal(mox_vendor_pack(&p.plan, &expert.view, p.data, &mox_executor_serial, &error),
                     MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "zero point"));
    mox_grid_store(&expert.view.up.zero, 5, 2, 14);
    assert_ok(mox_vendor_pack(&p.plan, &expert.view, p.data, &mox_executor_serial, &error), &error);
    unpack_expert(&p, &expert);
    test_expert_free(&expert);
}

/* What the kernel reads as zero point n of w2's group, with 8-bit activations. */
static uint32_t zero_under_a8(const test_packed *p, int64_t g, int64_t n)
{
    const int64_t at = g * 256 + scale_at(n, false, false);
    return tensor_of(p, 1, "qzeros")[at / 2] >> at % 2 * 4 & 15;
}

/* INT8 activations: what the kernel subtracts from what; its scales are rounded to int16. */
static void zero_points_under_int8_are_in_order_of_columns(void **state)
{
    (void)state;
    test_expert expert;
    mox_record_shape shape;
    test_packed p;
    make_expert(&expert, "awq", MOXIE_DTYPE_NONE, &shape);
    test_packed_make(&p, mox_vendor_by_name("marlin-awq-int8"), &shape, NULL, &expert.view, false);
    for (int64_t n = 0; n < 256; n++)
        for (int64_t k = 0; k < 128; k++) {
            const double code = field(tensor_of(&p, 1, "qweight"), k, n, 256, 4, true);
            const moxie_matrix *m = &expert.view.down;
            const double scale = mox_grid_value(&m->scale, n, k / 32);
            assert_true((code - zero_under_a8(&p, k / 32, n)) * scale == mox_matrix_weight(m, &shape.w2, n, k));
        }
    unpack_expert(&p, &expert);
    test_expert_free(&expert);
}

/* The byte that the kernel makes of a field and a zero point: negative when adding the zero point carries out of four
 * bits. */
static double fp8_of_zero(uint32_t f, uint32_t zero)
{
    const uint32_t x = f | 0x70, sign = (x + zero) & 0x80;
    return (double)float_of(MOXIE_F8_E4M3, ((x + (sign >> 7) * (zero + 1)) & 0x0f) | sign);
}

static void zero_points_under_fp8_tell_signs(void **state)
{
    (void)state;
    test_expert expert;
    mox_record_shape shape;
    test_packed p;
    make_expert(&expert, "awq", MOXIE_DTYPE_NONE, &shape);
    test_packed_make(&p, mox_vendor_by_name("marlin-awq-fp8"), &shape, NULL, &expert.view, false);
    for (int64_t n = 0; n < 256; n++)
        for (int64_t k = 0; k < 128; k++) {
            const uint32_t f = field(tensor_of(&p, 1, "qweight"), k, n, 256, 4, true);
            const uint8_t *s = tensor_of(&p, 1, "scales") + 2 * (k / 32 * 256 + scale_at(n, true, false));
            const double got = fp8_of_zero(f, zero_under_a8(&p, k / 32, n)) * f16_scale((uint32_t)(s[0] | s[1] << 8));
            if (got != mox_matrix_weight(&expert.view.down, &shape.w2, n, k))
                fail_msg("(%d, %d) is read as %g", (int)n, (int)k, got);
        }
    unpack_expert(&p, &expert);
    test_expert_free(&expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_read_the_checkpoints_weights),
        cmocka_unit_test(symmetric_gptq_is_read_without_its_zero_points),
        cmocka_unit_test(stored_zero_points_are_what_the_kernel_subtracts),
        cmocka_unit_test(zero_points_under_int8_are_in_order_of_columns),
        cmocka_unit_test(zero_points_under_fp8_tell_signs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
