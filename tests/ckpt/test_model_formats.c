/* SPDX-License-Identifier: Apache-2.0
 *
 * Small checkpoints written by hand, NVFP4 in both conventions, integers of compressed-tensors, and the formats of one
 * byte or nibble a weight: the loaded views give exactly the weights that the format's published rule gives.
 */
#include "hand_rules.h"

/* ---- NVFP4, both conventions ------------------------------------------------------------------------- */

static const char *nv_codes, *nv_global, *nv_input;

static void add_nvfp4(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    const bool ct = strcmp(nv_codes, ".weight_packed") == 0;
    hand_add2(c, join(name, nv_codes), MOXIE_U8, n, k / 2);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_F8_E4M3, n, k / 16);
    hand_add2(c, join(name, nv_global), ct ? MOXIE_BF16 : MOXIE_F32, ct ? 1 : -1, -1);
    hand_scramble(c, join(name, nv_codes));
    hand_scramble(c, join(name, ".weight_scale"));
    hand_ramp(c, join(name, nv_global), strstr(name, "gate") ? 0.5f : 0.75f, 0);
    /* Expert 1 has none for down: calibration never reached it. */
    if (strstr(name, "experts.1.down"))
        return;
    hand_add2(c, join(name, nv_input), MOXIE_F32, ct ? 1 : -1, -1);
    hand_ramp(c, join(name, nv_input), strstr(name, "gate") ? 2 : 3, 0);
}
static double nvfp4(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    const double block = e4m3(hand_byte(c, join(name, ".weight_scale"), n * (cols / 16) + k / 16));
    const double code = e2m1(nibble(c, join(name, nv_codes), n * cols + k));
    const double global = strstr(name, "gate") ? 0.5 : 0.75;
    return strcmp(nv_codes, ".weight") == 0 ? code * block * global : code * block / global;
}
static double nv_wide(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return nvfp4(c, name, n, k, 64);
}
static double nv_narrow(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return nvfp4(c, name, n, k, 32);
}

static void check_nvfp4(const char *more, float a13, moxie_global_kind kind)
{
    hand_checkpoint c;
    open_qwen(&c, 64, 32, add_nvfp4);
    hand_write(&c, config_text("qwen3_moe", 2, 64, 32, more));
    hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
    check_qwen(&c, &m, 64, 32, nv_wide, nv_narrow);
    assert_int_equal(m.config->w13.global, kind);
    assert_int_equal(m.config->a13.global, kind);
    assert_true(m.config->a13.is_static && m.config->a2.is_static);
    assert_true(m.weights->experts[1].a13_scale == a13);
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_error error = { 0 };
    assert_ok(mox_model_describe_layer(m.model, 0, &info, &error), &error);
    assert_int_equal(info.merged_input_scales, 2);
    assert_true(m.weights->experts[0].a2_scale == 3);
    assert_true(m.weights->experts[1].a2_scale == 0);
    hand_unload(&m);
    hand_close(&c);
}

static void nvfp4_both_conventions(void **state)
{
    (void)state;
    nv_codes = ".weight", nv_global = ".weight_scale_2", nv_input = ".input_scale";
    check_nvfp4(",\"quantization_config\":{\"quant_algo\":\"NVFP4\",\"quant_method\":\"modelopt\"}", 3,
                MOXIE_GLOBAL_MULTIPLY);
    nv_codes = ".weight_packed", nv_global = ".weight_global_scale", nv_input = ".input_global_scale";
    check_nvfp4("", 2, MOXIE_GLOBAL_DIVIDE);
}

/* ---- compressed-tensors integers ---------------------------------------------------------------------- */

static bool ct_asym;

static void add_ct_int4(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight_packed"), MOXIE_I32, n, k / 8);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_BF16, n, k / 16);
    hand_scramble(c, join(name, ".weight_packed"));
    hand_ramp(c, join(name, ".weight_scale"), 0.5f, 0.25f);
    int64_t *shape = hand_add2(c, join(name, ".weight_shape"), MOXIE_I64, 2, -1);
    shape[0] = n, shape[1] = k;
    if (!ct_asym)
        return;
    hand_add2(c, join(name, ".weight_zero_point"), MOXIE_I32, n / 8, k / 16);
    hand_scramble(c, join(name, ".weight_zero_point"));
}
/* Nibble j of word w is element 8w + j; zero points lie eight outputs in a word. */
static double ct_int4(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    const int q = hand_word(c, join(name, ".weight_packed"), (n * cols + k) / 8) >> 4 * (k % 8) & 15;
    const double scale = hand_value(c, join(name, ".weight_scale"), n * (cols / 16) + k / 16);
    if (!ct_asym)
        return (q - 8) * scale;
    return (q -
            (int)(hand_word(c, join(name, ".weight_zero_point"), n / 8 * (cols / 16) + k / 16) >> 4 * (n % 8) & 15)) *
           scale;
}
static double ct_wide(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return ct_int4(c, name, n, k, 64);
}
static double ct_narrow(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return ct_int4(c, name, n, k, 32);
}

static void compressed_int4(void **state)
{
    (void)state;
    for (int asym = 0; asym < 2; asym++) {
        hand_checkpoint c;
        ct_asym = asym != 0;
        open_qwen(&c, 64, 32, add_ct_int4);
        hand_write(&c, config_text("qwen3_moe", 2, 64, 32, ""));
        hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
        assert_int_equal(m.config->w13.group_cols, 16);
        assert_int_equal(m.config->w13.has_zero, asym);
        check_qwen(&c, &m, 64, 32, ct_wide, ct_narrow);
        hand_unload(&m);
        hand_close(&c);
    }
}

/* ---- one byte or nibble a weight, MX -------------------------------------------------------------- */

/* The format under test. */
static const struct simple_format *simple;
typedef struct simple_format {
    const char *id;
    moxie_dtype dtype;
    int64_t row_fraction, col_numerator, col_denominator; /* stored shape [N / row, K * num / den] */
    const char *scale, *more;                             /* suffix of the scale; the rest of config.json */
    moxie_dtype scale_dtype;
    int64_t group; /* columns that share a scale; 0: all */
    double (*code)(const uint8_t *data, int64_t n, int64_t k, int64_t cols);
    double (*decode_scale)(const uint8_t *data, int64_t i);
} simple_format;

static double code_e4m3(const uint8_t *data, int64_t n, int64_t k, int64_t cols)
{
    return e4m3(data[n * cols + k]);
}
static double code_i8(const uint8_t *data, int64_t n, int64_t k, int64_t cols)
{
    return (int8_t)data[n * cols + k];
}
static uint32_t low_first(const uint8_t *data, int64_t i)
{
    return data[i / 2] >> (i % 2 * 4) & 15;
}
static double code_e2m1(const uint8_t *data, int64_t n, int64_t k, int64_t cols)
{
    return e2m1(low_first(data, n * cols + k));
}
static double code_s4(const uint8_t *data, int64_t n, int64_t k, int64_t cols)
{
    const int q = (int)low_first(data, n * cols + k);
    return q < 8 ? q : q - 16;
}
/* Pairs along the outputs: the even row is in the low nibble. */
static double code_s4_rows(const uint8_t *data, int64_t n, int64_t k, int64_t cols)
{
    const int q = data[n / 2 * cols + k] >> (n % 2 * 4) & 15;
    return q < 8 ? q : q - 16;
}
/* Four codes in a little-endian word of 24 bits; sign, two exponent bits of bias 1, three mantissa bits. */
static double code_e2m3(const uint8_t *data, int64_t n, int64_t k, int64_t cols)
{
    const uint8_t *word = data + (n * cols + k) / 4 * 3;
    const uint32_t code = (word[0] | (uint32_t)word[1] << 8 | (uint32_t)word[2] << 16) >> 6 * (k % 4) & 63;
    const int exponent = code >> 3 & 3, mantissa = code & 7;
    const double value = exponent ? ldexp(8 + mantissa, exponent - 4) : ldexp(mantissa, -3);
    return code & 32 ? -value : value;
}
static double scale_e8m0(const uint8_t *data, int64_t i)
{
    return e8m0(data[i]);
}
static double scale_bf16(const uint8_t *data, int64_t i)
{
    return (double)mox_load(MOXIE_BF16, data + 2 * i);
}

#define QUARK_FP6                                                                                                      \
    ",\"quantization_config\":{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":"                        \
    "{\"dtype\":\"fp6_e2m3\",\"group_size\":32}}}"
static const simple_format simple_formats[] = {
    { "mxfp8", MOXIE_F8_E4M3, 1, 1, 1, ".weight_scale", "", MOXIE_U8, 32, code_e4m3, scale_e8m0 },
    { "mxfp8-m3", MOXIE_F8_E4M3, 1, 1, 1, ".weight_scale_inv", "", MOXIE_U8, 32, code_e4m3, scale_e8m0 },
    { "mxfp4-v4", MOXIE_I8, 1, 1, 2, ".scale", "", MOXIE_F8_E8M0, 32, code_e2m1, scale_e8m0 },
    { "mxfp4-quark", MOXIE_U8, 1, 1, 2, ".weight_scale", "", MOXIE_U8, 32, code_e2m1, scale_e8m0 },
    { "mxfp6-quark-e2m3", MOXIE_U8, 1, 3, 4, ".weight_scale", QUARK_FP6, MOXIE_U8, 32, code_e2m3, scale_e8m0 },
    { "fp8-channel", MOXIE_F8_E4M3, 1, 1, 1, ".weight_scale", "", MOXIE_BF16, 0, code_e4m3, scale_bf16 },
    { "int8-w8a8", MOXIE_I8, 1, 1, 1, ".weight_scale", "", MOXIE_BF16, 0, code_i8, scale_bf16 },
    { "int4-modelopt", MOXIE_U8, 2, 1, 1, ".weight_scale", "", MOXIE_BF16, 32, code_s4_rows, scale_bf16 },
    { "w4afp8-dynamic", MOXIE_I8, 1, 1, 2, ".weight_scale_inv", "", MOXIE_BF16, 128, code_s4, scale_bf16 },
};

static void add_simple(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    const simple_format *f = simple;
    hand_add2(c, join(name, ".weight"), f->dtype, n / f->row_fraction, k * f->col_numerator / f->col_denominator);
    hand_add2(c, join(name, f->scale), f->scale_dtype, n, f->group ? k / f->group : 1);
    hand_scramble(c, join(name, ".weight"));
    if (f->scale_dtype == MOXIE_BF16)
        hand_ramp(c, join(name, f->scale), 0.25f, 0.5f);
    else
        hand_scramble(c, join(name, f->scale));
}
static double simple_weight(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    const simple_format *f = simple;
    const int64_t at = f->group ? n * (cols / f->group) + k / f->group : n;
    return f->code(hand_data(c, join(name, ".weight")), n, k, cols) *
           f->decode_scale(hand_data(c, join(name, f->scale)), at);
}
static double simple_wide(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return simple_weight(c, name, n, k, 256);
}
static double simple_narrow(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return simple_weight(c, name, n, k, 128);
}

static void bytes_and_nibbles(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof simple_formats / sizeof simple_formats[0]; i++) {
        hand_checkpoint c;
        simple = &simple_formats[i];
        print_message("%s\n", simple->id);
        open_qwen(&c, 256, 128, add_simple);
        hand_write(&c, config_text("qwen3_moe", 2, 256, 128, simple->more));
        hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
        moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
        moxie_error error = { 0 };
        assert_ok(mox_model_describe_layer(m.model, 0, &info, &error), &error);
        assert_string_equal(info.format, simple->id);
        check_qwen(&c, &m, 256, 128, simple_wide, simple_narrow);
        hand_unload(&m);
        hand_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvfp4_both_conventions),
        cmocka_unit_test(compressed_int4),
        cmocka_unit_test(bytes_and_nibbles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
