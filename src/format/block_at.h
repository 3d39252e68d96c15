/* SPDX-License-Identifier: Apache-2.0
 *
 * block_at.h - one weight of a block, for the rows of block_fields.def, on host and device:
 *
 *     w[i] = d s[i / run] (level(code[i]) - offset) -+ m t[i / run]
 *
 * The product is exact in f32, and the sum is rounded once: the f32 that the type's decoder gives.
 */
#ifndef MOX_FORMAT_BLOCK_AT_H
#define MOX_FORMAT_BLOCK_AT_H

#include <stdint.h>

#include <moxie/moxie.h>

#include "base/shared.h"
#include "format/f16.h"

#define MOX_BLOCK_DTYPE 128 /* as in block.h, which device code cannot read */

/* How the integers of runs are stored: s signed, t not. */
typedef enum mox_block_integers {
    MOX_BLOCK_NONE,        /* there are none: s = t = 1 */
    MOX_BLOCK_BYTES,       /* s: i8 */
    MOX_BLOCK_NIBBLES,     /* s in the low nibble of a byte, t in the high one */
    MOX_BLOCK_SIX,         /* s + 32 in 6 bits: q3_k */
    MOX_BLOCK_SIX_AND_SIX, /* s and t in 6 bits each: q4_k, q5_k */
    MOX_BLOCK_SIX_SPLIT    /* s + 32 in 6 bits: iq4_xs */
} mox_block_integers;

/* Bits of all codes: byte at + run * stride + l, bits [f * bits, f * bits + bits) belong to weight
 * (run * 8 / bits + f) * stride + l. */
typedef struct mox_block_field {
    int16_t at;
    int8_t bits, stride;
} mox_block_field;

typedef struct mox_block_fields {
    moxie_dtype dtype;
    mox_block_field low, high;
    int16_t d_at, m_at; /* m_at -1: there is no m */
    int8_t m_sign;
    mox_block_integers integers;
    int16_t at, run;
    int16_t offset;
    int8_t levels;
} mox_block_fields;

/* Where the low 4 bits and the high 2 bits of an integer are, in bytes from fields.at on. */
typedef struct mox_block_six {
    int32_t low, low_shift, high, high_shift;
} mox_block_six;

/* Integer i of s (`of_t` 0) or of t. */
MOX_SHARED mox_block_six mox_block_six_at(mox_block_integers integers, int32_t i, int32_t of_t)
{
    mox_block_six at;
    if (integers == MOX_BLOCK_SIX) {
        at.low = i % 8, at.low_shift = i < 8 ? 0 : 4;
        at.high = 8 + i % 4, at.high_shift = 2 * (i / 4);
    } else if (integers == MOX_BLOCK_SIX_SPLIT) {
        at.low = 2 + i / 2, at.low_shift = 4 * (i % 2);
        at.high = i / 4, at.high_shift = 2 * (i % 4);
    } else if (i < 4) {
        at.low = at.high = of_t ? i + 4 : i;
        at.low_shift = 0, at.high_shift = 4;
    } else {
        at.low = i + 4, at.low_shift = of_t ? 4 : 0;
        at.high = of_t ? i : i - 4, at.high_shift = 6;
    }
    return at;
}

MOX_SHARED int32_t mox_block_get_six(const uint8_t *bytes, mox_block_six at)
{
    return (bytes[at.low] >> at.low_shift & 15) | (bytes[at.high] >> at.high_shift & 3) << 4;
}

/* The bits of weight i in a field. */
MOX_SHARED int32_t mox_block_get_bits(mox_block_field field, const uint8_t *block, int32_t i)
{
    const int32_t span = field.stride * (8 / field.bits), place = i % span;
    const int32_t byte = block[field.at + i / span * field.stride + place % field.stride];
    return byte >> field.bits * (place / field.stride) & ((1 << field.bits) - 1);
}

/* s of a run; for t, m must be there. */
MOX_SHARED float mox_block_get_s(const mox_block_fields *f, const uint8_t *block, int32_t run)
{
    const uint8_t *bytes = block + f->at;
    switch (f->integers) {
    case MOX_BLOCK_NONE: return 1.0f;
    case MOX_BLOCK_BYTES: return (float)(int8_t)bytes[run];
    case MOX_BLOCK_NIBBLES: return (float)(bytes[run] & 15);
    case MOX_BLOCK_SIX_AND_SIX: return (float)mox_block_get_six(bytes, mox_block_six_at(f->integers, run, 0));
    default: return (float)(mox_block_get_six(bytes, mox_block_six_at(f->integers, run, 0)) - 32);
    }
}

MOX_SHARED float mox_block_get_t(const mox_block_fields *f, const uint8_t *block, int32_t run)
{
    if (f->integers == MOX_BLOCK_NIBBLES)
        return (float)(block[f->at + run] >> 4);
    return f->integers == MOX_BLOCK_NONE
               ? 1.0f
               : (float)mox_block_get_six(block + f->at, mox_block_six_at(f->integers, run, 1));
}

MOX_SHARED float mox_block_get_f16(const uint8_t *at)
{
    return mox_f16_decode((uint32_t)at[0] | (uint32_t)at[1] << 8);
}

/* Levels of iq4_nl plus 128, a byte each. */
MOX_SHARED int32_t mox_block_level(int32_t code)
{
    const uint32_t words[4] = { 0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u };
    return (int32_t)(words[code >> 2] >> 8 * (code & 3) & 255);
}

/* Weight i of a block of the type with these fields. */
MOX_SHARED float mox_block_weight(const mox_block_fields *f, const uint8_t *block, int32_t i)
{
    const int32_t run = i / f->run;
    int32_t code = mox_block_get_bits(f->low, block, i);
    if (f->high.bits > 0)
        code |= mox_block_get_bits(f->high, block, i) << f->low.bits;
    const int32_t level = (f->levels ? mox_block_level(code) : code) - f->offset;
    const float scale = mox_block_get_f16(block + f->d_at) * mox_block_get_s(f, block, run);
    const float product = scale * (float)level;
    if (f->m_at < 0)
        return product;
    const float minimum = mox_block_get_f16(block + f->m_at) * mox_block_get_t(f, block, run);
    return f->m_sign < 0 ? product - minimum : product + minimum;
}

#endif
