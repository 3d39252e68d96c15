/* SPDX-License-Identifier: Apache-2.0
 *
 * scale_rule.h - powers of two as scales, from exponents and significands, never from a logarithm.
 *
 * With amax = f * 2^n and largest code L = l * 2^m, both 0.5 <= f, l < 1:
 *
 *     CEIL        the smallest e with amax <= L * 2^e       n - m + (f > l)
 *     OCP_FLOOR   floor(log2 amax) - floor(log2 L)          n - m
 *     QUARK_EVEN  the same, one more from 1.75 * 2^k on     n - m + (f >= 0.875)
 *     VLLM_FLOOR  floor(log2 amax)                          n - 1
 *
 * each held within E8M0's [-127, 127]; amax = 0 gives -127. The quotient amax / L is never formed: it would
 * be rounded, and next to a power of two the rounding would decide.
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

/* The smallest power of two that is not below `scale`, a positive normal number up to 2^126. */
MOX_SHARED float mox_power_of_two_up(float scale)
{
    int n;
    const float f = frexpf(scale, &n);
    return ldexpf(1.0f, f == 0.5f ? n - 1 : n);
}

#endif
