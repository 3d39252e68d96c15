/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_marlin.c - Marlin's and moe_wna16's layouts by literal examples of the published formulas: where fields
 * lie, how scales and zero points are permuted, what codes become. How kernels read it is in test_vendor_marlin_read.c.
 */
#include <math.h>

#include "vendor/vendor_internal.h"
#include "vendor/vendor_parts.h"
#include "test_support.h"

/* ---- published positions and words ---- */

typedef struct position {
    int64_t k, n, word, shift;
} position;

/* The word and bit of a single field in a tile 64 rows wide. */
static void check_positions(const mox_vendor_order *order, int32_t bits, const position *p, size_t count)
{
    enum { ROWS = 64, COLS = 32 };
    for (size_t i = 0; i < count; i++) {
        uint8_t memory[ROWS][COLS] = { { 0 } }, tensor[ROWS * COLS] = { 0 };
        const uint8_t *rows[ROWS];
        for (int r = 0; r < ROWS; r++)
            rows[r] = memory[r];
        memory[p[i].n][p[i].k * bits / 8] = (uint8_t)(1 << p[i].k * bits % 8);
        const mox_vendor_matrix m = {
            .rows = ROWS, .cols = COLS, .row_bytes = COLS * bits / 8, .bits = bits, .item_bytes = 4
        };
        order->put(&m, 0, ROWS, rows, tensor);
        for (int64_t b = 0; b < ROWS * m.row_bytes * 8; b++)
            assert_int_equal(tensor[b / 8] >> b % 8 & 1, b == 32 * p[i].word + p[i].shift);
    }
}

#define CHECK_POSITIONS(order, bits, list) check_positions(order, bits, list, sizeof list / sizeof list[0])

static void fields_lie_where_published(void **state)
{
    (void)state;
    static const position a16_4[] = { { 1, 0, 0, 16 }, { 2, 0, 4, 0 },  { 8, 0, 0, 4 },     { 0, 1, 16, 0 },
                                      { 0, 8, 0, 8 },  { 0, 16, 1, 0 }, { 15, 63, 127, 28 } };
    static const position a16_8[] = { { 1, 0, 0, 16 }, { 8, 0, 0, 8 }, { 0, 8, 1, 0 } };
    static const position a8_4[] = { { 1, 0, 0, 8 }, { 8, 0, 8, 0 }, { 0, 8, 1, 0 } };
    static const position a8_8[] = { { 1, 0, 0, 8 }, { 8, 0, 16, 0 }, { 16, 0, 1, 0 }, { 0, 8, 2, 0 } };
    CHECK_POSITIONS(&mox_order_marlin, 4, a16_4);
    CHECK_POSITIONS(&mox_order_marlin, 8, a16_8);
    CHECK_POSITIONS(&mox_order_marlin_a8, 4, a8_4);
    CHECK_POSITIONS(&mox_order_marlin_a8, 8, a8_8);
}

static void a_tile_begins_with_the_published_words(void **state)
{
    (void)state;
    uint8_t memory[64][16] = { { 0 } }, tensor[1024];
    const uint8_t *rows[64];
    for (int n = 0; n < 64; n++) {
        rows[n] = memory[n];
        for (int k = 0; k < 16; k += 2)
            memory[n][k / 2] = (uint8_t)((k + n) % 16 | (k + 1 + n) % 16 << 4);
    }
    const mox_vendor_matrix m = { .rows = 64, .cols = 32, .row_bytes = 16, .bits = 4, .item_bytes = 4 };
    mox_order_marlin.put(&m, 0, 64, rows, tensor);
    uint32_t words[8];
    memcpy(words, tensor, sizeof words);
    for (int i = 0; i < 8; i++)
        assert_int_equal(words[i], i < 4 ? 0x19910880 : 0x3bb32aa2);
}

/* 64 rows of one or two bytes, row n filled with n. */
static void put_numbers(const mox_vendor_order *order, int64_t cols, int32_t bits, uint8_t *tensor)
{
    uint8_t memory[64][2];
    const uint8_t *rows[64];
    for (int n = 0; n < 64; n++) {
        rows[n] = memory[n];
        memset(memory[n], bits == 4 ? n % 16 * 17 : n, 2);
    }
    const mox_vendor_matrix m = {
        .rows = 64, .cols = cols, .row_bytes = (cols * bits + 7) / 8, .bits = bits, .item_bytes = 1
    };
    order->put(&m, 0, 64, rows, tensor);
}

static void scales_and_zero_points_are_permuted_as_published(void **state)
{
    (void)state;
    static const uint8_t grouped[] = { 0, 8, 16, 24, 32, 40, 48, 56, 1, 9 };
    static const uint8_t single[] = { 0, 1, 8, 9, 16, 17, 24, 25, 2, 3, 10, 11, 18, 19, 26, 27, 4, 5 };
    static const uint8_t fp4[] = { 0, 16, 8, 24, 32, 48, 40, 56, 1, 17 };
    uint8_t tensor[128];
    put_numbers(&mox_order_marlin_scales, 2, 8, tensor);
    assert_memory_equal(tensor, grouped, sizeof grouped);
    put_numbers(&mox_order_marlin_scales, 1, 8, tensor); /* one group: a row of scales for each channel */
    assert_memory_equal(tensor, single, sizeof single);
    put_numbers(&mox_order_marlin_single, 2, 8, tensor);
    assert_memory_equal(tensor, single, sizeof single);
    put_numbers(&mox_order_marlin_fp4_scales, 2, 8, tensor);
    assert_memory_equal(tensor, fp4, sizeof fp4);
    static const uint32_t zeros[] = { 0x88880000, 0x99991111, 0xaaaa2222 };
    put_numbers(&mox_order_marlin_zeros, 1, 4, tensor);
    uint32_t words[8];
    memcpy(words, tensor, sizeof words);
    assert_memory_equal(words, zeros, sizeof zeros);
    assert_int_equal(words[7], 0xffff7777);
}

static void codes_are_as_published(void **state)
{
    (void)state;
    mox_vendor_facts facts = { .scale_max = { 448, 1 } };
    mox_vendor_context context = { .code = &mox_code_s0e5m3_f16, .facts = &facts, .projection = MOX_VENDOR_W13 };
    /* 2^-6 * 2^7 is 2, the smallest that stays; smaller ones become zero, and are stored aside. */
    static const uint8_t e4m3[] = { 0x7e, 0x38, 0x08, 0x07, 0x01, 0 }, f16[] = { 0xf6, 0xb0, 0x80, 0, 0, 0 };
    static const uint8_t aside[] = { 0, 0x70, 0x01 };
    uint8_t out[8], back[8], kept[4];
    context.code->forward(&context, e4m3, 6, out);
    assert_memory_equal(out, f16, 6);
    context.code->backward(&context, out, 6, back);
    mox_code_small_scales_f16.forward(&(mox_vendor_context) { .code = &mox_code_small_scales_f16, .facts = &facts },
                                      e4m3, 6, kept);
    assert_memory_equal(kept, aside, 3);
    mox_code_small_scales_f16.backward(&context, kept, 6, back);
    assert_memory_equal(back, e4m3, 6);
    /* 1, 1/8 and 2^-9 under a largest of 1: f = 256. */
    static const uint8_t three[] = { 0x38, 0x20, 0x01 }, want[] = { 0xf0, 0xd8, 0xa8 };
    context = (mox_vendor_context) {
        .code = &mox_code_s0e5m3_bf16, .facts = &facts, .projection = MOX_VENDOR_W2, .zero_add = 0
    };
    assert_null(context.code->reject(&context, three, 3));
    context.code->forward(&context, three, 3, out);
    assert_memory_equal(out, want, 3);
    context.projection = MOX_VENDOR_W13; /* largest 448: f = 1, so 2^-9 becomes zero */
    assert_null(context.code->reject(&context, three, 3));
    context.code->forward(&context, three, 3, out);
    assert_int_equal(out[1], 0xb0 - 0x18);
    assert_int_equal(out[2], 0);
    static const uint8_t negative = 0xb8, nan = 0x7f;
    assert_non_null(context.code->reject(&context, &negative, 1));
    assert_non_null(context.code->reject(&context, &nan, 1));
    static const uint8_t nibbles[] = { 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe };
    static const uint8_t for_fp8[] = { 0xef, 0xcd, 0xab, 0x89, 0x10, 0x32, 0x54, 0x76 };
    context.code = &mox_code_u4b8_to_s4m;
    context.code->forward(&context, nibbles, 16, out);
    assert_memory_equal(out, for_fp8, 8);
    context = (mox_vendor_context) {
        .code = &mox_code_zeros_plus, .facts = &facts, .projection = MOX_VENDOR_W13, .zero_add = 1
    };
    static const uint8_t stored[] = { 0x77, 0xe0 }, plus[] = { 0x88, 0xf1 }, full = 0x0f;
    assert_null(context.code->reject(&context, stored, 4));
    context.code->forward(&context, stored, 4, out);
    assert_memory_equal(out, plus, 2);
    assert_non_null(context.code->reject(&context, &full, 2));
    static const uint8_t exponents[] = { 249, 250 };
    context.code = &mox_code_e8m0_plus_6;
    assert_null(context.code->reject(&context, exponents, 1));
    assert_non_null(context.code->reject(&context, exponents, 2));
}

/* All codes with two zero points, `add` of each not stored: codes at or above the zero point count up from 0, the
 * others down from 15 without meeting them; and back. Group sizes: a vector, a word, and a part of one. */
static void check_counted(moxie_dtype dtype, int zero, int add)
{
    enum { GROUP = 96, CODES = 2 * GROUP - 6 };
    const uint8_t turn = dtype == MOXIE_I4 ? 0x88 : 0; /* signed codes, the same in order */
    const uint8_t zeros = (uint8_t)((zero + 1 - add) << 4 | (zero - add)) ^ turn;
    const mox_vendor_context context = { .code = mox_vendor_code_for(&mox_code_u4_to_s4m_of, dtype),
                                         .zeros = &zeros,
                                         .group = GROUP,
                                         .zero_add = (float)add };
    uint8_t codes[CODES / 2], out[CODES / 2], back[CODES / 2];
    for (int i = 0; i < CODES / 2; i++)
        codes[i] = (uint8_t)(2 * i % 16 | (2 * i + 1) % 16 << 4) ^ turn;
    context.code->forward(&context, codes, CODES, out);
    for (int n = 0; n < CODES; n++) {
        const int z = n < GROUP ? zero : zero + 1, code = n % 16;
        assert_int_equal(out[n / 2] >> n % 2 * 4 & 15, code >= z ? code - z : 15 - code);
    }
    context.code->backward(&context, out, CODES, back);
    assert_memory_equal(back, codes, sizeof codes);
}

static void codes_are_counted_from_their_zero_point(void **state)
{
    (void)state;
    for (int zero = 0; zero < 15; zero++)
        for (int add = 0; add < 2 && add <= zero; add++) {
            check_counted(MOXIE_U4B8, zero, add);
            check_counted(MOXIE_I4, zero, add);
        }
    /* 0, 4, 5 and 15 under a zero point of 5. */
    static const uint8_t in[] = { 0x40, 0xf5 }, want[] = { 0xbf, 0xa0 }, five = 5;
    uint8_t out[2];
    const mox_vendor_context context = { .code = &mox_code_u4_to_s4m_of, .zeros = &five, .group = 32 };
    context.code->forward(&context, in, 4, out);
    assert_memory_equal(out, want, 2);
}

/* Every scale up to the largest of the layer, by the definition: the quotient in the dtype of scales, times 4096,
 * rounded to even. */
static void check_int8_scales(moxie_dtype dtype, uint32_t most)
{
    static uint16_t scales[2 * (0x8000)];
    static int16_t shares[2 * (0x8000)];
    const mox_vendor_facts facts = { .scale_max = { moxie_decode(dtype, most), 0 } };
    const mox_vendor_context context = { .code = mox_vendor_code_for(&mox_code_int8_scales, dtype), .facts = &facts };
    int64_t count = 0;
    for (uint32_t code = 0; code <= most; code++) {
        scales[count++] = (uint16_t)code;
        scales[count++] = (uint16_t)(code | 0x8000);
    }
    assert_null(context.code->reject(&context, (const uint8_t *)scales, count));
    context.code->forward(&context, (const uint8_t *)scales, count, (uint8_t *)shares);
    for (int64_t i = 0; i < count; i++) {
        const float fraction = moxie_decode(dtype, scales[i]) / facts.scale_max[0];
        const long want = lrintf(moxie_decode(dtype, moxie_encode(dtype, fraction)) * 4096);
        if (shares[i] != want)
            fail_msg("%s: scale %04x of %04x is %d, %ld by definition", moxie_dtype_name(dtype), scales[i], most,
                     shares[i], want);
    }
    for (uint32_t above = most + 1; above < 0x8000; above += 1 + above / 64) {
        const uint16_t one = (uint16_t)above, minus = (uint16_t)(above | 0x8000);
        assert_non_null(context.code->reject(&context, (const uint8_t *)&one, 1));
        assert_non_null(context.code->reject(&context, (const uint8_t *)&minus, 1));
    }
}

static void int8_scales_are_shares_of_the_largest(void **state)
{
    (void)state;
    static const uint32_t f16[] = { 0x7bff, 0x3c00, 0x2a1b, 0x0401, 0x0003 };
    static const uint32_t bf16[] = { 0x7f7f, 0x3f80, 0x3d2b, 0x0081 };
    for (int i = 0; i < 5; i++)
        check_int8_scales(MOXIE_F16, f16[i]);
    for (int i = 0; i < 4; i++)
        check_int8_scales(MOXIE_BF16, bf16[i]);
    const mox_vendor_facts endless = { .scale_max = { INFINITY, 0 } }, none = { .scale_max = { 0, 0 } };
    mox_vendor_context context = { .code = &mox_code_int8_scales, .facts = &endless };
    static const uint16_t infinite = 0x7c00, one = 0x3c00;
    assert_non_null(context.code->reject(&context, (const uint8_t *)&infinite, 1));
    context.facts = &none;
    assert_non_null(context.code->reject(&context, (const uint8_t *)&one, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_lie_where_published),
        cmocka_unit_test(a_tile_begins_with_the_published_words),
        cmocka_unit_test(scales_and_zero_points_are_permuted_as_published),
        cmocka_unit_test(codes_are_as_published),
        cmocka_unit_test(codes_are_counted_from_their_zero_point),
        cmocka_unit_test(int8_scales_are_shares_of_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
