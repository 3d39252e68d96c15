/* SPDX-License-Identifier: Apache-2.0
 *
 * Small checkpoints written by hand, gpt-oss, fp8 blocks, AWQ and GPTQ: the loaded views give exactly the weights that
 * the format's published rule gives from the stored bytes. The rules are restated here, element by element, from the
 * bytes.
 */
#include "hand_rules.h"

/* ---- gpt-oss -------------------------------------------------------------------------------------- */

#define OSS "model.layers.0.mlp."

/* Stored rows of expert 1: gate n is row 2n, up n is row 2n + 1. */
static double oss(const hand_checkpoint *c, const char *name, int64_t expert_rows, int64_t row, int64_t k, int64_t cols)
{
    const int64_t at = (expert_rows + row) * cols + k;
    return e2m1(nibble(c, join(name, "_blocks"), at)) * e8m0(hand_byte(c, join(name, "_scales"), at / 32));
}
static double oss_gate(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return oss(c, name, 64, 2 * n, k, 64);
}
static double oss_up(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return oss(c, name, 64, 2 * n + 1, k, 64);
}
static double oss_down(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return oss(c, name, 64, n, k, 32);
}

static void add_oss_rest(hand_checkpoint *c, int64_t hidden, int64_t intermediate)
{
    hand_add2(c, OSS "router.weight", MOXIE_BF16, 2, hidden);
    hand_add2(c, OSS "router.bias", MOXIE_BF16, 2, -1);
    hand_add2(c, OSS "experts.gate_up_proj_bias", MOXIE_BF16, 2, 2 * intermediate);
    hand_add2(c, OSS "experts.down_proj_bias", MOXIE_BF16, 2, hidden);
    hand_ramp(c, OSS "router.bias", 3, 1);
    hand_ramp(c, OSS "experts.gate_up_proj_bias", 1, 1);
    hand_ramp(c, OSS "experts.down_proj_bias", -5, 1);
}

static void gpt_oss_mxfp4(void **state)
{
    (void)state;
    hand_checkpoint c;
    hand_open(&c);
    add_oss_rest(&c, 64, 32);
    hand_add(&c, OSS "experts.gate_up_proj_blocks", MOXIE_U8, 2, 64, 2, 16);
    hand_add(&c, OSS "experts.gate_up_proj_scales", MOXIE_U8, 2, 64, 2, -1);
    hand_add(&c, OSS "experts.down_proj_blocks", MOXIE_U8, 2, 64, 1, 16);
    hand_add(&c, OSS "experts.down_proj_scales", MOXIE_U8, 2, 64, 1, -1);
    for (int64_t i = 0; i < c.count; i++)
        if (c.decls[i].dtype == MOXIE_U8)
            hand_scramble(&c, c.decls[i].name);
    hand_write(&c, config_text("gpt_oss", 2, 64, 32,
                               ",\"swiglu_limit\":7.0,\"quantization_config\":{\"quant_method\":\"mxfp4\"}"));
    hand_model m = hand_load(&c, 0, MOXIE_ACTIVATIONS_CHECKPOINT);
    const moxie_expert *e = &m.weights->experts[1];
    hand_check(&c, &e->gate, &m.config->w13, OSS "experts.gate_up_proj", 32, 64, oss_gate);
    hand_check(&c, &e->up, &m.config->w13, OSS "experts.gate_up_proj", 32, 64, oss_up);
    hand_check(&c, &e->down, &m.config->w2, OSS "experts.down_proj", 64, 32, oss_down);
    assert_int_equal(m.config->a13.element, MOXIE_DTYPE_NONE);
    assert_true(m.config->bias13 && m.config->bias2 && m.config->router_has_bias);
    /* biases of expert 1: 65, 66, 67, ... alternate between gate and up */
    assert_true(mox_grid_value(&e->gate.bias, 0, 0) == 65 && mox_grid_value(&e->up.bias, 0, 0) == 66);
    assert_true(mox_grid_value(&e->gate.bias, 31, 0) == 127 && mox_grid_value(&e->up.bias, 31, 0) == 128);
    assert_true(mox_grid_value(&e->down.bias, 63, 0) == -5 + 127);
    assert_true(mox_grid_value(&m.weights->router.bias, 1, 0) == 4);
    assert_true(m.config->activation.alpha == 1.702f && m.config->activation.up_limit == 7);
    hand_unload(&m);
    hand_close(&c);
}

/* The trap: hidden = intermediate = 32, so down_proj alone could lie either way; gate_up_proj [2, 32, 64] decides. */
static double in_out_gate(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return hand_value(c, name, 32 * 64 + k * 64 + 2 * n);
}
static double in_out_down(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return hand_value(c, name, 32 * 32 + k * 32 + n);
}

static void gpt_oss_bf16_square(void **state)
{
    (void)state;
    hand_checkpoint c;
    hand_open(&c);
    add_oss_rest(&c, 32, 32);
    hand_add(&c, OSS "experts.gate_up_proj", MOXIE_BF16, 2, 32, 64, -1);
    hand_add(&c, OSS "experts.down_proj", MOXIE_BF16, 2, 32, 32, -1);
    hand_ramp(&c, OSS "experts.gate_up_proj", 0, 0.25f);
    hand_ramp(&c, OSS "experts.down_proj", 0, 0.125f);
    hand_write(&c, config_text("gpt_oss", 2, 32, 32, ""));
    hand_model m = hand_load(&c, 0, MOXIE_ACTIVATIONS_CHECKPOINT);
    hand_check(&c, &m.weights->experts[1].gate, &m.config->w13, OSS "experts.gate_up_proj", 32, 32, in_out_gate);
    hand_check(&c, &m.weights->experts[1].down, &m.config->w2, OSS "experts.down_proj", 32, 32, in_out_down);
    hand_unload(&m);
    hand_close(&c);
}

static void add_fp8_block(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight"), MOXIE_F8_E4M3, n, k);
    hand_scramble(c, join(name, ".weight"));
    hand_add2(c, join(name, ".weight_scale_inv"), MOXIE_F32, (n + 127) / 128, (k + 127) / 128);
    hand_ramp(c, join(name, ".weight_scale_inv"), 0.25f, 0.5f);
}
static double fp8_block(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t cols)
{
    const double scale = hand_value(c, join(name, ".weight_scale_inv"), n / 128 * ((cols + 127) / 128) + k / 128);
    return e4m3(hand_byte(c, join(name, ".weight"), n * cols + k)) * scale;
}
static double fp8_wide(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return fp8_block(c, name, n, k, 160);
}
static double fp8_narrow(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return fp8_block(c, name, n, k, 96);
}

static void fp8_blocks_with_edges(void **state)
{
    (void)state;
    hand_checkpoint c;
    open_qwen(&c, 160, 96, add_fp8_block);
    hand_write(&c, config_text("qwen3_moe", 2, 160, 96,
                               ",\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\","
                               "\"scale_fmt\":\"ue8m0\",\"weight_block_size\":[128,128]}"));
    hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
    check_qwen(&c, &m, 160, 96, fp8_wide, fp8_narrow);
    assert_int_equal(m.config->a13.element, MOXIE_F8_E4M3);
    assert_int_equal(m.config->a13.group_cols, 128);
    assert_int_equal(m.config->a13.rule, MOXIE_RULE_UE8M0);
    hand_unload(&m);
    hand_model plain = hand_load(&c, 2, MOXIE_ACTIVATIONS_16BIT);
    assert_int_equal(plain.config->a13.element, MOXIE_DTYPE_NONE);
    assert_int_equal(plain.config->a2.element, MOXIE_DTYPE_NONE);
    hand_unload(&plain);
    hand_close(&c);
}

/* AWQ: words [K, N/8]; column c of a word of eight is nibble 0,4,1,5,2,6,3,7 [c]. Groups of 32. */
static void add_awq(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".qweight"), MOXIE_I32, k, n / 8);
    hand_add2(c, join(name, ".qzeros"), MOXIE_I32, k / 32, n / 8);
    hand_add2(c, join(name, ".scales"), MOXIE_F16, k / 32, n);
    hand_scramble(c, join(name, ".qweight"));
    hand_scramble(c, join(name, ".qzeros"));
    hand_ramp(c, join(name, ".scales"), 0.5f, 0.0625f);
}
static double awq(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t rows)
{
    static const int place[] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    const int shift = 4 * place[n % 8];
    const int q = hand_word(c, join(name, ".qweight"), k * (rows / 8) + n / 8) >> shift & 15;
    const int z = hand_word(c, join(name, ".qzeros"), k / 32 * (rows / 8) + n / 8) >> shift & 15;
    return (q - z) * hand_value(c, join(name, ".scales"), k / 32 * rows + n);
}
static double awq_wide(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return awq(c, name, n, k, 32);
}
static double awq_narrow(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return awq(c, name, n, k, 64);
}

static void awq_gemm(void **state)
{
    (void)state;
    hand_checkpoint c;
    open_qwen(&c, 64, 32, add_awq);
    hand_write(&c, config_text("qwen3_moe", 2, 64, 32,
                               ",\"quantization_config\":{\"bits\":4,\"group_size\":32,\"quant_method\":\"awq\","
                               "\"version\":\"gemm\",\"zero_point\":true}"));
    hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
    check_qwen(&c, &m, 64, 32, awq_wide, awq_narrow);
    hand_unload(&m);
    hand_close(&c);
}

/* GPTQ: words [K/8, N], nibble j of word (r, n) is w[n, 8r + j]; zeros [K/g, N/8], in version 1 less
 * 0x11111111 a word, so that a zero of 0 borrows from its neighbour. Here column k is in group (k * 7) % 4. */
static void add_gptq(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".qweight"), MOXIE_I32, k / 8, n);
    hand_add2(c, join(name, ".qzeros"), MOXIE_I32, 4, n / 8);
    hand_add2(c, join(name, ".scales"), MOXIE_F16, 4, n);
    int32_t *index = hand_add2(c, join(name, ".g_idx"), MOXIE_I32, k, -1);
    for (int64_t i = 0; i < k; i++)
        index[i] = (int32_t)(i * 7 % 4);
    hand_scramble(c, join(name, ".qweight"));
    hand_scramble(c, join(name, ".qzeros"));
    hand_ramp(c, join(name, ".scales"), 0.5f, 0.0625f);
}
static int gptq_add;
static double gptq(const hand_checkpoint *c, const char *name, int64_t n, int64_t k, int64_t rows)
{
    const int64_t group = k * 7 % 4;
    const int q = hand_word(c, join(name, ".qweight"), k / 8 * rows + n) >> 4 * (k % 8) & 15;
    const uint32_t zeros = (uint32_t)hand_word(c, join(name, ".qzeros"), group * (rows / 8) + n / 8);
    const int z = (int)((zeros + (uint32_t)gptq_add * 0x11111111u) >> 4 * (n % 8) & 15);
    return (q - z) * hand_value(c, join(name, ".scales"), group * rows + n);
}
static double gptq_wide(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return gptq(c, name, n, k, 32);
}
static double gptq_narrow(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return gptq(c, name, n, k, 64);
}

static void gptq_act_order(void **state)
{
    (void)state;
    static const char *const settings[] = { "\"checkpoint_format\":\"gptq_v2\",\"bits\":4", "\"bits\":4" };
    for (gptq_add = 0; gptq_add < 2; gptq_add++) {
        char more[200];
        hand_checkpoint c;
        open_qwen(&c, 64, 32, add_gptq);
        snprintf(more, sizeof more, ",\"quantization_config\":{%s,\"quant_method\":\"gptq\",\"desc_act\":true}",
                 settings[gptq_add]);
        hand_write(&c, config_text("qwen3_moe", 2, 64, 32, more));
        hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
        assert_int_equal(m.config->w13.group_cols, 16);
        assert_int_equal(m.config->w2.group_cols, 8);
        assert_non_null(m.weights->experts[0].gate.group_index);
        check_qwen(&c, &m, 64, 32, gptq_wide, gptq_narrow);
        hand_unload(&m);
        hand_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_oss_mxfp4), cmocka_unit_test(gpt_oss_bf16_square), cmocka_unit_test(fp8_blocks_with_edges),
        cmocka_unit_test(awq_gemm),      cmocka_unit_test(gptq_act_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
