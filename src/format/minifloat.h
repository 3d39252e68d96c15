/* SPDX-License-Identifier: Apache-2.0
 *
 * minifloat.h - any small float with a sign, decoded and encoded from its parameters.
 *
 *     s | exponent (e) | mantissa, m bits     e > 0: (-1)^s * 2^(e-bias) * 1.mantissa
 *                                             e = 0: (-1)^s * 2^(1-bias) * 0.mantissa
 *
 * A "magnitude" is a code without its sign. Magnitudes grow with the value, and a carry out of the mantissa increments
 * the exponent. So rounding is one shift of the significand. Magnitudes above `max_code` are infinity (`inf_code`) or
 * NaN (all others), or the result of a value that is too large.
 *
 * All arithmetic is on integers, so the result depends neither on the rounding mode nor on whether the processor
 * flushes subnormals. The parameters are constants after inlining. Valid for m <= 22 and bias + m <= 126: every value
 * of the format is then a normal f32.
 */
#ifndef MOX_FORMAT_MINIFLOAT_H
#define MOX_FORMAT_MINIFLOAT_H

#include <stdint.h>

#include "format/f32.h"

typedef struct mox_minifloat {
    int32_t exponent_bits, mantissa_bits, bias;
    uint32_t max_code; /* magnitude of the largest finite value */
    uint32_t inf_code; /* magnitude of infinity; 0: the format has none */
    uint32_t nan_code; /* the NaN that encoding gives; 0: the format has none */
} mox_minifloat;

MOX_SHARED uint32_t mox_minifloat_sign(const mox_minifloat *f)
{
    return 1u << (f->exponent_bits + f->mantissa_bits);
}

MOX_SHARED float mox_minifloat_decode(const mox_minifloat *f, uint32_t code)
{
    const uint32_t sign_bit = mox_minifloat_sign(f);
    const uint32_t sign = code & sign_bit ? 0x80000000u : 0;
    const uint32_t magnitude = code & (sign_bit - 1);
    /* A subnormal is mantissa * 2^(1-bias-m), the power built from its bits. All three cases are computed, and masks
     * select one: compilers vectorise this, but not a conditional multiplication. */
    const float step = mox_f32_decode((uint32_t)(127 + 1 - f->bias - f->mantissa_bits) << 23);
    const uint32_t subnormal = mox_f32_encode((float)(int32_t)magnitude * step);
    const uint32_t normal = (magnitude << (23 - f->mantissa_bits)) + ((uint32_t)(127 - f->bias) << 23);
    const uint32_t special = magnitude == f->inf_code ? MOX_F32_INF : MOX_F32_NAN;
    const uint32_t is_special = 0 - (uint32_t)(magnitude > f->max_code);
    const uint32_t is_subnormal = 0 - (uint32_t)(magnitude >> f->mantissa_bits == 0);
    return mox_f32_decode(sign | (special & is_special) | (subnormal & is_subnormal) |
                          (normal & ~is_special & ~is_subnormal));
}

/* Rounds to nearest, ties to even. A value that rounds past max_code becomes the magnitude `overflow`, and so does
 * infinity if the format has none. The sign is kept, also of zero. NaN becomes nan_code with sign zero, since the sign
 * of a computed NaN differs between processors; or max_code if the format has no NaN. */
MOX_SHARED uint32_t mox_minifloat_round(const mox_minifloat *f, float value, uint32_t overflow)
{
    const uint32_t bits = mox_f32_encode(value);
    const uint32_t sign = (bits >> 31) << (f->exponent_bits + f->mantissa_bits);
    const uint32_t a = bits & 0x7fffffffu;

    /* |value| = significand * 2^(exponent-23), exponent taken from f32's own smallest upward. */
    const uint32_t field = a >> 23, is_normal = field != 0;
    const int32_t exponent = (int32_t)(field + (1 - is_normal)) - 127;
    const uint32_t significand = (a & 0x7fffffu) | is_normal << 23;
    const int32_t above_subnormal = exponent - (1 - f->bias);
    const int32_t wanted = 23 - f->mantissa_bits - (above_subnormal < 0 ? above_subnormal : 0);
    const int32_t shift = wanted > 25 ? 25 : wanted; /* significand < 2^24 is less than half a step then */

    const uint32_t odd = (significand >> shift) & 1;
    const uint32_t quotient = (significand + (1u << (shift - 1)) - 1 + odd) >> shift;
    const uint32_t magnitude = ((uint32_t)(above_subnormal > 0 ? above_subnormal : 0) << f->mantissa_bits) + quotient;
    const uint32_t number = sign | (magnitude > f->max_code ? overflow : magnitude);

    /* Masks select, as in decoding, so that compilers vectorise this. */
    const uint32_t nan = f->nan_code ? f->nan_code : f->max_code;
    const uint32_t is_nan = 0 - (uint32_t)(a > MOX_F32_INF);
    const uint32_t is_inf = 0 - (uint32_t)(a == MOX_F32_INF && f->inf_code != 0);
    return (nan & is_nan) | ((sign | f->inf_code) & is_inf) | (number & ~is_nan & ~is_inf);
}

MOX_SHARED uint32_t mox_minifloat_encode(const mox_minifloat *f, float value)
{
    return mox_minifloat_round(f, value, f->max_code);
}

#endif
