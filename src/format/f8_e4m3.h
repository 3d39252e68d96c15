/* SPDX-License-Identifier: Apache-2.0
 *
 * f8_e4m3.h - the 8-bit float E4M3 of the OCP specification (the "fn" variant: finite and NaN only).
 *
 *     7 | 6..3     | 2..0         bias 7, largest 448 (0x7e), smallest normal 2^-6, step below it 2^-9
 *     s | exponent | mantissa     0x7f and 0xff are NaN; no infinity
 *
 * Encode saturates, infinities too; NaN becomes 0x7f whatever its sign.
 */
#ifndef MOX_FORMAT_F8_E4M3_H
#define MOX_FORMAT_F8_E4M3_H

#include "format/minifloat.h"

MOX_SHARED_CONST mox_minifloat mox_f8_e4m3_fields = {
    .exponent_bits = 4, .mantissa_bits = 3, .bias = 7, .max_code = 0x7e, .nan_code = 0x7f
};

MOX_SHARED float mox_f8_e4m3_decode(uint32_t code)
{
    return mox_minifloat_decode(&mox_f8_e4m3_fields, code);
}

MOX_SHARED uint32_t mox_f8_e4m3_encode(float value)
{
    return mox_minifloat_encode(&mox_f8_e4m3_fields, value);
}

#endif
