/* SPDX-License-Identifier: Apache-2.0
 *
 * i8.h - signed 8-bit integers, two's complement.
 *
 *     value = code for code < 128, else code - 256
 *
 * Encode rounds to nearest, halves to even, within [-128, 127]; NaN becomes 0.
 */
#ifndef MOX_FORMAT_I8_H
#define MOX_FORMAT_I8_H

#include "format/integer.h"

MOX_SHARED float mox_i8_decode(uint32_t code)
{
    return (float)((int32_t)((code & 0xff) ^ 0x80) - 0x80);
}

MOX_SHARED uint32_t mox_i8_encode(float value)
{
    return (uint32_t)mox_integer_round(value, -128, 127) & 0xff;
}

#endif
