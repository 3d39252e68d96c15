/* SPDX-License-Identifier: Apache-2.0
 *
 * f8_e8m0.h - E8M0, the scale of the OCP MX formats: an exponent alone.
 *
 *     7..0         value = 2^(code-127): code 0 is 2^-127, code 254 is 2^127. 255 is NaN.
 *     exponent     There is no zero, no sign and no infinity.
 *
 * Encode gives the nearest power of two by distance (not by logarithm); halfway, at 1.5 * 2^n, the even
 * code. Zero and negative numbers become code 0, the smallest value; large ones and infinity 254; NaN
 * 255. Choosing a scale for a block is another matter (moxie_scale_rule).
 */
#ifndef MOX_FORMAT_F8_E8M0_H
#define MOX_FORMAT_F8_E8M0_H

#include <stdint.h>

#include "format/f32.h"

MOX_SHARED float mox_f8_e8m0_decode(uint32_t code)
{
    const uint32_t exponent = code & 0xff;
    if (exponent == 0xff)
        return mox_f32_decode(MOX_F32_NAN);
    return mox_f32_decode(exponent ? exponent << 23 : 0x400000u); /* 2^-127 is an f32 subnormal */
}

MOX_SHARED uint32_t mox_f8_e8m0_encode(float value)
{
    const uint32_t bits = mox_f32_encode(value);
    if ((bits & 0x7fffffffu) > MOX_F32_INF)
        return 0xff;
    if (bits >> 31)
        return 0;
    /* An f32 subnormal has no leading one to drop: 1.5 * 2^-127 is 0x600000, and the tie goes to code 0. */
    if (bits < 0x800000u)
        return bits > 0x600000u;
    const uint32_t code = (bits + 0x3fffffu + ((bits >> 23) & 1)) >> 23;
    return code > 254 ? 254 : code;
}

#endif
