/* SPDX-License-Identifier: Apache-2.0
 *
 * Bad checkpoints: each is a good one with one thing wrong, and must be rejected with the right status and a text that
 * names the tensor or key, what was expected and what was found.
 */
#include "hand_rules.h"

#include "base/memory.h"

#define E0(p)  "model.layers.2.mlp.experts.0." p
#define E1(p)  "model.layers.2.mlp.experts.1." p
#define ROUTER "model.layers.2.mlp.gate.weight"

typedef struct bad_case {
    const char *what;
    add_matrix_fn add;
    void (*spoil)(hand_checkpoint *c);
    const char *more; /* of config.json */
    int64_t experts;  /* in config.json; 0: 2 */
    moxie_status code;
    const char *says[4]; /* all in the text */
    bool in_file;        /* the error names the shard */
} bad_case;

static void replace(hand_checkpoint *c, const char *name, moxie_dtype dtype, int64_t a, int64_t b)
{
    hand_remove(c, name);
    hand_add2(c, name, dtype, a, b);
}

/* ---- the good ones: H = 64, I = 32 ---------------------------------------------------------------- */

static void fp8(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight"), MOXIE_F8_E4M3, n, k);
    hand_add2(c, join(name, ".weight_scale_inv"), MOXIE_F32, 1, 1);
}

static void ct(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight_packed"), MOXIE_I32, n, k / 8);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_BF16, n, k / 32);
    int32_t *shape = hand_add2(c, join(name, ".weight_shape"), MOXIE_I32, 2, -1);
    shape[0] = (int32_t)n, shape[1] = (int32_t)k;
}

static void gptq(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".qweight"), MOXIE_I32, k / 8, n);
    hand_add2(c, join(name, ".qzeros"), MOXIE_I32, k / 32, n / 8);
    hand_add2(c, join(name, ".scales"), MOXIE_F16, k / 32, n);
    int32_t *index = hand_add2(c, join(name, ".g_idx"), MOXIE_I32, k, -1);
    for (int64_t i = 0; i < k; i++)
        index[i] = (int32_t)(i / 32);
}

static void awq_words(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".qweight"), MOXIE_I32, k, n / 8);
    hand_add2(c, join(name, ".qzeros"), MOXIE_I32, k / 32, n / 8);
    hand_add2(c, join(name, ".scales"), MOXIE_F16, k / 32, n);
}

static void channel(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight"), MOXIE_F8_E4M3, n, k);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_BF16, n, 1);
}

static void only(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight_indices"), MOXIE_U8, n, k);
}

static void foreign(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".wobble\x1b"), MOXIE_U8, n, k);
}

static void inline_mx(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight"), MOXIE_U8, n, k / 32 * 17);
}

/* ---- what is done to them ------------------------------------------------------------------------- */

static void no_change(hand_checkpoint *c)
{
    (void)c;
}
static void no_down(hand_checkpoint *c)
{
    hand_remove(c, E1("down_proj.weight"));
    hand_remove(c, E1("down_proj.weight_scale_inv"));
}
static void no_scale(hand_checkpoint *c)
{
    hand_remove(c, E1("up_proj.weight_scale_inv"));
}
static void wide_ints(hand_checkpoint *c)
{
    replace(c, E1("up_proj.weight"), MOXIE_I64, 32, 64);
}
static void other_shape(hand_checkpoint *c)
{
    replace(c, E1("gate_proj.weight"), MOXIE_F8_E4M3, 32, 60);
}
static void scale_shape(hand_checkpoint *c)
{
    replace(c, E1("gate_proj.weight_scale_inv"), MOXIE_F32, 1, 3);
}
static void scale_dtype(hand_checkpoint *c)
{
    replace(c, E1("gate_proj.weight_scale_inv"), MOXIE_I32, 1, 1);
}
static void mixed_formats(hand_checkpoint *c)
{
    hand_remove(c, E1("up_proj.weight_scale_inv"));
    replace(c, E1("up_proj.weight"), MOXIE_BF16, 32, 64);
}
static void mixed_scales(hand_checkpoint *c)
{
    replace(c, E1("up_proj.weight_scale_inv"), MOXIE_BF16, 1, 1);
}
static void no_router(hand_checkpoint *c)
{
    hand_remove(c, ROUTER);
}
static void int_router(hand_checkpoint *c)
{
    replace(c, ROUTER, MOXIE_I32, 2, 64);
}
static void more_experts(hand_checkpoint *c)
{
    fp8(c, "model.layers.2.mlp.experts.2.down_proj", 64, 32);
}
static void record_of_shape(hand_checkpoint *c)
{
    ((int32_t *)c->data[hand_find(c, E1("down_proj.weight_shape"))])[1] = 31;
}
static void index_range(hand_checkpoint *c)
{
    ((int32_t *)c->data[hand_find(c, E1("up_proj.g_idx"))])[63] = 2;
}
static void index_negative(hand_checkpoint *c)
{
    ((int32_t *)c->data[hand_find(c, E1("up_proj.g_idx"))])[5] = -1;
}
static void smoothing(hand_checkpoint *c)
{
    hand_add2(c, E0("up_proj.pre_quant_scale"), MOXIE_BF16, 64, -1);
}
static void act_zero(hand_checkpoint *c)
{
    hand_add2(c, E0("up_proj.input_zero_point"), MOXIE_I8, 1, -1);
}
static void real_bias(hand_checkpoint *c)
{
    hand_add2(c, E0("up_proj.bias"), MOXIE_F16, 32, -1);
    hand_ramp(c, E0("up_proj.bias"), 0, 1);
}
static void bias_shape(hand_checkpoint *c)
{
    hand_add2(c, E0("up_proj.bias"), MOXIE_F16, 31, -1);
}
static void odd_scale_groups(hand_checkpoint *c)
{
    replace(c, E0("gate_proj.weight_scale"), MOXIE_BF16, 32, 5);
}

#define QC(text) ",\"quantization_config\":{" text "}"

/* clang-format off */
static const bad_case cases[] = {
    { "a missing matrix", fp8, no_down, "", 0, MOXIE_ERR_FORMAT, { E1("down_proj"), "[64, 32]", "nothing" }, false },
    { "an absent scale", fp8, no_scale, "", 0, MOXIE_ERR_FORMAT,
      { E1("up_proj") ".weight_scale_inv is absent", "fp8-block", ".weight F8_E4M3 [32, 64]" }, false },
    { "a dtype that no format has", fp8, wide_ints, "", 0, MOXIE_ERR_UNSUPPORTED,
      { E1("up_proj.weight") " is I64 [32, 64]", "no format" }, true },
    { "a wrong shape", fp8, other_shape, "", 0, MOXIE_ERR_MISMATCH,
      { E1("gate_proj.weight") " is F8_E4M3 [32, 60]", "expected [32, 64]" }, true },
    { "a wrong scale grid", fp8, scale_shape, "", 0, MOXIE_ERR_MISMATCH,
      { E1("gate_proj.weight_scale_inv") " is F32 [1, 3]", "expected [1, 1]", "fp8-block" }, true },
    { "a scale of integers", fp8, scale_dtype, "", 0, MOXIE_ERR_MISMATCH,
      { E1("gate_proj.weight_scale_inv") " is I32 [1, 1]" }, true },
    { "experts of two formats", fp8, mixed_formats, "", 0, MOXIE_ERR_MISMATCH,
      { E1("up_proj.weight") " is bf16", "expected fp8-block", E0("up_proj"), "must agree" }, true },
    { "scales of two dtypes", fp8, mixed_scales, "", 0, MOXIE_ERR_MISMATCH,
      { E1("up_proj.weight") " is fp8-block-bf16", "expected fp8-block" }, true },
    { "fewer experts than the config says", fp8, no_change, "", 4, MOXIE_ERR_MISMATCH,
      { ROUTER " is BF16 [2, 64]", "[4, 64]" }, true },
    { "a thousand million experts", fp8, no_change, "", 1000000000, MOXIE_ERR_UNSUPPORTED,
      { "num_experts is 1000000000", "1024" }, false },
    { "more experts than the config says", fp8, more_experts, "", 0, MOXIE_ERR_MISMATCH,
      { "2 experts", "model.layers.2.mlp.experts.2.down_proj" }, false },
    { "no router", fp8, no_router, "", 0, MOXIE_ERR_FORMAT, { ROUTER " is absent" }, false },
    { "a router of integers", fp8, int_router, "", 0, MOXIE_ERR_UNSUPPORTED, { ROUTER " is I32 [2, 64]" }, true },
    { "a real bias where there is none", fp8, real_bias, "", 0, MOXIE_ERR_UNSUPPORTED,
      { E0("up_proj.bias") " is not zero" }, true },
    { "a bias of another length", fp8, bias_shape, "", 0, MOXIE_ERR_MISMATCH,
      { E0("up_proj.bias") " is F16 [31]", "[32, 1]" }, true },
    { "a codebook", only, no_change, "", 0, MOXIE_ERR_UNSUPPORTED,
      { E0("gate_proj.weight_indices"), "codebook", "NVFP4" }, true },
    { "an unknown suffix, escaped", foreign, no_change, "", 0, MOXIE_ERR_UNSUPPORTED,
      { E0("gate_proj"), "no tensor of a known format", ".wobble\\x1b U8 [32, 64]" }, false },
    { "scales inline", inline_mx, no_change, "", 0, MOXIE_ERR_UNSUPPORTED,
      { E0("gate_proj.weight"), "inline", "Quark" }, true },
    { "a contradicting shape record", ct, record_of_shape, "", 0, MOXIE_ERR_MISMATCH,
      { E1("down_proj.weight_shape") " says [64, 31]", "[64, 32]" }, true },
    { "groups that do not divide", ct, odd_scale_groups, "", 0, MOXIE_ERR_MISMATCH,
      { E0("gate_proj.weight_scale") " is BF16 [32, 5]", "expected [32, " }, true },
    { "a group index past the end", gptq, index_range, "", 0, MOXIE_ERR_FORMAT,
      { E1("up_proj.g_idx") "[63] is 2", "0 to 1" }, true },
    { "a negative group index", gptq, index_negative, "", 0, MOXIE_ERR_FORMAT,
      { E1("up_proj.g_idx") "[5] is -1" }, true },
    { "a prepacked GPTQ file", gptq, no_change, QC("\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\""), 0,
      MOXIE_ERR_UNSUPPORTED, { "rules it out", "checkpoint_format marlin" }, true },
    { "AWQ in its other layout", awq_words, no_change, QC("\"quant_method\":\"awq\",\"version\":\"gemv\""), 0,
      MOXIE_ERR_UNSUPPORTED, { "format awq", "rules it out", "version gemv" }, true },
    { "smoothed inputs", channel, smoothing, "", 0, MOXIE_ERR_UNSUPPORTED,
      { E0("up_proj.pre_quant_scale"), "smoothing", "fp8-channel" }, true },
    { "a static zero point of activations", channel, act_zero, "", 0, MOXIE_ERR_UNSUPPORTED,
      { E0("up_proj.input_zero_point"), "zero point" }, true },
    { "static activations without scales", channel, no_change,
      QC("\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8,\"type\":"
         "\"float\"},\"input_activations\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\",\"dynamic\":"
         "false}}}"),
      0, MOXIE_ERR_FORMAT, { "static scales", "input_scale" }, false },
};
/* clang-format on */

static void check_error(const bad_case *bad, moxie_status got, const moxie_error *error)
{
    print_message("%s: %s\n", bad->what, error->text);
    assert_int_equal(got, bad->code);
    assert_int_equal(error->code, bad->code);
    for (int i = 0; i < 4 && bad->says[i]; i++)
        if (!strstr(error->text, bad->says[i]))
            fail_msg("%s: the text does not say \"%s\"", bad->what, bad->says[i]);
    if (bad->in_file)
        assert_non_null(strstr(error->file, "model.safetensors"));
}

static void bad_tensors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bad_case *bad = &cases[i];
        hand_checkpoint c;
        moxie_error error = { 0 };
        open_qwen(&c, 64, 32, bad->add);
        bad->spoil(&c);
        hand_write(&c, config_text("qwen3_moe", bad->experts ? bad->experts : 2, 64, 32, bad->more));
        check_error(bad, hand_try(&c, 2, &error), &error);
        hand_close(&c);
    }
}

/* Without the one wrong thing, the same checkpoints load. */
static void good_tensors(void **state)
{
    (void)state;
    const add_matrix_fn good[] = { fp8, ct, gptq, awq_words, channel };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        hand_checkpoint c;
        moxie_error error = { 0 };
        open_qwen(&c, 64, 32, good[i]);
        hand_write(&c, config_text("qwen3_moe", 2, 64, 32, ""));
        assert_ok(hand_try(&c, 2, &error), &error);
        hand_close(&c);
    }
}

static void bad_tables(void **state)
{
    (void)state;
    static const char *const config =
        "{\"model_type\":\"deepseek_v4\",\"n_routed_experts\":2,\"num_experts_per_tok\":2,\"hidden_size\":64,"
        "\"moe_intermediate_size\":32,\"num_hash_layers\":1,\"topk_method\":\"noaux_tc\"}";
    static const struct {
        int64_t value, columns;
        moxie_status code;
        const char *says;
    } bad[] = { { 2, 2, MOXIE_ERR_FORMAT, "layers.0.ffn.gate.tid2eid[5] is 2, expected an expert from 0 to 1" },
                { -1, 2, MOXIE_ERR_FORMAT, "tid2eid[5] is -1" },
                { 1, 3, MOXIE_ERR_MISMATCH, "tid2eid is I64 [4, 3]" },
                { 1, 0, MOXIE_ERR_FORMAT, "layers.0.ffn.gate.tid2eid is absent" } };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        static const char *const names[3] = { "w1", "w3", "w2" };
        hand_checkpoint c;
        moxie_error error = { 0 };
        hand_open(&c);
        for (int e = 0; e < 6; e++) {
            char name[64];
            snprintf(name, sizeof name, "layers.0.ffn.experts.%d.%s.weight", e / 3, names[e % 3]);
            hand_add2(&c, name, MOXIE_BF16, e % 3 < 2 ? 32 : 64, e % 3 < 2 ? 64 : 32);
        }
        hand_add2(&c, "layers.0.ffn.gate.weight", MOXIE_BF16, 2, 64);
        if (bad[i].columns)
            ((int64_t *)hand_add2(&c, "layers.0.ffn.gate.tid2eid", MOXIE_I64, 4, bad[i].columns))[5] = bad[i].value;
        hand_write(&c, config);
        assert_int_equal(hand_try(&c, 0, &error), bad[i].code);
        if (!strstr(error.text, bad[i].says))
            fail_msg("\"%s\" does not say \"%s\"", error.text, bad[i].says);
        hand_close(&c);
    }
}

/* Gate and up of 96 rows each, in blocks of 128: the first block would cover rows of both. */
static void a_block_across_gate_and_up(void **state)
{
    (void)state;
    hand_checkpoint c;
    moxie_error error = { 0 };
    hand_open(&c);
    hand_add2(&c, ROUTER, MOXIE_BF16, 2, 64);
    hand_add(&c, "model.layers.2.mlp.experts.gate_up_proj", MOXIE_F8_E4M3, 2, 192, 64, -1);
    hand_add(&c, "model.layers.2.mlp.experts.gate_up_proj_scale_inv", MOXIE_F32, 2, 2, 1, -1);
    hand_add(&c, "model.layers.2.mlp.experts.down_proj", MOXIE_F8_E4M3, 2, 64, 96, -1);
    hand_add(&c, "model.layers.2.mlp.experts.down_proj_scale_inv", MOXIE_F32, 2, 1, 1, -1);
    hand_write(&c, config_text("qwen3_moe", 2, 64, 96, ""));
    assert_int_equal(hand_try(&c, 2, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "gate_up_proj_scale_inv holds gate and up in 192 rows"));
    hand_close(&c);
}

static void bad_directories(void **state)
{
    (void)state;
    hand_checkpoint c;
    moxie_error error = { 0 };
    hand_open(&c);
    assert_int_equal(hand_try(&c, 0, &error), MOXIE_ERR_IO);
    assert_non_null(strstr(error.text, "config.json is missing"));
    hand_text(&c, "params.json", "{}");
    assert_int_equal(hand_try(&c, 0, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "Mistral"));
    hand_add2(&c, "model.layers.0.self_attn.q_proj.weight", MOXIE_BF16, 2, 8);
    hand_write(&c, config_text("llama", 2, 8, 4, ""));
    assert_int_equal(hand_try(&c, 0, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "\"llama\""));
    hand_write(&c, config_text("qwen3_moe", 2, 8, 4, ""));
    assert_int_equal(hand_try(&c, 0, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "model.layers.0.mlp.gate.weight"));
    assert_non_null(strstr(error.text, "model.layers.0.self_attn.q_proj.weight"));
    hand_write(&c, "{\"model_type\":");
    assert_int_equal(hand_try(&c, 0, &error), MOXIE_ERR_FORMAT);
    hand_close(&c);
}

/* Each allocation fails once, at open and at load: an error, no leak, and the next try works. */
static void memory_runs_out(void **state)
{
    (void)state;
    hand_checkpoint c;
    open_qwen(&c, 64, 32, gptq);
    ((int32_t *)c.data[hand_find(&c, E1("up_proj.g_idx"))])[0] = 1;
    hand_write(&c, config_text("qwen3_moe", 2, 64, 32, ""));
    moxie_status status = MOXIE_ERR_MEMORY;
    uint64_t n = 0;
    while (status != MOXIE_OK) {
        moxie_error error = { 0 };
        mox_alloc_fail_at(++n);
        status = hand_try(&c, 2, &error);
        mox_alloc_fail_at(0);
        if (status != MOXIE_OK)
            assert_int_equal(status, MOXIE_ERR_MEMORY);
        assert_true(n < 1000);
    }
    assert_true(n > 5);
    hand_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_tensors),     cmocka_unit_test(good_tensors),
        cmocka_unit_test(bad_tables),      cmocka_unit_test(a_block_across_gate_and_up),
        cmocka_unit_test(bad_directories), cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
