/* SPDX-License-Identifier: Apache-2.0
 *
 * test_presets.c - the preset table against published numbers.
 *
 * Bytes of one layer's routed experts in the primary release (weights, scales, biases, scalars) were computed from
 * the releases' shapes or read from their headers, not by this program; MiB in bf16 and in fp8 with 128x128 blocks
 * likewise. Tensor counts are those of the releases' headers. Nothing is written here.
 */
#include "test_support.h"

#include "ckpt/synth/synth_model.h"

typedef struct published {
    const char *name;
    const char *format; /* of the primary release */
    int64_t experts, top_k, hidden, expert_width, intermediate, shared, layers;
    uint64_t bytes;
    int64_t bf16_mib, fp8_mib; /* rounded; 0: unknown */
} published;

/* clang-format off */
static const published table[] = {
    { "gpt-oss-20b", "mxfp4-gptoss", 32, 4, 2880, 2880, 2880, 0, 24, 423567360, 1519, 760 },
    { "gpt-oss-120b", "mxfp4-gptoss", 128, 4, 2880, 2880, 2880, 0, 36, 1694269440, 6077, 3040 },
    { "mixtral-8x7b", "bf16", 8, 2, 4096, 4096, 14336, 0, 32, 2818572288, 2688, 1344 },
    { "mixtral-8x22b", "bf16", 8, 2, 6144, 6144, 16384, 0, 56, 4831838208, 4608, 2305 },
    { "phi-3.5-moe", "bf16", 16, 2, 4096, 4096, 6400, 0, 32, 2516582400, 2400, 1200 },
    { "dbrx", "bf16", 16, 4, 6144, 6144, 10752, 0, 40, 6341787648, 6048, 0 },
    { "olmoe-1b-7b", "bf16", 64, 8, 2048, 2048, 1024, 0, 16, 805306368, 768, 384 },
    { "granite-3.1-1b-a400m", "bf16", 32, 8, 1024, 1024, 512, 0, 24, 100663296, 96, 48 },
    { "deepseek-v2-lite", "bf16", 64, 6, 2048, 2048, 1408, 2816, 26, 1107296256, 1056, 528 },
    { "moonlight-16b", "bf16", 64, 6, 2048, 2048, 1408, 2816, 26, 1107296256, 1056, 528 },
    { "deepseek-v3", "fp8-block", 256, 8, 7168, 7168, 2048, 2048, 58, 11277041664, 21504, 10755 },
    { "deepseek-v4-flash", "mxfp4-v4", 256, 6, 4096, 4096, 2048, 2048, 43, 3422552064, 12288, 6146 },
    { "deepseek-v4-pro", "mxfp4-v4", 384, 6, 7168, 7168, 3072, 3072, 61, 13476298752, 48384, 24198 },
    { "kimi-k2", "fp8-block", 384, 8, 7168, 7168, 2048, 2048, 60, 16915562496, 32256, 16132 },
    { "kimi-k2-thinking", "int4-ct-g32", 384, 8, 7168, 7168, 2048, 2048, 60, 9512690688, 32256, 16132 },
    { "kimi-k3", "mxfp4-ct", 896, 16, 7168, 3584, 3072, 6144, 92, 15722348544, 56448, 28231 },
    { "muse-spark-open", "bf16", 256, 8, 8192, 4096, 4096, 0, 62, 25769803776, 24576, 0 },
    { "qwen3-30b-a3b", "bf16", 128, 8, 2048, 2048, 768, 0, 48, 1207959552, 1152, 576 },
    { "qwen3-235b-a22b", "bf16", 128, 8, 4096, 4096, 1536, 0, 94, 4831838208, 4608, 2305 },
    { "qwen3-coder-480b", "bf16", 160, 8, 6144, 6144, 2560, 0, 62, 15099494400, 14400, 7202 },
    { "qwen3-next-80b", "bf16", 512, 10, 2048, 2048, 512, 512, 48, 3221225472, 3072, 1536 },
    { "qwen3.5-35b-a3b", "bf16", 256, 8, 2048, 2048, 512, 512, 40, 1610612736, 1536, 768 },
    { "qwen3.5-122b-a10b", "bf16", 256, 8, 3072, 3072, 1024, 1024, 48, 4831838208, 4608, 2305 },
    { "qwen3.5-397b-a17b", "bf16", 512, 10, 4096, 4096, 1024, 1024, 60, 12884901888, 12288, 6146 },
    { "llama-4-scout", "bf16", 16, 1, 5120, 5120, 8192, 8192, 48, 4026531840, 3840, 1920 },
    { "llama-4-maverick", "bf16", 128, 1, 5120, 5120, 8192, 8192, 24, 32212254720, 30720, 15364 },
    { "nemotron-3-nano", "bf16", 128, 6, 2688, 2688, 1856, 3712, 23, 2554331136, 2436, 1218 },
    { "nemotron-3-super", "nvfp4-modelopt", 512, 22, 4096, 1024, 2688, 5376, 40, 1585455104, 5376, 2689 },
    { "nemotron-3-ultra", "nvfp4-modelopt", 512, 22, 8192, 2048, 5120, 10240, 48, 6039805952, 20480, 10242 },
    { "glm-4.5-air", "bf16", 128, 8, 4096, 4096, 1408, 1408, 45, 4429185024, 4224, 2113 },
    { "glm-4.5", "bf16", 160, 8, 5120, 5120, 1536, 1536, 89, 7549747200, 7200, 3601 },
    { "glm-4.7-flash", "bf16", 64, 4, 2048, 2048, 1536, 1536, 46, 1207959552, 1152, 576 },
    { "glm-5", "fp8-block", 256, 8, 6144, 6144, 2048, 2048, 75, 9666035712, 18432, 9218 },
    { "minimax-m2", "fp8-block", 256, 8, 3072, 3072, 1536, 0, 62, 3624763392, 6912, 3457 },
    { "minimax-m3", "mxfp8-m3", 128, 4, 6144, 6144, 3072, 3072, 57, 7474249728, 13824, 6914 },
    { "mimo-v2-flash", "fp8-block", 256, 8, 4096, 4096, 2048, 0, 47, 6444023808, 12288, 6146 },
    { "step-3.7-flash", "fp8-block", 288, 8, 4096, 4096, 1280, 1280, 42, 4530954240, 8640, 4321 },
    { "gemma-4-26b-a4b", "bf16", 128, 8, 2816, 2816, 704, 0, 30, 1522532352, 1452, 726 },
    { "ernie-4.5-21b-a3b", "bf16", 64, 6, 2560, 2560, 1536, 3072, 27, 1509949440, 1440, 720 },
    { "ernie-4.5-300b-a47b", "bf16", 64, 8, 8192, 8192, 3584, 0, 51, 11274289152, 10752, 5377 },
    { "hunyuan-a13b", "bf16", 64, 8, 4096, 4096, 3072, 3072, 32, 4831838208, 4608, 2305 },
    /* 64 experts of 3 x 3584 x 2560 */
    { "qwen2-57b-a14b", "bf16", 64, 8, 3584, 3584, 2560, 20480, 28, 3523215360, 3360, 1680 },
    /* the same sizes as an earlier model */
    { "qwen3-vl-30b-a3b", "bf16", 128, 8, 2048, 2048, 768, 0, 48, 1207959552, 1152, 576 },
    { "deepseek-r1", "fp8-block", 256, 8, 7168, 7168, 2048, 2048, 58, 11277041664, 21504, 10755 },
    { "deepseek-v3.1", "fp8-block", 256, 8, 7168, 7168, 2048, 2048, 58, 11277041664, 21504, 10755 },
    { "deepseek-v3.2", "fp8-block", 256, 8, 7168, 7168, 2048, 2048, 58, 11277041664, 21504, 10755 },
    { "kimi-k2.5", "int4-ct-g32", 384, 8, 7168, 7168, 2048, 2048, 60, 9512690688, 32256, 16132 },
    { "longcat-flash-chat", "bf16", 512, 12, 6144, 6144, 2048, 0, 28, 38654705664, 36864, 18436 },
    { "laguna-xs.2", "bf16", 256, 8, 2048, 2048, 512, 512, 39, 1610612736, 1536, 768 },
    { "hy3-preview", "bf16", 192, 8, 4096, 4096, 1536, 1536, 79, 7247757312, 6912, 3457 },
    { "ling-mini-2.0", "bf16", 256, 8, 2048, 2048, 512, 512, 19, 1610612736, 1536, 768 },
    { "ling-3.0-flash", "bf16", 512, 8, 2560, 2560, 768, 768, 40, 6039797760, 5760, 2881 },
    { "mistral-small-4", "bf16", 128, 4, 4096, 4096, 2048, 2048, 36, 6442450944, 6144, 3073 },
    { "openpangu-ultra-moe", "bf16", 256, 8, 7680, 7680, 2048, 2048, 58, 24159191040, 23040, 11523 },
    { "deepseek-v4.1-flash", "mxfp4-v4-block32", 384, 6, 5120, 5120, 2304, 2304, 40, 7219445760, 25920, 12963 },
    { "glm-5.3-flash", "fp8-block", 288, 8, 4096, 4096, 2048, 2048, 42, 7249526784, 13824, 6914 },
    { "qwen3.8-flash-next", "bf16", 512, 10, 2560, 2560, 640, 640, 48, 5033164800, 4800, 2401 },
    { "hy4-default", "bf16", 256, 8, 2816, 2816, 768, 768, 33, 3321888768, 3168, 1584 },
    { "smallthinker-4b-a0.6b", "bf16", 32, 4, 1536, 1536, 768, 0, 32, 226492416, 216, 108 },
    { "granite-4.0-h-small", "bf16", 72, 10, 4096, 4096, 768, 1536, 40, 1358954496, 1296, 648 },
    { "jamba-v0.1", "bf16", 16, 2, 4096, 4096, 14336, 0, 16, 5637144576, 5376, 2689 },
    { "minimax-text-01", "bf16", 32, 2, 6144, 6144, 9216, 0, 80, 10871635968, 10368, 5185 },
    { "flexolmo-7x7b", "bf16", 7, 7, 4096, 4096, 11008, 0, 32, 1893728256, 1806, 903 },
    { "lfm2-8b-a1b", "bf16", 32, 4, 2048, 2048, 1792, 0, 22, 704643072, 672, 336 },
    { "dots.llm1", "bf16", 128, 6, 4096, 4096, 1408, 2816, 61, 4429185024, 4224, 2113 },
    { "solar-open-100b", "bf16", 128, 8, 4096, 4096, 1280, 1280, 48, 4026531840, 3840, 1920 },
    { "kimi-linear-48b-a3b", "bf16", 256, 8, 2304, 2304, 1024, 1024, 26, 3623878656, 3456, 1728 },
    { "qwen3-omni-30b-a3b", "bf16", 128, 8, 2048, 2048, 768, 0, 48, 1207959552, 1152, 576 },
    { "trinity-mini", "bf16", 128, 8, 2048, 2048, 1024, 1024, 30, 1610612736, 1536, 768 },
    { "glm-4.7", "bf16", 160, 8, 5120, 5120, 1536, 1536, 89, 7549747200, 7200, 3601 },
};
/* clang-format on */
static const size_t table_rows = sizeof table / sizeof table[0];

typedef struct tally {
    int64_t tensors;
    uint64_t all, routed;
} tally;

static bool is_routed(mox_tensor_kind kind)
{
    return kind == MOX_TENSOR_GATE || kind == MOX_TENSOR_UP || kind == MOX_TENSOR_DOWN || kind == MOX_TENSOR_GATE_UP ||
           kind == MOX_TENSOR_GATE_UP_BIAS || kind == MOX_TENSOR_DOWN_BIAS;
}

static moxie_status count(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    (void)error;
    tally *t = user;
    uint64_t bytes = (uint64_t)mox_dtype_bits(spec->dtype);
    for (int32_t i = 0; i < spec->rank; i++)
        bytes *= (uint64_t)spec->shape[i];
    t->tensors++;
    t->all += bytes / 8;
    t->routed += is_routed(spec->kind) ? bytes / 8 : 0;
    return MOXIE_OK;
}

static tally tally_layer(const char *preset, const char *format, int64_t layer)
{
    moxie_synth_options options = MOXIE_SYNTH_OPTIONS_INIT;
    options.format = format;
    mox_synth_model m;
    moxie_error error = { 0 };
    tally t = { 0 };
    assert_ok(mox_synth_resolve(preset, &options, &m, &error), &error);
    if (layer < 0)
        layer = mox_preset_layer(m.preset, m.layers - 1);
    assert_ok(mox_enumerate_layer(m.family, &m.dims, m.routed, m.shared, layer, count, &t, &error), &error);
    return t;
}

static void every_row_is_checked(void **state)
{
    (void)state;
    size_t rows = 0;
    for (const mox_preset *p; (p = mox_preset_at((int32_t)rows)); rows++) {
        bool known = false;
        for (size_t i = 0; i < table_rows; i++)
            known = known || strcmp(table[i].name, p->name) == 0;
        if (!known)
            fail_msg("%s has no published numbers in this test", p->name);
    }
    assert_int_equal(rows, table_rows);
}

static void sizes_are_the_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < table_rows; i++) {
        mox_synth_model m;
        moxie_error error = { 0 };
        assert_ok(mox_synth_resolve(table[i].name, NULL, &m, &error), &error);
        if (m.dims.experts != table[i].experts || m.dims.top_k != table[i].top_k || m.dims.hidden != table[i].hidden ||
            m.dims.expert_width != table[i].expert_width || m.dims.intermediate != table[i].intermediate ||
            m.dims.shared_intermediate != table[i].shared || m.layers != table[i].layers)
            fail_msg("%s: E %lld, k %lld, H %lld, X %lld, I %lld, shared %lld, layers %lld", table[i].name,
                     (long long)m.dims.experts, (long long)m.dims.top_k, (long long)m.dims.hidden,
                     (long long)m.dims.expert_width, (long long)m.dims.intermediate,
                     (long long)m.dims.shared_intermediate, (long long)m.layers);
    }
}

static void routing_numbers_are_the_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t n_group, topk_group;
        float scale;
        bool norm;
    } cases[] = {
        { "deepseek-v3", 8, 4, 2.5f, true },
        { "deepseek-v2-lite", 0, 0, 1.0f, false },
        { "moonlight-16b", 0, 0, 2.446f, true },
        { "deepseek-v4-flash", 0, 0, 1.5f, true },
        { "deepseek-v4-pro", 0, 0, 2.5f, true },
        { "kimi-k2", 0, 0, 2.827f, true },
        { "kimi-k3", 0, 0, 1.0f, true },
        { "nemotron-3-nano", 0, 0, 2.5f, true },
        { "nemotron-3-super", 0, 0, 5.0f, true },
        { "nemotron-3-ultra", 0, 0, 5.0f, true },
        { "glm-4.5-air", 0, 0, 1.0f, true },
        { "glm-4.5", 0, 0, 2.5f, true },
        { "glm-4.7-flash", 0, 0, 1.8f, true },
        { "glm-5", 0, 0, 2.5f, true },
        { "minimax-m3", 0, 0, 2.0f, true },
        { "step-3.7-flash", 0, 0, 3.0f, true },
        { "mimo-v2-flash", 0, 0, 1.0f, true },
        { "longcat-flash-chat", 0, 0, 6.0f, false },
        { "laguna-xs.2", 0, 0, 2.5f, true },
        { "hy3-preview", 0, 0, 2.826f, true },
        { "ling-mini-2.0", 8, 4, 2.5f, true },
        { "ling-3.0-flash", 8, 4, 2.5f, true },
        { "mistral-small-4", 0, 0, 1.0f, true },
        { "openpangu-ultra-moe", 0, 0, 2.5f, true },
        { "deepseek-v4.1-flash", 0, 0, 1.5f, true },
        { "glm-5.3-flash", 0, 0, 2.5f, true },
        { "dots.llm1", 0, 0, 2.5f, true },
        { "solar-open-100b", 0, 0, 1.0f, true },
        { "kimi-linear-48b-a3b", 0, 0, 2.446f, true },
        { "lfm2-8b-a1b", 0, 0, 1.0f, true },
        { "trinity-mini", 0, 0, 2.826f, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
        moxie_error error = { 0 };
        assert_ok(moxie_preset_config(cases[i].name, NULL, &config, &error), &error);
        if (config.routing.scale != cases[i].scale || config.routing.n_group != cases[i].n_group ||
            config.routing.topk_group != cases[i].topk_group ||
            (config.routing.norm != MOXIE_NORM_NONE) != cases[i].norm)
            fail_msg("%s: scale %g, %d of %d groups, norm %d", cases[i].name, (double)config.routing.scale,
                     config.routing.topk_group, config.routing.n_group, config.routing.norm);
    }
}

static void native_bytes_are_the_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < table_rows; i++) {
        const mox_preset *p = mox_preset_by_name(table[i].name);
        if (!p || strcmp(p->formats[0], table[i].format) != 0)
            fail_msg("%s: missing, or not in %s first", table[i].name, table[i].format);
        const tally t = tally_layer(p->name, NULL, -1);
        if (t.routed != table[i].bytes || p->native_bytes_per_layer != table[i].bytes)
            fail_msg("%s: %llu bytes listed, %llu in the row, published %llu", p->name, (unsigned long long)t.routed,
                     (unsigned long long)p->native_bytes_per_layer, (unsigned long long)table[i].bytes);
    }
}

static void assert_mib(const char *name, const char *format, int64_t want)
{
    const double mib = (double)tally_layer(name, format, -1).routed / (1 << 20);
    if (mib < (double)want - 0.51 || mib > (double)want + 0.51)
        fail_msg("%s in %s: %.2f MiB a layer, published %lld", name, format, mib, (long long)want);
}

static void other_formats_have_the_published_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < table_rows; i++) {
        assert_mib(table[i].name, "bf16", table[i].bf16_mib);
        if (table[i].fp8_mib > 0)
            assert_mib(table[i].name, "fp8-block", table[i].fp8_mib);
    }
}

/* From the headers of releases: tensors of one layer, without attention and norms. */
static void tensor_counts_are_the_published(void **state)
{
    (void)state;
    /* GLM-4.7-NVFP4: router, bias, 160 routed experts and a shared one of 3 matrices of 4 tensors. */
    assert_int_equal(tally_layer("glm-4.7", "nvfp4-modelopt", -1).tensors, 2 + 161 * 12);
    /* MiniMax-M2.7-NVFP4 with all input scales. */
    assert_int_equal(tally_layer("minimax-m2", "nvfp4-modelopt", -1).tensors, 2 + 256 * 12);
    assert_int_equal(tally_layer("minimax-m2", "nvfp4-modelopt", -1).routed * 62,
                     UINT64_C(126382768128) + 2 * UINT64_C(190464));
    /* DeepSeek-V4-Flash: 1,536 expert tensors; a hash layer has a table and no bias. */
    assert_int_equal(tally_layer("deepseek-v4-flash", NULL, 0).tensors, 1536 + 2 + 6);
    assert_int_equal(tally_layer("deepseek-v4-flash", NULL, 42).tensors, 1536 + 2 + 6);
    assert_int_equal(tally_layer("deepseek-v4-flash", NULL, 0).all - tally_layer("deepseek-v4-flash", NULL, 42).all,
                     129280 * 6 * 8 - 256 * 4);
    /* gpt-oss: router with bias, two projections of blocks, scales and bias. */
    assert_int_equal(tally_layer("gpt-oss-20b", NULL, -1).tensors, 2 + 6);
    /* Nemotron-3-Nano-NVFP4: 23 layers, two matrices an expert. */
    assert_int_equal(tally_layer("nemotron-3-nano", "nvfp4-modelopt", -1).tensors, 2 + 129 * 8);
}

static void layers_are_numbered_as_in_the_model(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t first, second, last;
    } cases[] = {
        { "gpt-oss-20b", 0, 1, 23 },
        { "deepseek-v3", 3, 4, 60 },
        { "kimi-k2", 1, 2, 60 },
        { "llama-4-scout", 0, 1, 47 },
        { "llama-4-maverick", 1, 3, 47 },
        { "nemotron-3-nano", 1, 3, 51 },
        { "nemotron-3-super", 1, 3, 87 },
        { "nemotron-3-ultra", 1, 3, 107 },
        { "minimax-m3", 3, 4, 59 },
        { "kimi-k3", 1, 2, 92 },
        { "glm-5", 3, 4, 77 },
        { "ernie-4.5-300b-a47b", 3, 4, 53 },
        { "step-3.7-flash", 3, 4, 44 },
        { "deepseek-v2-lite", 1, 2, 26 },
        { "mimo-v2-flash", 1, 2, 47 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mox_preset *p = mox_preset_by_name(cases[i].name);
        assert_non_null(p);
        assert_int_equal(mox_preset_layer(p, 0), cases[i].first);
        assert_int_equal(mox_preset_layer(p, 1), cases[i].second);
        assert_int_equal(mox_preset_layer(p, p->dims.layers - 1), cases[i].last);
    }
}

static void every_named_format_has_a_row_and_fits(void **state)
{
    (void)state;
    const mox_preset *p;
    for (int32_t i = 0; (p = mox_preset_at(i)); i++) {
        int32_t formats = 0;
        for (; formats < 12 && p->formats[formats]; formats++)
            assert_true(tally_layer(p->name, p->formats[formats], -1).routed > 0);
        assert_true(p->n_native >= 1 && p->n_native <= formats);
        assert_non_null(mox_family_by_id(p->family));
    }
}

static void rejections_say_what_fits(void **state)
{
    (void)state;
    mox_synth_model m;
    static const struct {
        const char *preset, *format;
        int64_t layers, experts, hidden;
        const char *words;
    } cases[] = {
        { "gpt-oss-21b", NULL, 0, 0, 0, "no preset" },   { "gpt-oss-20b", "fp3", 0, 0, 0, "no format" },
        { "gpt-oss-20b", NULL, 25, 0, 0, "has 24" },     { "gpt-oss-20b", NULL, 0, 3, 0, "chooses 4" },
        { "gpt-oss-20b", NULL, 0, 1025, 0, "1024" },     { "deepseek-v3", NULL, 0, 20, 0, "8 groups" },
        { "deepseek-v3", NULL, 0, 8, 0, "16 at least" }, { "kimi-k3", NULL, 0, 0, 97, "multiple of 2" },
        { "gpt-oss-20b", NULL, 0, 0, -1, "hidden -1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        moxie_synth_options options = MOXIE_SYNTH_OPTIONS_INIT;
        options.format = cases[i].format;
        options.layers = cases[i].layers;
        options.experts = cases[i].experts;
        options.hidden = cases[i].hidden;
        moxie_error error = { 0 };
        assert_int_equal(mox_synth_resolve(cases[i].preset, &options, &m, &error), MOXIE_ERR_ARGUMENT);
        if (!strstr(error.text, cases[i].words))
            fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].words);
    }
}

static void the_public_list_agrees(void **state)
{
    (void)state;
    moxie_preset_info info = MOXIE_PRESET_INFO_INIT;
    int32_t i = 0;
    for (; moxie_preset_at(i, &info); i++) {
        const mox_preset *p = mox_preset_at(i);
        assert_string_equal(info.name, p->name);
        assert_string_equal(info.formats[0], p->formats[0]);
        assert_int_equal(info.experts, p->dims.experts);
        assert_int_equal(info.router_width, p->dims.hidden);
        assert_true(strcmp(info.activation, "?") != 0);
        assert_true(info.n_formats >= info.n_native);
        moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
        moxie_error error = { 0 };
        for (int32_t f = 0; f < info.n_formats; f++) {
            assert_ok(moxie_preset_config(info.name, info.formats[f], &config, &error), &error);
            assert_int_equal(config.experts, info.experts);
            assert_int_equal(config.top_k, info.top_k);
            assert_int_equal(config.hidden, info.hidden);
            assert_int_equal(config.intermediate, info.intermediate);
            assert_int_equal(config.router_width, info.router_width);
        }
    }
    assert_int_equal(i, table_rows);
    assert_int_equal(moxie_preset_at(-1, &info), 0);
    assert_int_equal(moxie_preset_at(i, &info), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_checked),
        cmocka_unit_test(sizes_are_the_published),
        cmocka_unit_test(routing_numbers_are_the_published),
        cmocka_unit_test(native_bytes_are_the_published),
        cmocka_unit_test(other_formats_have_the_published_size),
        cmocka_unit_test(tensor_counts_are_the_published),
        cmocka_unit_test(layers_are_numbered_as_in_the_model),
        cmocka_unit_test(every_named_format_has_a_row_and_fits),
        cmocka_unit_test(rejections_say_what_fits),
        cmocka_unit_test(the_public_list_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
