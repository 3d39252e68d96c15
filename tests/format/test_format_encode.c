/* SPDX-License-Identifier: Apache-2.0
 *
 * test_format_encode.c - encoding against its definition: the nearest value, ties to the even code, saturation.
 *
 * Formats of up to 8 bits are compared with a search over all codes in double precision. The inputs are a sample of
 * f32: every exponent, many mantissas, every midpoint of neighbouring values, and the floats next to it. With
 * MOXIE_TEST_LONG=1 all 2^32 floats are encoded, also to 16-bit formats, and compared with the sorted values (some
 * minutes).
 */
#include "test_support.h"

#include "format/format.h"
#include "format_oracle.h"

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void check(const mox_format *f, uint32_t bits, uint32_t want)
{
    const uint32_t got = f->encode(from_bits(bits));
    if (got != want)
        fail_msg("%s: encode(%a, bits 0x%08x) = 0x%x, should be 0x%x", f->name, (double)from_bits(bits), (unsigned)bits,
                 (unsigned)got, (unsigned)want);
}

/* The values of a format of 8 bits or fewer. */
typedef struct values {
    const mox_format *format;
    uint32_t codes;
    double of[256];
    double lowest, largest; /* of the finite ones */
    bool signed_zero;
} values;

static values make_values(const mox_format *f)
{
    values v = { .format = f, .codes = 1u << f->bits, .lowest = INFINITY, .largest = -INFINITY };
    for (uint32_t code = 0; code < v.codes; code++) {
        v.of[code] = oracle_value(f->dtype, code);
        if (isfinite(v.of[code])) {
            v.lowest = fmin(v.lowest, v.of[code]);
            v.largest = fmax(v.largest, v.of[code]);
        }
        v.signed_zero |= v.of[code] == 0 && signbit(v.of[code]);
    }
    return v;
}

static uint32_t code_of_nan(const values *v)
{
    switch (v->format->dtype) {
    case MOXIE_F8_E4M3:
    case MOXIE_F8_E5M2: return 0x7f;
    case MOXIE_F8_E8M0: return 0xff;
    case MOXIE_F6_E3M2:
    case MOXIE_F6_E2M3: return 0x1f;
    case MOXIE_F4_E2M1: return 0x7;
    case MOXIE_U4B8: return 8;
    case MOXIE_U8B128: return 128;
    case MOXIE_I8:
    case MOXIE_I4: return 0;
    default: return v->format->encode(NAN); /* a format this test does not know */
    }
}

static uint32_t nearest_code(const values *v, double x)
{
    uint32_t best = UINT32_MAX;
    double best_distance = INFINITY;

    if (isnan(x))
        return code_of_nan(v);
    for (uint32_t code = 0; isinf(x) && code < v->codes; code++) {
        if (v->of[code] == x)
            return code;
    }
    const double target = fmin(fmax(x, v->lowest), v->largest);
    for (uint32_t code = 0; code < v->codes; code++) {
        if (!isfinite(v->of[code]) || (v->signed_zero && !signbit(v->of[code]) != !signbit(x)))
            continue;
        const double distance = fabs(v->of[code] - target);
        if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
            best = code;
            best_distance = distance;
        }
    }
    return best;
}

static void check_near(const mox_format *f, const values *v, uint32_t magnitude)
{
    for (int32_t d = -2; d <= 2; d++) {
        const uint32_t bits = (magnitude + (uint32_t)d) & 0x7fffffffu;
        check(f, bits, nearest_code(v, from_bits(bits)));
        check(f, bits | 0x80000000u, nearest_code(v, from_bits(bits | 0x80000000u)));
    }
}

static void check_sample(const mox_format *f, test_rng *rng)
{
    const values v = make_values(f);
    for (uint32_t exponent = 0; exponent < 256; exponent++) {
        for (uint32_t part = 0; part < 16; part++) {
            check_near(f, &v, exponent << 23 | part << 19);
            check_near(f, &v, exponent << 23 | (uint32_t)test_below(rng, 1 << 23));
        }
    }
    for (uint32_t a = 0; a < v.codes; a++) {
        /* The midpoints of all pairs of values, which include those of neighbours. */
        for (uint32_t b = 0; b <= a && isfinite(v.of[a]); b++) {
            const float middle = (float)(fabs(v.of[a] + v.of[b]) / 2);
            uint32_t bits;
            memcpy(&bits, &middle, sizeof bits);
            if (isfinite(v.of[b]))
                check_near(f, &v, bits);
        }
    }
}

static void test_sample(void **state)
{
    test_rng rng = { test_seed(1) };
    (void)state;
    print_message("seed %llu\n", (unsigned long long)rng.state);
    for (int32_t i = 0; mox_format_at(i); i++) {
        if (mox_format_at(i)->bits <= 8)
            check_sample(mox_format_at(i), &rng);
    }
}

static const struct {
    moxie_dtype dtype;
    float value;
    uint32_t code;
} by_hand[] = {
    /* E2M1: 0.25 -> 0, 0.75 -> 1, 1.75 -> 2, 2.5 -> 2, 5 -> 4, above 5 -> 6 */
    { MOXIE_F4_E2M1, 0.25f, 0x0 },
    { MOXIE_F4_E2M1, 0.75f, 0x2 },
    { MOXIE_F4_E2M1, 1.75f, 0x4 },
    { MOXIE_F4_E2M1, 2.5f, 0x4 },
    { MOXIE_F4_E2M1, 5.0f, 0x6 },
    { MOXIE_F4_E2M1, 5.0001f, 0x7 },
    { MOXIE_F4_E2M1, -0.0f, 0x8 },
    { MOXIE_F4_E2M1, -0.1f, 0x8 },
    { MOXIE_F4_E2M1, -INFINITY, 0xf },
    { MOXIE_F4_E2M1, NAN, 0x7 },
    /* E4M3: 144 = 2^7 * 1.125, 288 = 2^8 * 1.125; a step at 448 is 32, and 464 would tie with 480 */
    { MOXIE_F8_E4M3, 149.33333f, 0x71 },
    { MOXIE_F8_E4M3, 298.66667f, 0x79 },
    { MOXIE_F8_E4M3, 1.4933333f, 0x3c },
    { MOXIE_F8_E4M3, 464.0f, 0x7e },
    { MOXIE_F8_E4M3, -1e30f, 0xfe },
    { MOXIE_F8_E4M3, INFINITY, 0x7e },
    { MOXIE_F8_E4M3, NAN, 0x7f },
    { MOXIE_F8_E4M3, -NAN, 0x7f },
    { MOXIE_F8_E4M3, 0x1p-10f, 0x00 },
    { MOXIE_F8_E4M3, 0x1.8p-9f, 0x02 },
    { MOXIE_F8_E5M2, 61440.0f, 0x7b },
    { MOXIE_F8_E5M2, 3e38f, 0x7b },
    { MOXIE_F8_E5M2, -INFINITY, 0xfc },
    { MOXIE_F8_E5M2, NAN, 0x7f },
    { MOXIE_F6_E3M2, 100.0f, 0x1f },
    { MOXIE_F6_E3M2, NAN, 0x1f },
    { MOXIE_F6_E2M3, -7.25f, 0x3e }, /* 7 and 7.5 tie: 1.110 is even */
    { MOXIE_F8_E8M0, 1.0f, 127 },
    { MOXIE_F8_E8M0, 1.5f, 128 },
    { MOXIE_F8_E8M0, 3.0f, 128 },
    { MOXIE_F8_E8M0, 0x1.800002p1f, 129 },
    { MOXIE_F8_E8M0, 0.0f, 0 },
    { MOXIE_F8_E8M0, -8.0f, 0 },
    { MOXIE_F8_E8M0, 0x1.8p-127f, 0 },
    { MOXIE_F8_E8M0, INFINITY, 254 },
    { MOXIE_F8_E8M0, 0x1.fffffep127f, 254 },
    { MOXIE_F8_E8M0, NAN, 255 },
    { MOXIE_I8, 2.5f, 2 },
    { MOXIE_I8, -0.5f, 0 },
    { MOXIE_I8, -1.5f, 0xfe },
    { MOXIE_I8, -200.0f, 0x80 },
    { MOXIE_I8, INFINITY, 0x7f },
    { MOXIE_I8, NAN, 0 },
    { MOXIE_I4, -8.4f, 0x8 },
    { MOXIE_I4, 6.5f, 0x6 },
    { MOXIE_I4, NAN, 0 },
    { MOXIE_U4B8, 0.0f, 8 },
    { MOXIE_U4B8, 7.5f, 15 },
    { MOXIE_U4B8, NAN, 8 },
    { MOXIE_U8B128, -1e9f, 0 },
    { MOXIE_U8B128, -1.0f, 127 },
    /* 16 bits: 65520 is half a step past the largest f16 */
    { MOXIE_F16, 65520.0f, 0x7bff },
    { MOXIE_F16, 1e9f, 0x7bff },
    { MOXIE_F16, -INFINITY, 0xfc00 },
    { MOXIE_F16, NAN, 0x7e00 },
    { MOXIE_F16, 0x1.555556p-2f, 0x3555 },
    { MOXIE_BF16, 0x1.fffffep127f, 0x7f7f },
    { MOXIE_BF16, -0x1.ffp127f, 0xff7f },
    { MOXIE_BF16, INFINITY, 0x7f80 },
    { MOXIE_BF16, -NAN, 0x7fc0 },
    { MOXIE_F32, -INFINITY, 0xff800000u },
};

static void test_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
        const mox_format *f = mox_format_of(by_hand[i].dtype);
        uint32_t bits;
        memcpy(&bits, &by_hand[i].value, sizeof bits);
        check(f, bits, by_hand[i].code);
        assert_int_equal(mox_format_encode(by_hand[i].dtype, by_hand[i].value), by_hand[i].code);
    }
}

/* NVFP4 worked by hand: a block 0.1 i - 0.75 in bf16, divided by its scale 1/8. */
static void test_nvfp4_block(void **state)
{
    static const unsigned char want[8] = { 0xff, 0xee, 0xcd, 0x9a, 0x21, 0x54, 0x66, 0x77 };
    (void)state;
    for (int i = 0; i < 16; i++) {
        const float x = mox_bf16_decode(mox_bf16_encode((float)(0.1 * i - 0.75)));
        assert_int_equal(mox_f4_e2m1_encode(x * 8), want[i / 2] >> (i % 2 * 4) & 15);
    }
}

/* The values of one sign, in order of magnitude. past[i] is the midpoint of values i and i + 1. */
typedef struct ladder {
    int64_t count;
    double magnitude[1 << 15], past[1 << 15];
    uint32_t code[1 << 15];
} ladder;

static void add_rung(ladder *l, double value, uint32_t code)
{
    int64_t at = l->count++;
    for (; at > 0 && l->magnitude[at - 1] > fabs(value); at--) {
        l->magnitude[at] = l->magnitude[at - 1];
        l->code[at] = l->code[at - 1];
    }
    l->magnitude[at] = fabs(value);
    l->code[at] = code;
}

/* `infinity`: code of the infinity that overflow rounds to (IEEE 754: as if it were the next number), or 0. */
static void make_ladder(ladder *l, const mox_format *f, bool negative, uint32_t infinity)
{
    l->count = 0;
    for (uint32_t code = 0; code < 1u << f->bits; code++) {
        const double value = oracle_value(f->dtype, code);
        const bool unsigned_zero = value == 0 && f->kind == MOX_KIND_INTEGER;
        if (isfinite(value) && (!signbit(value) == !negative || unsigned_zero))
            add_rung(l, value, code);
    }
    if (infinity)
        add_rung(l, ldexp(1, f->emax + 1), infinity);
    if (l->count == 0)
        add_rung(l, 0, 0); /* a format without negative numbers encodes them as code 0 */
    for (int64_t i = 0; i + 1 < l->count; i++)
        l->past[i] = (l->magnitude[i] + l->magnitude[i + 1]) / 2;
    l->past[l->count - 1] = INFINITY;
}

/* Encodes all finite floats of one sign in ascending order, so that the expected value only moves up the ladder. */
static void sweep(const ladder *l, const char *name, uint32_t (*encode)(float), bool negative)
{
    const uint32_t sign = negative ? 0x80000000u : 0;
    int64_t rung = 0;
    for (uint32_t bits = 0; bits < 0x7f800000u; bits++) {
        const double a = from_bits(bits);
        while (a > l->past[rung] || (a == l->past[rung] && l->code[rung + 1] % 2 == 0))
            rung++;
        const uint32_t got = encode(from_bits(bits | sign));
        if (got != l->code[rung])
            fail_msg("%s: bits 0x%08x give 0x%x, should give 0x%x", name, (unsigned)(bits | sign), (unsigned)got,
                     (unsigned)l->code[rung]);
    }
}

static void sweep_not_finite(const mox_format *f)
{
    const uint32_t nan_code = f->encode(NAN);
    for (uint32_t bits = 0x7f800001u; bits < 0x80000000u; bits++) {
        check(f, bits, nan_code);
        check(f, bits | 0x80000000u, nan_code);
    }
}

static void test_all_patterns(void **state)
{
    static ladder l;
    (void)state;
    if (!test_env("MOXIE_TEST_LONG", 0)) {
        print_message("all 2^32 patterns: only with MOXIE_TEST_LONG=1\n");
        skip();
    }
    for (int32_t i = 0; mox_format_at(i); i++) {
        const mox_format *f = mox_format_at(i);
        if (f->bits > 16)
            continue;
        for (int negative = 0; negative < 2; negative++) {
            make_ladder(&l, f, negative, 0);
            sweep(&l, f->name, f->encode, negative);
        }
        sweep_not_finite(f);
    }
    for (int negative = 0; negative < 2; negative++) {
        make_ladder(&l, mox_format_of(MOXIE_F16), negative, negative ? 0xfc00 : 0x7c00);
        sweep(&l, "f16 narrow", mox_f16_narrow, negative);
        make_ladder(&l, mox_format_of(MOXIE_BF16), negative, negative ? 0xff80 : 0x7f80);
        sweep(&l, "bf16 narrow", mox_bf16_narrow, negative);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_nvfp4_block),
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_all_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
