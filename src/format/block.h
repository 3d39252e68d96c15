/* SPDX-License-Identifier: Apache-2.0
 *
 * block.h - block types: every line of blocks.def.
 *
 *     row of a matrix   | block 0 | block 1 | ...        each `bytes` long, `weights` numbers
 *                       |scale,..,codes|                 inside it scales and codes have no common stride
 *
 * A matrix of such a type has no scales beside it, so its moxie_quant is like that of plain floats: the element is all.
 * Where one number is asked for (mox_grid_code), its code is the bits of the f32 that it stands for.
 */
#ifndef MOX_FORMAT_BLOCK_H
#define MOX_FORMAT_BLOCK_H

#include <math.h>
#include <string.h>

#include "format/f16.h"
#include "format/f32.h"
#include "format/number_format.h"

#define MOX_BLOCK_MAX 256 /* weights */
/* dtypes of block types: this plus the type's number in GGUF files */
#define MOX_BLOCK_DTYPE 128

typedef struct mox_block {
    mox_format format; /* dtype and name; its codes are bits of f32 */
    int32_t type;      /* in GGUF files */
    int32_t weights, bytes;
    void (*decode)(const uint8_t *block, float *out); /* out [weights]; `block` needs no alignment */
} mox_block;

/* The block type with this dtype; NULL for other dtypes. Immutable. */
const mox_block *mox_block_of(moxie_dtype dtype);
/* Line i of the list; NULL past the last. Immutable. */
const mox_block *mox_block_at(int32_t i);

static inline bool mox_is_block(moxie_dtype dtype)
{
    return dtype >= MOX_BLOCK_DTYPE && mox_block_of(dtype) != NULL;
}

/* Numbers first .. first + count - 1 of a row of blocks. */
void mox_block_decode_run(const mox_block *block, const uint8_t *row, int64_t first, int64_t count, float *out);

#define MOX_BLOCK(id, ...) void mox_block_##id##_decode(const uint8_t *block, float *out);
#include "format/blocks.def"
#undef MOX_BLOCK

/* Little-endian fields of blocks. */
static inline uint32_t mox_block_u16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static inline uint32_t mox_block_u32(const uint8_t *at)
{
    return mox_block_u16(at) | mox_block_u16(at + 2) << 16;
}

static inline float mox_block_f16(const uint8_t *at)
{
    return mox_f16_decode(mox_block_u16(at));
}

/* What the nibbles of iq4_nl and iq4_xs number. */
static inline float mox_block_iq4(int32_t code)
{
    static const int8_t levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
    return (float)levels[code];
}

/* Scales of nvfp4: half of an unsigned e4m3; the sign bit is ignored. */
static inline float mox_block_half_ue4m3(uint32_t code)
{
    const int32_t exponent = (int32_t)(code >> 3 & 15), mantissa = (int32_t)(code & 7);
    if (code == 0x7f)
        return 0;
    return exponent == 0 ? ldexpf((float)mantissa, -10) : ldexpf((float)(8 + mantissa), exponent - 11);
}

/* Codes of 4 bits: the low nibbles of `half` bytes, then their high nibbles. */
static inline void mox_block_nibbles(const uint8_t *bytes, int32_t half, int32_t *out)
{
    for (int32_t i = 0; i < half; i++) {
        out[i] = bytes[i] & 15;
        out[half + i] = bytes[i] >> 4;
    }
}

#endif
