/* SPDX-License-Identifier: Apache-2.0
 *
 * group_scale.c - scale and zero point of a group of weights (group_scale.h).
 *
 *     no zero points   scale = max(-low, high) / largest
 *     symmetric        scale = max(-low, high) / (largest + 1/2)      zero = 0, the middle of the codes
 *     zero points      scale = (high - low) / (2 largest + 1)         zero gives `low` the lowest code
 */
#include "ckpt/formats/group_scale.h"

#include <math.h>

/* Codes in a stream have fewer bits than the element that they are read as. Their largest code. */
static float largest_code(const mox_hf_quant *format, const mox_format *element)
{
    const moxie_packing *packing = &format->parts[0].packing;
    return packing->order == MOX_ORDER_STREAM ? (float)((1 << (packing->per_word - 1)) - 1) : element->max;
}

/* GPTQ exports have "sym" in quantization_config when every zero point is the middle code. */
static moxie_status read_symmetric(const mox_hf_quant *format, bool *out, moxie_error *error)
{
    *out = false;
    if (!format->write_config || !format->weight.has_zero)
        return MOXIE_OK;
    json_t *config = format->write_config(format, NULL, 0);
    MOX_FAIL_IF(!config, MOXIE_ERR_MEMORY, error, "no memory for a quantization_config");
    *out = json_is_true(json_object_get(config, "sym"));
    json_decref(config);
    return MOXIE_OK;
}

moxie_status mox_group_rule_of(const mox_hf_quant *format, int64_t cols, mox_group_rule *out, moxie_error *error)
{
    mox_group_rule rule = { .quant = mox_hf_quant_weight(format, cols) };
    rule.element = mox_format_of(rule.quant.element);
    rule.largest = rule.element ? largest_code(format, rule.element) : 0;
    rule.lowest_zero = -rule.largest - 1 + format->zero_add;
    MOX_TRY(read_symmetric(format, &rule.symmetric, error));
    *out = rule;
    return MOXIE_OK;
}

/* The stored zero point, which may be smaller by zero_add, must not fall below the lowest code. */
void mox_group_scale(const mox_group_rule *rule, float low, float high, float global, float *scale, float *zero)
{
    const moxie_quant *quant = &rule->quant;
    const float amax = fmaxf(-low, high), largest = rule->largest, full = rule->element->max;
    const bool asymmetric = quant->has_zero && !rule->symmetric;
    const float wider = quant->has_zero ? (2 * full + 1) / (2 * largest + 1) : full / fmaxf(largest, 1);
    const float extent = (asymmetric ? high - low : quant->has_zero ? 2 * amax : amax) * wider;
    *scale = mox_weight_group_scale(quant, extent, global);
    *zero = asymmetric ? fmaxf(mox_weight_zero(quant, low, *scale, global) + full - largest, rule->lowest_zero) : 0;
}
