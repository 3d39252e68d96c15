/* SPDX-License-Identifier: Apache-2.0
 *
 * test_format_rows.c - the rows of formats.def against the formats' definitions: limits, look-ups, names. Every code of
 * up to 16 bits is decoded, and encoded back to itself.
 */
#include "test_support.h"

#include "format/format.h"
#include "format_oracle.h"

static void assert_same_float(float got, double want, const char *name, uint32_t code)
{
    if (isnan(want) ? isnan(got) : ((double)got == want && !signbit(got) == !signbit(want)))
        return;
    fail_msg("%s code 0x%x: %a, should be %a", name, (unsigned)code, (double)got, want);
}

static void test_names_and_numbers(void **state)
{
    /* The ABI: number, name, bits. */
    static const struct {
        moxie_dtype dtype;
        const char *name;
        int32_t bits, bytes;
        bool is_format;
    } all[] = {
        { 1, "f32", 32, 4, true },    { 2, "f16", 16, 2, true },    { 3, "bf16", 16, 2, true },
        { 4, "f8_e4m3", 8, 1, true }, { 5, "f8_e5m2", 8, 1, true }, { 6, "f8_e8m0", 8, 1, true },
        { 7, "f6_e3m2", 6, 0, true }, { 8, "f6_e2m3", 6, 0, true }, { 9, "f4_e2m1", 4, 0, true },
        { 10, "i8", 8, 1, true },     { 11, "i4", 4, 0, true },     { 12, "u4b8", 4, 0, true },
        { 13, "u8b128", 8, 1, true }, { 32, "u8", 8, 1, false },    { 33, "i16", 16, 2, false },
        { 34, "u16", 16, 2, false },  { 35, "i32", 32, 4, false },  { 36, "u32", 32, 4, false },
        { 37, "i64", 64, 8, false },  { 38, "u64", 64, 8, false },  { 39, "f64", 64, 8, false },
        { 40, "bool", 8, 1, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_string_equal(mox_dtype_name(all[i].dtype), all[i].name);
        assert_int_equal(mox_dtype_from_name(all[i].name), all[i].dtype);
        assert_int_equal(mox_dtype_bits(all[i].dtype), all[i].bits);
        assert_int_equal(mox_dtype_bytes(all[i].dtype), all[i].bytes);

        const mox_format *format = mox_format_of(all[i].dtype);
        assert_int_equal(format != NULL, all[i].is_format);
        assert_ptr_equal(mox_format_by_name(all[i].name), format);
        if (format) {
            assert_int_equal(format->dtype, all[i].dtype);
            assert_int_equal(format->bits, all[i].bits);
        }
    }
    int32_t formats = 0;
    for (; mox_format_at(formats); formats++)
        assert_ptr_equal(mox_format_of(mox_format_at(formats)->dtype), mox_format_at(formats));
    assert_true(formats >= 13); /* more may have been added */
    assert_null(mox_format_at(-1));
}

static void test_unknown_dtypes(void **state)
{
    static const moxie_dtype none[] = { MOXIE_DTYPE_NONE, -1, 31, 1 << 20, INT32_MAX };
    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_string_equal(mox_dtype_name(none[i]), "?");
        assert_int_equal(mox_dtype_bits(none[i]), 0);
        assert_int_equal(mox_dtype_bytes(none[i]), 0);
        assert_null(mox_format_of(none[i]));
        assert_null(mox_format_table(none[i]));
        assert_true(isnan(mox_format_decode(none[i], 1)));
        assert_int_equal(mox_format_encode(none[i], 1.0f), 0);
        assert_true(isnan(mox_load(none[i], "abc")));
    }
    assert_int_equal(mox_dtype_from_name("F32"), MOXIE_DTYPE_NONE);
    assert_int_equal(mox_dtype_from_name("?"), MOXIE_DTYPE_NONE);
    assert_int_equal(mox_dtype_from_name(""), MOXIE_DTYPE_NONE);
    assert_int_equal(mox_dtype_from_name(NULL), MOXIE_DTYPE_NONE);
    assert_null(mox_format_by_name(NULL));
}

static void test_limits(void **state)
{
    (void)state;
    for (int32_t i = 0; mox_format_at(i); i++) {
        const mox_format *f = mox_format_at(i);
        double largest = 0;
        bool has_nan = false, has_inf = false;
        if (f->bits > 16)
            continue; /* f32: below */
        for (uint32_t code = 0; code < 1u << f->bits; code++) {
            const double value = oracle_value(f->dtype, code);
            has_nan |= isnan(value);
            has_inf |= isinf(value) != 0;
            largest = isfinite(value) ? fmax(largest, value) : largest;
        }
        assert_same_float(f->max, largest, f->name, 0);
        assert_int_equal(f->emax, ilogb(largest));
        assert_int_equal(f->has_nan, has_nan);
        assert_int_equal(f->has_inf, has_inf);
    }
    for (size_t i = 0; i < sizeof oracle_floats / sizeof *oracle_floats; i++) {
        const oracle_float *o = &oracle_floats[i];
        const mox_format *f = mox_format_of(o->dtype);
        assert_int_equal(f->kind, MOX_KIND_FLOAT);
        assert_same_float(f->min_normal, ldexp(1, 1 - o->bias), f->name, 0);
    }
    assert_same_float(mox_format_of(MOXIE_F8_E8M0)->min_normal, ldexp(1, -127), "f8_e8m0", 0);
    assert_int_equal(mox_format_of(MOXIE_F8_E8M0)->kind, MOX_KIND_EXPONENT);
    assert_same_float(mox_format_of(MOXIE_F32)->max, ldexp((1 << 24) - 1, 104), "f32", 0);
    assert_int_equal(mox_format_of(MOXIE_F32)->emax, 127);
    assert_true(mox_format_of(MOXIE_F32)->has_nan && mox_format_of(MOXIE_F32)->has_inf);
    for (moxie_dtype d = MOXIE_I8; d <= MOXIE_U8B128; d++) {
        assert_int_equal(mox_format_of(d)->kind, MOX_KIND_INTEGER);
        assert_same_float(mox_format_of(d)->min_normal, 1, mox_dtype_name(d), 0);
    }
}

static void test_every_code(void **state)
{
    (void)state;
    for (int32_t i = 0; mox_format_at(i); i++) {
        const mox_format *f = mox_format_at(i);
        const uint32_t codes = f->bits < 32 ? 1u << f->bits : 1u << 16;
        const uint32_t nan_code = f->encode(NAN);
        if (f->has_nan)
            assert_true(isnan(f->decode(nan_code)));
        for (uint32_t n = 0; n < codes; n++) {
            const uint32_t code = f->bits < 32 ? n : n << 16 | n; /* f32: a sample */
            const double want = oracle_value(f->dtype, code);
            const float got = f->decode(code);
            assert_same_float(got, want, f->name, code);
            assert_same_float(mox_format_decode(f->dtype, code), want, f->name, code);
            if (f->bits < 32) {
                assert_same_float(f->decode(code | 0xa5u << f->bits), want, f->name, code); /* high bits ignored */
                assert_int_equal(f->encode(got), isnan(want) ? nan_code : code);
            } else {
                assert_int_equal(f->encode(got), code);
            }
        }
    }
}

static void test_tables(void **state)
{
    (void)state;
    for (int32_t i = 0; mox_format_at(i); i++) {
        const mox_format *f = mox_format_at(i);
        const float *table = mox_format_table(f->dtype);
        assert_int_equal(table != NULL, f->bits <= 8);
        for (uint32_t code = 0; table && code < 256; code++)
            assert_same_float(table[code], oracle_value(f->dtype, code % (1u << f->bits)), f->name, code);
    }
}

static void test_load(void **state)
{
    static const unsigned char bytes[] = { 0xff, 0x00, 0x00, 0x80, 0x3f, 0xee };
    (void)state;
    assert_same_float(mox_load(MOXIE_F32, bytes + 1), 1, "f32", 0);
    assert_same_float(mox_load(MOXIE_BF16, bytes + 3), 1, "bf16", 0);
    assert_same_float(mox_load(MOXIE_F16, bytes + 3), 1.875, "f16", 0); /* 0x3f80 */
    assert_same_float(mox_load(MOXIE_F8_E8M0, bytes + 4), ldexp(1, 63 - 127), "f8_e8m0", 0);
    assert_same_float(mox_load(MOXIE_F8_E4M3, bytes + 3), -0.0, "f8_e4m3", 0);
    assert_same_float(mox_load(MOXIE_I8, bytes), -1, "i8", 0);
    assert_true(isnan(mox_load(MOXIE_F4_E2M1, bytes)));
    assert_true(isnan(mox_load(MOXIE_I32, bytes)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_numbers), cmocka_unit_test(test_unknown_dtypes), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_every_code),        cmocka_unit_test(test_tables),         cmocka_unit_test(test_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
