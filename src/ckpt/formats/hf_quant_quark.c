/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_quant_quark.c - what Quark's configuration adds to a format: which FP6 the bytes are, and how activations are
 * quantized. The configuration of the module is in global_quant_config (module_rules.c). MX formats without Quark's
 * configuration are here, too, since they have the same tensors.
 *
 * Source: Quark's exporter; vLLM quantization/quark.
 */
#include "ckpt/formats/config_text.h"

static const json_t *side_of(const json_t *quant_config, const char *side)
{
    return json_object_get(json_object_get(quant_config, "global_quant_config"), side);
}

static moxie_dtype element_of(const char *name)
{
    return is(name, "fp4")        ? MOXIE_F4_E2M1
           : is(name, "fp6_e3m2") ? MOXIE_F6_E3M2
           : is(name, "fp6_e2m3") ? MOXIE_F6_E2M3
           : is(name, "fp8_e4m3") ? MOXIE_F8_E4M3
           : is(name, "int8")     ? MOXIE_I8
                                  : MOXIE_DTYPE_NONE;
}

static bool is_mx(const json_t *side)
{
    return extent_of(json_object_get(side, "group_size")) == 32;
}

/* Per tensor, or per token. NULL when there is a quantizer, else why not. */
static const char *eight_bits(const json_t *inputs, moxie_dtype element, moxie_quant *out)
{
    const char *scheme = text_of(inputs, "qscheme");
    const bool dynamic = json_is_true(json_object_get(inputs, "is_dynamic"));
    *out = (moxie_quant) { .element = element, .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1 };
    if (!scheme || is(scheme, "per_tensor")) {
        out->group_rows = -1;
        out->is_static = !dynamic;
        return NULL;
    }
    if (dynamic && (is(scheme, "per_token") || is(scheme, "per_channel")))
        return NULL;
    return "its activations have a qscheme that is not understood";
}

static const char *activations(const json_t *inputs, moxie_quant *act)
{
    const moxie_dtype element = element_of(text_of(inputs, "dtype"));
    if (!inputs || json_is_null(inputs)) {
        *act = (moxie_quant) { 0 };
        return NULL;
    }
    if (element == MOXIE_DTYPE_NONE)
        return "its activations have a dtype that is not understood";
    if (element == MOXIE_I8 && json_is_false(json_object_get(inputs, "symmetric")))
        return "its activations are asymmetric (symmetric: false), which there is no quantizer for";
    if (is_mx(inputs) && element != MOXIE_I8) {
        const moxie_quant mx = {
            .scale = MOXIE_F8_E8M0, .group_rows = 1, .group_cols = 32, .rule = MOXIE_RULE_QUARK_EVEN
        };
        if (act->scale != MOXIE_F8_E8M0)
            *act = mx;
        act->element = element;
        return NULL;
    }
    return mox_dtype_bits(element) == 8 ? eight_bits(inputs, element, act)
                                        : "its activations have a group_size that is not understood";
}

bool mox_resolve_quark(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    (void)config;
    const moxie_dtype element = element_of(text_of(side_of(quant_config, "weight"), "dtype"));
    if (mox_dtype_bits(format->weight.element) == 6 && element != format->weight.element)
        return false;
    if (json_object_get(quant_config, "global_quant_config"))
        format->act_problem = activations(side_of(quant_config, "input_tensors"), &format->act);
    return true;
}

/* True for MXFP4 weights with FP8 activations per tensor, in the words of Quark or Model Optimizer. */
static bool says_fp8_tensor(const json_t *quant_config)
{
    const json_t *inputs = side_of(quant_config, "input_tensors");
    return is(text_of(quant_config, "quant_algo"), "W4A8_MXFP4_FP8") ||
           (element_of(text_of(inputs, "dtype")) == MOXIE_F8_E4M3 && !is_mx(inputs));
}

bool mox_resolve_mx(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    if (format->weight.element == MOXIE_F4_E2M1 && (format->act.is_static != 0) != says_fp8_tensor(quant_config))
        return false;
    if (is_method(quant_config, "compressed-tensors"))
        return mox_resolve_ct(quant_config, config, format);
    if (is_method(quant_config, "quark"))
        return mox_resolve_quark(quant_config, config, format);
    /* Only Quark's configuration says which FP6 the bytes are. */
    return mox_dtype_bits(format->weight.element) != 6;
}

bool mox_resolve_quark_int4(const json_t *quant_config, const json_t *config, mox_hf_quant *format)
{
    if (!is_method(quant_config, "quark"))
        return false;
    mox_hint_group(side_of(quant_config, "weight"), format);
    if (!is(text_of(json_object_get(quant_config, "export"), "pack_method"), "reorder"))
        for (int i = 0; i < MOX_MAX_PARTS; i++)
            format->parts[i].packing.order = MOXIE_ORDER_LINEAR;
    return mox_resolve_quark(quant_config, config, format);
}
