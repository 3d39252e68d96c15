/* SPDX-License-Identifier: Apache-2.0
 *
 * u4b8.h - 4-bit integers stored with a bias, as GPTQ and AWQ checkpoints hold them.
 *
 *     value = code - 8
 *
 * Encode rounds to nearest, halves to even, within [-8, 7]; NaN becomes the value 0, code 8.
 */
#ifndef MOX_FORMAT_U4B8_H
#define MOX_FORMAT_U4B8_H

#include "format/integer.h"

MOX_SHARED float mox_u4b8_decode(uint32_t code)
{
    return (float)((int32_t)(code & 0xf) - 8);
}

MOX_SHARED uint32_t mox_u4b8_encode(float value)
{
    return (uint32_t)(mox_integer_round(value, -8, 7) + 8);
}

#endif
