/* SPDX-License-Identifier: Apache-2.0
 *
 * f32.h - IEEE 754 binary32, the format in which every other one is decoded.
 *
 *     31 | 30..23   | 22..0        value = (-1)^s * 2^(e-127) * 1.m,  e = 0: (-1)^s * 2^-126 * 0.m
 *     s  | exponent | mantissa     e = 255: m = 0 infinity, else NaN
 *
 * Code and value are the same bits, so encode and decode only reinterpret them, and every NaN keeps its
 * bits. The other formats use the two functions to access a float's fields.
 */
#ifndef MOX_FORMAT_F32_H
#define MOX_FORMAT_F32_H

#include <stdint.h>
#include <string.h>

#include "base/shared.h"

#define MOX_F32_INF 0x7f800000u
#define MOX_F32_NAN 0x7fc00000u

MOX_SHARED float mox_f32_decode(uint32_t code)
{
    float value;
    memcpy(&value, &code, sizeof value);
    return value;
}

MOX_SHARED uint32_t mox_f32_encode(float value)
{
    uint32_t code;
    memcpy(&code, &value, sizeof code);
    return code;
}

#endif
