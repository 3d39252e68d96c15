/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_quant_resolve.c - what quantization_config adds to a format that the tensors already determined: how activations
 * are quantized, block and group sizes, GPTQ's convention for zero points, which FP6. A resolve() function gets a copy
 * of the format to change. It returns false when the configuration rules the format out.
 */
#include <string.h>

#include "ckpt/formats/hf_quant_config.h"

static bool is(const char *text, const char *want)
{
    return text && strcmp(text, want) == 0;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool is_method(const json_t *quant_config, const char *method)
{
    return is(mox_quant_config_method(quant_config), method);
}

/* A group or block size from a file; 0 when it is absent or impossible for a matrix. */
static int32_t extent_of(const json_t *value)
{
    const json_int_t number = json_integer_value(value);
    return json_is_integer(value) && number > 0 && number <= 1 << 20 ? (int32_t)number : 0;
}

/* Formats whose group size comes from tensors: the configured size becomes `default_group`, a hint for groups that do
 * not divide a row. */
static void hint_group(const json_t *quant_config, mox_hf_quant *format)
{
    const int32_t group = extent_of(json_object_get(quant_config, "group_size"));
    if (format->weight.group_cols == -2 && group > 0)
        format->default_group = group;
}

static const moxie_quant fp8_static = {
    .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = -1, .group_cols = -1, .is_static = 1
};

/* ---- compressed-tensors ----------------------------------------------------------------------- */

/* The config group whose weights have the bits and type of the format. */
static const json_t *ct_group(const json_t *quant_config, const mox_hf_quant *format)
{
    const json_t *groups = json_object_get(quant_config, "config_groups");
    const int bits = (int)mox_dtype_bits(format->weight.element);
    const bool real = format->weight.element == MOXIE_F8_E4M3 || format->weight.element == MOXIE_F4_E2M1;
    for (void *i = json_object_iter(mox_json_iterable(groups)); i;
         i = json_object_iter_next(mox_json_iterable(groups), i)) {
        const json_t *group = json_object_iter_value(i);
        const json_t *weights = json_object_get(group, "weights");
        if (json_integer_value(json_object_get(weights, "num_bits")) == bits &&
            is(text_of(weights, "type"), real ? "float" : "int"))
            return group;
    }
    return NULL;
}

/* Activations as compressed-tensors describes them; `usual`, those of the format, where there is no quantizer for the
 * description. */
static moxie_quant ct_activations(const json_t *side, moxie_quant usual)
{
    const json_int_t bits = json_integer_value(json_object_get(side, "num_bits"));
    const int32_t group = extent_of(json_object_get(side, "group_size"));
    const char *strategy = text_of(side, "strategy");
    const bool dynamic = json_is_true(json_object_get(side, "dynamic"));
    moxie_quant quant = { .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1 };
    if (bits == 8)
        quant.element = is(text_of(side, "type"), "int") ? MOXIE_I8 : MOXIE_F8_E4M3;
    else if (bits == 4 && group == 32)
        return (moxie_quant) { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_rows = 1, .group_cols = 32 };
    else
        return usual;
    if (is(strategy, "group") && group == 32 && usual.scale == MOXIE_F8_E8M0)
        return usual; /* MXFP8 */
    if (is(strategy, "group") && group > 0)
        quant.group_cols = group;
    if (is(strategy, "tensor")) {
        quant.group_rows = -1;
        quant.is_static = !dynamic;
    }
    return quant;
}

static void resolve_ct_group(const json_t *quant_config, mox_hf_quant *format)
{
    const json_t *group = ct_group(quant_config, format);
    if (!group)
        return;
    hint_group(json_object_get(group, "weights"), format);
    const json_t *inputs = json_object_get(group, "input_activations");
    if (json_is_object(inputs))
        format->act = ct_activations(inputs, format->act);
    else
        format->act = (moxie_quant) { 0 };
}

bool mox_resolve_ct(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    (void)config;
    if (is_method(quant_config, "compressed-tensors"))
        resolve_ct_group(quant_config, format);
    return true;
}

/* ---- fp8 -------------------------------------------------------------------------------------- */

bool mox_resolve_fp8(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
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

/* ---- Model Optimizer -------------------------------------------------------------------------- */

static bool speaks_of(const char *algorithm, const mox_hf_quant *format)
{
    const char *want = format->weight.element == MOXIE_F4_E2M1 ? "NVFP4"
                       : format->weight.element == MOXIE_I4    ? "AWQ"
                                                               : "FP8";
    return algorithm && strstr(algorithm, want) != NULL;
}

/* quant_algo; in a mixed file that of the first layer about the element of the format. */
static const char *modelopt_algorithm(const json_t *quant_config, const mox_hf_quant *format)
{
    const char *algorithm = text_of(quant_config, "moe_quant_algo");
    if (!algorithm)
        algorithm = text_of(quant_config, "quant_algo");
    if (!is(algorithm, "MIXED_PRECISION"))
        return algorithm;
    const json_t *layers = json_object_get(quant_config, "quantized_layers");
    for (void *i = json_object_iter(mox_json_iterable(layers)); i;
         i = json_object_iter_next(mox_json_iterable(layers), i)) {
        algorithm = text_of(json_object_iter_value(i), "quant_algo");
        if (speaks_of(algorithm, format))
            return algorithm;
    }
    return NULL;
}

bool mox_resolve_modelopt(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    (void)config;
    /* Plain fp8 checkpoints have the same tensors; only the method tells them apart. */
    if (format->weight.element == MOXIE_F8_E4M3 && !is_method(quant_config, "modelopt"))
        return false;
    const char *algorithm = modelopt_algorithm(quant_config, format);
    if (is(algorithm, "W4A16_NVFP4") || is(algorithm, "W4A16_AWQ"))
        format->act = (moxie_quant) { 0 };
    else if (is(algorithm, "W4A8_NVFP4_FP8") || is(algorithm, "W4A8_AWQ"))
        format->act = fp8_static;
    hint_group(quant_config, format);
    return true;
}

/* ---- MX formats: Quark, Model Optimizer, MiniMax, compressed-tensors ---------------------------- */

static moxie_dtype quark_element(const char *name)
{
    return is(name, "fp4")        ? MOXIE_F4_E2M1
           : is(name, "fp6_e3m2") ? MOXIE_F6_E3M2
           : is(name, "fp6_e2m3") ? MOXIE_F6_E2M3
           : is(name, "fp8_e4m3") ? MOXIE_F8_E4M3
                                  : MOXIE_DTYPE_NONE;
}

static bool resolve_quark(const json_t *quant_config, mox_hf_quant *format)
{
    const json_t *global = json_object_get(quant_config, "global_quant_config");
    const moxie_dtype element = quark_element(text_of(json_object_get(global, "weight"), "dtype"));
    const bool fp6 = mox_dtype_bits(format->weight.element) == 6;
    if (fp6 && element != format->weight.element)
        return false;
    if (!global)
        return true;
    const json_t *inputs = json_object_get(global, "input_tensors");
    const moxie_dtype into = quark_element(text_of(inputs, "dtype"));
    const bool mx = extent_of(json_object_get(inputs, "group_size")) == 32;
    if (into == MOXIE_DTYPE_NONE)
        format->act = (moxie_quant) { 0 };
    else if (mx)
        format->act.element = into;
    else if (into == MOXIE_F8_E4M3)
        format->act = fp8_static;
    return true;
}

/* True for MXFP4 weights with static FP8 activations, in the words of Quark or Model Optimizer. */
static bool says_static_fp8(const json_t *quant_config)
{
    const json_t *inputs = json_object_get(json_object_get(quant_config, "global_quant_config"), "input_tensors");
    return is(text_of(quant_config, "quant_algo"), "W4A8_MXFP4_FP8") ||
           (quark_element(text_of(inputs, "dtype")) == MOXIE_F8_E4M3 &&
            extent_of(json_object_get(inputs, "group_size")) != 32);
}

bool mox_resolve_mx(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    if (format->weight.element == MOXIE_F4_E2M1 && (format->act.is_static != 0) != says_static_fp8(quant_config))
        return false;
    if (is_method(quant_config, "compressed-tensors"))
        return mox_resolve_ct(quant_config, config, format);
    if (is_method(quant_config, "quark"))
        return resolve_quark(quant_config, format);
    /* Only Quark's configuration says which FP6 the bytes are. */
    return mox_dtype_bits(format->weight.element) != 6;
}

bool mox_resolve_quark_int4(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    (void)config;
    if (!is_method(quant_config, "quark"))
        return false;
    const json_t *global = json_object_get(quant_config, "global_quant_config");
    hint_group(json_object_get(global, "weight"), format);
    if (!is(text_of(json_object_get(quant_config, "export"), "pack_method"), "reorder"))
        for (int i = 0; i < MOX_MAX_PARTS; i++)
            format->parts[i].packing.order = MOXIE_ORDER_LINEAR;
    return true;
}

/* ---- AWQ and GPTQ ----------------------------------------------------------------------------- */

bool mox_resolve_awq(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    (void)config;
    const char *version = text_of(quant_config, "version");
    hint_group(quant_config, format);
    return !version || is(version, "gemm") || is(version, "GEMM");
}

bool mox_resolve_gptq(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    (void)config;
    const char *version = text_of(quant_config, "checkpoint_format");
    const bool v2 = is(version, "gptq_v2");
    hint_group(quant_config, format);
    if (version && !v2 && !is(version, "gptq"))
        return false; /* marlin, bitblas, ...: already packed for a kernel */
    return v2 == (format->zero_add == 0);
}
