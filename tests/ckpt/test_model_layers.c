/* SPDX-License-Identifier: Apache-2.0
 *
 * Spellings of experts (fused either way, stacks, DBRX's merged rows), shared experts, routers and the arrays that a
 * routing needs; which layers are found; warnings.
 */
#include "hand_rules.h"

/* ---- stacked experts, bf16: value of element i is i / 8 ------------------------------------------------ */

/* Expert 1 of two; H = 16, I = 8. */
static double out_in_gate(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return hand_value(c, name, (16 + n) * 16 + k); /* [2, 16, 16], rows 0..7 */
}
static double out_in_up(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return hand_value(c, name, (16 + 8 + n) * 16 + k);
}
static double out_in_down(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return hand_value(c, name, (16 + n) * 8 + k); /* [2, 16, 8] */
}
static double in_out_up(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return hand_value(c, name, (16 + k) * 16 + 8 + n); /* [2, 16 in, 16 out], columns 8..15 */
}
static double in_out_down(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return hand_value(c, name, (8 + k) * 16 + n); /* [2, 8 in, 16 out] */
}
static double stack_gate(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    return hand_value(c, name, (8 + n) * 16 + k); /* [2, 8, 16] */
}

static void ramp_all(hand_checkpoint *c)
{
    for (int64_t i = 0; i < c->count; i++)
        hand_ramp(c, c->decls[i].name, 0, 0.125f);
}

/* The same names in both orientations: gate_up_proj alone ([2, 16, 16]) could be either, down_proj decides. */
static void fused_either_way(void **state)
{
    (void)state;
    for (int in_out = 0; in_out < 2; in_out++) {
        hand_checkpoint c;
        hand_open(&c);
        const char *gate_up = "model.layers.5.mlp.experts.gate_up_proj", *down = "model.layers.5.mlp.experts.down_proj";
        hand_add2(&c, "model.layers.5.mlp.gate.weight", MOXIE_F32, 2, 16);
        hand_add(&c, gate_up, MOXIE_F32, 2, 16, 16, -1);
        hand_add(&c, down, MOXIE_F32, 2, in_out ? 8 : 16, in_out ? 16 : 8, -1);
        ramp_all(&c);
        hand_write(&c, config_text("qwen3_moe", 2, 16, 8, ""));
        hand_model m = hand_load(&c, 5, MOXIE_ACTIVATIONS_CHECKPOINT);
        const moxie_expert *e = &m.weights->experts[1];
        hand_check(&c, &e->up, &m.config->w13, gate_up, 8, 16, in_out ? in_out_up : out_in_up);
        if (!in_out)
            hand_check(&c, &e->gate, &m.config->w13, gate_up, 8, 16, out_in_gate);
        hand_check(&c, &e->down, &m.config->w2, down, 16, 8, in_out ? in_out_down : out_in_down);
        hand_unload(&m);
        hand_close(&c);
    }
}

static void stacks_and_merged_rows(void **state)
{
    (void)state;
    hand_checkpoint step, dbrx;
    hand_open(&step);
    hand_add2(&step, "model.layers.1.moe.gate.weight", MOXIE_F32, 2, 16);
    hand_add(&step, "model.layers.1.moe.gate_proj.weight", MOXIE_F32, 2, 8, 16, -1);
    hand_add(&step, "model.layers.1.moe.up_proj.weight", MOXIE_F32, 2, 8, 16, -1);
    hand_add(&step, "model.layers.1.moe.down_proj.weight", MOXIE_F32, 2, 16, 8, -1);
    ramp_all(&step);
    hand_write(&step, "{\"model_type\":\"step3p5\",\"moe_num_experts\":2,\"moe_top_k\":1,\"hidden_size\":16,"
                      "\"moe_intermediate_size\":8}");
    hand_model m = hand_load(&step, 1, MOXIE_ACTIVATIONS_CHECKPOINT);
    hand_check(&step, &m.weights->experts[1].gate, &m.config->w13, "model.layers.1.moe.gate_proj.weight", 8, 16,
               stack_gate);
    hand_check(&step, &m.weights->experts[1].down, &m.config->w2, "model.layers.1.moe.down_proj.weight", 16, 8,
               out_in_down);
    hand_unload(&m);
    hand_close(&step);
    /* w1, v1, w2 each [E * I, H]; w2 is applied from the left, so [I in, H out]. */
    hand_open(&dbrx);
    hand_add2(&dbrx, "transformer.blocks.1.ffn.router.layer.weight", MOXIE_F32, 2, 16);
    hand_add2(&dbrx, "transformer.blocks.1.ffn.experts.mlp.w1", MOXIE_F32, 16, 16);
    hand_add2(&dbrx, "transformer.blocks.1.ffn.experts.mlp.v1", MOXIE_F32, 16, 16);
    hand_add2(&dbrx, "transformer.blocks.1.ffn.experts.mlp.w2", MOXIE_F32, 16, 16);
    ramp_all(&dbrx);
    hand_write(&dbrx, "{\"model_type\":\"dbrx\",\"d_model\":16,\"ffn_config\":{\"moe_num_experts\":2,\"moe_top_k\":1,"
                      "\"ffn_hidden_size\":8}}");
    m = hand_load(&dbrx, 1, MOXIE_ACTIVATIONS_CHECKPOINT);
    hand_check(&dbrx, &m.weights->experts[1].up, &m.config->w13, "transformer.blocks.1.ffn.experts.mlp.v1", 8, 16,
               stack_gate);
    hand_check(&dbrx, &m.weights->experts[1].down, &m.config->w2, "transformer.blocks.1.ffn.experts.mlp.w2", 16, 8,
               in_out_down);
    hand_unload(&m);
    hand_close(&dbrx);
}

/* ModelOpt keeps Llama-4's stacks [E, K/2, N]: nibble pairs run along the second axis, so does each scale's group. */
static double bmm_up(const hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    const int64_t row = 32 + n; /* gate rows first, I = 32 */
    const uint8_t byte = hand_byte(c, name, (32 + k / 2) * 64 + row);
    const double scale = e4m3(hand_byte(c, join(name, "_weight_scale"), (4 + k / 16) * 64 + row));
    return e2m1(byte >> (k % 2 * 4) & 15) * scale * 0.5;
}

static void nvfp4_in_out_stacks(void **state)
{
    (void)state;
    hand_checkpoint c;
    hand_open(&c);
    const char *const names[2] = { "language_model.model.layers.0.feed_forward.experts.gate_up_proj",
                                   "language_model.model.layers.0.feed_forward.experts.down_proj" };
    hand_add2(&c, "language_model.model.layers.0.feed_forward.router.weight", MOXIE_BF16, 2, 64);
    for (int i = 0; i < 2; i++) {
        const int64_t n = 64, k = i ? 32 : 64;
        hand_add(&c, names[i], MOXIE_U8, 2, k / 2, n, -1);
        hand_add(&c, join(names[i], "_weight_scale"), MOXIE_F8_E4M3, 2, k / 16, n, -1);
        hand_add2(&c, join(names[i], "_weight_scale_2"), MOXIE_F32, -1, -1);
        hand_add2(&c, join(names[i], "_input_scale"), MOXIE_F32, -1, -1);
        hand_scramble(&c, names[i]);
        hand_scramble(&c, join(names[i], "_weight_scale"));
        hand_ramp(&c, join(names[i], "_weight_scale_2"), 0.5f, 0);
        hand_ramp(&c, join(names[i], "_input_scale"), 0.25f, 0);
    }
    for (int p = 0; p < 3; p++) {
        static const char *const shared[] = { "gate_proj", "up_proj", "down_proj" };
        char name[128];
        snprintf(name, sizeof name, "language_model.model.layers.0.feed_forward.shared_expert.%s.weight", shared[p]);
        hand_add2(&c, name, MOXIE_BF16, p < 2 ? 32 : 64, p < 2 ? 64 : 32);
    }
    hand_write(&c, "{\"model_type\":\"llama4\",\"text_config\":{\"num_local_experts\":2,\"num_experts_per_tok\":1,"
                   "\"hidden_size\":64,\"intermediate_size\":32}}");
    hand_model m = hand_load(&c, 0, MOXIE_ACTIVATIONS_CHECKPOINT);
    hand_check(&c, &m.weights->experts[1].up, &m.config->w13, names[0], 32, 64, bmm_up);
    assert_true(m.weights->experts[1].a13_scale == 0.25f);
    assert_int_equal(m.config->routing.on_input, 1);
    /* routed experts packed, the shared one not */
    assert_int_equal(m.config->shared.w13.element, MOXIE_BF16);
    assert_int_equal(m.config->shared.a13.element, MOXIE_DTYPE_NONE);
    assert_int_equal(m.config->shared.intermediate, 32);
    hand_unload(&m);
    hand_close(&c);
}

/* ---- routing ----------------------------------------------------------------------------------------- */

static void add_experts(hand_checkpoint *c, const char *prefix, const char *const names[3], int64_t hidden,
                        int64_t intermediate)
{
    for (int64_t e = 0; e < 2; e++)
        for (int p = 0; p < 3; p++) {
            char name[160];
            snprintf(name, sizeof name, "%s%d.%s.weight", prefix, (int)e, names[p]);
            hand_add2(c, name, MOXIE_F32, p < 2 ? intermediate : hidden, p < 2 ? hidden : intermediate);
        }
}

/* Qwen2's shared expert, of width `width`, and its gate. */
static void add_gated_shared(hand_checkpoint *c, moxie_dtype dtype, int64_t hidden, int64_t width)
{
    hand_add2(c, "model.layers.1.mlp.shared_expert.gate_proj.weight", dtype, width, hidden);
    hand_add2(c, "model.layers.1.mlp.shared_expert.up_proj.weight", dtype, width, hidden);
    hand_add2(c, "model.layers.1.mlp.shared_expert.down_proj.weight", dtype, hidden, width);
    hand_add2(c, "model.layers.1.mlp.shared_expert_gate.weight", dtype, 1, hidden);
}

static const char *const proj[3] = { "gate_proj", "up_proj", "down_proj" };
static const char *const w132[3] = { "w1", "w3", "w2" };
#define DEEPSEEK_V4                                                                                                    \
    "{\"model_type\":\"deepseek_v4\",\"n_routed_experts\":2,\"num_experts_per_tok\":2,\"hidden_size\":8,"              \
    "\"moe_intermediate_size\":4,\"num_hash_layers\":1,\"topk_method\":\"noaux_tc\"}"

static void table_and_bias(void **state)
{
    (void)state;
    hand_checkpoint c;
    hand_open(&c);
    for (int layer = 0; layer < 2; layer++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%d.ffn.experts.", layer);
        add_experts(&c, name, w132, 8, 4);
        snprintf(name, sizeof name, "layers.%d.ffn.gate.weight", layer);
        hand_add2(&c, name, MOXIE_BF16, 2, 8);
    }
    int64_t *table = hand_add2(&c, "layers.0.ffn.gate.tid2eid", MOXIE_I64, 3, 2);
    table[0] = 1, table[3] = 1;
    hand_add2(&c, "layers.1.ffn.gate.bias", MOXIE_BF16, 2, -1);
    hand_ramp(&c, "layers.1.ffn.gate.bias", -0.5f, 1);
    hand_write(&c, DEEPSEEK_V4);
    hand_model m = hand_load(&c, 0, MOXIE_ACTIVATIONS_CHECKPOINT);
    assert_int_equal(m.config->routing.select, MOXIE_SELECT_TABLE);
    assert_int_equal(m.config->routing.table_rows, 3);
    const int32_t want[6] = { 1, 0, 0, 1, 0, 0 };
    assert_memory_equal(m.config->routing.table, want, sizeof want);
    assert_null(m.config->routing.bias);
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_error error = { 0 };
    assert_ok(mox_model_describe_layer(m.model, 0, &info, &error), &error);
    assert_string_equal(info.routing, "hash");
    /* six matrices of 32 floats, router 16 bf16, table 6 i64 */
    assert_int_equal(info.expert_bytes, 6 * 32 * 4);
    assert_int_equal(info.total_bytes, 6 * 32 * 4 + 16 * 2 + 6 * 8);
    hand_unload(&m);
    m = hand_load(&c, 1, MOXIE_ACTIVATIONS_CHECKPOINT);
    assert_int_equal(m.config->routing.select, MOXIE_SELECT_TOPK);
    assert_true(m.config->routing.bias[0] == -0.5f && m.config->routing.bias[1] == 0.5f);
    hand_unload(&m);
    hand_close(&c);
}

/* ERNIE stores [1, E]; Gemma has learned factors; Qwen2's shared expert has its own gate. */
static void arrays_of_families(void **state)
{
    (void)state;
    hand_checkpoint c;
    hand_open(&c);
    add_experts(&c, "model.layers.1.mlp.experts.", proj, 8, 4);
    hand_add2(&c, "model.layers.1.mlp.gate.weight", MOXIE_F32, 2, 8);
    hand_add2(&c, "model.layers.1.mlp.moe_statics.e_score_correction_bias", MOXIE_F32, 1, 2);
    hand_ramp(&c, "model.layers.1.mlp.moe_statics.e_score_correction_bias", 4, 1);
    hand_write(&c, "{\"model_type\":\"ernie4_5_moe\",\"moe_num_experts\":2,\"moe_k\":1,\"hidden_size\":8,"
                   "\"moe_intermediate_size\":4,\"moe_num_shared_experts\":0}");
    hand_model m = hand_load(&c, 1, MOXIE_ACTIVATIONS_CHECKPOINT);
    assert_true(m.config->routing.bias[0] == 4 && m.config->routing.bias[1] == 5);
    assert_int_equal(m.config->shared.intermediate, 0);
    assert_null(m.weights->shared);
    hand_unload(&m);
    hand_close(&c);

    hand_open(&c);
    hand_add2(&c, "model.language_model.layers.1.router.proj.weight", MOXIE_BF16, 2, 8);
    hand_add2(&c, "model.language_model.layers.1.router.scale", MOXIE_BF16, 8, -1);
    hand_add2(&c, "model.language_model.layers.1.router.per_expert_scale", MOXIE_BF16, 2, -1);
    hand_add(&c, "model.language_model.layers.1.experts.gate_up_proj", MOXIE_BF16, 2, 8, 8, -1);
    hand_add(&c, "model.language_model.layers.1.experts.down_proj", MOXIE_BF16, 2, 8, 4, -1);
    hand_ramp(&c, "model.language_model.layers.1.router.scale", 0.5f, 0.25f);
    hand_ramp(&c, "model.language_model.layers.1.router.per_expert_scale", 1.5f, 1);
    hand_write(&c,
               "{\"model_type\":\"gemma4\",\"text_config\":{\"num_experts\":2,\"top_k_experts\":1,\"hidden_size\":8,"
               "\"moe_intermediate_size\":4,\"rms_norm_eps\":0.25}}");
    m = hand_load(&c, 1, MOXIE_ACTIVATIONS_CHECKPOINT);
    assert_int_equal(m.config->router_norm.kind, MOXIE_ROW_NORM_RMS);
    assert_true(m.config->router_norm.eps == 0.25f && m.config->router_norm.factor == (float)sqrt(1.0 / 8));
    assert_true(mox_grid_value(&m.weights->router_norm.codes, 0, 7) == 2.25);
    assert_true(m.config->routing.per_expert_scale[0] == 1.5f && m.config->routing.per_expert_scale[1] == 2.5f);
    hand_unload(&m);
    hand_close(&c);

    hand_open(&c);
    add_experts(&c, "model.layers.1.mlp.experts.", proj, 8, 4);
    hand_add2(&c, "model.layers.1.mlp.gate.weight", MOXIE_BF16, 2, 8);
    add_gated_shared(&c, MOXIE_BF16, 8, 6);
    hand_ramp(&c, "model.layers.1.mlp.shared_expert_gate.weight", 2, 1);
    hand_write(&c, config_text("qwen2_moe", 2, 8, 4, ",\"shared_expert_intermediate_size\":6"));
    m = hand_load(&c, 1, MOXIE_ACTIVATIONS_CHECKPOINT);
    assert_int_equal(m.config->shared.has_gate, 1);
    assert_int_equal(m.config->shared.intermediate, 6);
    assert_int_equal(m.config->shared.w13.element, MOXIE_BF16);
    assert_int_equal(m.config->w13.element, MOXIE_F32);
    assert_true(mox_grid_value(&m.weights->shared_gate.codes, 0, 7) == 9);
    hand_unload(&m);
    hand_close(&c);
}

/* ---- which layers ------------------------------------------------------------------------------------ */

static void add_plain(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight"), MOXIE_BF16, n, k);
}

static void layers_are_found(void **state)
{
    (void)state;
    hand_checkpoint c;
    open_qwen(&c, 8, 4, add_plain);
    add_experts(&c, "model.layers.11.mlp.experts.", proj, 8, 4);
    hand_add2(&c, "model.layers.11.mlp.gate.weight", MOXIE_BF16, 2, 8);
    hand_add2(&c, "model.layers.3.mlp.gate_proj.weight", MOXIE_BF16, 8, 8); /* dense */
    hand_add2(&c, "model.layers.x.mlp.gate.weight", MOXIE_BF16, 2, 8);
    hand_add2(&c, "model.layers.99999999999999999999.mlp.gate.weight", MOXIE_BF16, 2, 8);
    hand_add2(&c, "lm_head.weight", MOXIE_BF16, 2, 8);
    hand_write(&c, config_text("qwen3_moe", 2, 8, 4,
                               ",\"quantization_config\":{\"quant_method\":\"fp8\",\"ignored_layers\":"
                               "[\"model.layers.*\"]}"));
    hand_model m = hand_load(&c, 11, MOXIE_ACTIVATIONS_CHECKPOINT);
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    moxie_model_layer_info layer = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_error error = { 0 };
    mox_model_get_info(m.model, &info);
    assert_int_equal(info.n_layers, 2);
    assert_string_equal(info.family, "qwen3-moe");
    assert_string_equal(info.model_type, "qwen3_moe");
    assert_string_equal(info.quant_method, "fp8");
    assert_int_equal(info.n_warnings, 0); /* excluded and plain: consistent */
    assert_ok(mox_model_describe_layer(m.model, 0, &layer, &error), &error);
    assert_int_equal(layer.layer, 2);
    assert_string_equal(layer.format, "bf16");
    assert_ok(mox_model_describe_layer(m.model, 1, &layer, &error), &error);
    assert_int_equal(layer.layer, 11);
    assert_int_equal(mox_model_describe_layer(m.model, 2, &layer, &error), MOXIE_ERR_ARGUMENT);
    moxie_model_layer *none = NULL;
    assert_int_equal(mox_model_load_layer(m.model, 3, &none, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "layer 3"));
    hand_unload(&m);
    hand_close(&c);
}

/* A stray router under another prefix does not hide the layer. */
static void the_fuller_spelling_counts(void **state)
{
    (void)state;
    hand_checkpoint c;
    hand_open(&c);
    add_experts(&c, "model.language_model.layers.2.mlp.experts.", proj, 8, 4);
    hand_add2(&c, "model.language_model.layers.2.mlp.gate.weight", MOXIE_BF16, 2, 8);
    hand_add2(&c, "model.layers.2.mlp.gate.weight", MOXIE_BF16, 7, 7);
    hand_write(&c, config_text("qwen3_moe", 2, 8, 4, ""));
    hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
    assert_int_equal(m.config->experts, 2);
    hand_unload(&m);
    hand_close(&c);
}

/* transformers makes the shared expert's modules for a width of 0, too, and saves matrices without elements. Qwen2's
 * has a gate, which is whole. With a width in config.json the same tensors contradict it. */
static void a_shared_expert_of_width_0_is_none(void **state)
{
    (void)state;
    static const char *const keys[] = { ",\"shared_expert_intermediate_size\":0", "",
                                        ",\"shared_expert_intermediate_size\":8" };
    for (int i = 0; i < 3; i++) {
        hand_checkpoint c;
        moxie_error error = { 0 };
        hand_open(&c);
        hand_add2(&c, "model.layers.1.mlp.gate.weight", MOXIE_F32, 2, 16);
        add_experts(&c, "model.layers.1.mlp.experts.", proj, 16, 8);
        add_gated_shared(&c, MOXIE_F32, 16, 0);
        hand_write(&c, config_text("qwen2_moe", 2, 16, 8, keys[i]));
        if (i < 2) {
            hand_model m = hand_load(&c, 1, MOXIE_ACTIVATIONS_CHECKPOINT);
            assert_int_equal(m.config->shared.intermediate, 0);
            assert_int_equal(m.config->shared.has_gate, 0);
            assert_null(m.weights->shared);
            hand_unload(&m);
        } else
            assert_int_equal(hand_try(&c, 1, &error), MOXIE_ERR_MISMATCH);
        hand_close(&c);
    }
}

static void add_ct_fp8(hand_checkpoint *c, const char *name, int64_t n, int64_t k)
{
    hand_add2(c, join(name, ".weight"), MOXIE_F8_E4M3, n, k);
    hand_add2(c, join(name, ".weight_scale"), MOXIE_F32, n, 1);
    hand_add2(c, join(name, ".bias"), MOXIE_F16, n, -1); /* zeros, as some exporters write */
}

static void contradictions_are_warnings(void **state)
{
    (void)state;
    hand_checkpoint c;
    open_qwen(&c, 8, 4, add_ct_fp8);
    hand_write(&c, config_text("qwen3_moe", 2, 8, 4,
                               ",\"quantization_config\":{\"quant_method\":\"fp8\",\"ignored_layers\":"
                               "[\"model.layers.2.mlp.experts.*\"]}"));
    hand_model m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    mox_model_get_info(m.model, &info);
    assert_int_equal(info.n_warnings, 1);
    assert_non_null(strstr(mox_model_warning(m.model, 0), "model.layers.2.mlp.experts.0.up_proj is excluded"));
    assert_null(mox_model_warning(m.model, 1));
    assert_int_equal(m.config->w13.element, MOXIE_F8_E4M3);
    assert_int_equal(m.config->bias13, 0);
    hand_unload(&m);
    /* The quantization configuration may be a file next to config.json. Without any, the usual activations are assumed,
     * with a warning. */
    hand_text(&c, "config.json", config_text("qwen3_moe", 2, 8, 4, ""));
    m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
    mox_model_get_info(m.model, &info);
    assert_int_equal(info.n_warnings, 1);
    assert_non_null(strstr(mox_model_warning(m.model, 0), "no quantization_config"));
    hand_unload(&m);
    hand_text(&c, "hf_quant_config.json", "{\"quantization\":{\"quant_algo\":\"FP8_PER_CHANNEL_PER_TOKEN\"}}");
    m = hand_load(&c, 2, MOXIE_ACTIVATIONS_CHECKPOINT);
    mox_model_get_info(m.model, &info);
    assert_int_equal(info.n_warnings, 0);
    assert_string_equal(info.quant_method, "modelopt");
    hand_unload(&m);
    hand_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_either_way),
        cmocka_unit_test(stacks_and_merged_rows),
        cmocka_unit_test(nvfp4_in_out_stacks),
        cmocka_unit_test(table_and_bias),
        cmocka_unit_test(arrays_of_families),
        cmocka_unit_test(layers_are_found),
        cmocka_unit_test(contradictions_are_warnings),
        cmocka_unit_test(a_shared_expert_of_width_0_is_none),
        cmocka_unit_test(the_fuller_spelling_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
