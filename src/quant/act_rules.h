/* SPDX-License-Identifier: Apache-2.0
 *
 * act_rules.h - the arithmetic of the activation quantizers (docs/quantizers.md), shared by host and device: from the
 * largest magnitude of a group to its scale, and from a number to its code.
 *
 *     amax -> mox_act_<rule>() -> { scale, by, divide }        once a group
 *     x    -> clamp(x * by) or clamp(x / by) -> nearest code   each number
 *
 * Every line is one IEEE f32 operation, rounded to nearest even, subnormals kept; the order is part of the definition,
 * since another one can move a value across a rounding boundary. Sources: vLLM's fp8 and int8 kernels, FlashInfer's MX
 * and NVFP4 quantizers (exact mode), OCP MX specification 1.0; docs/quantizers.md names each.
 */
#ifndef MOX_QUANT_ACT_RULES_H
#define MOX_QUANT_ACT_RULES_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include <moxie/moxie.h>

#include "base/shared_math.h"
#include "format/f8_e4m3.h"
#include "format/f8_e8m0.h"
#include "format/i8.h"
#include "quant/scale_rule.h"

/* Numbers in the order of `quantizers` in act_quant.c. */
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
    MOX_ACT_NVFP4_GROUP
} mox_act_rule;

/* What a rule reads. */
typedef struct mox_act_input {
    int32_t scale_rule;     /* moxie_scale_rule */
    int32_t global;         /* moxie_global_kind */
    float largest;          /* finite number of the element */
    float given;            /* static scale or global */
    float batch_amax, amax; /* of the whole batch, of the group; both at most FLT_MAX */
} mox_act_input;

/* How the numbers of a group become codes. */
typedef struct mox_act_step {
    float scale; /* as stored, decoded */
    float by;
    bool divide; /* x / by, else x * by */
} mox_act_step;

/* The running largest magnitude; NaN does not count. */
MOX_SHARED float mox_act_larger(float amax, float x)
{
    const float a = fabsf(x);
    return a > amax ? a : amax;
}

/* An infinity counts as the largest finite number, so that scales stay finite and it saturates. */
MOX_SHARED float mox_act_finite(float amax)
{
    return amax > FLT_MAX ? FLT_MAX : amax;
}

MOX_SHARED float mox_act_at_least(float value, float floor)
{
    return value > floor ? value : floor;
}

/* NaN passes. Infinities end here: E5M2 would keep them. */
MOX_SHARED float mox_act_clamp(float value, float limit)
{
    return value > limit ? limit : value < -limit ? -limit : value;
}

MOX_SHARED mox_act_step mox_act_times(float scale, float by)
{
    const mox_act_step step = { scale, by, false };
    return step;
}

MOX_SHARED mox_act_step mox_act_over(float scale)
{
    const mox_act_step step = { scale, scale, true };
    return step;
}

MOX_SHARED mox_act_step mox_act_fp8(mox_act_rule rule, const mox_act_input *in)
{
    float scale = in->given;
    if (rule == MOX_ACT_FP8_TENSOR_STATIC)
        return mox_act_times(scale, 1.0f / scale);
    if (rule == MOX_ACT_FP8_TENSOR_DYNAMIC) {
        scale = in->batch_amax == 0 ? 1.0f : mox_act_at_least(in->batch_amax / in->largest, FLT_MIN);
        return mox_act_times(scale, 1.0f / scale);
    }
    if (rule == MOX_ACT_FP8_TOKEN)
        return mox_act_over(mox_act_at_least(in->amax / in->largest, 1.0f / (in->largest * 512.0f)));
    scale = mox_act_at_least(in->amax, 1e-10f) / in->largest;
    if (in->scale_rule == MOXIE_RULE_UE8M0)
        scale = mox_power_of_two_up(mox_act_at_least(scale, 1e-10f));
    return mox_act_over(scale);
}

MOX_SHARED mox_act_step mox_act_int8(mox_act_rule rule, const mox_act_input *in)
{
    if (rule == MOX_ACT_INT8_TENSOR_STATIC)
        return mox_act_over(in->given);
    const float amax = rule == MOX_ACT_INT8_TENSOR_DYNAMIC ? in->batch_amax : in->amax;
    const float a = mox_act_at_least(amax, 1e-10f);
    return rule == MOX_ACT_INT8_TOKEN ? mox_act_times(a / 127.0f, 127.0f / a) : mox_act_over(a / 127.0f);
}

/* gs turns values into multiples of the smallest block scale, 1 / gs turns them back. */
MOX_SHARED mox_act_step mox_act_nvfp4(const mox_act_input *in)
{
    float gs = 1, inverse = 1;
    if (in->global == MOXIE_GLOBAL_DIVIDE) {
        gs = in->given;
        inverse = 1.0f / in->given;
    } else if (in->global == MOXIE_GLOBAL_MULTIPLY) {
        gs = 1.0f / in->given;
        inverse = in->given;
    }
    const float product = in->amax * (gs * (1.0f / 6.0f));
    const float scale = mox_f8_e4m3_decode(mox_f8_e4m3_encode(product));
    float factor = 0;
    if (in->amax != 0) {
        const float reciprocal = 1.0f / (scale * inverse);
        factor = reciprocal > FLT_MAX ? FLT_MAX : reciprocal;
    }
    return mox_act_times(scale, factor);
}

MOX_SHARED mox_act_step mox_act_step_of(mox_act_rule rule, const mox_act_input *in)
{
    switch (rule) {
    case MOX_ACT_FP8_TENSOR_STATIC:
    case MOX_ACT_FP8_TENSOR_DYNAMIC:
    case MOX_ACT_FP8_TOKEN:
    case MOX_ACT_FP8_GROUP: return mox_act_fp8(rule, in);
    case MOX_ACT_MX_GROUP:
        /* The quotient is exact, up to an underflow that rounds to zero either way. */
        return mox_act_over(
            mox_f8_e8m0_decode((uint32_t)(mox_scale_exponent(in->scale_rule, in->largest, in->amax) + 127)));
    case MOX_ACT_NVFP4_GROUP: return mox_act_nvfp4(in);
    default: return mox_act_int8(rule, in);
    }
}

/* What a number is before it is encoded. Integers are not clamped: their encoding saturates. */
MOX_SHARED float mox_act_scaled(const mox_act_step *step, float x)
{
    return step->divide ? x / step->by : x * step->by;
}

/* i8 encoding saturates, rounds halves to even and makes zero of NaN; the other roundings come before it. */
MOX_SHARED uint8_t mox_act_int8_code(float value, int32_t rounding)
{
    if (rounding == MOXIE_ROUND_AWAY)
        value = roundf(value);
    else if (rounding == MOXIE_ROUND_TRUNCATE)
        value = truncf(value);
    return (uint8_t)mox_i8_encode(value);
}

#endif
