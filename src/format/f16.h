/* SPDX-License-Identifier: Apache-2.0
 *
 * f16.h - IEEE 754 binary16.
 *
 *     15 | 14..10   | 9..0         bias 15, largest 65504, smallest normal 2^-14, step below it 2^-24
 *     s  | exponent | mantissa     e = 31: m = 0 infinity, else NaN
 *
 * Two conversions from f32, both to nearest, ties to even, NaN to 0x7e00:
 *   narrow   IEEE 754: a finite value past the largest becomes infinity. For results (hidden states).
 *   encode   saturating: it becomes the largest finite value. For codes (quantized tensors, scales).
 * Both keep infinities and the sign of zero.
 */
#ifndef MOX_FORMAT_F16_H
#define MOX_FORMAT_F16_H

#include "format/minifloat.h"

MOX_SHARED_CONST mox_minifloat mox_f16_fields = {
    .exponent_bits = 5, .mantissa_bits = 10, .bias = 15, .max_code = 0x7bff, .inf_code = 0x7c00, .nan_code = 0x7e00
};

MOX_SHARED float mox_f16_decode(uint32_t code)
{
    return mox_minifloat_decode(&mox_f16_fields, code);
}

MOX_SHARED uint32_t mox_f16_narrow(float value)
{
    return mox_minifloat_round(&mox_f16_fields, value, mox_f16_fields.inf_code);
}

MOX_SHARED uint32_t mox_f16_encode(float value)
{
    return mox_minifloat_encode(&mox_f16_fields, value);
}

#endif
