/* SPDX-License-Identifier: Apache-2.0
 *
 * test_model_pairs.c - gate and up in two formats: read where one element holds the other's numbers, with exactly the
 * weights that each format's own rule gives; refused with both formats' names where not.
 */
#include "hand_rules.h"

enum { HIDDEN = 64, INTER = 32 };

/* How one projection is stored: integers of compressed-tensors, or MX floats. */
typedef struct kind {
    const char *id;
    int bits;   /* 4 or 8: packed integers; 0: MX */
    bool zero;  /* integers with zero points */
    bool eight; /* MX: e4m3, else e2m1 */
    int group;
} kind;

static const kind int4 = { "int4-ct", 4, false, false, 16 }, int8 = { "int8-ct-w8a16", 8, false, false, 16 },
                  int4_zero = { "int4-ct-asym", 4, true, false, 16 },
                  int8_zero = { "int8-ct-asym", 8, true, false, 16 },
                  int8_wide = { "int8-ct-w8a16", 8, false, false, 32 }, fp4 = { "mxfp4-quark", 0, false, false, 32 },
                  fp8 = { "mxfp8", 0, false, true, 32 };

/* Of gate and up; down is like up. */
static const kind *now[2];

static const kind *kind_of(const char *name)
{
    return now[strstr(name, "gate_proj") ? 0 : 1];
}

static void add(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    const kind *s = kind_of(name);
    if (s->bits == 0) {
        hand_add2(c, join(name, ".weight"), s->eight ? MOXIE_F8_E4M3 : MOXIE_U8, n, s->eight ? k : k / 2);
        uint8_t *scale = hand_add2(c, join(name, ".weight_scale"), MOXIE_U8, n, k / 32);
        for (int64_t i = 0; i < n * k / 32; i++)
            scale[i] = (uint8_t)(120 + i % 9);
        hand_scramble(c, join(name, ".weight"));
        return;
    }
    hand_add2(c, join(name, ".weight_packed"), MOXIE_I32, n, k * s->bits / 32);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_BF16, n, k / s->group);
    hand_scramble(c, join(name, ".weight_packed"));
    hand_ramp(c, join(name, ".weight_scale"), 0.5f, 0.25f);
    if (!s->zero)
        return;
    hand_add2(c, join(name, ".weight_zero_point"), MOXIE_I32, n * s->bits / 32, k / s->group);
    hand_scramble(c, join(name, ".weight_zero_point"));
}

static int field(const hand_checkpoint *c, const char *name, int64_t word, int64_t at, int bits)
{
    return (int)(hand_word(c, name, word) >> at * bits & ((1u << bits) - 1));
}

static double weight(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    const kind *s = kind_of(name);
    if (s->bits == 0) {
        const double value = s->eight ? e4m3(hand_byte(c, join(name, ".weight"), n * cols + k))
                                      : e2m1(nibble(c, join(name, ".weight"), n * cols + k));
        return value * e8m0(hand_byte(c, join(name, ".weight_scale"), n * (cols / 32) + k / 32));
    }
    const int per = 32 / s->bits;
    const int64_t groups = cols / s->group, g = k / s->group;
    const int q = field(c, join(name, ".weight_packed"), n * (cols / per) + k / per, k % per, s->bits);
    const int z = s->zero ? field(c, join(name, ".weight_zero_point"), n / per * groups + g, n % per, s->bits)
                          : 1 << (s->bits - 1);
    return (q - z) * hand_value(c, join(name, ".weight_scale"), n * groups + g);
}

static double wide(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return weight(c, name, n, k, HIDDEN);
}

static double narrow(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return weight(c, name, n, k, INTER);
}

static void pairs_that_are_read(void **state)
{
    (void)state;
    static const struct {
        const kind *gate, *up;
        moxie_dtype element;
        const char *note; /* NULL: both are alike */
    } cases[] = {
        { &int4, &int8, MOXIE_U8B128, "gate is stored in fewer bits" },
        { &int8, &int4, MOXIE_U8B128, "up is stored in fewer bits" },
        { &int4_zero, &int8_zero, MOXIE_U8B128, "gate is stored" },
        { &fp4, &fp8, MOXIE_F8_E4M3, "gate is stored" },
        { &fp8, &fp4, MOXIE_F8_E4M3, "up is stored" },
        { &int4, &int4, MOXIE_U4B8, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hand_checkpoint c;
        moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
        moxie_error error = { 0 };
        now[0] = cases[i].gate, now[1] = cases[i].up;
        open_qwen(&c, HIDDEN, INTER, add);
        hand_write(&c, config_text("qwen3_moe", 2, HIDDEN, INTER, ""));
        hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_16BIT);
        assert_int_equal(m.config->w13.element, cases[i].element);
        check_qwen(&c, &m, HIDDEN, INTER, wide, narrow);
        assert_ok(mox_model_describe_layer(m.model, 0, &info, &error), &error);
        if (cases[i].note)
            assert_non_null(strstr(info.format_note, cases[i].note));
        else
            assert_string_equal(info.format_note, "");
        hand_unload(&m);
        hand_close(&c);
    }
}

static void pairs_that_are_refused(void **state)
{
    (void)state;
    static const kind *const cases[][2] = {
        { &int4, &int8_wide }, /* groups of 16 and of 32 */
        { &int4, &int8_zero }, /* zero points in one */
        { &int8, &fp8 },       /* neither element holds the other */
        { &fp4, &fp8 },        /* activations of 4 and of 8 bits */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hand_checkpoint c;
        moxie_error error = { 0 };
        now[0] = cases[i][0], now[1] = cases[i][1];
        open_qwen(&c, HIDDEN, INTER, add);
        hand_write(&c, config_text("qwen3_moe", 2, HIDDEN, INTER, ""));
        assert_int_equal(hand_try(&c, 2, &error), MOXIE_ERR_MISMATCH);
        assert_non_null(strstr(error.text, "quantize gate and up alike"));
        for (int p = 0; p < 2; p++)
            if (!strstr(error.text, cases[i][p]->id))
                fail_msg("\"%s\" does not name %s", error.text, cases[i][p]->id);
        hand_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(pairs_that_are_read),
                                        cmocka_unit_test(pairs_that_are_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
