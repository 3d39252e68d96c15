/* SPDX-License-Identifier: Apache-2.0
 *
 * weight_quant.c - quantizes weights by the usual rule of each format, for synthetic checkpoints and tests.
 *
 *     scale = extent / (span * global)   (MULTIPLY; with DIVIDE: * global)   rounded to the scale's dtype
 *     code  = nearest to  w / (scale * global) + zero
 *
 * span is the element's largest value (f8_e4m3 448, f4_e2m1 6, int4 7, int8 127), with zero points the distance
 * between the lowest and the highest code (15, 255). E8M0 scales are powers of two by the rules of scale_rule.h.
 * The result resembles a real checkpoint: its error is as large, and it has no NaN codes and no zero scales.
 * Sources: DeepSeek-V3 (blocks, ue8m0), ModelOpt (NVFP4, MX), compressed-tensors and GPTQ (integers).
 */
#include "quant/quant.h"

#include <float.h>

#include "quant/scale_rule.h"

static double global_factor(const moxie_quant *quant, float global)
{
    switch (quant->global) {
    case MOXIE_GLOBAL_MULTIPLY: return global;
    case MOXIE_GLOBAL_DIVIDE: return 1.0 / global;
    default: return 1.0;
    }
}

/* Integers range from -max - 1 to max. */
static double span_of(const moxie_quant *quant, const mox_format *element)
{
    return quant->has_zero ? 2.0 * element->max + 1.0 : element->max;
}

/* Rounds to `dtype`, clamped between its smallest and its largest positive number. */
static float round_scale(moxie_dtype dtype, double scale)
{
    const mox_format *format = mox_format_of(dtype);
    const float smallest = format->decode(1);
    const float rounded = format->decode(format->encode((float)scale));
    return rounded > format->max ? format->max : rounded < smallest ? smallest : rounded;
}

float mox_weight_group_scale(const moxie_quant *quant, float extent, float global)
{
    const mox_format *element = mox_format_of(quant->element);
    if (!(extent > 0))
        return 1.0f; /* all zero: any scale is right, and 1 exists in every dtype */
    const double scaled = extent / global_factor(quant, global);
    if (quant->scale == MOXIE_F8_E8M0)
        return mox_f8_e8m0_decode((uint32_t)(mox_scale_exponent(quant->rule, element->max, (float)scaled) + 127));
    const double scale = scaled / span_of(quant, element);
    if (quant->rule == MOXIE_RULE_UE8M0)
        return round_scale(quant->scale, mox_power_of_two_up(scale < FLT_MIN ? FLT_MIN : (float)scale));
    return round_scale(quant->scale, scale);
}

float mox_weight_zero(const moxie_quant *quant, float low, float scale, float global)
{
    const mox_format *element = mox_format_of(quant->element);
    const double lowest = -(double)element->max - 1.0;
    return element->decode(element->encode((float)(lowest - low / (scale * global_factor(quant, global)))));
}

uint32_t mox_weight_code(const moxie_quant *quant, float w, float scale, float global, float zero)
{
    const double units = w / (scale * global_factor(quant, global)) + zero;
    return mox_format_of(quant->element)->encode((float)units);
}
