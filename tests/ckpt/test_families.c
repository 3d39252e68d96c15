/* SPDX-License-Identifier: Apache-2.0
 *
 * Names, dtypes and shapes of one layer of every family, against literal lists made from the model code and headers of
 * the releases.
 *
 * Every list is for layer 3, hidden size 64, expert width 32, shared width 64, E = 2; of experts in tensors of their
 * own, number 1 is listed.
 */
#include "test_support.h"

#include "ckpt/families/tables.h"
#include "ckpt/safetensors/file_dtype.h"

typedef struct listing {
    const char *family, *format, *shared;
    int64_t expert_width, hash_layers;
    const char *lines[16];
    int64_t zero_experts;
    bool bias_alt;
} listing;

#define PROJ(p)                                                                                                        \
    p ".1.gate_proj.weight BF16 [32, 64]", p ".1.up_proj.weight BF16 [32, 64]", p ".1.down_proj.weight BF16 [64, 32]"
#define W123(p) p ".1.w1.weight BF16 [32, 64]", p ".1.w3.weight BF16 [32, 64]", p ".1.w2.weight BF16 [64, 32]"
#define SHARED(p)                                                                                                      \
    p ".gate_proj.weight BF16 [64, 64]", p ".up_proj.weight BF16 [64, 64]", p ".down_proj.weight BF16 [64, 64]"
#define DEEPSEEK(p)                                                                                                    \
    p "mlp.gate.weight BF16 [2, 64]", p "mlp.gate.e_score_correction_bias F32 [2]", PROJ(p "mlp.experts"),             \
        SHARED(p "mlp.shared_experts")

/* clang-format off */
static const listing listings[] = {
    { "qwen3-moe", "bf16", NULL, 0, 0,
      { "model.layers.3.mlp.gate.weight BF16 [2, 64]", PROJ("model.layers.3.mlp.experts") } },
    { "qwen3-omni-moe", "bf16", NULL, 0, 0,
      { "thinker.model.layers.3.mlp.gate.weight BF16 [2, 64]", PROJ("thinker.model.layers.3.mlp.experts") } },
    { "olmoe", "bf16", NULL, 0, 0,
      { "model.layers.3.mlp.gate.weight BF16 [2, 64]", PROJ("model.layers.3.mlp.experts") } },
    { "qwen2-moe", "bf16", "bf16", 0, 0,
      { "model.layers.3.mlp.gate.weight BF16 [2, 64]", PROJ("model.layers.3.mlp.experts"),
        SHARED("model.layers.3.mlp.shared_expert"), "model.layers.3.mlp.shared_expert_gate.weight BF16 [1, 64]" } },
    { "qwen3-next", "bf16", "bf16", 0, 0,
      { "model.layers.3.mlp.gate.weight BF16 [2, 64]", PROJ("model.layers.3.mlp.experts"),
        SHARED("model.layers.3.mlp.shared_expert"), "model.layers.3.mlp.shared_expert_gate.weight BF16 [1, 64]" } },
    { "lara-mini", "bf16", "bf16", 0, 0,
      { "model.layers.3.mlp.gate.weight BF16 [2, 64]",
        "model.layers.3.mlp.experts.gate_up_proj BF16 [2, 64, 64]",
        "model.layers.3.mlp.experts.down_proj BF16 [2, 64, 32]", SHARED("model.layers.3.mlp.shared_expert") } },
    { "qwen3-vl-moe", "bf16", NULL, 0, 0,
      { "model.language_model.layers.3.mlp.gate.weight BF16 [2, 64]",
        "model.language_model.layers.3.mlp.experts.gate_up_proj BF16 [2, 64, 64]",
        "model.language_model.layers.3.mlp.experts.down_proj BF16 [2, 32, 64]" } },
    { "qwen3.5-moe", "bf16", "bf16", 0, 0,
      { "model.language_model.layers.3.mlp.gate.weight BF16 [2, 64]",
        "model.language_model.layers.3.mlp.experts.gate_up_proj BF16 [2, 64, 64]",
        "model.language_model.layers.3.mlp.experts.down_proj BF16 [2, 64, 32]",
        SHARED("model.language_model.layers.3.mlp.shared_expert"),
        "model.language_model.layers.3.mlp.shared_expert_gate.weight BF16 [1, 64]" } },
    /* quantized exports have a tensor per expert */
    { "qwen3.5-moe", "nvfp4-modelopt-w4a16", "bf16", 0, 0,
      { "model.language_model.layers.3.mlp.gate.weight BF16 [2, 64]",
        "model.language_model.layers.3.mlp.experts.1.gate_proj.weight U8 [32, 32]",
        "model.language_model.layers.3.mlp.experts.1.gate_proj.weight_scale F8_E4M3 [32, 4]",
        "model.language_model.layers.3.mlp.experts.1.gate_proj.weight_scale_2 F32 []",
        "model.language_model.layers.3.mlp.experts.1.up_proj.weight U8 [32, 32]",
        "model.language_model.layers.3.mlp.experts.1.up_proj.weight_scale F8_E4M3 [32, 4]",
        "model.language_model.layers.3.mlp.experts.1.up_proj.weight_scale_2 F32 []",
        "model.language_model.layers.3.mlp.experts.1.down_proj.weight U8 [64, 16]",
        "model.language_model.layers.3.mlp.experts.1.down_proj.weight_scale F8_E4M3 [64, 2]",
        "model.language_model.layers.3.mlp.experts.1.down_proj.weight_scale_2 F32 []",
        SHARED("model.language_model.layers.3.mlp.shared_expert"),
        "model.language_model.layers.3.mlp.shared_expert_gate.weight BF16 [1, 64]" } },
    { "mixtral", "bf16", NULL, 0, 0,
      { "model.layers.3.block_sparse_moe.gate.weight BF16 [2, 64]", W123("model.layers.3.block_sparse_moe.experts") } },
    { "phi-moe", "bf16", NULL, 0, 0,
      { "model.layers.3.block_sparse_moe.gate.weight BF16 [2, 64]", W123("model.layers.3.block_sparse_moe.experts") } },
    { "minimax-m2", "bf16", NULL, 0, 0,
      { "model.layers.3.block_sparse_moe.gate.weight F32 [2, 64]",
        "model.layers.3.block_sparse_moe.e_score_correction_bias F32 [2]",
        W123("model.layers.3.block_sparse_moe.experts") } },
    { "minimax-m3", "bf16", "bf16", 0, 0,
      { "language_model.model.layers.3.block_sparse_moe.gate.weight F32 [2, 64]",
        "language_model.model.layers.3.block_sparse_moe.e_score_correction_bias F32 [2]",
        W123("language_model.model.layers.3.block_sparse_moe.experts"),
        SHARED("language_model.model.layers.3.block_sparse_moe.shared_experts") } },
    { "deepseek-v2", "bf16", "bf16", 0, 0,
      { "model.layers.3.mlp.gate.weight BF16 [2, 64]", PROJ("model.layers.3.mlp.experts"),
        SHARED("model.layers.3.mlp.shared_experts") } },
    { "deepseek-v3", "bf16", "bf16", 0, 0, { DEEPSEEK("model.layers.3.") } },
    { "kimi-k2", "bf16", "bf16", 0, 0, { DEEPSEEK("model.layers.3.") } },
    { "kimi-k2.5", "bf16", "bf16", 0, 0, { DEEPSEEK("language_model.model.layers.3.") } },
    { "glm4-moe", "bf16", "bf16", 0, 0, { DEEPSEEK("model.layers.3.") } },
    { "glm4-moe-lite", "bf16", "bf16", 0, 0, { DEEPSEEK("model.layers.3.") } },
    { "glm-moe-dsa", "bf16", "bf16", 0, 0, { DEEPSEEK("model.layers.3.") } },
    { "mimo-v2", "bf16", "bf16", 0, 0, { DEEPSEEK("model.layers.3.") } },
    { "axk2", "bf16", "bf16", 0, 0,
      { "model.layers.3.mlp.gate.weight F32 [2, 64]", "model.layers.3.mlp.gate.e_score_correction_bias F32 [2]",
        PROJ("model.layers.3.mlp.experts"), SHARED("model.layers.3.mlp.shared_experts") } },
    { "deepseek-v4", "mxfp4-v4", "fp8-block-e8m0", 0, 0,
      { "layers.3.ffn.gate.weight BF16 [2, 64]", "layers.3.ffn.gate.bias F32 [2]",
        "layers.3.ffn.experts.1.w1.weight I8 [32, 32]", "layers.3.ffn.experts.1.w1.scale F8_E8M0 [32, 2]",
        "layers.3.ffn.experts.1.w3.weight I8 [32, 32]", "layers.3.ffn.experts.1.w3.scale F8_E8M0 [32, 2]",
        "layers.3.ffn.experts.1.w2.weight I8 [64, 16]", "layers.3.ffn.experts.1.w2.scale F8_E8M0 [64, 1]",
        "layers.3.ffn.shared_experts.w1.weight F8_E4M3 [64, 64]", "layers.3.ffn.shared_experts.w1.scale F8_E8M0 [1, 1]",
        "layers.3.ffn.shared_experts.w3.weight F8_E4M3 [64, 64]", "layers.3.ffn.shared_experts.w3.scale F8_E8M0 [1, 1]",
        "layers.3.ffn.shared_experts.w2.weight F8_E4M3 [64, 64]",
        "layers.3.ffn.shared_experts.w2.scale F8_E8M0 [1, 1]" } },
    /* layer 3 of 4 layers that route by table: no bias */
    { "deepseek-v4", "bf16", NULL, 0, 4,
      { "layers.3.ffn.gate.weight BF16 [2, 64]", "layers.3.ffn.gate.tid2eid I64 [100, 1]",
        W123("layers.3.ffn.experts") } },
    { "step", "bf16", "bf16", 0, 0,
      { "model.layers.3.moe.gate.weight BF16 [2, 64]", "model.layers.3.moe.router_bias F32 [2]",
        "model.layers.3.moe.gate_proj.weight BF16 [2, 32, 64]", "model.layers.3.moe.up_proj.weight BF16 [2, 32, 64]",
        "model.layers.3.moe.down_proj.weight BF16 [2, 64, 32]", SHARED("model.layers.3.share_expert") } },
    { "nemotron-h", "bf16", "bf16", 48, 0,
      { "backbone.layers.3.mixer.gate.weight F32 [2, 64]",
        "backbone.layers.3.mixer.gate.e_score_correction_bias F32 [2]",
        "backbone.layers.3.mixer.experts.1.up_proj.weight BF16 [32, 48]",
        "backbone.layers.3.mixer.experts.1.down_proj.weight BF16 [48, 32]",
        "backbone.layers.3.mixer.shared_experts.up_proj.weight BF16 [64, 64]",
        "backbone.layers.3.mixer.shared_experts.down_proj.weight BF16 [64, 64]",
        "backbone.layers.3.mixer.fc1_latent_proj.weight BF16 [48, 64]",
        "backbone.layers.3.mixer.fc2_latent_proj.weight BF16 [64, 48]" } },
    { "kimi-k3", "bf16", "bf16", 48, 0,
      { "language_model.model.layers.3.block_sparse_moe.gate.weight BF16 [2, 64]",
        "language_model.model.layers.3.block_sparse_moe.gate.e_score_correction_bias BF16 [2]",
        "language_model.model.layers.3.block_sparse_moe.experts.1.w1.weight BF16 [32, 48]",
        "language_model.model.layers.3.block_sparse_moe.experts.1.w3.weight BF16 [32, 48]",
        "language_model.model.layers.3.block_sparse_moe.experts.1.w2.weight BF16 [48, 32]",
        SHARED("language_model.model.layers.3.block_sparse_moe.shared_experts"),
        "language_model.model.layers.3.block_sparse_moe.routed_expert_down_proj.weight BF16 [48, 64]",
        "language_model.model.layers.3.block_sparse_moe.routed_expert_up_proj.weight BF16 [64, 48]",
        "language_model.model.layers.3.block_sparse_moe.routed_expert_norm.weight BF16 [48]" } },
    { "llama4", "bf16", "bf16", 0, 0,
      { "language_model.model.layers.3.feed_forward.router.weight BF16 [2, 64]",
        "language_model.model.layers.3.feed_forward.experts.gate_up_proj BF16 [2, 64, 64]",
        "language_model.model.layers.3.feed_forward.experts.down_proj BF16 [2, 32, 64]",
        SHARED("language_model.model.layers.3.feed_forward.shared_expert") } },
    { "ernie-4.5", "bf16", "bf16", 0, 0,
      { "model.layers.3.mlp.gate.weight F32 [2, 64]",
        "model.layers.3.mlp.moe_statics.e_score_correction_bias F32 [1, 2]", PROJ("model.layers.3.mlp.experts"),
        SHARED("model.layers.3.mlp.shared_experts") } },
    { "hunyuan", "bf16", "bf16", 0, 0,
      { "model.layers.3.mlp.gate.wg.weight F32 [2, 64]", PROJ("model.layers.3.mlp.experts"),
        SHARED("model.layers.3.mlp.shared_mlp") } },
    { "gemma4", "bf16", NULL, 0, 0,
      { "model.language_model.layers.3.router.proj.weight BF16 [2, 64]",
        "model.language_model.layers.3.router.scale BF16 [64]",
        "model.language_model.layers.3.router.per_expert_scale BF16 [2]",
        "model.language_model.layers.3.experts.gate_up_proj BF16 [2, 64, 64]",
        "model.language_model.layers.3.experts.down_proj BF16 [2, 64, 32]" } },
    { "muse-spark", "bf16", NULL, 48, 0,
      { "model.language_model.layers.3.mlp.gate.weight BF16 [2, 64]",
        "model.language_model.layers.3.mlp.gate.e_score_correction_bias BF16 [2]",
        "model.language_model.layers.3.mlp.experts.post_expert_norm.weight BF16 [48]",
        "model.language_model.layers.3.mlp.experts.gate_up_proj BF16 [2, 64, 48]",
        "model.language_model.layers.3.mlp.experts.down_proj BF16 [2, 48, 32]",
        "model.language_model.layers.3.mlp.pre_expert_proj.weight BF16 [48, 64]",
        "model.language_model.layers.3.mlp.post_expert_proj.weight BF16 [64, 48]",
        "model.language_model.layers.3.mlp.pre_expert_norm.weight BF16 [48]" } },
    { "granite", "bf16", NULL, 0, 0,
      { "model.layers.3.block_sparse_moe.router.layer.weight BF16 [2, 64]",
        "model.layers.3.block_sparse_moe.input_linear.weight BF16 [2, 64, 64]",
        "model.layers.3.block_sparse_moe.output_linear.weight BF16 [2, 64, 32]" } },
    { "granite", "bf16", "bf16", 0, 0,
      { "model.layers.3.block_sparse_moe.router.layer.weight BF16 [2, 64]",
        "model.layers.3.block_sparse_moe.input_linear.weight BF16 [2, 64, 64]",
        "model.layers.3.block_sparse_moe.output_linear.weight BF16 [2, 64, 32]",
        "model.layers.3.shared_mlp.input_linear.weight BF16 [128, 64]",
        "model.layers.3.shared_mlp.output_linear.weight BF16 [64, 64]" } },
    { "kimi-linear", "bf16", "bf16", 0, 0,
      { "model.layers.3.block_sparse_moe.gate.weight BF16 [2, 64]",
        "model.layers.3.block_sparse_moe.gate.e_score_correction_bias F32 [2]",
        W123("model.layers.3.block_sparse_moe.experts"), SHARED("model.layers.3.block_sparse_moe.shared_experts") } },
    { "ernie-4.5-vl", "bf16", "bf16", 0, 0,
      { "model.language_model.layers.3.mlp.text_moe.gate.weight F32 [2, 64]",
        "model.language_model.layers.3.mlp.text_moe.gate.moe_statics.e_score_correction_bias F32 [1, 2]",
        "model.language_model.layers.3.mlp.text_moe.experts.gate_up_proj BF16 [2, 64, 64]",
        "model.language_model.layers.3.mlp.text_moe.experts.down_proj BF16 [2, 64, 32]",
        SHARED("model.language_model.layers.3.mlp.shared_experts") } },
    { "jamba", "bf16", NULL, 0, 0,
      { "model.layers.3.feed_forward.router.weight BF16 [2, 64]", PROJ("model.layers.3.feed_forward.experts") } },
    { "dots1", "bf16", "bf16", 0, 0, { DEEPSEEK("model.layers.3.") } },
    { "solar-open", "bf16", "bf16", 0, 0, { DEEPSEEK("model.layers.3.") } },
    { "lfm2-moe", "bf16", NULL, 0, 0,
      { "model.layers.3.feed_forward.gate.weight BF16 [2, 64]", "model.layers.3.feed_forward.expert_bias F32 [2]",
        W123("model.layers.3.feed_forward.experts") } },
    { "afmoe", "bf16", "bf16", 0, 0,
      { "model.layers.3.mlp.router.gate.weight BF16 [2, 64]", "model.layers.3.mlp.expert_bias F32 [2]",
        PROJ("model.layers.3.mlp.experts"), SHARED("model.layers.3.mlp.shared_experts") } },
    { "dbrx", "bf16", NULL, 0, 0,
      { "transformer.blocks.3.ffn.router.layer.weight BF16 [2, 64]",
        "transformer.blocks.3.ffn.experts.mlp.w1 BF16 [64, 64]",
        "transformer.blocks.3.ffn.experts.mlp.v1 BF16 [64, 64]",
        "transformer.blocks.3.ffn.experts.mlp.w2 BF16 [64, 64]" } },
#include "family_listings_2026.def"
    { "gpt-oss", "bf16", NULL, 0, 0,
      { "model.layers.3.mlp.router.weight BF16 [2, 64]", "model.layers.3.mlp.router.bias BF16 [2]",
        "model.layers.3.mlp.experts.gate_up_proj BF16 [2, 64, 64]",
        "model.layers.3.mlp.experts.gate_up_proj_bias BF16 [2, 64]",
        "model.layers.3.mlp.experts.down_proj BF16 [2, 32, 64]",
        "model.layers.3.mlp.experts.down_proj_bias BF16 [2, 64]" } },
    { "gpt-oss", "mxfp4-gptoss", NULL, 0, 0,
      { "model.layers.3.mlp.router.weight BF16 [2, 64]", "model.layers.3.mlp.router.bias BF16 [2]",
        "model.layers.3.mlp.experts.gate_up_proj_blocks U8 [2, 64, 2, 16]",
        "model.layers.3.mlp.experts.gate_up_proj_scales U8 [2, 64, 2]",
        "model.layers.3.mlp.experts.gate_up_proj_bias BF16 [2, 64]",
        "model.layers.3.mlp.experts.down_proj_blocks U8 [2, 64, 1, 16]",
        "model.layers.3.mlp.experts.down_proj_scales U8 [2, 64, 1]",
        "model.layers.3.mlp.experts.down_proj_bias BF16 [2, 64]" } },
};
/* clang-format on */
#define N_LISTINGS (sizeof listings / sizeof listings[0])

typedef struct collected {
    char lines[32][320];
    int count;
} collected;

static void line_of(const mox_tensor_spec *spec, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "%s %s [", spec->name, mox_file_dtype_name(spec->dtype));
    for (int32_t i = 0; i < spec->rank; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i ? ", " : "", (long long)spec->shape[i]);
    snprintf(out + used, size - used, "]");
}

static moxie_status collect(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    collected *all = user;
    (void)error;
    if (strstr(spec->name, ".experts.0."))
        return MOXIE_OK;
    assert_true(all->count < 32);
    line_of(spec, all->lines[all->count++], sizeof all->lines[0]);
    return MOXIE_OK;
}

static void names_and_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LISTINGS; i++) {
        const listing *want = &listings[i];
        const mox_family *family = mox_family_by_id(want->family);
        assert_non_null(family);
        const mox_dims dims = { .layers = 4,
                                .experts = 2,
                                .top_k = 1,
                                .hidden = 64,
                                .intermediate = 32,
                                .shared_intermediate = want->shared ? 64 : 0,
                                .expert_width = want->expert_width,
                                .vocab = 100,
                                .n_hash_layers = want->hash_layers,
                                .zero_experts = want->zero_experts,
                                .bias_alt = want->bias_alt };
        collected got = { .count = 0 };
        moxie_error error = { 0 };
        assert_ok(mox_enumerate_layer(family, &dims, mox_hf_quant_by_id(want->format),
                                      want->shared ? mox_hf_quant_by_id(want->shared) : NULL, 3, collect, &got, &error),
                  &error);
        int n = 0;
        while (n < 16 && want->lines[n])
            n++;
        assert_int_equal(got.count, n);
        for (int k = 0; k < n; k++)
            assert_string_equal(got.lines[k], want->lines[k]);
    }
}

static void every_family_is_listed(void **state)
{
    (void)state;
    for (int32_t f = 0; mox_family_at(f); f++) {
        bool listed = false;
        for (size_t i = 0; i < N_LISTINGS; i++)
            listed = listed || strcmp(listings[i].family, mox_family_at(f)->id) == 0;
        if (!listed)
            fail_msg("%s has no list here", mox_family_at(f)->id);
    }
}

typedef struct seek {
    const char *want;
    bool found;
} seek;

static moxie_status find_line(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    seek *s = user;
    char line[400];
    (void)error;
    line_of(spec, line, sizeof line);
    const size_t n = strlen(line), w = strlen(s->want);
    s->found = s->found || (n >= w && strcmp(line + n - w, s->want) == 0);
    return MOXIE_OK;
}

/* Shapes as read from the headers of the real files. */
static void real_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *family, *format;
        int64_t experts, hidden, intermediate;
        const char *line;
    } real[] = {
        { "gpt-oss", "mxfp4-gptoss", 128, 2880, 2880, "mlp.experts.gate_up_proj_blocks U8 [128, 5760, 90, 16]" },
        { "gpt-oss", "mxfp4-gptoss", 128, 2880, 2880, "mlp.experts.gate_up_proj_scales U8 [128, 5760, 90]" },
        { "gpt-oss", "mxfp4-gptoss", 128, 2880, 2880, "mlp.experts.down_proj_blocks U8 [128, 2880, 90, 16]" },
        { "qwen3-next", "fp8-block-bf16", 512, 2048, 512, "mlp.experts.0.up_proj.weight F8_E4M3 [512, 2048]" },
        { "qwen3-next", "fp8-block-bf16", 512, 2048, 512, "mlp.experts.0.up_proj.weight_scale_inv BF16 [4, 16]" },
        { "deepseek-v4", "mxfp4-v4", 256, 4096, 2048, "ffn.experts.0.w1.weight I8 [2048, 2048]" },
        { "deepseek-v4", "mxfp4-v4", 256, 4096, 2048, "ffn.experts.0.w1.scale F8_E8M0 [2048, 128]" },
        { "deepseek-v4", "mxfp4-v4", 256, 4096, 2048, "ffn.experts.0.w2.weight I8 [4096, 1024]" },
        { "deepseek-v4", "mxfp4-v4", 256, 4096, 2048, "ffn.experts.0.w2.scale F8_E8M0 [4096, 64]" },
        { "kimi-k2", "int4-ct-g32", 384, 7168, 2048, "mlp.experts.0.gate_proj.weight_packed I32 [2048, 896]" },
        { "kimi-k2", "int4-ct-g32", 384, 7168, 2048, "mlp.experts.0.gate_proj.weight_scale BF16 [2048, 224]" },
        { "kimi-k2", "int4-ct-g32", 384, 7168, 2048, "mlp.experts.0.gate_proj.weight_shape I32 [2]" },
        { "step", "fp8-block", 288, 4096, 1280, "moe.gate_proj.weight F8_E4M3 [288, 1280, 4096]" },
        { "step", "fp8-block", 288, 4096, 1280, "moe.down_proj.weight_scale_inv F32 [288, 32, 10]" },
    };
    for (size_t i = 0; i < sizeof real / sizeof real[0]; i++) {
        /* Separate experts are all alike: one is enough. Stacked experts need the true number. */
        const bool own = strstr(real[i].line, "experts.0.") != NULL;
        const mox_dims dims = { .experts = own ? 1 : real[i].experts,
                                .top_k = 1,
                                .hidden = real[i].hidden,
                                .intermediate = real[i].intermediate };
        seek s = { real[i].line, false };
        moxie_error error = { 0 };
        assert_ok(mox_enumerate_layer(mox_family_by_id(real[i].family), &dims, mox_hf_quant_by_id(real[i].format), NULL,
                                      0, find_line, &s, &error),
                  &error);
        if (!s.found)
            fail_msg("%s %s has no %s", real[i].family, real[i].format, real[i].line);
    }
}

static void rejections(void **state)
{
    (void)state;
    const mox_dims dims = { .experts = 2, .top_k = 1, .hidden = 64, .intermediate = 32 };
    collected got = { .count = 0 };
    moxie_error error = { 0 };
    /* One matrix for all experts has no quantized form. */
    assert_int_equal(
        mox_enumerate_layer(mox_family_by_id("dbrx"), &dims, mox_hf_quant_by_id("awq"), NULL, 0, collect, &got, &error),
        MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "dbrx"));
    /* A word of eight rows would hold gate and up rows. */
    assert_int_equal(mox_enumerate_layer(mox_family_by_id("gpt-oss"), &dims, mox_hf_quant_by_id("awq"), NULL, 0,
                                         collect, &got, &error),
                     MOXIE_ERR_UNSUPPORTED);
    /* 30 is no multiple of 8 codes. */
    const mox_dims odd = { .experts = 2, .top_k = 1, .hidden = 30, .intermediate = 32 };
    assert_int_equal(mox_enumerate_layer(mox_family_by_id("qwen3-moe"), &odd, mox_hf_quant_by_id("int4-ct"), NULL, 0,
                                         collect, &got, &error),
                     MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "30"));
}

static void name_templates(void **state)
{
    (void)state;
    char name[24];
    assert_true(mox_expand_name(name, sizeof name, "m.{L}.", "e.{e}.w", 12, 345));
    assert_string_equal(name, "m.12.e.345.w");
    assert_false(mox_expand_name(name, 12, "m.{L}.", "e.{e}.w", 12, 345));
    assert_true(mox_expand_name(name, 13, "m.{L}.", "e.{e}.w", 12, 345));
    assert_false(mox_expand_name(name, sizeof name, "m.{L}.", "e.{e}.w", 12, -1));
    assert_null(mox_family_by_id("no such"));
    assert_null(mox_family_by_model_type("no such"));
    assert_string_equal(mox_family_by_model_type("deepseek_v32")->id, "deepseek-v3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_shapes), cmocka_unit_test(every_family_is_listed), cmocka_unit_test(real_shapes),
        cmocka_unit_test(rejections),       cmocka_unit_test(name_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
