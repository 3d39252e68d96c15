/* SPDX-License-Identifier: Apache-2.0
 *
 * scale_rule.h - power-of-two scales from the largest magnitude of a group (amax), found from exponents and
 * significands, without a logarithm. The scale is 2^e.
 *
 * With amax = f * 2^n and the largest value of a code L = l * 2^m, where 0.5 <= f, l < 1:
 *
 *     CEIL        the smallest e with amax <= L * 2^e       n - m + (f > l)
 *     OCP_FLOOR   floor(log2 amax) - floor(log2 L)          n - m
 *     QUARK_EVEN  OCP_FLOOR, plus one from 1.75 * 2^k on    n - m + (f >= 0.875)
 *     VLLM_FLOOR  floor(log2 amax)                          n - 1
 *
 * Then e is clamped to the range of E8M0, [-127, 127]; amax = 0 gives -127. The quotient amax / L is never formed: it
 * would be rounded, and near a power of two that rounding would decide the result. It does for FP8 activations with
 * MOXIE_RULE_UE8M0, whose f32 scale becomes a power of two afterwards.
 * Shared by the activation quantizers and the weight encoders. Sources: OCP MX specification 1.0 (floor),
 * ModelOpt and FlashInfer (ceil), AMD Quark (even), vLLM's mxfp8 fallback (floor without emax).
 */
#ifndef MOX_QUANT_SCALE_RULE_H
#define MOX_QUANT_SCALE_RULE_H

#include <math.h>

#include <moxie/moxie.h>

#include "base/shared.h"

/* `largest`: the element's largest finite number. */
MOX_SHARED int32_t mox_scale_exponent(int32_t rule, float largest, float amax)
{
    if (!(amax > 0))
        return -127;
    int n, m;
    const float f = frexpf(amax, &n), l = frexpf(largest, &m);
    int32_t e;
    switch (rule) {
    case MOXIE_RULE_OCP_FLOOR: e = n - m; break;
    case MOXIE_RULE_QUARK_EVEN: e = n - m + (f >= 0.875f); break;
    case MOXIE_RULE_VLLM_FLOOR: e = n - 1; break;
    default: e = n - m + (f > l); break;
    }
    return e < -127 ? -127 : e > 127 ? 127 : e;
}

/* The exponent of the smallest power of two that is not below `scale`, a positive normal number. */
MOX_SHARED int32_t mox_exponent_up(float scale)
{
    int n;
    const float f = frexpf(scale, &n);
    return f == 0.5f ? n - 1 : n;
}

/* That power, up to 2^126. */
MOX_SHARED float mox_power_of_two_up(float scale)
{
    return ldexpf(1.0f, mox_exponent_up(scale));
}

/* Of a group of activations that is scaled by a power of two. With UE8M0 neither amax nor the scale is below 1e-10. */
MOX_SHARED int32_t mox_act_scale_exponent(int32_t rule, float largest, float amax)
{
    if (rule != MOXIE_RULE_UE8M0)
        return mox_scale_exponent(rule, largest, amax);
    const float scale = (amax > 1e-10f ? amax : 1e-10f) / largest;
    return mox_exponent_up(scale > 1e-10f ? scale : 1e-10f);
}

#endif
