/* SPDX-License-Identifier: Apache-2.0
 *
 * block_iq.c - block types of 256 weights whose codes are entries of a code book (block_grids.h): an entry stands for 8
 * weights (IQ1, IQ2) or 4 (IQ3), in IQ2 and IQ3 magnitudes with signs beside them.
 *
 *     type      bytes in order                                                                      scale
 *     iq2_xxs   d f16 | for each 32: 4 entries of 8 bits | u32: 4 x 7 signs, 4 bits of scale        d (1/2 + s) / 4
 *     iq2_xs    d f16 | for each 8: u16 of 9 bits entry, 7 signs | 16 nibbles of scales             d (1/2 + s) / 4
 *     iq2_s     d f16 | 32 entries, low bytes | 32 bytes of signs | 8 high pairs | 16 nibbles       d (1/2 + s) / 4
 *     iq3_xxs   d f16 | 64 entries of 8 bits | for each 32: u32: 4 x 7 signs, 4 bits of scale       d (1/2 + s) / 2
 *     iq3_s     d f16 | 64 low bytes | 8 bytes of ninth bits | 32 bytes of signs | 8 nibbles        d (1 + 2 s)
 *     iq1_s     d f16 | 32 low bytes | for each 32: u16: 4 x 3 high bits, 3 of scale, 1 of shift    d (1 + 2 s)
 *     iq1_m     32 low bytes | 16 bytes: 3 high bits, 1 of shift, twice | 4 u16 of scales           d (1 + 2 s)
 *
 * Seven signs stand for eight: the last is such that an even number of weights is negative. A shift adds 1/8 or -1/8 to
 * every weight of the entry. In iq1_m, d is in the upper nibbles of the four words of scales.
 */
#include "format/block.h"

#include "format/block_grids.h"

static const uint8_t iq2_levels[4] = { 8, 25, 43, 0 };

/* Eight signs, a bit each, from seven. */
static uint32_t eight_signs(uint32_t seven)
{
    uint32_t parity = seven ^ seven >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return seven | (parity & 1) << 7;
}

static float with_sign(float value, uint32_t signs, int32_t bit)
{
    return signs >> bit & 1 ? -value : value;
}

/* Eight weights of IQ2. */
static void put_eight(uint32_t entry, uint32_t signs, float scale, float *out)
{
    for (int32_t i = 0; i < 8; i++)
        out[i] = with_sign(scale * (float)iq2_levels[entry >> 2 * i & 3], signs, i);
}

/* Four weights of IQ3. */
static void put_four(uint32_t entry, const uint8_t *levels, uint32_t signs, float scale, float *out)
{
    for (int32_t i = 0; i < 4; i++)
        out[i] = with_sign(scale * (float)levels[entry >> 3 * i & 7], signs, i);
}

/* Eight weights of IQ1. */
static void put_shifted(uint32_t entry, float shift, float scale, float *out)
{
    for (int32_t i = 0; i < 8; i++)
        out[i] = scale * ((float)(entry >> 2 * i & 3) - 1.0f + shift);
}

static uint32_t nibble_of(const uint8_t *bytes, int32_t i)
{
    return bytes[i / 2] >> 4 * (i % 2) & 15u;
}

void mox_block_iq2_xxs_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    for (int32_t j = 0; j < 8; j++) {
        const uint8_t *run = block + 2 + 8 * j;
        const uint32_t rest = mox_block_u32(run + 4);
        const float scale = d * (0.5f + (float)(rest >> 28)) * 0.25f;
        for (int32_t l = 0; l < 4; l++)
            put_eight(mox_grid_iq2xxs[run[l]], eight_signs(rest >> 7 * l & 127), scale, out + 32 * j + 8 * l);
    }
}

void mox_block_iq2_xs_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    for (int32_t i = 0; i < 32; i++) {
        const uint32_t code = mox_block_u16(block + 2 + 2 * i);
        const float scale = d * (0.5f + (float)nibble_of(block + 66, i / 2)) * 0.25f;
        put_eight(mox_grid_iq2xs[code & 511], eight_signs(code >> 9), scale, out + 8 * i);
    }
}

void mox_block_iq2_s_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    for (int32_t i = 0; i < 32; i++) {
        const uint32_t entry = block[2 + i] | (uint32_t)(block[66 + i / 4] >> 2 * (i % 4) & 3) << 8;
        const float scale = d * (0.5f + (float)nibble_of(block + 74, i / 2)) * 0.25f;
        put_eight(mox_grid_iq2s[entry], block[34 + i], scale, out + 8 * i);
    }
}

void mox_block_iq3_xxs_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    for (int32_t j = 0; j < 8; j++) {
        const uint32_t rest = mox_block_u32(block + 66 + 4 * j);
        const float scale = d * (0.5f + (float)(rest >> 28)) * 0.5f;
        for (int32_t l = 0; l < 8; l++) {
            const uint32_t signs = eight_signs(rest >> 7 * (l / 2) & 127) >> 4 * (l % 2);
            put_four(mox_grid_iq3xxs[block[2 + 8 * j + l]], mox_iq3xxs_levels, signs, scale, out + 32 * j + 4 * l);
        }
    }
}

void mox_block_iq3_s_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    for (int32_t i = 0; i < 64; i++) {
        const uint32_t entry = block[2 + i] | (uint32_t)(block[66 + i / 8] >> i % 8 & 1) << 8;
        const float scale = d * (float)(1 + 2 * nibble_of(block + 106, i / 8));
        put_four(mox_grid_iq3s[entry], mox_iq3s_levels, (uint32_t)block[74 + i / 2] >> 4 * (i % 2), scale, out + 4 * i);
    }
}

void mox_block_iq1_s_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    for (int32_t i = 0; i < 32; i++) {
        const uint32_t high = mox_block_u16(block + 34 + 2 * (i / 4));
        const uint32_t entry = block[2 + i] | (high >> 3 * (i % 4) & 7) << 8;
        put_shifted(mox_grid_iq1[entry], high & 0x8000 ? -0.125f : 0.125f, d * (float)(2 * (high >> 12 & 7) + 1),
                    out + 8 * i);
    }
}

void mox_block_iq1_m_decode(const uint8_t *block, float *out)
{
    const uint8_t *scales = block + 48;
    uint32_t half = 0;
    for (int32_t w = 0; w < 4; w++)
        half |= mox_block_u16(scales + 2 * w) >> 12 << 4 * w;
    const float d = mox_f16_decode(half);
    for (int32_t i = 0; i < 32; i++) {
        const uint32_t high = nibble_of(block + 32, i), entry = block[i] | (high & 7) << 8;
        const uint32_t scale = mox_block_u16(scales + 2 * (i / 8)) >> 3 * (i / 2 % 4) & 7;
        put_shifted(mox_grid_iq1[entry], high & 8 ? -0.125f : 0.125f, d * (float)(2 * scale + 1), out + 8 * i);
    }
}
