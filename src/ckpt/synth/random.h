/* SPDX-License-Identifier: Apache-2.0
 *
 * random.h - random numbers for synthetic checkpoints. They are counter-based: element i of any tensor can be computed
 * alone, by any thread, and has the same bits on every machine.
 *
 *     Philox4x32-10: (counter 128 bits, key 64 bits) -> 128 random bits
 *     counter = { block index (64 bits), stream (64 bits) }, key = seed
 *
 * A normal deviate uses 64 bits, half a block: the sum of six uniform digits of ten bits (Irwin-Hall: close to normal,
 * bounded at 4.24 deviations); the remaining four bits fill the gaps of the grid:
 *
 *     v = 16 (d0 + d1 + d2 + d3 + d4 + d5) + r      d in [0, 1024), r in [0, 16)
 *     z = 2 v - 98223                               odd, symmetric around 0, deviation 23170.4658
 *
 * z is an integer. Multiplying it by one float constant rounds once, so no libm is involved and all IEEE machines
 * agree. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 */
#ifndef MOX_CKPT_RANDOM_H
#define MOX_CKPT_RANDOM_H

#include <stdint.h>

/* One sequence of numbers. Different ids never share a block. */
typedef struct mox_stream {
    uint64_t seed;
    uint64_t id;
} mox_stream;

/* 1 / deviation of z; the largest |z|. */
#define MOX_DEVIATE_UNIT (1.0 / 23170.465791606348)
#define MOX_DEVIATE_MAX  98223

/* Block `index` of a stream as two halves of 64 bits. */
static inline void mox_random_block(const mox_stream *stream, uint64_t index, uint64_t half[2])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream->id, c3 = (uint32_t)(stream->id >> 32);
    uint32_t k0 = (uint32_t)stream->seed, k1 = (uint32_t)(stream->seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    half[0] = c0 | (uint64_t)c1 << 32;
    half[1] = c2 | (uint64_t)c3 << 32;
}

/* The deviate z that 64 random bits make. */
static inline int32_t mox_deviate_of(uint64_t bits)
{
    int32_t sum = 0;
    for (int digit = 0; digit < 6; digit++)
        sum += (int32_t)(bits >> (10 * digit) & 1023);
    return 2 * (16 * sum + (int32_t)(bits >> 60)) - MOX_DEVIATE_MAX;
}

/* Deviates first .. first + count of a stream. */
static inline void mox_deviates(const mox_stream *stream, uint64_t first, int64_t count, int32_t *z)
{
    uint64_t half[2];
    int64_t i = 0;
    if (first % 2 == 1 && count > 0) {
        mox_random_block(stream, first / 2, half);
        z[i++] = mox_deviate_of(half[1]);
    }
    for (; i + 1 < count; i += 2) {
        mox_random_block(stream, (first + (uint64_t)i) / 2, half);
        z[i] = mox_deviate_of(half[0]);
        z[i + 1] = mox_deviate_of(half[1]);
    }
    if (i < count) {
        mox_random_block(stream, (first + (uint64_t)i) / 2, half);
        z[i] = mox_deviate_of(half[0]);
    }
}

/* 64 random bits, element `index`. */
static inline uint64_t mox_random_bits(const mox_stream *stream, uint64_t index)
{
    uint64_t half[2];
    mox_random_block(stream, index / 2, half);
    return half[index % 2];
}

/* Uniform in [0, 1), a multiple of 2^-24. */
static inline float mox_random_unit(const mox_stream *stream, uint64_t index)
{
    return (float)(mox_random_bits(stream, index) >> 40) * 0x1p-24f;
}

#endif
