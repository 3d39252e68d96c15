/* SPDX-License-Identifier: Apache-2.0
 *
 * block_plain.c - block types with one scale, and at most one minimum, for every run of weights.
 *
 *     type            bytes in order                                            weight
 *     q4_0            d f16 | 16 nibbles, weight i low, i + 16 high              d (q - 8)
 *     q4_1            d, m f16 | 16 nibbles                                      d q + m
 *     q5_0            d f16 | u32 of fifth bits | 16 nibbles                     d (q - 16)
 *     q5_1            d, m f16 | u32 of fifth bits | 16 nibbles                  d q + m
 *     q8_0            d f16 | 32 i8                                              d q
 *     iq4_nl          d f16 | 16 nibbles, which number 16 integers               d table[q]
 *     mxfp4           exponent | 16 nibbles of e2m1                              2^(e - 128) (2 e2m1)
 *     nvfp4           4 scales of unsigned e4m3 | for each 8 nibbles             s/2 (2 e2m1)
 *     q2_0            d f16 | 16 bytes, four weights a byte                      d (q - 1)
 *
 * Exponent 255 of mxfp4 and scale 0x7f of nvfp4 are NaN by their standards; ggml takes 2^127 and 0, and so does this.
 */
#include "format/block.h"

static const int8_t doubled_e2m1[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

void mox_block_q4_0_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    int32_t q[32];
    mox_block_nibbles(block + 2, 16, q);
    for (int32_t i = 0; i < 32; i++)
        out[i] = d * (float)(q[i] - 8);
}

void mox_block_q4_1_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block), m = mox_block_f16(block + 2);
    int32_t q[32];
    mox_block_nibbles(block + 4, 16, q);
    for (int32_t i = 0; i < 32; i++)
        out[i] = d * (float)q[i] + m;
}

/* Codes of 5 bits of 32 weights: four bytes of fifth bits, then nibbles. */
static void five_bits(const uint8_t *bytes, int32_t *q)
{
    const uint32_t high = mox_block_u32(bytes);
    mox_block_nibbles(bytes + 4, 16, q);
    for (int32_t i = 0; i < 32; i++)
        q[i] |= (int32_t)(high >> i & 1) << 4;
}

void mox_block_q5_0_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    int32_t q[32];
    five_bits(block + 2, q);
    for (int32_t i = 0; i < 32; i++)
        out[i] = d * (float)(q[i] - 16);
}

void mox_block_q5_1_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block), m = mox_block_f16(block + 2);
    int32_t q[32];
    five_bits(block + 4, q);
    for (int32_t i = 0; i < 32; i++)
        out[i] = d * (float)q[i] + m;
}

void mox_block_q8_0_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    for (int32_t i = 0; i < 32; i++)
        out[i] = d * (float)(int8_t)block[2 + i];
}

void mox_block_iq4_nl_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    int32_t q[32];
    mox_block_nibbles(block + 2, 16, q);
    for (int32_t i = 0; i < 32; i++)
        out[i] = d * mox_block_iq4(q[i]);
}

/* 2^(e - 128); e 0 and 1 are subnormal. */
static float half_exponent(uint32_t e)
{
    return mox_f32_decode(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

void mox_block_mxfp4_decode(const uint8_t *block, float *out)
{
    const float d = half_exponent(block[0]);
    int32_t q[32];
    mox_block_nibbles(block + 1, 16, q);
    for (int32_t i = 0; i < 32; i++)
        out[i] = d * (float)doubled_e2m1[q[i]];
}

void mox_block_nvfp4_decode(const uint8_t *block, float *out)
{
    for (int32_t s = 0; s < 4; s++) {
        const float d = mox_block_half_ue4m3(block[s]);
        int32_t q[16];
        mox_block_nibbles(block + 4 + 8 * s, 8, q);
        for (int32_t i = 0; i < 16; i++)
            out[16 * s + i] = d * (float)doubled_e2m1[q[i]];
    }
}

void mox_block_q2_0_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    for (int32_t i = 0; i < 64; i++)
        out[i] = d * (float)((block[2 + i / 4] >> 2 * (i % 4) & 3) - 1);
}
