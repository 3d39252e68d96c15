/* SPDX-License-Identifier: Apache-2.0
 *
 * f6_e3m2.h - the 6-bit float E3M2 of the OCP MX specification.
 *
 *     5 | 4..2     | 1..0         bias 3, largest 28, smallest normal 0.25, step below it 0.0625
 *     s | exponent | mantissa     neither infinity nor NaN
 *
 * Encode saturates, infinities too; NaN becomes +28.
 */
#ifndef MOX_FORMAT_F6_E3M2_H
#define MOX_FORMAT_F6_E3M2_H

#include "format/minifloat.h"

MOX_SHARED_CONST mox_minifloat mox_f6_e3m2_fields = {
    .exponent_bits = 3, .mantissa_bits = 2, .bias = 3, .max_code = 0x1f
};

MOX_SHARED float mox_f6_e3m2_decode(uint32_t code)
{
    return mox_minifloat_decode(&mox_f6_e3m2_fields, code);
}

MOX_SHARED uint32_t mox_f6_e3m2_encode(float value)
{
    return mox_minifloat_encode(&mox_f6_e3m2_fields, value);
}

#endif
