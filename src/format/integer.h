/* SPDX-License-Identifier: Apache-2.0
 *
 * integer.h - the rounding of all integer formats.
 *
 *     round(v) = nearest integer, halves to even, within [low, high];  round(NaN) = 0
 *
 * An f32 near 1.5 * 2^23 has no bits below the units. So adding that constant rounds to an integer, which is in the low
 * bits of the sum. Needs |low|, |high| < 2^22 and the default rounding mode.
 */
#ifndef MOX_FORMAT_INTEGER_H
#define MOX_FORMAT_INTEGER_H

#include <stdint.h>

#include "format/f32.h"

MOX_SHARED int32_t mox_integer_round(float value, int32_t low, int32_t high)
{
    const float units = 0x1.8p23f;
    const float number = value == value ? value : 0.0f;
    /* Saturating first also keeps infinities and large values away from the sum. */
    const float v = number < (float)low ? (float)low : number > (float)high ? (float)high : number;
    return (int32_t)(mox_f32_encode(v + units) - mox_f32_encode(units));
}

#endif
