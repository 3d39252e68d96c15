/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lint_planted.c - every rule of findings.def has a defect here that is planted in a clean checkpoint; those of
 * adapters have theirs in test_lint_adapter.c. Lint must name it, and nothing else.
 */
#include "lint_plant.h"

/* ---- files ----------------------------------------------------------------------------------------- */

static void plant_unreadable(plant *p)
{
    plant_text(p, "model-2.safetensors", "cut");
}

static void plant_not_finite(plant *p)
{
    plant_config(p, "\"norm_topk_prob\"", "\"rope_theta\": Infinity, \"norm_topk_prob\"");
}

static void plant_duplicate(plant *p)
{
    plant_write_as(p, "model-2.safetensors", plant_find(p, "mlp.gate.weight"), 1);
}

/* An index of all tensors but the last `omitted`, and more text. */
static void write_index(const plant *p, int64_t omitted, const char *more, const char *total)
{
    char *text = calloc(1, (size_t)(p->count + 2) * 160 + 400);
    sprintf(text, "{%s\"weight_map\": {%s", total, more);
    for (int64_t i = 0; i < p->count - omitted; i++)
        sprintf(text + strlen(text), "%s\"%s\": \"model.safetensors\"", i ? ", " : "", p->tensors[i].name);
    strcat(text, "}}");
    plant_text(p, "model.safetensors.index.json", text);
    free(text);
}

static void plant_index_mismatch(plant *p)
{
    write_index(p, 0, "\"lm_head.weight\": \"model.safetensors\", ", "");
}

static void plant_index_omits(plant *p)
{
    write_index(p, 1, "", "");
}

static void plant_index_total(plant *p)
{
    write_index(p, 0, "", "\"metadata\": {\"total_size\": 17}, ");
}

static void plant_unusable(plant *p)
{
    static const char header[] = "{\"odd\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}     ";
    char file[8 + sizeof header - 1 + 8] = { (char)(sizeof header - 1) }, path[700];
    moxie_error error = { 0 };
    memcpy(file + 8, header, sizeof header - 1);
    plant_file(p, "model-2.safetensors", path);
    assert_ok(moxie_file_write(path, file, sizeof file, &error), &error);
}

/* ---- configuration --------------------------------------------------------------------------------- */

static void plant_unknown_model(plant *p)
{
    plant_config(p, "\"model_type\": \"qwen3_moe\"", "\"model_type\": \"mystery\"");
}

static void plant_fewer_experts(plant *p)
{
    plant_config(p, "\"num_experts\": 16", "\"num_experts\": 12");
}

static void plant_excluded(plant *p)
{
    plant_config(p, "\"lm_head\"", "\"lm_head\", \"model.layers.0.mlp.experts.0.up_proj\"");
}

static void plant_not_quantized(plant *p)
{
    plant_config(p, "\"norm_topk_prob\"",
                 "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}, "
                 "\"norm_topk_prob\"");
}

static void plant_key(plant *p)
{
    plant_config(p, "\"norm_topk_prob\"", "\"moe_mystery_factor\": 2.5, \"norm_topk_prob\"");
}

static void plant_odd_activation(plant *p)
{
    plant_config(p, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"mystery\"");
}

/* ---- tensors --------------------------------------------------------------------------------------- */

static void plant_missing(plant *p)
{
    plant_remove(p, "experts.3.up_proj.weight_scale_2");
}

static void plant_unread(plant *p)
{
    plant_add(p, "model.layers.0.mlp.experts.0.gate_proj.mystery_scale",
              (moxie_tensor) { .dtype = MOXIE_F32, .rank = 1, .shape = { 1 } }, NULL);
}

static void plant_shape(plant *p)
{
    plant_remove(p, "experts.2.down_proj.weight_scale_2");
    plant_add(p, "model.layers.0.mlp.experts.2.down_proj.weight_scale_2",
              (moxie_tensor) { .dtype = MOXIE_F32, .rank = 1, .shape = { 2 } }, NULL);
}

static void plant_as_fp8(plant *p, const char *end)
{
    moxie_named_tensor *t = &p->tensors[plant_find(p, end)];
    t->tensor.dtype = MOXIE_F8_E4M3;
}

static void plant_router(plant *p)
{
    plant_as_fp8(p, "mlp.gate.weight");
}

static void plant_shared_gate(plant *p)
{
    plant_as_fp8(p, "mlp.shared_expert_gate.weight");
}

static void plant_no_bias(plant *p)
{
    plant_remove(p, "mlp.router.bias");
}

static void plant_no_shared_gate(plant *p)
{
    plant_remove(p, "mlp.shared_expert_gate.weight");
}

static void plant_no_router(plant *p)
{
    plant_remove(p, "mlp.gate.weight");
}

static void plant_no_codes(plant *p)
{
    plant_remove(p, "experts.5.down_proj.weight");
}

/* ---- scales ---------------------------------------------------------------------------------------- */

#define SCALE "experts.1.up_proj.weight_scale"

static void plant_padded(plant *p)
{
    uint8_t padded[256 * 20] = { 0 };
    const uint8_t *scale = plant_data(p, SCALE);
    for (int r = 0; r < 256; r++)
        memcpy(padded + r * 20, scale + r * 16, 16);
    plant_remove(p, SCALE);
    plant_add(p, "model.layers.0.mlp." SCALE,
              (moxie_tensor) { .dtype = MOXIE_F8_E4M3, .rank = 2, .shape = { 256, 20 } }, padded);
}

static void plant_nothing(plant *p)
{
    (void)p;
}

static void plant_zero(plant *p)
{
    plant_data(p, SCALE)[7] = 0;
}

static void plant_nan(plant *p)
{
    plant_data(p, SCALE)[7] = 0x7F;
}

static void plant_subnormal(plant *p)
{
    plant_data(p, SCALE)[7] = 0x07;
}

static void plant_saturated(plant *p)
{
    for (int i = 0; i < 256 * 16; i += 32)
        plant_data(p, SCALE)[i] = 0x7E;
}

static void plant_global(plant *p)
{
    plant_set(p, "experts.1.up_proj.weight_scale_2", 0);
}

static void plant_gate_up(plant *p)
{
    plant_set(p, "experts.1.up_proj.weight_scale_2", 1.25f * plant_value(p, "experts.1.up_proj.weight_scale_2"));
}

/* One tensor of all experts: of gate, up and down, or of gate and up. */
static void for_all(plant *p, const char *part, int projections, float (*change)(int expert, float value))
{
    static const char *const names[] = { "gate_proj", "up_proj", "down_proj" };
    for (int e = 0; e < 8; e++)
        for (int i = 0; i < projections; i++) {
            char end[80];
            snprintf(end, sizeof end, "experts.%d.%s.%s", e, names[i], part);
            plant_set(p, end, change(e, plant_value(p, end)));
        }
}

static float reciprocal(int expert, float value)
{
    (void)expert;
    return 1 / value;
}

static void plant_reciprocal(plant *p)
{
    for_all(p, "weight_scale_2", 3, reciprocal);
}

static void plant_reciprocal_ct(plant *p)
{
    for_all(p, "weight_global_scale", 3, reciprocal);
}

/* ---- calibration ----------------------------------------------------------------------------------- */

static void plant_input_absent(plant *p)
{
    plant_remove(p, "experts.3.gate_proj.input_scale");
    plant_remove(p, "experts.3.up_proj.input_scale");
}

static void plant_input_nan(plant *p)
{
    const uint32_t nan = 0x7FC00000;
    memcpy(plant_data(p, "experts.3.down_proj.input_scale"), &nan, sizeof nan);
}

static float one_in_third(int expert, float value)
{
    return expert == 3 ? 1 : value;
}

static void plant_input_one(plant *p)
{
    for_all(p, "input_scale", 2, one_in_third);
}

static void plant_input_gate_up(plant *p)
{
    plant_set(p, "experts.1.up_proj.input_scale", 1.1f * plant_value(p, "experts.1.up_proj.input_scale"));
}

static float first_half_wide(int expert, float value)
{
    return expert < 4 ? 8 * value : value;
}

static void plant_input_ranks(plant *p)
{
    for_all(p, "input_scale", 2, first_half_wide);
}

/* ---- experts --------------------------------------------------------------------------------------- */

static void plant_weight(plant *p, uint16_t bits)
{
    memcpy(plant_data(p, "experts.2.up_proj.weight") + 1234, &bits, sizeof bits);
}

static void plant_weight_nan(plant *p)
{
    plant_weight(p, 0x7FC0);
}

static void plant_router_nan(plant *p)
{
    const uint16_t infinity = 0x7F80;
    memcpy(plant_data(p, "mlp.gate.weight") + 100, &infinity, sizeof infinity);
}

static void plant_weight_large(plant *p)
{
    plant_weight(p, 0x3F80); /* 1, where others have deviation 0.02 */
}

static void plant_constant(plant *p)
{
    memset(plant_data(p, "experts.2.up_proj.weight"), 0x22, p->bytes[plant_find(p, "experts.2.up_proj.weight")]);
}

static void plant_equal(plant *p)
{
    for (int64_t i = 0; i < p->count; i++) {
        const char *part = strstr(p->tensors[i].name, "experts.1.");
        char end[120];
        if (!part)
            continue;
        snprintf(end, sizeof end, "experts.2.%s", part + 10);
        memcpy(plant_data(p, end), p->tensors[i].tensor.data, p->bytes[i]);
    }
}

static float second_loud(int expert, float value)
{
    return expert == 2 ? 32 * value : value;
}

static void plant_rms(plant *p)
{
    for_all(p, "weight_scale_2", 3, second_loud);
}

/* ---- order ----------------------------------------------------------------------------------------- */

/* A pattern without period, the same for all tensors that share an axis. */
static bool is_small(int64_t i)
{
    return ((uint64_t)i * UINT64_C(0x9E3779B97F4A7C15) >> 61) % 2 == 1;
}

/* Keeps the sign of an E2M1 code, and halves its magnitude more than once. */
static uint8_t smaller(uint8_t code)
{
    return (uint8_t)((code & 8) | (code & 7) / 4);
}

/* Makes small: columns (of a [256, 256] matrix of nibbles) or rows in the pattern. */
static void shape_matrix(plant *p, int e, const char *projection, bool rows)
{
    char end[80];
    snprintf(end, sizeof end, "experts.%d.%s.weight", e, projection);
    uint8_t *codes = plant_data(p, end);
    for (int64_t i = 0; i < 256 * 256; i++) {
        const int shift = i % 2 ? 4 : 0;
        if (is_small(rows ? i / 256 : i % 256))
            codes[i / 2] = (uint8_t)((codes[i / 2] & (0xF0 >> shift)) | smaller(codes[i / 2] >> shift & 15) << shift);
    }
}

static void swap_nibbles(plant *p, const char *projection)
{
    for (int e = 0; e < 8; e++) {
        char end[80];
        snprintf(end, sizeof end, "experts.%d.%s.weight", e, projection);
        uint8_t *codes = plant_data(p, end);
        for (int64_t i = 0; i < 256 * 128; i++)
            codes[i] = (uint8_t)(codes[i] << 4 | codes[i] >> 4);
    }
}

/* Channels of the hidden state that gate, up and router all read with small weights, as in trained models. */
static void plant_channels(plant *p)
{
    uint8_t *router = plant_data(p, "mlp.gate.weight");
    for (int e = 0; e < 8; e++) {
        shape_matrix(p, e, "gate_proj", false);
        shape_matrix(p, e, "up_proj", false);
        for (int64_t c = 0; c < 256; c++) {
            uint16_t *at = (uint16_t *)(void *)(router + (e * 256 + c) * 2);
            if (is_small(c) && (*at >> 7 & 255) > 3)
                *at = (uint16_t)(*at - (3 << 7)); /* an eighth */
        }
    }
}

static void plant_nibbles(plant *p)
{
    plant_channels(p);
    swap_nibbles(p, "gate_proj");
    swap_nibbles(p, "up_proj");
}

/* Neurons whose rows of up and columns of down are both small. */
static void plant_neurons(plant *p)
{
    for (int e = 0; e < 8; e++) {
        shape_matrix(p, e, "up_proj", true);
        shape_matrix(p, e, "down_proj", false);
    }
}

static void plant_down_nibbles(plant *p)
{
    plant_neurons(p);
    swap_nibbles(p, "down_proj");
}

/* Exchanges gate and up of all experts, with scales. */
static void plant_swapped(plant *p)
{
    plant_neurons(p);
    for (int64_t i = 0; i < p->count; i++) {
        const char *part = strstr(p->tensors[i].name, ".gate_proj.");
        char up[200];
        if (!part)
            continue;
        snprintf(up, sizeof up, "%.*s.up_proj.%s", (int)(part - p->tensors[i].name), p->tensors[i].name, part + 11);
        moxie_tensor *a = &p->tensors[i].tensor, *b = &p->tensors[plant_find(p, up)].tensor;
        const moxie_tensor kept = *a;
        *a = *b;
        *b = kept;
    }
}

/* ---- the table ------------------------------------------------------------------------------------- */

#define NVFP4 "qwen3-30b-a3b", "nvfp4-modelopt"
#define BF16  "qwen3-30b-a3b", "bf16"

static const struct defect {
    const char *rule, *preset, *format;
    void (*plant)(plant *p);
    bool files; /* it writes files itself; the shard stays as it is */
    int64_t intermediate, experts;
} defects[] = {
    { "file-unreadable", NVFP4, plant_unreadable, true, 0, 0 },
    { "json-not-finite", NVFP4, plant_not_finite, true, 0, 0 },
    { "tensor-duplicate", NVFP4, plant_duplicate, true, 0, 0 },
    { "index-mismatch", NVFP4, plant_index_mismatch, true, 0, 0 },
    { "index-omits", NVFP4, plant_index_omits, true, 0, 0 },
    { "index-total", NVFP4, plant_index_total, true, 0, 0 },
    { "tensor-unusable", NVFP4, plant_unusable, true, 0, 0 },
    { "model-refused", NVFP4, plant_unknown_model, true, 0, 0 },
    { "config-contradicts", NVFP4, plant_fewer_experts, true, 0, 16 },
    { "quant-config-contradicts", NVFP4, plant_excluded, true, 0, 0 },
    { "quant-config-contradicts", BF16, plant_not_quantized, true, 0, 0 },
    { "config-unread-key", NVFP4, plant_key, true, 0, 0 },
    { "layer-refused", NVFP4, plant_odd_activation, true, 0, 0 },
    { "tensor-missing", NVFP4, plant_missing, false, 0, 0 },
    { "tensor-missing", NVFP4, plant_no_router, false, 0, 0 },
    { "tensor-missing", NVFP4, plant_no_codes, false, 0, 0 },
    { "tensor-missing", "gpt-oss-20b", "mxfp4-gptoss", plant_no_bias, false, 0, 0 },
    { "tensor-missing", "qwen3-next-80b", "bf16", plant_no_shared_gate, false, 0, 16 },
    { "tensor-unread", NVFP4, plant_unread, false, 0, 0 },
    { "tensor-shape", NVFP4, plant_shape, false, 0, 0 },
    { "router-quantized", NVFP4, plant_router, false, 0, 0 },
    { "shared-gate-quantized", "qwen3-next-80b", "bf16", plant_shared_gate, false, 0, 16 },
    { "scale-padded", NVFP4, plant_padded, false, 0, 0 },
    { "group-partial", "qwen3-30b-a3b", "fp8-block-bf16", plant_nothing, false, 192, 0 },
    { "scale-zero", NVFP4, plant_zero, false, 0, 0 },
    { "scale-invalid", NVFP4, plant_nan, false, 0, 0 },
    { "scale-subnormal", NVFP4, plant_subnormal, false, 0, 0 },
    { "scale-saturated", NVFP4, plant_saturated, false, 0, 0 },
    { "global-unusable", NVFP4, plant_global, false, 0, 0 },
    { "global-gate-up", NVFP4, plant_gate_up, false, 0, 0 },
    { "global-reciprocal", NVFP4, plant_reciprocal, false, 0, 0 },
    { "global-reciprocal", "qwen3-30b-a3b", "nvfp4-ct", plant_reciprocal_ct, false, 0, 0 },
    { "input-absent", NVFP4, plant_input_absent, false, 0, 0 },
    { "input-absent", NVFP4, plant_input_nan, false, 0, 0 },
    { "input-one", NVFP4, plant_input_one, false, 0, 0 },
    { "input-gate-up", NVFP4, plant_input_gate_up, false, 0, 0 },
    { "input-by-rank", NVFP4, plant_input_ranks, false, 0, 0 },
    { "weight-not-finite", BF16, plant_weight_nan, false, 0, 0 },
    { "weight-not-finite", NVFP4, plant_router_nan, false, 0, 0 },
    { "expert-constant", NVFP4, plant_constant, false, 0, 0 },
    { "experts-equal", NVFP4, plant_equal, false, 0, 0 },
    { "expert-amax", BF16, plant_weight_large, false, 0, 0 },
    { "expert-rms", NVFP4, plant_rms, false, 0, 0 },
    { "nibble-order", NVFP4, plant_nibbles, false, 0, 0 },
    { "nibble-order", NVFP4, plant_down_nibbles, false, 0, 0 },
    { "gate-up-swapped", NVFP4, plant_swapped, false, 0, 0 },
    { "layout-refuses", "mixtral-8x7b", "fp8-tensor", plant_nothing, false, 0, 0 },
};
enum { DEFECTS = sizeof defects / sizeof defects[0] };

static bool is_deep(const char *name)
{
    moxie_lint_rule rule = MOXIE_LINT_RULE_INIT;
    for (int32_t r = 0; moxie_lint_rule_at(r, &rule); r++)
        if (strcmp(rule.name, name) == 0)
            return rule.deep != 0;
    fail_msg("there is no rule %s", name);
    return false;
}

/* Numbers show every defect. Headers alone show those whose rule is not deep, but for the few that have both ways. */
static void every_defect_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < DEFECTS; i++) {
        const struct defect *d = &defects[i];
        const bool both_ways = d->plant == plant_input_nan || strcmp(d->rule, "layout-refuses") == 0;
        plant p;
        plant_open(&p, d->preset, d->format, d->intermediate, d->experts);
        d->plant(&p);
        if (!d->files)
            plant_write(&p);
        for (int deep = both_ways; deep < 2; deep++) {
            moxie_lint *lint = plant_lint(&p, deep);
            const bool named = plant_only(lint, d->rule), want = deep || !is_deep(d->rule);
            if (named != want)
                fail_msg("%s was planted, and lint%s %s so", d->rule, deep ? " --deep" : "",
                         want ? "does not say" : "says");
            moxie_lint_free(lint);
        }
        plant_close(&p);
    }
}

static void every_rule_has_a_defect(void **state)
{
    (void)state;
    moxie_lint_rule rule = MOXIE_LINT_RULE_INIT;
    for (int32_t r = 0; moxie_lint_rule_at(r, &rule); r++) {
        bool planted = strcmp(rule.topic, "adapters") == 0;
        for (int i = 0; i < DEFECTS; i++)
            planted = planted || strcmp(defects[i].rule, rule.name) == 0;
        if (!planted)
            fail_msg("no defect is planted for %s", rule.name);
    }
}

static void groups_of_zeros_may_have_any_scale(void **state)
{
    (void)state;
    plant p;
    plant_open(&p, NVFP4, 0, 0);
    memset(plant_data(&p, "experts.1.up_proj.weight"), 0, 8); /* one group of 16 nibbles */
    for (uint8_t scale = 0; scale < 2; scale++) {
        plant_data(&p, SCALE)[0] = scale;
        plant_write(&p);
        moxie_lint *lint = plant_lint(&p, 1);
        assert_false(plant_only(lint, ""));
        moxie_lint_free(lint);
    }
    plant_close(&p);
}

/* What statistics cannot tell is not said: a trained-looking checkpoint in the right order, and a permuted one without
 * any structure. */
static void statistics_know_their_limits(void **state)
{
    (void)state;
    void (*const clean[])(plant *) = { plant_channels, plant_neurons };
    for (size_t i = 0; i < 4; i++) {
        plant p;
        plant_open(&p, NVFP4, 0, 0);
        if (i < 2)
            clean[i](&p);
        if (i == 2)
            swap_nibbles(&p, "up_proj");
        plant_write(&p);
        moxie_lint *lint = plant_lint(&p, 1);
        assert_false(plant_only(lint, ""));
        moxie_lint_free(lint);
        plant_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_has_a_defect),
        cmocka_unit_test(every_defect_is_named),
        cmocka_unit_test(groups_of_zeros_may_have_any_scale),
        cmocka_unit_test(statistics_know_their_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
