/* SPDX-License-Identifier: Apache-2.0
 *
 * test_format_arrays.c - widening and narrowing of f16 and bf16: every code, every rounding decision
 * between neighbouring codes, overflow to infinity, unaligned and guarded arrays.
 */
#include "test_support.h"

#include "format/format.h"
#include "format_oracle.h"

static const moxie_dtype halves[] = { MOXIE_F16, MOXIE_BF16 };

static uint16_t narrow_one(moxie_dtype dtype, float value)
{
    uint16_t code;
    mox_narrow(dtype, &value, &code, 1);
    return code;
}

static void test_widen_every_code(void **state)
{
    static uint16_t codes[1 << 16], back[1 << 16];
    static float wide[1 << 16];
    (void)state;
    for (uint32_t i = 0; i < 1 << 16; i++)
        codes[i] = (uint16_t)i;
    for (size_t h = 0; h < 2; h++) {
        const uint16_t nan_code = narrow_one(halves[h], NAN);
        assert_true(isnan(oracle_value(halves[h], nan_code)));
        mox_widen(halves[h], codes, wide, 1 << 16);
        mox_narrow(halves[h], wide, back, 1 << 16);
        for (uint32_t i = 0; i < 1 << 16; i++) {
            const double want = oracle_value(halves[h], i);
            if (isnan(want)) {
                assert_true(isnan(wide[i]));
                assert_int_equal(back[i], nan_code);
            } else {
                assert_true((double)wide[i] == want && !signbit(wide[i]) == !signbit(want));
                assert_int_equal(back[i], i);
            }
        }
    }
}

static void expect(moxie_dtype dtype, float value, uint32_t code, bool negative)
{
    const uint32_t want = negative ? code | 0x8000u : code;
    const float x = negative ? -value : value;
    const uint16_t got = narrow_one(dtype, x);
    if (got != want)
        fail_msg("%s: %a gives 0x%04x, should give 0x%04x", mox_dtype_name(dtype), (double)x, got, (unsigned)want);
    const double rounded = mox_round_to(dtype, x);
    assert_true(rounded == oracle_value(dtype, want));
}

/* Midpoints of codes c and c + 1. The last c + 1 is infinity: there it stands for the number that would come next. */
static void test_every_midpoint(void **state)
{
    static const uint32_t infinities[] = { 0x7c00, 0x7f80 };
    (void)state;
    for (size_t h = 0; h < 2; h++) {
        for (uint32_t c = 0; c < infinities[h]; c++) {
            const double low = oracle_value(halves[h], c);
            const double high =
                c + 1 < infinities[h] ? oracle_value(halves[h], c + 1) : ldexp(1, halves[h] == MOXIE_F16 ? 16 : 128);
            const float middle = (float)((low + high) / 2);
            for (int negative = 0; negative < 2; negative++) {
                expect(halves[h], nextafterf(middle, 0), c, negative);
                expect(halves[h], middle, c % 2 == 0 ? c : c + 1, negative);
                expect(halves[h], nextafterf(middle, INFINITY), c + 1, negative);
            }
        }
    }
}

static void test_narrow_overflows(void **state)
{
    (void)state;
    assert_int_equal(narrow_one(MOXIE_F16, 65519.0f), 0x7bff);
    assert_int_equal(narrow_one(MOXIE_F16, 65520.0f), 0x7c00);
    assert_int_equal(narrow_one(MOXIE_F16, -1e30f), 0xfc00);
    assert_int_equal(narrow_one(MOXIE_BF16, 0x1.fffffep127f), 0x7f80);
    assert_int_equal(narrow_one(MOXIE_BF16, -INFINITY), 0xff80);
    assert_int_equal(narrow_one(MOXIE_F16, -NAN), 0x7e00);
    assert_int_equal(narrow_one(MOXIE_BF16, -NAN), 0x7fc0);
    assert_true(isinf(mox_round_to(MOXIE_F16, 70000.0f)));
    assert_true(mox_round_to(MOXIE_F32, 0x1.fffffep127f) == 0x1.fffffep127f);
    const float from = -NAN;
    uint32_t code;
    mox_narrow(MOXIE_F32, &from, &code, 1);
    assert_int_equal(code, 0x7fc00000);
}

/* Counts around vector lengths, odd addresses, and an inaccessible page behind the array. */
static void test_bounds(void **state)
{
    enum { LONGEST = 67 };
    float values[LONGEST], wide[LONGEST];
    (void)state;
    for (int i = 0; i < LONGEST; i++)
        values[i] = (float)i - 33.5f;
    for (int64_t count = 0; count <= LONGEST; count++) {
        for (size_t h = 0; h < 3; h++) {
            const moxie_dtype dtype = h < 2 ? halves[h] : MOXIE_F32;
            const size_t bytes = (size_t)count * (size_t)mox_dtype_bytes(dtype);
            char *room = test_guarded(bytes + 1);
            room[0] = 0x5a;
            memcpy(wide, values, sizeof wide);
            mox_narrow(dtype, values, room + 1, count);
            for (int i = 0; i < LONGEST; i++)
                wide[i] = -1e6f;
            mox_widen(dtype, room + 1, wide, count);
            assert_int_equal(room[0], 0x5a);
            for (int i = 0; i < LONGEST; i++)
                assert_true(wide[i] == (i < count ? values[i] : -1e6f));
            test_guarded_free(room, bytes + 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widen_every_code),
        cmocka_unit_test(test_every_midpoint),
        cmocka_unit_test(test_narrow_overflows),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
