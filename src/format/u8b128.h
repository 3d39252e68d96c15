/* SPDX-License-Identifier: Apache-2.0
 *
 * u8b128.h - 8-bit integers stored with a bias, as 8-bit GPTQ checkpoints hold them.
 *
 *     value = code - 128
 *
 * Encode rounds to nearest, halves to even, within [-128, 127]; NaN becomes the value 0, code 128.
 */
#ifndef MOX_FORMAT_U8B128_H
#define MOX_FORMAT_U8B128_H

#include "format/integer.h"

MOX_SHARED float mox_u8b128_decode(uint32_t code)
{
    return (float)((int32_t)(code & 0xff) - 128);
}

MOX_SHARED uint32_t mox_u8b128_encode(float value)
{
    return (uint32_t)(mox_integer_round(value, -128, 127) + 128);
}

#endif
