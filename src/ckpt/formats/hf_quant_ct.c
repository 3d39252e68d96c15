/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_quant_ct.c - what a config group of compressed-tensors adds to a format: how the activations are quantized. The
 * group is the one whose targets match the module (module_rules.c); here it is the only one.
 *
 * A group that contradicts the tensors, or asks for activations without a quantizer, sets act_problem: the layer is
 * refused, unless the caller wants 16-bit activations. Source: compressed-tensors quantization/quant_args.py,
 * quantization/utils/mxfp_utils.py (the scale of MX groups).
 */
#include "ckpt/formats/config_text.h"

/* How `side`, weights or activations of a group, divides a tensor. The library infers a missing strategy. */
static const char *strategy_of(const json_t *side)
{
    const char *strategy = text_of(side, "strategy");
    const json_int_t group = json_integer_value(json_object_get(side, "group_size"));
    return strategy ? strategy : group > 0 ? "group" : group < 0 ? "channel" : "tensor";
}

static bool is_dynamic(const json_t *side)
{
    return json_is_true(json_object_get(side, "dynamic"));
}

static bool is_float_side(const json_t *side)
{
    return is(text_of(side, "type"), "float");
}

static bool is_mx(const json_t *side, const moxie_quant *usual)
{
    const char *scale = text_of(side, "scale_dtype");
    return is(strategy_of(side), "group") && extent_of(json_object_get(side, "group_size")) == 32 &&
           (usual->scale == MOXIE_F8_E8M0 || is(scale, "torch.uint8") || is(scale, "uint8"));
}

/* 8 bits: per token, per tensor, or per group of a row. NULL when there is a quantizer, else why not. */
static const char *eight_bits(const json_t *side, const moxie_quant *usual, moxie_quant *out)
{
    const char *strategy = strategy_of(side);
    moxie_quant quant = {
        .element = is_float_side(side) ? MOXIE_F8_E4M3 : MOXIE_I8, .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1
    };
    if (is(strategy, "tensor")) {
        quant.group_rows = -1;
        quant.is_static = !is_dynamic(side);
    } else if (!is_dynamic(side)) {
        return "its activations have static scales that are not per tensor";
    } else if (is(strategy, "group")) {
        quant.group_cols = extent_of(json_object_get(side, "group_size"));
        if (quant.group_cols == 0)
            return "its activations have a group_size that is not understood";
        if (is_mx(side, usual) && is_float_side(side))
            quant.scale = MOXIE_F8_E8M0;
    } else if (!is(strategy, "token")) {
        return "its activations have a strategy that is not understood";
    }
    *out = quant;
    return NULL;
}

static const char *four_bits(const json_t *side, const moxie_quant *usual, moxie_quant *out)
{
    const char *strategy = strategy_of(side);
    if (!is_float_side(side))
        return "its activations are 4-bit integers, which there is no quantizer for";
    if (is(strategy, "tensor_group")) {
        if (!usual->global)
            return "its activations are NVFP4, but this module has no input_global_scale";
        *out = *usual;
        return is_dynamic(side) ? "its activations have a dynamic global scale" : NULL;
    }
    if (!is(strategy, "group") || extent_of(json_object_get(side, "group_size")) != 32 || !is_dynamic(side))
        return "its 4-bit activations are neither NVFP4 nor MXFP4";
    *out = (moxie_quant) { .element = MOXIE_F4_E2M1,
                           .scale = MOXIE_F8_E8M0,
                           .group_rows = 1,
                           .group_cols = 32,
                           .rule = MOXIE_RULE_QUARK_EVEN };
    return NULL;
}

/* The activations that `side` describes; `usual` are those of the format. */
static const char *activations(const json_t *side, const moxie_quant *usual, moxie_quant *out)
{
    const json_t *bits = json_object_get(side, "num_bits");
    if (json_is_false(json_object_get(side, "symmetric")))
        return "its activations are asymmetric (symmetric: false), which there is no quantizer for";
    switch (json_is_integer(bits) ? json_integer_value(bits) : 8) {
    case 8: return eight_bits(side, usual, out);
    case 4: return four_bits(side, usual, out);
    default: return "its activations have a width that there is no quantizer for";
    }
}

/* Integers of fewer bits may lie in whole bytes (int-quantized); packed codes and floats have just their bits. */
static bool contradicts(const json_t *weights, const mox_hf_quant *format)
{
    const json_t *value = json_object_get(weights, "num_bits");
    const json_int_t bits = json_is_integer(value) ? json_integer_value(value) : 8;
    const int32_t stored = mox_hf_quant_stored_bits(format);
    const bool real = mox_format_of(format->weight.element)->kind == MOX_KIND_FLOAT;
    return real != is_float_side(weights) || (format->weight.element == MOXIE_I8 ? bits > stored : bits != stored);
}

/* Such tensors are another format's: they only word the error better. */
static bool is_unlikely(const json_t *weights, const mox_hf_quant *format)
{
    const bool asymmetric = json_is_false(json_object_get(weights, "symmetric"));
    return contradicts(weights, format) || (format->weight.has_zero != 0) != asymmetric;
}

static const char *group_problem(const json_t *group, const mox_hf_quant *format)
{
    const json_t *weights = json_object_get(group, "weights");
    if (!group)
        return "no target of its config_groups matches this module";
    if (json_is_array(group))
        return "it names a scheme for this module that is not known; describe it";
    if (!json_is_object(weights))
        return "the group of this module has no weights";
    if (contradicts(weights, format))
        return "the group of this module has weights of another type than the tensors";
    if (json_is_object(json_object_get(group, "output_activations")))
        return "the group of this module quantizes its outputs";
    return NULL;
}

/* Blocks of another size than those of the format. */
static void read_blocks(const json_t *weights, mox_hf_quant *format)
{
    const json_t *block = json_object_get(weights, "block_structure");
    const int32_t rows = extent_of(json_array_get(block, 0)), cols = extent_of(json_array_get(block, 1));
    if (format->weight.group_rows <= 1 || rows == 0 || cols == 0)
        return;
    format->weight.group_rows = rows;
    format->weight.group_cols = cols;
}

bool mox_resolve_ct(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    if (is_method(quant_config, "quark"))
        return mox_resolve_quark(quant_config, config, format);
    if (!is_method(quant_config, "compressed-tensors"))
        return true;
    json_t *groups = mox_json_iterable(json_object_get(quant_config, "config_groups"));
    const json_t *group = json_object_iter_value(json_object_iter(groups));
    const moxie_quant usual = format->act;
    format->act = (moxie_quant) { 0 };
    format->act_problem = group_problem(group, format);
    mox_hint_group(json_object_get(group, "weights"), format);
    read_blocks(json_object_get(group, "weights"), format);
    format->unlikely = is_unlikely(json_object_get(group, "weights"), format);
    const json_t *inputs = json_object_get(group, "input_activations");
    if (!format->act_problem && json_is_object(inputs))
        format->act_problem = activations(inputs, &usual, &format->act);
    return true;
}

/* Formats that differ only in their activations: false for another element than the format's. */
bool mox_resolve_ct_act(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    const moxie_dtype usual = format->act.element;
    if (!mox_resolve_ct(quant_config, config, format))
        return false;
    return format->act.element == usual || (format->act.element == MOXIE_DTYPE_NONE && usual == MOXIE_I8);
}
