/* SPDX-License-Identifier: Apache-2.0
 *
 * f4_e2m1.h - the 4-bit float E2M1 of the OCP MX specification, also NVFP4's element.
 *
 *     3 | 2..1     | 0            bias 1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives
 *     s | exponent | mantissa     neither infinity nor NaN
 *
 * Encode saturates, infinities too; NaN becomes +6.
 */
#ifndef MOX_FORMAT_F4_E2M1_H
#define MOX_FORMAT_F4_E2M1_H

#include "format/minifloat.h"

MOX_SHARED_CONST mox_minifloat mox_f4_e2m1_fields = {
    .exponent_bits = 2, .mantissa_bits = 1, .bias = 1, .max_code = 0x7
};

MOX_SHARED float mox_f4_e2m1_decode(uint32_t code)
{
    return mox_minifloat_decode(&mox_f4_e2m1_fields, code);
}

MOX_SHARED uint32_t mox_f4_e2m1_encode(float value)
{
    return mox_minifloat_encode(&mox_f4_e2m1_fields, value);
}

#endif
