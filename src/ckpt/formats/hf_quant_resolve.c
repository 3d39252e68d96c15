/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_quant_resolve.c - what quantization_config adds to a format that the tensors already determined: how activations
 * are quantized, block and group sizes, GPTQ's convention for zero points, which FP6. A resolve() function gets a copy
 * of the format to change. It returns false when the configuration rules the format out.
 */
#include <string.h>

#include "ckpt/formats/config_text.h"
#include "ckpt/formats/hf_quant_config.h"

/* Formats whose group size comes from tensors: the configured size becomes `default_group`, a hint for groups that do
 * not divide a row. */
void mox_hint_group(const json_t *quant_config, mox_hf_quant *format)
{
    const int32_t group = extent_of(json_object_get(quant_config, "group_size"));
    if (format->weight.group_cols == -2 && group > 0)
        format->default_group = group;
}

static const moxie_quant fp8_static = {
    .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = -1, .group_cols = -1, .is_static = 1
};

/* ---- fp8 -------------------------------------------------------------------------------------- */

bool mox_resolve_fp8(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    if (is_method(quant_config, "quark"))
        return mox_resolve_quark(quant_config, config, format);
    if (is_method(quant_config, "compressed-tensors"))
        return mox_resolve_ct(quant_config, config, format);
    const char *scheme = text_of(quant_config, "activation_scheme");
    if (format->act.is_static && is(scheme, "dynamic"))
        return false; /* the format without input scales comes next in the list */
    const json_t *block = json_object_get(quant_config, "weight_block_size");
    const int32_t rows = extent_of(json_array_get(block, 0)), cols = extent_of(json_array_get(block, 1));
    /* MXFP8 files have [1, 32] here, while their dense part may have blocks with exponents. */
    const bool blocks = rows > 1 || (rows == 1 && format->weight.scale != MOXIE_F8_E8M0);
    if (format->weight.group_rows > 1 && blocks && cols > 0) {
        format->weight.group_rows = rows;
        format->weight.group_cols = format->act.group_cols = cols;
    }
    if (format->weight.group_rows > 1 && is(text_of(quant_config, "scale_fmt"), "ue8m0"))
        format->act.rule = MOXIE_RULE_UE8M0;
    return true;
}

/* Extent `axis` of the dense part's blocks; 0: the configuration does not say. */
static int32_t block_extent(const json_t *quant_config, size_t axis)
{
    return extent_of(json_array_get(json_object_get(quant_config, "weight_block_size"), axis));
}

/* 32x32 blocks exist by the configuration alone: a small matrix has the same scales as with 128x128. */
bool mox_resolve_fp8_block32(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    return block_extent(quant_config, 0) == 32 && block_extent(quant_config, 1) == 32 &&
           mox_resolve_fp8(quant_config, config, format);
}

bool mox_resolve_v4_block32(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    (void)config, (void)format;
    return block_extent(quant_config, 1) == 32;
}

/* ---- Model Optimizer -------------------------------------------------------------------------- */

/* Algorithms whose activations are those of the formats with their tensors. */
static bool is_usual_algorithm(const char *algorithm)
{
    static const char *const names[] = {
        "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "FP8_BLOCK_SCALES", "NVFP4", "W4A8_MXFP4_FP8", "MXFP8", "MXFP4"
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is(algorithm, names[i]))
            return true;
    return false;
}

/* NVFP4 whose config groups all say that inputs are not quantized is for weights only. */
static bool groups_have_no_inputs(const json_t *quant_config)
{
    const json_t *groups = json_object_get(quant_config, "config_groups");
    bool none = json_object_size(groups) > 0;
    for (void *i = json_object_iter(mox_json_iterable(groups)); i && none;
         i = json_object_iter_next(mox_json_iterable(groups), i))
        none = !json_is_object(json_object_get(json_object_iter_value(i), "input_activations"));
    return none;
}

bool mox_resolve_modelopt(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    (void)config;
    /* Plain fp8 checkpoints have the same tensors; only the method tells them apart. */
    if (format->weight.element == MOXIE_F8_E4M3 && !is_method(quant_config, "modelopt"))
        return false;
    const char *algorithm = text_of(quant_config, "moe_quant_algo");
    if (!algorithm)
        algorithm = text_of(quant_config, "quant_algo");
    if (is(algorithm, "W4A16_NVFP4") || is(algorithm, "W4A16_AWQ") ||
        (is(algorithm, "NVFP4") && groups_have_no_inputs(quant_config)))
        format->act = (moxie_quant) { 0 };
    else if (is(algorithm, "W4A8_NVFP4_FP8") || is(algorithm, "W4A8_AWQ"))
        format->act = fp8_static;
    else if (is_method(quant_config, "modelopt") && !is_usual_algorithm(algorithm))
        format->act_problem =
            !algorithm ? "it has no quant_algo for this module" : "its quant_algo for this module is not understood";
    mox_hint_group(quant_config, format);
    return true;
}

/* ---- AWQ and GPTQ ----------------------------------------------------------------------------- */

/* Releases have one to three keys for the layout of the file. */
static const char *layout_of(const json_t *quant_config)
{
    static const char *const keys[] = { "version", "checkpoint_format", "format" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (text_of(quant_config, keys[i]))
            return text_of(quant_config, keys[i]);
    return NULL;
}

bool mox_resolve_awq(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    (void)config;
    const char *version = layout_of(quant_config);
    mox_hint_group(quant_config, format);
    return !is_method(quant_config, "awq") || !version || is(version, "gemm") || is(version, "GEMM");
}

bool mox_resolve_gptq(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    (void)config;
    const char *version = is_method(quant_config, "gptq") ? layout_of(quant_config) : NULL;
    const bool v2 = is(version, "gptq_v2");
    mox_hint_group(quant_config, format);
    if (version && !v2 && !is(version, "gptq"))
        return false; /* marlin, bitblas, ...: already packed for a kernel */
    return v2 == (format->zero_add == 0);
}
