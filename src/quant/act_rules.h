/* SPDX-License-Identifier: Apache-2.0
 *
 * act_rules.h - the arithmetic of the activation quantizers (docs/quantizers.md), compiled by host and device.
 *
 *     amax -> mox_act_step_of(rule) -> { scale, by, divide }      once per group; amax is its largest magnitude
 *     x    -> clamp(x * by) or clamp(x / by) -> nearest code      each number
 *
 * Every operation is one IEEE f32 operation, rounded to nearest even, with subnormals. The order of operations is part
 * of the definition: another order can move a value across a rounding boundary. Sources: vLLM's fp8 and int8 kernels,
 * FlashInfer's MX and NVFP4 quantizers (exact mode), OCP MX specification 1.0; docs/quantizers.md names each.
 */
#ifndef MOX_QUANT_ACT_RULES_H
#define MOX_QUANT_ACT_RULES_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include <moxie/moxie.h>

#include "base/shared_math.h"
#include "format/f16.h"
#include "format/f8_e4m3.h"
#include "format/f8_e8m0.h"
#include "format/i8.h"
#include "quant/scale_rule.h"

/* In the order of `quantizers` in act_quant.c. */
typedef enum mox_act_rule {
    MOX_ACT_FP8_TENSOR_STATIC,
    MOX_ACT_FP8_TENSOR_DYNAMIC,
    MOX_ACT_FP8_TOKEN,
    MOX_ACT_FP8_GROUP,
    MOX_ACT_INT8_TENSOR_STATIC,
    MOX_ACT_INT8_TENSOR_DYNAMIC,
    MOX_ACT_INT8_TOKEN,
    MOX_ACT_INT8_GROUP,
    MOX_ACT_MX_GROUP,
    MOX_ACT_NVFP4_GROUP,
    MOX_ACT_INT8_HALF,
    MOX_ACT_INT8_INVERSE
} mox_act_rule;

/* The inputs of a rule. */
typedef struct mox_act_input {
    int32_t scale_rule;     /* moxie_scale_rule */
    int32_t global;         /* moxie_global_kind */
    float largest;          /* largest finite number of the element */
    float static_scale;     /* or a static global */
    float batch_amax, amax; /* largest magnitude of the whole batch, of the group; both at most FLT_MAX */
} mox_act_input;

/* How the numbers of a group become codes. */
typedef struct mox_act_step {
    float scale; /* the stored scale, decoded */
    float by;
    bool divide; /* x / by, else x * by */
} mox_act_step;

/* max(amax, |x|), which ignores a NaN. */
MOX_SHARED float mox_act_max_abs(float amax, float x)
{
    const float a = fabsf(x);
    return a > amax ? a : amax;
}

/* Infinity counts as the largest finite number: so scales stay finite, and infinity itself saturates. */
MOX_SHARED float mox_act_finite(float amax)
{
    return amax > FLT_MAX ? FLT_MAX : amax;
}

MOX_SHARED float mox_act_max(float value, float floor)
{
    return value > floor ? value : floor;
}

/* NaN passes. Infinities are clamped, since E5M2 could represent them. */
MOX_SHARED float mox_act_clamp(float value, float limit)
{
    return value > limit ? limit : value < -limit ? -limit : value;
}

MOX_SHARED mox_act_step mox_act_multiply_by(float scale, float by)
{
    const mox_act_step step = { scale, by, false };
    return step;
}

MOX_SHARED mox_act_step mox_act_divide_by(float scale)
{
    const mox_act_step step = { scale, scale, true };
    return step;
}

MOX_SHARED mox_act_step mox_act_fp8(mox_act_rule rule, const mox_act_input *in)
{
    float scale = in->static_scale;
    if (rule == MOX_ACT_FP8_TENSOR_STATIC)
        return mox_act_multiply_by(scale, 1.0f / scale);
    if (rule == MOX_ACT_FP8_TENSOR_DYNAMIC) {
        scale = in->batch_amax == 0 ? 1.0f : mox_act_max(in->batch_amax / in->largest, FLT_MIN);
        return mox_act_multiply_by(scale, 1.0f / scale);
    }
    if (rule == MOX_ACT_FP8_TOKEN)
        return mox_act_divide_by(mox_act_max(in->amax / in->largest, 1.0f / (in->largest * 512.0f)));
    if (in->scale_rule == MOXIE_RULE_UE8M0)
        return mox_act_divide_by(ldexpf(1.0f, mox_act_scale_exponent(in->scale_rule, in->largest, in->amax)));
    return mox_act_divide_by(mox_act_max(in->amax, 1e-10f) / in->largest);
}

MOX_SHARED mox_act_step mox_act_int8(mox_act_rule rule, const mox_act_input *in)
{
    if (rule == MOX_ACT_INT8_TENSOR_STATIC)
        return mox_act_divide_by(in->static_scale);
    const float amax = rule == MOX_ACT_INT8_TENSOR_DYNAMIC ? in->batch_amax : in->amax;
    const float a = mox_act_max(amax, 1e-10f);
    return rule == MOX_ACT_INT8_TOKEN ? mox_act_multiply_by(a / 127.0f, 127.0f / a) : mox_act_divide_by(a / 127.0f);
}

/* As llama.cpp quantizes on x86: Q8_0 (HALF, the scale is stored as f16, saturated) and Q8_K (INVERSE). Q8_K's scale
 * has the sign of the largest number there, and its codes the opposite sign; products are the same. */
MOX_SHARED mox_act_step mox_act_ggml(mox_act_rule rule, float amax)
{
    const float by = amax != 0 ? 127.0f / amax : 0.0f;
    if (rule == MOX_ACT_INT8_HALF)
        return mox_act_multiply_by(mox_f16_decode(mox_f16_encode(amax / 127.0f)), mox_act_finite(by));
    return mox_act_multiply_by(by != 0 ? 1.0f / mox_act_finite(by) : 0.0f, mox_act_finite(by));
}

/* The global scale gs multiplies values before they get block scales; `inverse` = 1 / gs undoes it. */
MOX_SHARED mox_act_step mox_act_nvfp4(const mox_act_input *in)
{
    float gs = 1, inverse = 1;
    if (in->global == MOXIE_GLOBAL_DIVIDE) {
        gs = in->static_scale;
        inverse = 1.0f / in->static_scale;
    } else if (in->global == MOXIE_GLOBAL_MULTIPLY) {
        gs = 1.0f / in->static_scale;
        inverse = in->static_scale;
    }
    const float product = in->amax * (gs * (1.0f / 6.0f));
    const float scale = mox_f8_e4m3_decode(mox_f8_e4m3_encode(product));
    float factor = 0;
    if (in->amax != 0) {
        const float reciprocal = 1.0f / (scale * inverse);
        factor = reciprocal > FLT_MAX ? FLT_MAX : reciprocal;
    }
    return mox_act_multiply_by(scale, factor);
}

MOX_SHARED mox_act_step mox_act_step_of(mox_act_rule rule, const mox_act_input *in)
{
    switch (rule) {
    case MOX_ACT_FP8_TENSOR_STATIC:
    case MOX_ACT_FP8_TENSOR_DYNAMIC:
    case MOX_ACT_FP8_TOKEN:
    case MOX_ACT_FP8_GROUP: return mox_act_fp8(rule, in);
    case MOX_ACT_MX_GROUP:
        /* The quotient by a power of two is exact, unless it underflows, and then it rounds to a zero code anyway. */
        return mox_act_divide_by(
            mox_f8_e8m0_decode((uint32_t)(mox_scale_exponent(in->scale_rule, in->largest, in->amax) + 127)));
    case MOX_ACT_NVFP4_GROUP: return mox_act_nvfp4(in);
    case MOX_ACT_INT8_HALF:
    case MOX_ACT_INT8_INVERSE: return mox_act_ggml(rule, in->amax);
    default: return mox_act_int8(rule, in);
    }
}

/* A number, scaled for encoding. Integers need no clamp: their encoding saturates. */
MOX_SHARED float mox_act_scaled(const mox_act_step *step, float x)
{
    return step->divide ? x / step->by : x * step->by;
}

/* mox_i8_encode() saturates, rounds halves to even and encodes NaN as zero. Other roundings are applied before it. */
MOX_SHARED uint8_t mox_act_int8_code(float value, int32_t rounding)
{
    if (rounding == MOXIE_ROUND_AWAY)
        value = roundf(value);
    else if (rounding == MOXIE_ROUND_TRUNCATE)
        value = truncf(value);
    return (uint8_t)mox_i8_encode(value);
}

#endif
