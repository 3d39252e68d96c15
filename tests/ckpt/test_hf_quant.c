/* SPDX-License-Identifier: Apache-2.0
 *
 * Every row of hf_quant.def: which tensors a [128, 256] matrix has in it, against literal lists; what
 * quantization_config resolves, with the texts of releases; that what the generator writes is read back.
 */
#include "test_support.h"

#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/model/model.h"
#include "ckpt/formats/part.h"
#include "ckpt/safetensors/file_dtype.h"

#define M "model.layers.0.mlp.experts.0.up_proj"

typedef struct listing {
    const char *id;
    const char *lines[6];
} listing;

/* up_proj: N = 128 outputs, K = 256 inputs. */
/* clang-format off */
static const listing listings[] = {
    { "bf16", { M ".weight BF16 [128, 256]" } },
    { "f16", { M ".weight F16 [128, 256]" } },
    { "f32", { M ".weight F32 [128, 256]" } },
    { "mxfp8", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale U8 [128, 8]" } },
    { "mxfp8-m3", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale_inv U8 [128, 8]" } },
    { "fp8-block", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale_inv F32 [1, 2]" } },
    { "fp8-block-bf16", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale_inv BF16 [1, 2]" } },
    { "fp8-block-e8m0", { M ".weight F8_E4M3 [128, 256]", M ".scale F8_E8M0 [1, 2]" } },
    { "fp8-block-inv-e8m0", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale_inv F8_E8M0 [1, 2]" } },
    { "fp8-modelopt", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale F32 []", M ".input_scale F32 []" } },
    { "fp8-tensor", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale F32 []", M ".input_scale F32 []" } },
    { "fp8-tensor-dynamic", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale F32 []" } },
    { "fp8-channel-modelopt", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale F32 [128]" } },
    { "fp8-channel", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale BF16 [128, 1]" } },
    { "fp8-block-ct", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale F32 [1, 2]" } },
    { "mxfp4-v4", { M ".weight I8 [128, 128]", M ".scale F8_E8M0 [128, 8]" } },
    { "mxfp4-v4-block32", { M ".weight I8 [128, 128]", M ".scale F8_E8M0 [128, 8]" } },
    { "mxfp4-quark-fp8", { M ".weight U8 [128, 128]", M ".weight_scale U8 [128, 8]", M ".input_scale F32 []" } },
    { "mxfp4-quark", { M ".weight U8 [128, 128]", M ".weight_scale U8 [128, 8]" } },
    { "mxfp6-quark-e3m2", { M ".weight U8 [128, 192]", M ".weight_scale U8 [128, 8]" } },
    { "mxfp6-quark-e2m3", { M ".weight U8 [128, 192]", M ".weight_scale U8 [128, 8]" } },
    { "nvfp4-modelopt", { M ".weight U8 [128, 128]", M ".weight_scale F8_E4M3 [128, 16]", M ".weight_scale_2 F32 []",
                          M ".input_scale F32 []" } },
    { "nvfp4-modelopt-w4a16", { M ".weight U8 [128, 128]", M ".weight_scale F8_E4M3 [128, 16]",
                                M ".weight_scale_2 F32 []" } },
    { "nvfp4-ct", { M ".weight_packed U8 [128, 128]", M ".weight_scale F8_E4M3 [128, 16]",
                    M ".weight_global_scale F32 [1]", M ".input_global_scale F32 [1]" } },
    { "nvfp4-ct-w4a16", { M ".weight_packed U8 [128, 128]", M ".weight_scale F8_E4M3 [128, 16]",
                          M ".weight_global_scale F32 [1]" } },
    { "mxfp4-ct", { M ".weight_packed U8 [128, 128]", M ".weight_scale U8 [128, 8]" } },
    { "int4-ct-asym", { M ".weight_packed I32 [128, 32]", M ".weight_scale BF16 [128, 2]",
                        M ".weight_zero_point I32 [16, 2]", M ".weight_shape I64 [2]" } },
    { "int4-ct-g32", { M ".weight_packed I32 [128, 32]", M ".weight_scale BF16 [128, 8]", M ".weight_shape I32 [2]" } },
    { "int4-ct", { M ".weight_packed I32 [128, 32]", M ".weight_scale BF16 [128, 2]", M ".weight_shape I64 [2]" } },
    { "int8-ct-w8a16", { M ".weight_packed I32 [128, 64]", M ".weight_scale BF16 [128, 2]",
                         M ".weight_shape I64 [2]" } },
    { "fp8-block32-e8m0", { M ".weight F8_E4M3 [128, 256]", M ".scale F8_E8M0 [4, 8]" } },
    { "fp8-block-modelopt", { M ".weight F8_E4M3 [128, 256]", M ".weight_scale F32 [1, 1, 2, 1]" } },
    { "mxfp6-ct", { M ".weight_packed U8 [128, 192]", M ".weight_scale U8 [128, 8]" } },
    { "int4-ct-tensor", { M ".weight_packed I32 [128, 32]", M ".weight_scale BF16 [1]", M ".weight_shape I64 [2]" } },
    { "int8-ct-asym", { M ".weight_packed I32 [128, 64]", M ".weight_scale BF16 [128, 2]",
                        M ".weight_zero_point I32 [32, 2]", M ".weight_shape I64 [2]" } },
    { "int7-ct-asym", { M ".weight_packed I32 [128, 56]", M ".weight_scale BF16 [128, 2]",
                        M ".weight_zero_point I32 [28, 2]", M ".weight_shape I64 [2]" } },
    { "int7-ct", { M ".weight_packed I32 [128, 56]", M ".weight_scale BF16 [128, 2]", M ".weight_shape I64 [2]" } },
    { "int6-ct-asym", { M ".weight_packed I32 [128, 48]", M ".weight_scale BF16 [128, 2]",
                        M ".weight_zero_point I32 [24, 2]", M ".weight_shape I64 [2]" } },
    { "int6-ct", { M ".weight_packed I32 [128, 48]", M ".weight_scale BF16 [128, 2]", M ".weight_shape I64 [2]" } },
    { "int5-ct-asym", { M ".weight_packed I32 [128, 40]", M ".weight_scale BF16 [128, 2]",
                        M ".weight_zero_point I32 [20, 2]", M ".weight_shape I64 [2]" } },
    { "int5-ct", { M ".weight_packed I32 [128, 40]", M ".weight_scale BF16 [128, 2]", M ".weight_shape I64 [2]" } },
    { "int3-ct-asym", { M ".weight_packed I32 [128, 24]", M ".weight_scale BF16 [128, 2]",
                        M ".weight_zero_point I32 [12, 2]", M ".weight_shape I64 [2]" } },
    { "int3-ct", { M ".weight_packed I32 [128, 24]", M ".weight_scale BF16 [128, 2]", M ".weight_shape I64 [2]" } },
    { "int2-ct", { M ".weight_packed I32 [128, 16]", M ".weight_scale BF16 [128, 2]", M ".weight_shape I64 [2]" } },
    { "int8-w8a8-asym", { M ".weight I8 [128, 256]", M ".weight_scale BF16 [128, 2]",
                          M ".weight_zero_point I8 [128, 2]" } },
    { "int8-tensor", { M ".weight I8 [128, 256]", M ".weight_scale BF16 [1]" } },
    { "int8-w8a8-group", { M ".weight I8 [128, 256]", M ".weight_scale BF16 [128, 8]" } },
    { "int8-afp8", { M ".weight I8 [128, 256]", M ".weight_scale BF16 [128, 1]" } },
    { "int8-afp8-group", { M ".weight I8 [128, 256]", M ".weight_scale BF16 [128, 8]" } },
    { "gptq-int2", { M ".qweight I32 [16, 128]", M ".qzeros I32 [2, 8]", M ".scales F16 [2, 128]",
                     M ".g_idx I32 [256]" } },
    { "gptq-int2-v2", { M ".qweight I32 [16, 128]", M ".qzeros I32 [2, 8]", M ".scales F16 [2, 128]",
                        M ".g_idx I32 [256]" } },
    { "gptq-int3", { M ".qweight I32 [24, 128]", M ".qzeros I32 [2, 12]", M ".scales F16 [2, 128]",
                     M ".g_idx I32 [256]" } },
    { "gptq-int3-v2", { M ".qweight I32 [24, 128]", M ".qzeros I32 [2, 12]", M ".scales F16 [2, 128]",
                        M ".g_idx I32 [256]" } },
    { "int8-modelslim", { M ".weight I8 [128, 256]", M ".weight_scale F32 [128, 1]", M ".weight_offset F32 [128, 1]" } },
    { "int8-w8a8", { M ".weight I8 [128, 256]", M ".weight_scale BF16 [128, 1]" } },
    { "w4afp8", { M ".weight I8 [128, 128]", M ".weight_scale_inv BF16 [128, 2]", M ".input_scale F32 []" } },
    { "w4afp8-dynamic", { M ".weight I8 [128, 128]", M ".weight_scale_inv BF16 [128, 2]" } },
    { "int4-modelopt", { M ".weight U8 [64, 256]", M ".weight_scale BF16 [128, 2]" } },
    { "awq", { M ".qweight I32 [256, 16]", M ".qzeros I32 [2, 16]", M ".scales F16 [2, 128]" } },
    { "gptq", { M ".qweight I32 [32, 128]", M ".qzeros I32 [2, 16]", M ".scales F16 [2, 128]", M ".g_idx I32 [256]" } },
    { "gptq-v2", { M ".qweight I32 [32, 128]", M ".qzeros I32 [2, 16]", M ".scales F16 [2, 128]",
                   M ".g_idx I32 [256]" } },
    { "gptq-int8", { M ".qweight I32 [64, 128]", M ".qzeros I32 [2, 32]", M ".scales F16 [2, 128]",
                     M ".g_idx I32 [256]" } },
    { "gptq-int8-v2", { M ".qweight I32 [64, 128]", M ".qzeros I32 [2, 32]", M ".scales F16 [2, 128]",
                        M ".g_idx I32 [256]" } },
    { "int4-quark", { M ".weight I32 [256, 16]", M ".weight_zero_point I32 [2, 16]", M ".weight_scale BF16 [2, 128]" } },
    /* only ever stacked */
    { "mxfp4-gptoss", { "model.layers.0.mlp.experts.gate_up_proj_blocks U8 [1, 256, 8, 16]",
                        "model.layers.0.mlp.experts.gate_up_proj_scales U8 [1, 256, 8]",
                        "model.layers.0.mlp.experts.down_proj_blocks U8 [1, 256, 4, 16]",
                        "model.layers.0.mlp.experts.down_proj_scales U8 [1, 256, 4]" } },
};
/* clang-format on */
#define N_LISTINGS (sizeof listings / sizeof listings[0])

typedef struct collected {
    char lines[16][256];
    int count;
} collected;

static moxie_status collect(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    collected *all = user;
    (void)error;
    if (!strstr(spec->name, M) && !strstr(spec->name, "experts.gate_up_proj") &&
        !strstr(spec->name, "experts.down_proj"))
        return MOXIE_OK;
    char *line = all->lines[all->count++];
    size_t used = (size_t)snprintf(line, 256, "%s %s [", spec->name, mox_file_dtype_name(spec->dtype));
    for (int32_t i = 0; i < spec->rank; i++)
        used += (size_t)snprintf(line + used, 256 - used, "%s%lld", i ? ", " : "", (long long)spec->shape[i]);
    snprintf(line + used, 256 - used, "]");
    return MOXIE_OK;
}

static void tensors_of_every_format(void **state)
{
    (void)state;
    const mox_family *family = mox_family_by_id("qwen3-moe");
    const mox_dims dims = { .experts = 1, .top_k = 1, .hidden = 256, .intermediate = 128 };
    for (int32_t r = 0; mox_hf_quant_at(r); r++) {
        const mox_hf_quant *row = mox_hf_quant_at(r);
        const listing *want = NULL;
        for (size_t i = 0; i < N_LISTINGS; i++)
            want = strcmp(listings[i].id, row->id) == 0 ? &listings[i] : want;
        if (!want)
            fail_msg("%s has no list here", row->id);
        collected got = { .count = 0 };
        moxie_error error = { 0 };
        print_message("%s\n", row->id);
        assert_ok(mox_enumerate_layer(family, &dims, row, NULL, 0, collect, &got, &error), &error);
        int n = 0;
        while (n < 6 && want->lines[n])
            n++;
        assert_int_equal(got.count, n);
        for (int i = 0; i < n; i++)
            assert_string_equal(got.lines[i], want->lines[i]);
    }
    assert_null(mox_hf_quant_by_id("no such"));
    assert_null(mox_hf_quant_at(-1));
}

/* Every format is a quantization that the library can read, and its grids cover exactly the tensor. */
static moxie_status check_grid(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    (void)user;
    /* Their middle is one bit in codes that are widened, too. */
    const bool narrow = spec->part && spec->part->packing.order == MOX_ORDER_STREAM;
    const uint32_t code = narrow ? 1u << (mox_dtype_bits(spec->part->value) - 1) : 1;
    const bool a_grid = spec->part && spec->part->form != MOX_FORM_PAIR && spec->part->form != MOX_FORM_COLUMNS;
    if (!a_grid)
        return MOXIE_OK;
    uint64_t bytes = (uint64_t)mox_dtype_bytes(spec->dtype);
    for (int32_t i = 0; i < spec->rank; i++)
        bytes *= (uint64_t)spec->shape[i];
    char *data = test_guarded(bytes);
    moxie_grid grid;
    moxie_error why = { 0 };
    assert_ok(mox_spec_grid(spec, data, 0, &grid, error), error);
    if (!narrow)
        assert_ok(mox_grid_check(&grid, spec->name, &why), &why);
    /* Writing the last element and one word more than the first must stay inside and show up in the bytes. */
    mox_grid_store(&grid, grid.rows - 1, grid.cols - 1, code);
    mox_grid_store(&grid, 0, 0, code);
    assert_int_equal(mox_grid_code(&grid, grid.rows - 1, grid.cols - 1), code);
    uint64_t set = 0;
    for (uint64_t i = 0; i < bytes; i++)
        set += data[i] != 0;
    assert_int_equal(set, grid.rows * grid.cols > 1 ? 2 : 1);
    test_guarded_free(data, bytes);
    return MOXIE_OK;
}

static void rows_are_sound(void **state)
{
    (void)state;
    const mox_dims dims = { .experts = 1, .top_k = 1, .hidden = 256, .intermediate = 128 };
    for (int32_t r = 0; mox_hf_quant_at(r); r++) {
        const mox_hf_quant *row = mox_hf_quant_at(r);
        moxie_error error = { 0 };
        const moxie_quant weight = mox_hf_quant_weight(row, 256);
        assert_ok(mox_quant_check_weight(&weight, row->id, &error), &error);
        assert_ok(mox_quant_check_act(&row->act, row->id, &error), &error);
        assert_int_equal(row->parts[0].role, MOX_PART_CODES);
        if (row->without_input)
            assert_non_null(mox_hf_quant_by_id(row->without_input));
        assert_ok(mox_enumerate_layer(mox_family_by_id("qwen3-moe"), &dims, row, NULL, 0, check_grid, NULL, &error),
                  &error);
    }
}

/* ---- quantization_config ------------------------------------------------------------------------ */

static json_t *parse(const char *text)
{
    json_t *json = NULL;
    moxie_error error = { 0 };
    assert_ok(mox_json_parse(text, strlen(text), true, "config.json", &json, &error), &error);
    return json;
}

typedef struct resolve_case {
    const char *text, *id;
    bool fits;
    moxie_quant act;
    int32_t group_rows, group_cols; /* 0: not compared */
} resolve_case;

#define FP8(rows, cols, ...)                                                                                           \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = rows, .group_cols = cols, __VA_ARGS__              \
    }
#define KIMI_GROUP                                                                                                     \
    "\"config_groups\":{\"group_0\":{\"input_activations\":null,\"output_activations\":null,\"targets\":[\"Linear\"]," \
    "\"weights\":{\"actorder\":null,\"dynamic\":false,\"group_size\":32,\"num_bits\":4,\"strategy\":\"group\","        \
    "\"symmetric\":true,\"type\":\"int\"}}},\"format\":\"pack-quantized\",\"quant_method\":\"compressed-tensors\""
#define SCOUT(dynamic, strategy)                                                                                       \
    "{\"config_groups\":{\"group_0\":{\"input_activations\":{\"dynamic\":" dynamic                                     \
    ",\"group_size\":null,\"num_bits\":8,"                                                                             \
    "\"strategy\":\"" strategy                                                                                         \
    "\",\"symmetric\":true,\"type\":\"float\"},\"weights\":{\"dynamic\":false,\"num_bits\":8,"                         \
    "\"strategy\":\"channel\",\"type\":\"float\"}}},\"format\":\"float-quantized\",\"quant_method\":\"compressed-"     \
    "tensors\"}"
#define QUARK(element)                                                                                                 \
    "{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":{\"dtype\":\"" element "\",\"group_size\":32},"   \
    "\"input_tensors\":{\"dtype\":\"" element "\",\"group_size\":32,\"is_dynamic\":true}}}"
#define QUARK_FP8                                                                                                      \
    "{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":{\"dtype\":\"fp4\",\"group_size\":32},"           \
    "\"input_tensors\":{\"dtype\":\"fp8_e4m3\",\"qscheme\":\"per_tensor\",\"is_dynamic\":false}}}"

/* clang-format off */
static const resolve_case resolve_cases[] = {
    { "{\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\",\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}",
      "fp8-block", true, FP8(1, 128), 128, 128 },
    { "{\"activation_scheme\":\"dynamic\",\"quant_method\":\"fp8\",\"weight_block_size\":[64,256],"
      "\"scale_fmt\":\"ue8m0\"}",
      "fp8-block", true, FP8(1, 256, .rule = MOXIE_RULE_UE8M0), 64, 256 },
    /* impossible sizes are ignored */
    { "{\"quant_method\":\"fp8\",\"weight_block_size\":[-1,99999999999]}", "fp8-block", true, FP8(1, 128), 128, 128 },
    { "{\"quant_method\":\"fp8\",\"weight_block_size\":[32,32],\"scale_fmt\":\"ue8m0\"}", "fp8-block32-e8m0", true,
      FP8(1, 32, .rule = MOXIE_RULE_UE8M0), 32, 32 },
    { "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}", "fp8-block32-e8m0", false, { 0 }, 0, 0 },
    { "{\"quant_method\":\"fp8\",\"weight_block_size\":[32,32]}", "mxfp4-v4-block32", true,
      FP8(1, 32, .rule = MOXIE_RULE_UE8M0), 0, 0 },
    { "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}", "mxfp4-v4-block32", false, { 0 }, 0, 0 },
    { "{\"quant_method\":\"mxfp8\",\"weight_block_size\":[1,32]}", "fp8-block-e8m0", true,
      FP8(1, 128, .rule = MOXIE_RULE_UE8M0), 128, 128 },
    { "{\"activation_scheme\":\"static\",\"quant_method\":\"fp8\"}", "fp8-tensor", true, FP8(-1, -1, .is_static = 1), 0, 0 },
    { "{\"activation_scheme\":\"dynamic\",\"quant_method\":\"fp8\"}", "fp8-tensor", false, { 0 }, 0, 0 },
    { "{\"activation_scheme\":\"dynamic\",\"quant_method\":\"fp8\"}", "fp8-tensor-dynamic", true, FP8(1, -1), 0, 0 },
    { "{\"activation_scheme\":\"static\",\"quant_method\":\"fp8\"}", "fp8-modelopt", false, { 0 }, 0, 0 },
    { "{\"quant_algo\":\"FP8\"}", "fp8-modelopt", true, FP8(-1, -1, .is_static = 1), 0, 0 },
    { SCOUT("true", "token"), "fp8-channel", true, FP8(1, -1), 0, 0 },
    { SCOUT("false", "tensor"), "fp8-channel", true, FP8(-1, -1, .is_static = 1), 0, 0 },
    { "{" KIMI_GROUP "}", "int4-ct-g32", true, { 0 }, 0, 0 },
    { "{\"quant_algo\":\"NVFP4\",\"quant_method\":\"modelopt\"}", "nvfp4-modelopt", true,
      { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_rows = 1, .group_cols = 16, .global = 1, .is_static = 1 },
      0, 0 },
    { "{\"quant_algo\":\"W4A16_NVFP4\",\"quant_method\":\"modelopt\"}", "nvfp4-modelopt", true, { 0 }, 0, 0 },
    { "{\"quant_algo\":\"W4A8_NVFP4_FP8\"}", "nvfp4-modelopt", true, FP8(-1, -1, .is_static = 1), 0, 0 },
    { "{\"quant_method\":\"fp8\",\"moe_quant_algo\":\"NVFP4\",\"quant_algo\":\"MIXED_PRECISION\"}", "nvfp4-modelopt", true,
      { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_rows = 1, .group_cols = 16, .global = 1, .is_static = 1 },
      0, 0 },
    { QUARK("fp4"), "mxfp4-quark", true,
      { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_rows = 1, .group_cols = 32,
        .rule = MOXIE_RULE_QUARK_EVEN }, 0, 0 },
    { QUARK("fp4"), "mxfp4-quark-fp8", false, { 0 }, 0, 0 },
    { QUARK_FP8, "mxfp4-quark-fp8", true, FP8(-1, -1, .is_static = 1), 0, 0 },
    { QUARK_FP8, "mxfp4-quark", false, { 0 }, 0, 0 },
    { "{\"quant_algo\":\"W4A8_MXFP4_FP8\"}", "mxfp4-quark-fp8", true, FP8(-1, -1, .is_static = 1), 0, 0 },
    { "{}", "mxfp4-quark-fp8", false, { 0 }, 0, 0 },
    { QUARK("fp6_e2m3"), "mxfp6-quark-e3m2", false, { 0 }, 0, 0 },
    { QUARK("fp6_e2m3"), "mxfp6-quark-e2m3", true,
      { .element = MOXIE_F6_E2M3, .scale = MOXIE_F8_E8M0, .group_rows = 1, .group_cols = 32 }, 0, 0 },
    { "{\"quant_method\":\"quark\",\"global_quant_config\":{\"weight\":{\"dtype\":\"fp4\"},\"input_tensors\":null}}",
      "mxfp4-quark", true, { 0 }, 0, 0 },
    { "{}", "mxfp6-quark-e3m2", false, { 0 }, 0, 0 },
    { "{\"bits\":4,\"quant_method\":\"awq\",\"version\":\"gemm\"}", "awq", true, { 0 }, 0, 0 },
    { "{\"bits\":4,\"quant_method\":\"awq\",\"version\":\"gemv\"}", "awq", false, { 0 }, 0, 0 },
    { "{\"bits\":4,\"quant_method\":\"gptq\",\"checkpoint_format\":\"gptq\"}", "gptq", true, { 0 }, 0, 0 },
    { "{\"bits\":4,\"quant_method\":\"gptq\",\"checkpoint_format\":\"gptq\"}", "gptq-v2", false, { 0 }, 0, 0 },
    { "{\"bits\":4,\"quant_method\":\"gptq\",\"checkpoint_format\":\"gptq_v2\"}", "gptq", false, { 0 }, 0, 0 },
    { "{\"bits\":4,\"quant_method\":\"gptq\",\"checkpoint_format\":\"gptq_v2\"}", "gptq-v2", true, { 0 }, 0, 0 },
    { "{\"bits\":4,\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"}", "gptq", false, { 0 }, 0, 0 },
    { "{\"bits\":4,\"desc_act\":false,\"group_size\":128}", "gptq", true, { 0 }, 0, 0 },
};
/* clang-format on */

static void configs_settle(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof resolve_cases / sizeof resolve_cases[0]; i++) {
        const resolve_case *want = &resolve_cases[i];
        mox_hf_quant row = *mox_hf_quant_by_id(want->id);
        json_t *config = parse(want->text);
        print_message("%s %s\n", want->id, want->text);
        assert_int_equal(row.resolve(config, NULL, &row), want->fits);
        if (want->fits)
            assert_memory_equal(&row.act, &want->act, sizeof row.act);
        if (want->group_rows) {
            assert_int_equal(row.weight.group_rows, want->group_rows);
            assert_int_equal(row.weight.group_cols, want->group_cols);
        }
        json_decref(config);
    }
}

/* The config that a format writes resolves to that format, not to its neighbours with the same tensors. */
static void written_configs_settle_the_same(void **state)
{
    (void)state;
    static const char *const ignore[] = { "lm_head", "model.layers.0.mlp.gate" };
    for (int32_t r = 0; mox_hf_quant_at(r); r++) {
        mox_hf_quant row = *mox_hf_quant_at(r);
        if (!row.write_config)
            continue;
        json_t *config = row.write_config(&row, ignore, 2);
        assert_non_null(config);
        print_message("%s\n", row.id);
        assert_string_equal(mox_quant_config_method(config), row.method);
        const mox_hf_quant before = row;
        if (row.resolve)
            assert_true(row.resolve(config, NULL, &row));
        assert_memory_equal(&row.act, &before.act, sizeof row.act);
        assert_memory_equal(&row.weight, &before.weight, sizeof row.weight);
        if (strcmp(row.method, "gptq") != 0) {
            assert_true(mox_quant_config_excludes(config, "lm_head"));
            assert_true(mox_quant_config_excludes(config, "model.layers.0.mlp.gate"));
            assert_false(mox_quant_config_excludes(config, "model.layers.0.mlp.experts.0.gate_proj"));
        }
        json_decref(config);
    }
}

static void exclusions(void **state)
{
    (void)state;
    static const struct {
        const char *text, *module;
        bool excluded;
    } cases[] = {
        { "{\"modules_to_not_convert\":[\"gate\",\"lm_head\"]}", "model.layers.4.block_sparse_moe.gate", true },
        { "{\"modules_to_not_convert\":[\"gate\"]}", "model.layers.4.mlp.experts.0.gate_proj", false },
        { "{\"modules_to_not_convert\":[\"model.layers.*.mlp.router\"]}", "model.layers.17.mlp.router", true },
        { "{\"exclude_modules\":[\"model.layers.1.*\"]}", "model.layers.1.mlp.experts.0.up_proj", true },
        { "{\"exclude_modules\":[\"model.layers.1.*\"]}", "model.layers.10.mlp.experts.0.up_proj", false },
        { "{\"exclude_modules\":[\"model.layers.1*\"]}", "model.layers.10.mlp.experts.0.up_proj", true },
        /* Excluding a container does not exclude what is inside. */
        { "{\"ignore\":[\"model.layers.1.mlp.experts.0\"]}", "model.layers.1.mlp.experts.0.up_proj", false },
        { "{\"ignore\":[\"re:.*experts.*\"]}", "model.layers.1.mlp.experts.0.up_proj", true },
        { "{\"ignore\":[\"re:.*mlp\\\\.gate$\"]}", "model.layers.1.mlp.gate", true },
        { "{\"ignore\":[\"re:.*mlp\\\\.gate$\"]}", "model.layers.1.mlp.gate_proj", false },
        { "{\"ignore\":[\"re:(?<=x)experts\"]}", "experts", false },
        { "{\"dynamic\":{\"+:.*up_proj\":{},\"-:.*experts.*\":{}}}", "mlp.experts.0.up_proj", false },
        { "{\"dynamic\":{\"+:.*up_proj\":{},\"-:.*experts.*\":{}}}", "mlp.experts.0.down_proj", true },
        { "{\"ignore\":[7,null,{}]}", "7", false },
        { "{\"ignore\":\"everything\"}", "everything", false },
        { "{\"exclude\":[\"*a*a*a*a*a*a*a*a*b\"]}", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *config = parse(cases[i].text);
        assert_int_equal(mox_quant_config_excludes(config, cases[i].module), cases[i].excluded);
        json_decref(config);
    }
}

static void places_and_methods(void **state)
{
    (void)state;
    static const struct {
        const char *text, *method;
    } cases[] = {
        { "{\"quantization_config\":{\"quant_method\":\"fp8\"}}", "fp8" },
        { "{\"text_config\":{\"quantization_config\":{\"quant_method\":\"compressed-tensors\"}}}",
          "compressed-tensors" },
        { "{\"quantization_config\":{\"quant_algo\":\"NVFP4\"}}", "modelopt" },
        { "{\"quantization_config\":null}", "" },
        { "{\"quantization_config\":{\"quant_method\":5}}", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *config = parse(cases[i].text);
        assert_string_equal(mox_quant_config_method(mox_quant_config_find(config)), cases[i].method);
        json_decref(config);
    }
    json_t *old =
        parse("{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":\"NVFP4\",\"group_size\":16}}");
    assert_string_equal(mox_quant_config_method(mox_quant_config_from_file(old)), "modelopt");
    json_decref(old);
    json_t *gptq = parse("{\"bits\":4,\"group_size\":128,\"desc_act\":true}");
    char text[64];
    assert_string_equal(mox_quant_config_method(mox_quant_config_from_file(gptq)), "gptq");
    assert_string_equal(mox_quant_config_describe(gptq, text, sizeof text), "bits 4, group_size 128");
    assert_string_equal(mox_quant_config_describe(NULL, text, sizeof text), "none");
    json_decref(gptq);
}

static void hostile_configs(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        "{\"config_groups\":[]}",
        "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":7}}",
        "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":4,\"type\":"
        "\"int\","
        "\"group_size\":-9223372036854775808},\"input_activations\":{\"num_bits\":8,\"strategy\":\"group\","
        "\"group_size\":1048577}}}}",
        "{\"quant_method\":\"quark\",\"global_quant_config\":[],\"export\":7}",
        "{\"quant_method\":\"fp8\",\"weight_block_size\":{\"a\":1}}",
        "{\"weight_block_size\":[0]}",
        "{\"quant_algo\":[],\"quantized_layers\":[]}",
        "{\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\".\":{},\"model\":7,\"model.layers\":{\"quant_"
        "algo\":5}}}",
        "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":[7,\"Linear\",null],\"b\":{\"targets\":{}},"
        "\"c\":{\"targets\":[\"re:(((\",\"re:[\",\"re:*\"]}}}",
        "{\"quant_method\":\"gptq\",\"dynamic\":{\"\":1,\"-:\":[],\"+:(a*)*b\":{\"bits\":[]}}}",
        "{\"quant_method\":\"quark\",\"layer_quant_config\":{\"*\":7},\"global_quant_config\":7}",
        "{\"quant_method\":\"quark\",\"layer_quant_config\":{\"*\":{\"input_tensors\":[{}]}}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        moxie_error error = { 0 };
        assert_ok(mox_quant_config_check_text(texts[i], strlen(texts[i]), &error), &error);
    }
    moxie_error error = { 0 };
    assert_int_equal(mox_quant_config_check_text("{\"a\":", 5, &error), MOXIE_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_every_format),
        cmocka_unit_test(rows_are_sound),
        cmocka_unit_test(configs_settle),
        cmocka_unit_test(written_configs_settle_the_same),
        cmocka_unit_test(exclusions),
        cmocka_unit_test(places_and_methods),
        cmocka_unit_test(hostile_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
