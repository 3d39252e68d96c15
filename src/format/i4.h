/* SPDX-License-Identifier: Apache-2.0
 *
 * i4.h - signed 4-bit integers, two's complement.
 *
 *     value = code for code < 8, else code - 16
 *
 * Encode rounds to nearest, halves to even, within [-8, 7]; NaN becomes 0.
 */
#ifndef MOX_FORMAT_I4_H
#define MOX_FORMAT_I4_H

#include "format/integer.h"

MOX_SHARED float mox_i4_decode(uint32_t code)
{
    return (float)((int32_t)((code & 0xf) ^ 0x8) - 0x8);
}

MOX_SHARED uint32_t mox_i4_encode(float value)
{
    return (uint32_t)mox_integer_round(value, -8, 7) & 0xf;
}

#endif
