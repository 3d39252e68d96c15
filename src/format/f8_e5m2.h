/* SPDX-License-Identifier: Apache-2.0
 *
 * f8_e5m2.h - the 8-bit float E5M2 of the OCP specification: the upper half of an f16.
 *
 *     7 | 6..2     | 1..0         bias 15, largest 57344 (0x7b), smallest normal 2^-14, step below it 2^-16
 *     s | exponent | mantissa     0x7c infinity; 0x7d, 0x7e, 0x7f NaN
 *
 * Encode saturates finite values at 57344 and keeps infinities; NaN becomes 0x7f whatever its sign.
 */
#ifndef MOX_FORMAT_F8_E5M2_H
#define MOX_FORMAT_F8_E5M2_H

#include "format/minifloat.h"

MOX_SHARED_CONST mox_minifloat mox_f8_e5m2_fields = {
    .exponent_bits = 5, .mantissa_bits = 2, .bias = 15, .max_code = 0x7b, .inf_code = 0x7c, .nan_code = 0x7f
};

MOX_SHARED float mox_f8_e5m2_decode(uint32_t code)
{
    return mox_minifloat_decode(&mox_f8_e5m2_fields, code);
}

MOX_SHARED uint32_t mox_f8_e5m2_encode(float value)
{
    return mox_minifloat_encode(&mox_f8_e5m2_fields, value);
}

#endif
