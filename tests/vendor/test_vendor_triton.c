/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_triton.c - what Triton's MXFP4 kernels read, by literal examples of the published layouts, and decoded
 * as the kernels decode it. Rows, limits and undo of whole experts are compared in test_vendor.c.
 */
#include "vendor/vendor_parts.h"
#include "vendor/vendor_twiddle.h"
#include "test_orders.h"

static void four_bytes_are_twiddled_as_published(void **state)
{
    (void)state;
    static const struct {
        uint32_t bytes, word;
    } examples[] = {
        { 0x0000000f, 0x000081c0 }, { 0x000000f0, 0x81c00000 }, { 0x00000f00, 0x00001038 },
        { 0x000f0000, 0x00000207 }, { 0x0f000000, 0x00006c00 }, { 0x87654321, 0x40a62c5d },
    };
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        assert_int_equal(mox_twiddle4(examples[i].bytes), examples[i].word);
        assert_int_equal(mox_untwiddle4(examples[i].word), examples[i].bytes);
    }
}

/* How the kernel extracts slot `slot`: a pair of bf16, low nibble in the low half, each 2^-126 times its value. */
static uint32_t decode_slot(uint32_t word, int slot)
{
    const uint32_t mask = 0x81c081c0u;
    switch (slot) {
    case 0: return word & mask;
    case 1: return word << 3 & mask;
    case 2: return word << 6 & mask;
    default: return (word << 1 & 0x80008000u) | (word >> 3 & 0x01800180u) | (word >> 7 & 0x00400040u);
    }
}

static void a_kernel_decodes_every_code_in_every_place(void **state)
{
    (void)state;
    test_rng rng = { test_seed(1) };
    for (int tries = 0; tries < 20000; tries++) {
        const uint32_t bytes = (uint32_t)test_u64(&rng), word = mox_twiddle4(bytes);
        assert_int_equal(mox_untwiddle4(word), bytes);
        for (int nibble = 0; nibble < 8; nibble++) {
            const uint32_t half = decode_slot(word, nibble / 2) >> (nibble % 2 * 16) & 0xffff;
            const float want = moxie_decode(MOXIE_F4_E2M1, bytes >> (4 * nibble) & 15);
            assert_true(moxie_decode(MOXIE_BF16, half) * 0x1p126f == want);
        }
    }
}

/* ---- positions ---- */

typedef struct position {
    int64_t row, col, at; /* of a byte in the matrix, and of the byte that it becomes */
} position;

static int64_t find_byte(const mox_vendor_order *order, int64_t rows, int64_t cols, int32_t bits, const position *p,
                         bool twiddled)
{
    return test_order_find(order, rows, cols, bits, p->row, p->col, twiddled);
}

static void bytes_lie_where_published(void **state)
{
    (void)state;
    static const position mma3[] = { { 8, 0, 1 },  { 0, 4, 2 },  { 8, 4, 3 },   { 0, 8, 4 },
                                     { 0, 1, 16 }, { 1, 0, 64 }, { 2, 0, 128 }, { 16, 0, 512 } };
    for (size_t i = 0; i < sizeof mma3 / sizeof mma3[0]; i++)
        assert_int_equal(find_byte(&mox_order_hopper_values, 64, 64, 4, &mma3[i], true), mma3[i].at);
    static const position mma2[] = { { 0, 1, 1 },  { 8, 0, 4 },   { 0, 16, 8 },  { 0, 4, 16 },
                                     { 1, 0, 64 }, { 2, 0, 128 }, { 16, 0, 512 } };
    for (size_t i = 0; i < sizeof mma2 / sizeof mma2[0]; i++)
        assert_int_equal(find_byte(&mox_order_hopper_values_mma2, 64, 64, 4, &mma2[i], true), mma2[i].at);
    static const position warps8[] = { { 8, 0, 1 },    { 0, 1, 2 },  { 1, 0, 4 },     { 16, 0, 128 },
                                       { 128, 0, 32 }, { 0, 2, 64 }, { 255, 3, 1023 } };
    for (size_t i = 0; i < sizeof warps8 / sizeof warps8[0]; i++)
        assert_int_equal(find_byte(&mox_order_hopper_scales_8, 256, 4, 8, &warps8[i], false), warps8[i].at);
    static const position atoms[] = { { 0, 3, 3 },  { 0, 4, 512 }, { 1, 0, 16 },     { 31, 0, 496 },
                                      { 32, 0, 4 }, { 96, 1, 13 }, { 127, 7, 1023 }, { 128, 0, 1024 } };
    for (size_t i = 0; i < sizeof atoms / sizeof atoms[0]; i++)
        assert_int_equal(find_byte(&mox_order_blackwell_scales, 256, 8, 8, &atoms[i], false), atoms[i].at);
    static const position tiles[] = { { 0, 63, 63 }, { 1, 0, 64 }, { 256, 0, 16384 }, { 0, 64, 32768 } };
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
        assert_int_equal(find_byte(&mox_order_blackwell_tiles, 512, 256, 4, &tiles[i], false), tiles[i].at);
}

/* ---- a kernel reads a whole expert ---- */

static const mox_vendor_tensor *tensor_named(const mox_vendor_plan *plan, const char *name)
{
    const mox_vendor_tensor *t = plan->tensors;
    while (strcmp(t->name, name) != 0)
        t++;
    return t;
}

/* Weight (n, k) of a projection from its two tensors, the addresses as triton_kernels' layouts state them. */
static double hopper_weight(const mox_vendor_tensor *values, const uint8_t *value, const uint8_t *scale, int64_t n,
                            int64_t k, int64_t warps, int64_t scale_cols)
{
    const int64_t byte = k / 2, line = n / 16 * 4 + n % 8 / 2;
    const int64_t in_line = (byte / 32 * 2 + n % 2) * 64 + byte % 4 * 16 + byte % 32 / 8 * 4;
    const int slot = (int)(byte % 8 / 4 * 2 + n % 16 / 8);
    uint32_t word;
    memcpy(&word, value + line * values->shape[1] + in_line, sizeof word);
    const uint32_t bf16 = decode_slot(word, slot) >> (k % 2 * 16) & 0xffff;
    const int64_t q = k / 32, warp = n % (16 * warps) / 16;
    const int64_t at = (n / (32 * warps) * warps + warp) * 32 * scale_cols + q / 2 * 64 +
                       n % (32 * warps) / (16 * warps) * 32 + n % 8 * 4 + q % 2 * 2 + n % 16 / 8;
    return (double)moxie_decode(MOXIE_BF16, bf16) * 0x1p126 * (double)moxie_decode(MOXIE_F8_E8M0, scale[at]);
}

static void expect_weights(const mox_vendor_plan *plan, uint8_t *const *data, const test_expert *expert, int64_t warps)
{
    const mox_vendor_tensor *w13 = tensor_named(plan, "w13_weight"), *s13 = tensor_named(plan, "w13_weight_scale");
    const mox_vendor_tensor *w2 = tensor_named(plan, "w2_weight"), *s2 = tensor_named(plan, "w2_weight_scale");
    const int64_t hidden = plan->shape.hidden, intermediate = plan->shape.intermediate;
    for (int64_t i = 0; i < intermediate; i++)
        for (int64_t h = 0; h < hidden; h++) {
            for (int up = 0; up < 2; up++) {
                const moxie_matrix *half = up ? &expert->view.up : &expert->view.gate;
                assert_true(hopper_weight(w13, data[w13 - plan->tensors], data[s13 - plan->tensors], 2 * i + up, h,
                                          warps,
                                          s13->shape[1] / 32) == mox_matrix_weight(half, &plan->shape.w13, i, h));
            }
            assert_true(
                hopper_weight(w2, data[w2 - plan->tensors], data[s2 - plan->tensors], h, i, warps, s2->shape[1] / 32) ==
                mox_matrix_weight(&expert->view.down, &plan->shape.w2, h, i));
        }
}

static const test_weight_quant *mxfp4(void)
{
    const test_weight_quant *q = test_weight_quants;
    while (q->quant.element != MOXIE_F4_E2M1 || q->quant.scale != MOXIE_F8_E8M0)
        q++;
    return q;
}

static void a_kernel_reads_the_checkpoint_s_weights(void **state)
{
    (void)state;
    static const struct {
        const char *layout, *release;
        int64_t warps;
    } cases[] = { { "triton-hopper-mxfp4", NULL, 8 },
                  { "triton-hopper-mxfp4", "triton-3.8", 8 },
                  { "triton-hopper-mxfp4", "vllm-0.18", 8 },
                  { "triton-hopper-mxfp4-warps4", NULL, 4 } };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const test_expert_spec spec = {
            .hidden = 160, .intermediate = 96, .gated = true, .w13 = mxfp4(), .w2 = mxfp4()
        };
        const mox_record_shape shape = test_record_shape(&spec);
        test_rng rng = { test_seed(2) };
        test_expert expert;
        moxie_error error = { 0 };
        mox_vendor_plan plan;
        test_expert_make(&expert, &rng, &spec);
        assert_ok(mox_vendor_plan_make(mox_vendor_find(cases[c].layout, cases[c].release), &shape, NULL, &expert.view,
                                       true, &plan, &error),
                  &error);
        assert_int_equal(plan.intermediate, 128);
        uint8_t *data[MOX_VENDOR_TENSORS];
        for (int32_t i = 0; i < plan.count; i++)
            data[i] = malloc((size_t)plan.tensors[i].bytes);
        assert_ok(mox_vendor_pack(&plan, &expert.view, (void *const *)data, &mox_executor_serial, &error), &error);
        expect_weights(&plan, data, &expert, cases[c].warps);
        for (int32_t i = 0; i < plan.count; i++)
            free(data[i]);
        test_expert_free(&expert);
    }
}

/* w13 is 128 rows of 176 bytes and 11 scales. */
static void padding_is_that_of_the_named_version(void **state)
{
    (void)state;
    static const struct {
        const char *layout, *release;
        int64_t w13[4], s13[4];
    } cases[] = { { "triton-mxfp4", NULL, { 128, 176 }, { 128, 11 } },
                  { "triton-hopper-mxfp4", NULL, { 32, 768 }, { 8, 384 } },
                  { "triton-hopper-mxfp4", "vllm-0.33", { 32, 768 }, { 8, 384 } },
                  { "triton-hopper-mxfp4", "triton-3.8", { 64, 768 }, { 8, 384 } },
                  { "triton-hopper-mxfp4", "vllm-0.18", { 32, 768 }, { 8, 384 } },
                  { "triton-hopper-mxfp4-warps4", NULL, { 64, 768 }, { 4, 384 } },
                  { "triton-blackwell-mxfp4", NULL, { 128, 256 }, { 1, 4, 2, 256 } },
                  { "triton-blackwell-mxfp4-tiles", NULL, { 4, 1, 256, 64 }, { 1, 4, 2, 256 } } };
    const test_expert_spec spec = { .hidden = 352, .intermediate = 64, .gated = true, .w13 = mxfp4(), .w2 = mxfp4() };
    const mox_record_shape shape = test_record_shape(&spec);
    test_rng rng = { 1 };
    test_expert expert;
    test_expert_make(&expert, &rng, &spec);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        moxie_error error = { 0 };
        mox_vendor_plan plan;
        assert_ok(mox_vendor_plan_make(mox_vendor_find(cases[c].layout, cases[c].release), &shape, NULL, &expert.view,
                                       false, &plan, &error),
                  &error);
        assert_memory_equal(tensor_named(&plan, "w13_weight")->shape, cases[c].w13, sizeof cases[c].w13);
        assert_memory_equal(tensor_named(&plan, "w13_weight_scale")->shape, cases[c].s13, sizeof cases[c].s13);
    }
    test_expert_free(&expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_bytes_are_twiddled_as_published),
        cmocka_unit_test(a_kernel_decodes_every_code_in_every_place),
        cmocka_unit_test(bytes_lie_where_published),
        cmocka_unit_test(a_kernel_reads_the_checkpoint_s_weights),
        cmocka_unit_test(padding_is_that_of_the_named_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
