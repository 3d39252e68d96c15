/* SPDX-License-Identifier: Apache-2.0
 *
 * block_k.c - block types of 256 weights with two levels of scales: an f16 for the block, a small integer for each
 * run of 16 or 32 weights.
 *
 *     type     bytes in order                                                              weight
 *     q2_k     16 (4-bit scale | 4-bit minimum) | 64 of 2 bits | d, dmin f16               d s q - dmin m
 *     q3_k     32 third bits | 64 of 2 bits | 12 of 6-bit scales | d f16                   d (s - 32) (q - 4)
 *     q4_k     d, dmin f16 | 12 of 6-bit scales and minimums | 128 nibbles                 d s q - dmin m
 *     q5_k     as q4_k | 32 fifth bits | 128 nibbles                                       d s q - dmin m
 *     q6_k     128 low nibbles | 64 high pairs of bits | 16 i8 scales | d f16              d s (q - 32)
 *     iq4_xs   d f16 | u16 high pairs of scales | 4 low nibbles of scales | 128 nibbles    d (s - 32) table[q]
 *     tq2_0    64 of 2 bits | d f16                                                        d (q - 1)
 *
 * Codes of 2 bits lie in two halves of 128 weights: 32 bytes, of which each holds weights l, l + 32, l + 64, l + 96.
 */
#include "format/block.h"

/* 256 codes of 2 bits. */
static void two_bits(const uint8_t *bytes, int32_t *q)
{
    for (int32_t run = 0; run < 8; run++)
        for (int32_t l = 0; l < 32; l++)
            q[32 * run + l] = bytes[32 * (run / 4) + l] >> 2 * (run % 4) & 3;
}

void mox_block_q2_k_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block + 80), dmin = mox_block_f16(block + 82);
    int32_t q[256];
    two_bits(block + 16, q);
    for (int32_t run = 0; run < 16; run++) {
        const float scale = d * (float)(block[run] & 15), minimum = dmin * (float)(block[run] >> 4);
        for (int32_t i = 16 * run; i < 16 * run + 16; i++)
            out[i] = scale * (float)q[i] - minimum;
    }
}

/* 16 scales of 6 bits in 12 bytes: low nibbles of 8 bytes, high nibbles of the same, then pairs of high bits. */
static int32_t q3_scale(const uint8_t *bytes, int32_t s)
{
    const int32_t low = bytes[s % 8] >> (s < 8 ? 0 : 4) & 15, high = bytes[8 + s % 4] >> 2 * (s / 4) & 3;
    return low | high << 4;
}

void mox_block_q3_k_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block + 108);
    int32_t q[256];
    two_bits(block + 32, q);
    for (int32_t run = 0; run < 8; run++)
        for (int32_t l = 0; l < 32; l++)
            q[32 * run + l] += 4 * (block[l] >> run & 1) - 4;
    for (int32_t run = 0; run < 16; run++) {
        const float scale = d * (float)(q3_scale(block + 96, run) - 32);
        for (int32_t i = 16 * run; i < 16 * run + 16; i++)
            out[i] = scale * (float)q[i];
    }
}

/* Scale and minimum of run j of 8, 6 bits each, in 12 bytes: runs 0 to 3 in the low bits of bytes j and j + 4; of runs
 * 4 to 7 the low nibbles are in byte j + 4, the high pairs of bits on top of bytes j - 4 and j. */
static void scale_and_minimum(const uint8_t *bytes, int32_t j, int32_t *scale, int32_t *minimum)
{
    if (j < 4) {
        *scale = bytes[j] & 63;
        *minimum = bytes[j + 4] & 63;
    } else {
        *scale = (bytes[j + 4] & 15) | bytes[j - 4] >> 6 << 4;
        *minimum = bytes[j + 4] >> 4 | bytes[j] >> 6 << 4;
    }
}

/* Both types with minimums; `fifth` is NULL for q4_k. */
static void decode_45(const uint8_t *block, const uint8_t *fifth, const uint8_t *nibbles, float *out)
{
    const float d = mox_block_f16(block), dmin = mox_block_f16(block + 2);
    for (int32_t j = 0; j < 8; j++) {
        int32_t scale, minimum;
        scale_and_minimum(block + 4, j, &scale, &minimum);
        const float run_scale = d * (float)scale, run_minimum = dmin * (float)minimum;
        for (int32_t l = 0; l < 32; l++) {
            const int32_t low = nibbles[32 * (j / 2) + l] >> 4 * (j % 2) & 15;
            const int32_t q = fifth ? low | (fifth[l] >> j & 1) << 4 : low;
            out[32 * j + l] = run_scale * (float)q - run_minimum;
        }
    }
}

void mox_block_q4_k_decode(const uint8_t *block, float *out)
{
    decode_45(block, NULL, block + 16, out);
}

void mox_block_q5_k_decode(const uint8_t *block, float *out)
{
    decode_45(block, block + 16, block + 48, out);
}

/* 32 codes of 6 bits: `low` and `high` hold them from these bits on. */
static void six_bits(const uint8_t *low, int32_t low_at, const uint8_t *high, int32_t high_at, int32_t *q)
{
    for (int32_t l = 0; l < 32; l++)
        q[l] = (low[l] >> low_at & 15) | (high[l] >> high_at & 3) << 4;
}

void mox_block_q6_k_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block + 208);
    for (int32_t run = 0; run < 8; run++) {
        const int32_t half = run / 4, quarter = run % 4;
        int32_t q[32];
        six_bits(block + 64 * half + 32 * (quarter % 2), 4 * (quarter / 2), block + 128 + 32 * half, 2 * quarter, q);
        for (int32_t part = 0; part < 2; part++) {
            const float scale = d * (float)(int8_t)block[192 + 2 * run + part];
            for (int32_t l = 16 * part; l < 16 * part + 16; l++)
                out[32 * run + l] = scale * (float)(q[l] - 32);
        }
    }
}

void mox_block_iq4_xs_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block);
    const uint32_t high = mox_block_u16(block + 2);
    for (int32_t j = 0; j < 8; j++) {
        const int32_t scale = (block[4 + j / 2] >> 4 * (j % 2) & 15) | (int32_t)(high >> 2 * j & 3) << 4;
        const float run_scale = d * (float)(scale - 32);
        int32_t q[32];
        mox_block_nibbles(block + 8 + 16 * j, 16, q);
        for (int32_t l = 0; l < 32; l++)
            out[32 * j + l] = run_scale * mox_block_iq4(q[l]);
    }
}

void mox_block_tq2_0_decode(const uint8_t *block, float *out)
{
    const float d = mox_block_f16(block + 64);
    int32_t q[256];
    two_bits(block, q);
    for (int32_t i = 0; i < 256; i++)
        out[i] = d * (float)(q[i] - 1);
}
