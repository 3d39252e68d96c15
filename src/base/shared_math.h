/* SPDX-License-Identifier: Apache-2.0
 *
 * shared_math.h - exp, log1p and tanh in f32 from IEEE operations alone. So the numbers that decide about ids do not
 * depend on a math library, and are equal on host and device.
 *
 *     exp     x = n ln 2 + r, e^r by a polynomial of degree 6, 2^n in two factors: within 2 units in the last place;
 *             overflow gives infinity, underflow rounds once. The coefficients are those of cpu/glu/glu_lanes.h
 *     log1p   for 0 <= y <= 1: 2 atanh(s), s = y / (2 + y) <= 1/3, by its series; the first term left out is below
 *             2^-29 of the sum
 *     tanh    z / (1 + z^2 / (3 + z^2 / (5 + ...))) for |z| < 5/8, where the rest of the fraction is below 2^-30;
 *             above, (1 - e) / (1 + e), e = exp(-2 |z|)
 */
#ifndef MOX_BASE_SHARED_MATH_H
#define MOX_BASE_SHARED_MATH_H

#include <stdint.h>
#include <string.h>

#include "base/shared.h"

MOX_SHARED uint32_t mox_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

MOX_SHARED float mox_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e^x; NaN gives NaN. */
MOX_SHARED float mox_exp(float x)
{
    const float units = 0x1.8p23f;
    const float high = x > 100.0f ? 100.0f : x, at = high < -104.0f ? -104.0f : high;
    /* Adding 1.5 * 2^23 rounds to an integer, which then stands in the low 9 bits. A NaN gives some harmless integer.
     */
    const float sum = at * 1.44269504f + units, whole = sum - units;
    const int32_t n = (int32_t)((mox_float_bits(sum) & 0x1ffu) ^ 0x100u) - 0x100;
    /* ln 2 in two parts; the first has 9 bits, so its product with n is exact. */
    const float r = (at - whole * 0x1.63p-1f) + whole * 0x1.bd0106p-13f;
    float tail = 0.00139413234f;
    tail = 0.00836329519f + r * tail;
    tail = 0.0416663729f + r * tail;
    tail = 0.166665763f + r * tail;
    tail = 0.5f + r * tail;
    const float power = 1.0f + (r + r * r * tail);
    const int32_t half = n >> 1;
    return power * mox_float_of((uint32_t)(half + 127) << 23) * mox_float_of((uint32_t)(n - half + 127) << 23);
}

/* log(1 + y), 0 <= y <= 1. */
MOX_SHARED float mox_log1p(float y)
{
    const float s = y / (2.0f + y), z = s * s;
    float sum = 1.0f / 17.0f;
    for (int k = 15; k >= 3; k -= 2)
        sum = 1.0f / (float)k + z * sum;
    return 2.0f * (s + s * (z * sum));
}

/* Within 2 units in the last place; NaN gives NaN. */
MOX_SHARED float mox_tanh(float z)
{
    const float square = z * z, e = mox_exp(z < 0 ? 2.0f * z : -2.0f * z);
    const float fraction = z / (1.0f + square / (3.0f + square / (5.0f + square / (7.0f + square / 9.0f))));
    const float large = (1.0f - e) / (1.0f + e);
    return square < 0.390625f ? fraction : z < 0 ? -large : large;
}

#endif
