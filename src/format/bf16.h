/* SPDX-License-Identifier: Apache-2.0
 *
 * bf16.h - bfloat16: the upper half of an f32.
 *
 *     15 | 14..7    | 6..0         value = that of the f32 whose upper half it is
 *     s  | exponent | mantissa
 *
 * Two conversions from f32, both to nearest, ties to even, NaN to 0x7fc0:
 *   narrow   IEEE 754: a finite value past the largest becomes infinity. For results (hidden states).
 *   encode   saturating: it becomes the largest finite value. For codes (quantized tensors, scales).
 * Both keep infinities and the sign of zero.
 */
#ifndef MOX_FORMAT_BF16_H
#define MOX_FORMAT_BF16_H

#include <stdint.h>

#include "format/f32.h"

MOX_SHARED float mox_bf16_decode(uint32_t code)
{
    return mox_f32_decode(code << 16);
}

MOX_SHARED uint32_t mox_bf16_narrow(float value)
{
    const uint32_t bits = mox_f32_encode(value);
    /* Adds half a step minus one, plus the lowest bit that stays, for ties to even. A carry goes on to the next power
     * of two or to infinity. NaN is replaced, because the carry could turn it into infinity or zero. */
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return (bits & 0x7fffffffu) > MOX_F32_INF ? 0x7fc0u : rounded;
}

MOX_SHARED uint32_t mox_bf16_encode(float value)
{
    const uint32_t code = mox_bf16_narrow(value);
    const uint32_t finite = (mox_f32_encode(value) & 0x7fffffffu) < MOX_F32_INF;
    return finite && (code & 0x7fffu) == 0x7f80u ? code - 1 : code;
}

#endif
