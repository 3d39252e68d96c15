/* SPDX-License-Identifier: Apache-2.0
 *
 * f6_e2m3.h - the 6-bit float E2M3 of the OCP MX specification.
 *
 *     5 | 4..3     | 2..0         bias 1, largest 7.5, smallest normal 1, step below it 0.125
 *     s | exponent | mantissa     neither infinity nor NaN
 *
 * Encode saturates, infinities too; NaN becomes +7.5.
 */
#ifndef MOX_FORMAT_F6_E2M3_H
#define MOX_FORMAT_F6_E2M3_H

#include "format/minifloat.h"

MOX_SHARED_CONST mox_minifloat mox_f6_e2m3_fields = {
    .exponent_bits = 2, .mantissa_bits = 3, .bias = 1, .max_code = 0x1f
};

MOX_SHARED float mox_f6_e2m3_decode(uint32_t code)
{
    return mox_minifloat_decode(&mox_f6_e2m3_fields, code);
}

MOX_SHARED uint32_t mox_f6_e2m3_encode(float value)
{
    return mox_minifloat_encode(&mox_f6_e2m3_fields, value);
}

#endif
