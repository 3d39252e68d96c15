/* SPDX-License-Identifier: Apache-2.0
 *
 * block_levels.h - 32 weights of a block as integers and scales, for the rows of block_levels.def:
 *
 *     w[i] = scale[i / 16] level[i]          exact in f32
 *
 * In IQ types an entry of a code book (block_grids.h) stands for 8 weights (IQ1, IQ2) or 4 (IQ3), in IQ2 and IQ3
 * magnitudes with signs beside them:
 *
 *     type      bytes in order                                                                      scale
 *     iq2_xxs   d f16 | for each 32: 4 entries of 8 bits | u32: 4 x 7 signs, 4 bits of scale        d (1/2 + s) / 4
 *     iq2_xs    d f16 | for each 8: u16 of 9 bits entry, 7 signs | 16 nibbles of scales             d (1/2 + s) / 4
 *     iq2_s     d f16 | 32 entries, low bytes | 32 bytes of signs | 8 high pairs | 16 nibbles       d (1/2 + s) / 4
 *     iq3_xxs   d f16 | 64 entries of 8 bits | for each 32: u32: 4 x 7 signs, 4 bits of scale       d (1/2 + s) / 2
 *     iq3_s     d f16 | 64 low bytes | 8 bytes of ninth bits | 32 bytes of signs | 8 nibbles        d (1 + 2 s)
 *     iq1_s     d f16 | 32 low bytes | for each 32: u16: 4 x 3 high bits, 3 of scale, 1 of shift    d (1 + 2 s) / 8
 *     iq1_m     32 low bytes | 16 bytes: 3 high bits, 1 of shift, twice | 4 u16 of scales           d (1 + 2 s) / 8
 *     tq1_0     32 and 16 bytes of 5 digits to base 3, 4 bytes of 4 | d f16                         d
 *     q1_0      d f16 | 128 signs                                                                   d
 *
 * Seven signs stand for eight: the last is such that an even number of weights is negative. A shift adds 1 or -1 to
 * eight times the entry. In iq1_m, d is in the upper nibbles of the four words of scales.
 *
 * The functions are inline, so that an ISA's files compile them with their flags. Eight weights are decoded at a time,
 * a byte each in a word of 64 bits.
 */
#ifndef MOX_FORMAT_BLOCK_LEVELS_H
#define MOX_FORMAT_BLOCK_LEVELS_H

#include "format/block.h"
#include "format/block_grids.h"

/* A row of block_levels.def. `step` decodes weights 32 s .. 32 s + 31; d: as the f32 that the f16 stands for. */
typedef struct mox_block_levels {
    moxie_dtype dtype;
    int32_t d_at, run, bits;
    void (*step)(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2]);
} mox_block_levels;

/* The row of a block type; NULL for others. Immutable. */
const mox_block_levels *mox_block_levels_of(moxie_dtype dtype);
/* Row i of the list; NULL past the last. */
const mox_block_levels *mox_block_levels_at(int32_t i);

#define MOX_LEVELS_EACH(x) ((uint64_t)(x)*0x0101010101010101u)

/* ---- eight bytes ------------------------------------------------------------------------------------------- */

static inline void mox_levels_put(uint64_t eight, int8_t *level)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(level, &eight, sizeof eight);
#else
    for (int32_t i = 0; i < 8; i++)
        level[i] = (int8_t)(uint8_t)(eight >> 8 * i);
#endif
}

/* Eight codes of 2 bits, a byte each. */
static inline uint64_t mox_levels_of_two_bits(uint32_t entry)
{
    uint64_t x = entry;
    x = (x | x << 24) & 0x000000ff000000ffu;
    x = (x | x << 12) & 0x000f000f000f000fu;
    return (x | x << 6) & MOX_LEVELS_EACH(3);
}

/* Four codes of 3 bits, a byte each. */
static inline uint64_t mox_levels_of_three_bits(uint32_t entry)
{
    return (entry & 7) | (entry & 0x38) << 5 | (entry & 0x1c0) << 10 | (entry & 0xe00) << 15;
}

/* Negates the bytes whose bit in `signs` is set. None is 0. */
static inline uint64_t mox_levels_negate(uint64_t eight, uint32_t signs)
{
    const uint64_t bits = MOX_LEVELS_EACH(signs & 255) & 0x8040201008040201u;
    const uint64_t ones = (bits + MOX_LEVELS_EACH(0x7f)) >> 7 & MOX_LEVELS_EACH(1);
    return (eight ^ ones * 255) + ones;
}

/* Eight signs, a bit each, from seven. */
static inline uint32_t mox_levels_signs(uint32_t seven)
{
    uint32_t parity = seven ^ seven >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return seven | (parity & 1) << 7;
}

/* Of IQ2: 8, 25, 43. */
static inline void mox_levels_put_iq2(uint32_t entry, uint32_t signs, int8_t *level)
{
    const uint64_t codes = mox_levels_of_two_bits(entry);
    mox_levels_put(mox_levels_negate(codes * 17 + (codes >> 1 & MOX_LEVELS_EACH(1)) + MOX_LEVELS_EACH(8), signs),
                   level);
}

/* Of IQ3_XXS: 4, 12, 20, .. 52, and 62. */
static inline uint64_t mox_levels_iq3_xxs(uint64_t codes)
{
    const uint64_t last = codes & codes >> 1 & codes >> 2 & MOX_LEVELS_EACH(1);
    return codes * 8 + last * 2 + MOX_LEVELS_EACH(4);
}

/* Of IQ1: 8 e - 8, and the shift of 1 or -1. */
static inline void mox_levels_put_iq1(uint32_t entry, bool down, int8_t *level)
{
    const uint64_t eight = mox_levels_of_two_bits(entry) * 8 + MOX_LEVELS_EACH(down ? 0x77 : 0x79);
    mox_levels_put(eight ^ MOX_LEVELS_EACH(0x80), level);
}

static inline uint32_t mox_levels_nibble(const uint8_t *bytes, int32_t i)
{
    return bytes[i / 2] >> 4 * (i % 2) & 15u;
}

/* ---- types ------------------------------------------------------------------------------------------------- */

static inline void mox_block_iq2_xxs_step(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2])
{
    const uint8_t *run = block + 2 + 8 * s;
    const uint32_t rest = mox_block_u32(run + 4);
    scale[0] = scale[1] = d * (0.5f + (float)(rest >> 28)) * 0.25f;
    for (int32_t l = 0; l < 4; l++)
        mox_levels_put_iq2(mox_grid_iq2xxs[run[l]], mox_levels_signs(rest >> 7 * l & 127), level + 8 * l);
}

static inline void mox_block_iq2_xs_step(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2])
{
    for (int32_t part = 0; part < 2; part++)
        scale[part] = d * (0.5f + (float)mox_levels_nibble(block + 66, 2 * s + part)) * 0.25f;
    for (int32_t l = 0; l < 4; l++) {
        const uint32_t code = mox_block_u16(block + 2 + 8 * s + 2 * l);
        mox_levels_put_iq2(mox_grid_iq2xs[code & 511], mox_levels_signs(code >> 9), level + 8 * l);
    }
}

static inline void mox_block_iq2_s_step(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2])
{
    for (int32_t part = 0; part < 2; part++)
        scale[part] = d * (0.5f + (float)mox_levels_nibble(block + 74, 2 * s + part)) * 0.25f;
    for (int32_t l = 0; l < 4; l++) {
        const uint32_t entry = block[2 + 4 * s + l] | (uint32_t)(block[66 + s] >> 2 * l & 3) << 8;
        mox_levels_put_iq2(mox_grid_iq2s[entry], block[34 + 4 * s + l], level + 8 * l);
    }
}

static inline void mox_block_iq3_xxs_step(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2])
{
    const uint32_t rest = mox_block_u32(block + 66 + 4 * s);
    const uint8_t *run = block + 2 + 8 * s;
    scale[0] = scale[1] = d * (0.5f + (float)(rest >> 28)) * 0.5f;
    for (int32_t l = 0; l < 4; l++) {
        const uint64_t codes = mox_levels_of_three_bits(mox_grid_iq3xxs[run[2 * l]]) |
                               mox_levels_of_three_bits(mox_grid_iq3xxs[run[2 * l + 1]]) << 32;
        mox_levels_put(mox_levels_negate(mox_levels_iq3_xxs(codes), mox_levels_signs(rest >> 7 * l & 127)),
                       level + 8 * l);
    }
}

static inline void mox_block_iq3_s_step(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2])
{
    const uint8_t *run = block + 2 + 8 * s;
    const uint32_t ninth = block[66 + s];
    scale[0] = scale[1] = d * (float)(1 + 2 * mox_levels_nibble(block + 106, s));
    for (int32_t l = 0; l < 4; l++) {
        const uint32_t first = run[2 * l] | (ninth >> 2 * l & 1) << 8,
                       second = run[2 * l + 1] | (ninth >> (2 * l + 1) & 1) << 8;
        const uint64_t codes =
            mox_levels_of_three_bits(mox_grid_iq3s[first]) | mox_levels_of_three_bits(mox_grid_iq3s[second]) << 32;
        mox_levels_put(mox_levels_negate(codes * 2 + MOX_LEVELS_EACH(1), block[74 + 4 * s + l]), level + 8 * l);
    }
}

static inline void mox_block_iq1_s_step(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2])
{
    const uint32_t high = mox_block_u16(block + 34 + 2 * s);
    scale[0] = scale[1] = d * (float)(2 * (high >> 12 & 7) + 1) * 0.125f;
    for (int32_t l = 0; l < 4; l++)
        mox_levels_put_iq1(mox_grid_iq1[block[2 + 4 * s + l] | (high >> 3 * l & 7) << 8], (high & 0x8000) != 0,
                           level + 8 * l);
}

static inline void mox_block_iq1_m_step(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2])
{
    const uint32_t scales = mox_block_u16(block + 48 + 2 * (s / 2)) >> 6 * (s % 2);
    for (int32_t part = 0; part < 2; part++)
        scale[part] = d * (float)(2 * (scales >> 3 * part & 7) + 1) * 0.125f;
    for (int32_t l = 0; l < 4; l++) {
        const uint32_t high = mox_levels_nibble(block + 32, 4 * s + l);
        mox_levels_put_iq1(mox_grid_iq1[block[4 * s + l] | (high & 7) << 8], (high & 8) != 0, level + 8 * l);
    }
}

/* Digit n, from the highest, of `count` fractions to base 3 in 8 bits, less 1. */
static inline void mox_levels_put_digits(const uint8_t *bytes, int32_t count, int32_t n, int8_t *level)
{
    static const uint8_t power[5] = { 1, 3, 9, 27, 81 };
    for (int32_t i = 0; i < count; i++)
        level[i] = (int8_t)(((uint8_t)(bytes[i] * power[n]) * 3 >> 8) - 1);
}

static inline void mox_block_tq1_0_step(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2])
{
    scale[0] = scale[1] = d;
    if (s < 5) {
        mox_levels_put_digits(block, 32, s, level);
        return;
    }
    mox_levels_put_digits(block + 32, 16, 2 * (s - 5), level);
    if (s < 7)
        mox_levels_put_digits(block + 32, 16, 2 * (s - 5) + 1, level + 16);
    else
        for (int32_t n = 0; n < 4; n++)
            mox_levels_put_digits(block + 48, 4, n, level + 16 + 4 * n);
}

static inline void mox_block_q1_0_step(const uint8_t *block, float d, int32_t s, int8_t *level, float scale[2])
{
    scale[0] = scale[1] = d;
    for (int32_t l = 0; l < 4; l++)
        mox_levels_put(mox_levels_negate(MOX_LEVELS_EACH(1), ~(uint32_t)block[2 + 4 * s + l]), level + 8 * l);
}

/* The code of d. */
static inline uint32_t mox_block_levels_d(const uint8_t *block, int32_t d_at)
{
    uint32_t half = 0;
    if (d_at >= 0)
        return mox_block_u16(block + d_at);
    for (int32_t w = 0; w < 4; w++)
        half |= mox_block_u16(block + 48 + 2 * w) >> 12 << 4 * w;
    return half;
}

#endif
