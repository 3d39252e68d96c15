/* SPDX-License-Identifier: Apache-2.0
 *
 * Small checkpoints written by hand: integers of 2, 3 and 5 to 8 bits in the packings of compressed-tensors and GPTQ,
 * block scales with axes of length one; and configurations with several config groups. The loaded views give exactly
 * the weights that the format's published rule gives.
 */
#include "hand_rules.h"

/* The format under test. */
static int bits;
static bool v1;

/* Code i of a stream of bits in 32-bit words that lie `step` words apart, from word `first` on. */
static uint32_t stream(const hand_checkpoint *c, const char *name, int64_t first, int64_t step, int64_t i)
{
    uint32_t code = 0;
    for (int b = 0; b < bits; b++) {
        const int64_t bit = i * bits + b;
        code |= (hand_word(c, name, first + bit / 32 * step) >> bit % 32 & 1) << b;
    }
    return code;
}

static double ct_scale(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    return hand_value(c, join(name, ".weight_scale"), n * (cols / 32) + k / 32);
}

/* ---- compressed-tensors: codes along K in a stream, zero points along N --------------------------------- */

static void add_ct(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight_packed"), MOXIE_I32, n, k * bits / 32);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_BF16, n, k / 32);
    hand_scramble(c, join(name, ".weight_packed"));
    hand_ramp(c, join(name, ".weight_scale"), 0.5f, 0.25f);
    int64_t *shape = hand_add2(c, join(name, ".weight_shape"), MOXIE_I64, 2, -1);
    shape[0] = n, shape[1] = k;
}
static void add_ct_asym(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    add_ct(c, name, n, k);
    hand_add2(c, join(name, ".weight_zero_point"), MOXIE_I32, n * bits / 32, k / 32);
    hand_scramble(c, join(name, ".weight_zero_point"));
}
static double ct(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    const int q = (int)stream(c, join(name, ".weight_packed"), n * (cols * bits / 32), 1, k);
    return (q - (1 << (bits - 1))) * ct_scale(c, name, n, k, cols);
}
static double ct_asym(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    const int q = (int)stream(c, join(name, ".weight_packed"), n * (cols * bits / 32), 1, k);
    const int z = (int)stream(c, join(name, ".weight_zero_point"), k / 32, cols / 32, n);
    return (q - z) * ct_scale(c, name, n, k, cols);
}

/* ---- GPTQ: codes along K down the rows, zero points along N ------------------------------------------------ */

static void add_gptq(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".qweight"), MOXIE_I32, k * bits / 32, n);
    hand_add2(c, join(name, ".qzeros"), MOXIE_I32, k / 32, n * bits / 32);
    hand_add2(c, join(name, ".scales"), MOXIE_F16, k / 32, n);
    hand_scramble(c, join(name, ".qweight"));
    hand_scramble(c, join(name, ".qzeros"));
    hand_ramp(c, join(name, ".scales"), 0.5f, 0.0625f);
}
/* Version 1: 2, 4 and 8 bits are stored less one in every field of a word, with borrows; 3 bits each mod 8. */
static uint32_t gptq_zero(const hand_checkpoint *c, const char *name, int64_t g, int64_t n, int64_t rows)
{
    const int64_t words = rows * bits / 32;
    if (v1 && bits != 3) {
        const uint32_t ones = UINT32_MAX / ((1u << bits) - 1);
        return (hand_word(c, name, g * words + n * bits / 32) + ones) >> n * bits % 32 & ((1u << bits) - 1);
    }
    return (stream(c, name, g * words, 1, n) + v1) & ((1u << bits) - 1);
}
static double gptq(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t rows)
{
    const int q = (int)stream(c, join(name, ".qweight"), n, rows, k);
    const int z = (int)gptq_zero(c, join(name, ".qzeros"), k / 32, n, rows);
    return (q - z) * hand_value(c, join(name, ".scales"), k / 32 * rows + n);
}

/* ---- one byte a code, with zero points --------------------------------------------------------------------- */

static void add_bytes(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight"), MOXIE_I8, n, k);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_BF16, n, k / 32);
    hand_add2(c, join(name, ".weight_zero_point"), MOXIE_I8, n, k / 32);
    hand_scramble(c, join(name, ".weight"));
    hand_scramble(c, join(name, ".weight_zero_point"));
    hand_ramp(c, join(name, ".weight_scale"), 0.5f, 0.25f);
}
static double bytes(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    const int q = (int8_t)hand_byte(c, join(name, ".weight"), n * cols + k);
    const int z = (int8_t)hand_byte(c, join(name, ".weight_zero_point"), n * (cols / 32) + k / 32);
    return (q - z) * ct_scale(c, name, n, k, cols);
}

/* ---- FP8_PB_WO: a scale per 128x128 block, in [N/128, 1, K/128, 1] ------------------------------------------ */

static void add_blocks(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight"), MOXIE_F8_E4M3, n, k);
    hand_add(c, join(name, ".weight_scale"), MOXIE_F32, (n + 127) / 128, 1, (k + 127) / 128, 1);
    hand_scramble(c, join(name, ".weight"));
    hand_ramp(c, join(name, ".weight_scale"), 0.5f, 0.25f);
}
static double blocks(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    return e4m3(hand_byte(c, join(name, ".weight"), n * cols + k)) *
           hand_value(c, join(name, ".weight_scale"), n / 128 * ((cols + 127) / 128) + k / 128);
}

/* ---- all of them -------------------------------------------------------------------------------------------- */

#define HIDDEN 192
#define INTER  64

typedef struct code_case {
    const char *format, *config;
    int bits;
    bool v1;
    void (*add)(hand_checkpoint *c, const char *name, int64_t n, int64_t k);
    double (*weight)(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t width);
    bool by_rows; /* `width`: the matrix' rows, not its columns */
} code_case;
static const code_case *now;

static double wide(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return now->weight(c, name, n, k, now->by_rows ? INTER : HIDDEN);
}
static double narrow(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return now->weight(c, name, n, k, now->by_rows ? HIDDEN : INTER);
}

#define GPTQ(version)  ",\"quantization_config\":{\"quant_method\":\"gptq\",\"checkpoint_format\":\"" version "\"}"
#define MODELOPT(algo) ",\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"" algo "\"}"
static const code_case cases[] = {
    { "int2-ct", "", 2, false, add_ct, ct, false },
    { "int3-ct", "", 3, false, add_ct, ct, false },
    { "int3-ct-asym", "", 3, false, add_ct_asym, ct_asym, false },
    { "int5-ct", "", 5, false, add_ct, ct, false },
    { "int5-ct-asym", "", 5, false, add_ct_asym, ct_asym, false },
    { "int6-ct", "", 6, false, add_ct, ct, false },
    { "int6-ct-asym", "", 6, false, add_ct_asym, ct_asym, false },
    { "int7-ct", "", 7, false, add_ct, ct, false },
    { "int7-ct-asym", "", 7, false, add_ct_asym, ct_asym, false },
    { "int8-ct-w8a16", "", 8, false, add_ct, ct, false },
    { "int8-ct-asym", "", 8, false, add_ct_asym, ct_asym, false },
    { "gptq-int2", GPTQ("gptq"), 2, true, add_gptq, gptq, true },
    { "gptq-int2-v2", GPTQ("gptq_v2"), 2, false, add_gptq, gptq, true },
    { "gptq-int3", GPTQ("gptq"), 3, true, add_gptq, gptq, true },
    { "gptq-int3-v2", GPTQ("gptq_v2"), 3, false, add_gptq, gptq, true },
    { "gptq", GPTQ("gptq"), 4, true, add_gptq, gptq, true },
    { "gptq-int8", GPTQ("gptq"), 8, true, add_gptq, gptq, true },
    { "gptq-int8-v2", GPTQ("gptq_v2"), 8, false, add_gptq, gptq, true },
    { "int8-w8a8-asym", "", 8, false, add_bytes, bytes, false },
    { "fp8-block-modelopt", MODELOPT("FP8_PB_WO"), 8, false, add_blocks, blocks, false },
};

static void codes_of_every_packing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hand_checkpoint c;
        now = &cases[i];
        bits = now->bits, v1 = now->v1;
        print_message("%s\n", now->format);
        open_qwen(&c, HIDDEN, INTER, now->add);
        hand_write(&c, config_text("qwen3_moe", 2, HIDDEN, INTER, now->config));
        hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
        moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
        moxie_error error = { 0 };
        assert_ok(mox_model_describe_layer(m.model, 0, &info, &error), &error);
        assert_string_equal(info.format, now->format);
        assert_int_equal(info.format_note[0] != 0, bits != 4 && bits != 8);
        check_qwen(&c, &m, HIDDEN, INTER, wide, narrow);
        hand_unload(&m);
        hand_close(&c);
    }
}

/* ---- config groups ------------------------------------------------------------------------------------------ */

static void add_w8(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight"), MOXIE_I8, n, k);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_BF16, n, 1);
    hand_scramble(c, join(name, ".weight"));
    hand_ramp(c, join(name, ".weight_scale"), 0.5f, 0.25f);
}

#define GROUP(name, targets, inputs)                                                                                   \
    "\"" name "\":{\"targets\":[" targets "],\"weights\":{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\"},"  \
    "\"input_activations\":" inputs "}"
#define INPUTS(more) "{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"token\",\"dynamic\":true" more "}"
#define CONFIG(groups)                                                                                                 \
    ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\","                \
    "\"config_groups\":{" groups "}}"

static const struct {
    const char *config;
    moxie_dtype a13, a2;
    const char *refused; /* a part of the text */
} group_cases[] = {
    { CONFIG(GROUP("a", "\"re:.*self_attn.*\"", INPUTS("")) "," GROUP("b", "\"re:.*mlp.*\"", "null")), MOXIE_DTYPE_NONE,
      MOXIE_DTYPE_NONE, NULL },
    { CONFIG(GROUP("a", "\"re:.*self_attn.*\"", "null") "," GROUP("b", "\"Linear\"", INPUTS(""))), MOXIE_I8, MOXIE_I8,
      NULL },
    /* per projection */
    { CONFIG(GROUP("a", "\"re:.*down_proj$\"", "null") "," GROUP("b", "\"Linear\"", INPUTS(""))), MOXIE_I8,
      MOXIE_DTYPE_NONE, NULL },
    { CONFIG(GROUP("a", "\"re:.*gate_proj$\"", "null") "," GROUP("b", "\"Linear\"", INPUTS(""))), MOXIE_DTYPE_NONE,
      MOXIE_DTYPE_NONE, "gate and up alike" },
    { CONFIG(GROUP("a", "\"re:.*experts.1.*\"", "null") "," GROUP("b", "\"Linear\"", INPUTS(""))), MOXIE_DTYPE_NONE,
      MOXIE_DTYPE_NONE, "must agree" },
    { CONFIG(GROUP("a", "\"re:.*self_attn.*\"", INPUTS(""))), MOXIE_DTYPE_NONE, MOXIE_DTYPE_NONE, "no target" },
    { CONFIG(GROUP("a", "\"Linear\"", INPUTS(",\"symmetric\":false"))), MOXIE_DTYPE_NONE, MOXIE_DTYPE_NONE,
      "asymmetric" },
};

static void experts_get_the_activations_of_their_group(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof group_cases / sizeof group_cases[0]; i++) {
        hand_checkpoint c;
        moxie_error error = { 0 };
        print_message("%s\n", group_cases[i].config);
        open_qwen(&c, 64, 32, add_w8);
        hand_write(&c, config_text("qwen3_moe", 2, 64, 32, group_cases[i].config));
        if (group_cases[i].refused) {
            assert_true(hand_try(&c, 2, &error) != MOXIE_OK);
            print_message("%s\n", error.text);
            assert_non_null(strstr(error.text, group_cases[i].refused));
        } else {
            hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
            assert_int_equal(m.config->a13.element, group_cases[i].a13);
            assert_int_equal(m.config->a2.element, group_cases[i].a2);
            hand_unload(&m);
        }
        hand_close(&c);
    }
}

/* Who asks for 16-bit activations does not need to know how they would be quantized. */
static void weights_alone_are_not_refused(void **state)
{
    (void)state;
    hand_checkpoint c;
    open_qwen(&c, 64, 32, add_w8);
    hand_write(&c,
               config_text("qwen3_moe", 2, 64, 32, CONFIG(GROUP("a", "\"Linear\"", INPUTS(",\"symmetric\":false")))));
    hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_16BIT);
    assert_int_equal(m.config->a13.element, MOXIE_DTYPE_NONE);
    hand_unload(&m);
    hand_close(&c);
}

/* Model Optimizer's config.json may name the mixture only; its own file then has the layers. */
static void layers_in_a_file_of_their_own(void **state)
{
    (void)state;
    hand_checkpoint c;
    moxie_error error = { 0 };
    open_qwen(&c, HIDDEN, INTER, add_blocks);
    hand_write(&c, config_text("qwen3_moe", 2, HIDDEN, INTER, MODELOPT("MIXED_PRECISION")));
    assert_int_equal(hand_try(&c, 2, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "no quant_algo for this module"));
    hand_text(&c, "hf_quant_config.json",
              "{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":\"MIXED_PRECISION\","
              "\"quantized_layers\":{\"model.layers.2.mlp.experts\":{\"quant_algo\":\"FP8_PB_WO\"}}}}");
    hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
    assert_int_equal(m.config->a13.element, MOXIE_F8_E4M3);
    assert_int_equal(m.config->a13.group_cols, 128);
    hand_unload(&m);
    hand_close(&c);
}

/* ---- groups that only name their scheme ---------------------------------------------------------------------- */

static void add_w4(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    bits = 4;
    hand_add2(c, join(name, ".weight_packed"), MOXIE_I32, n, k / 8);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_BF16, n, k / 128);
    hand_scramble(c, join(name, ".weight_packed"));
    hand_ramp(c, join(name, ".weight_scale"), 0.5f, 0.25f);
}

/* PRESET_SCHEMES of compressed-tensors 0.20: W4A8 has activations of 8 bits per token, W4A16 none, W4AFP8 e4m3. */
static void named_schemes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        moxie_dtype act;
        const char *says; /* the layer is refused */
    } named[] = {
        { "W4A16", MOXIE_DTYPE_NONE, NULL },
        { "w4a8", MOXIE_I8, NULL },
        { "W4AFP8", MOXIE_F8_E4M3, NULL },
        { "W4A4", 0, "4-bit integers" },
        { "W5A16", 0, "another type than the tensors" },
        { "W4A17", 0, "names a scheme for this module that is not known" },
        { "W4A1", 0, "names a scheme for this module that is not known" },
    };
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        char config[256];
        hand_checkpoint c;
        moxie_error error = { 0 };
        open_qwen(&c, 256, 128, add_w4);
        snprintf(config, sizeof config,
                 ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"%s\":["
                 "\"Linear\"]}}",
                 named[i].name);
        hand_write(&c, config_text("qwen3_moe", 2, 256, 128, config));
        if (named[i].says) {
            assert_int_equal(hand_try(&c, 2, &error), MOXIE_ERR_UNSUPPORTED);
            assert_non_null(strstr(error.text, named[i].says));
        } else {
            hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
            assert_int_equal(m.config->a13.element, named[i].act);
            assert_int_equal(m.config->a2.element, named[i].act);
            assert_int_equal(m.config->w13.element, MOXIE_U4B8);
            hand_unload(&m);
        }
        hand_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_every_packing),
        cmocka_unit_test(named_schemes),
        cmocka_unit_test(experts_get_the_activations_of_their_group),
        cmocka_unit_test(weights_alone_are_not_refused),
        cmocka_unit_test(layers_in_a_file_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
