/* SPDX-License-Identifier: Apache-2.0
 *
 * transpose.h - square blocks transposed in vector registers: the one operation by which packing reorders memory.
 *
 *     row i of the block, 16 bytes      ->    row j of the result
 *     from + i * from_stride                  to + j * to_stride            element (i, j) becomes (j, i)
 *
 * n rows are interleaved log2 n times, each time the first half of them with the second half (a perfect shuffle). The
 * vector types are those of GCC and Clang; every processor's baseline has them (SSE2, NEON). Nothing needs alignment.
 */
#ifndef MOX_PACK_TRANSPOSE_H
#define MOX_PACK_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

typedef uint32_t mox_v4u32 __attribute__((vector_size(16)));
typedef uint16_t mox_v8u16 __attribute__((vector_size(16)));
typedef uint8_t mox_v16u8 __attribute__((vector_size(16)));

#define MOX_PACK_INLINE static inline __attribute__((always_inline))

/* ---- 32-bit words: MOX_LANES blocks of 4 x 4 at once ------------------------------------------------------- */

/* 1 or 2 lanes in a vector. A file that is compiled for 32-byte registers may define it as 2 before it includes
 * this. */
#ifndef MOX_LANES
#define MOX_LANES 1
#endif

/* A lane is 16 bytes and belongs to one block. */
typedef uint32_t mox_words __attribute__((vector_size(16 * MOX_LANES)));
typedef uint64_t mox_double_words __attribute__((vector_size(16 * MOX_LANES)));

/* Takes words i, j, k, l in every lane: 0 .. 3 are those of a, 4 .. 7 those of b. */
#if MOX_LANES == 1
#define MOX_PICK_WORDS(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define MOX_PICK_IN(i, lane) ((i) + 4 * (lane) + ((i) < 4 ? 0 : 4))
#define MOX_PICK_WORDS(a, b, i, j, k, l)                                                                               \
    __builtin_shufflevector(a, b, MOX_PICK_IN(i, 0), MOX_PICK_IN(j, 0), MOX_PICK_IN(k, 0), MOX_PICK_IN(l, 0),          \
                            MOX_PICK_IN(i, 1), MOX_PICK_IN(j, 1), MOX_PICK_IN(k, 1), MOX_PICK_IN(l, 1))
#endif

MOX_PACK_INLINE mox_v4u32 mox_load_v4u32(const uint8_t *from)
{
    mox_v4u32 v;
    memcpy(&v, from, sizeof v);
    return v;
}

MOX_PACK_INLINE void mox_store_v4u32(uint8_t *to, mox_v4u32 v)
{
    memcpy(to, &v, sizeof v);
}

/* Loads or stores lanes at addresses that are `distance` bytes from each other. */
MOX_PACK_INLINE mox_words mox_load_lanes(const uint8_t *from, int64_t distance)
{
#if MOX_LANES == 1
    (void)distance;
    return mox_load_v4u32(from);
#else
    return __builtin_shufflevector(mox_load_v4u32(from), mox_load_v4u32(from + distance), 0, 1, 2, 3, 4, 5, 6, 7);
#endif
}

MOX_PACK_INLINE void mox_store_lanes(uint8_t *to, int64_t distance, mox_words v)
{
    mox_store_v4u32(to, __builtin_shufflevector(v, v, 0, 1, 2, 3));
#if MOX_LANES == 1
    (void)distance;
#else
    mox_store_v4u32(to + distance, __builtin_shufflevector(v, v, 4, 5, 6, 7));
#endif
}

/* Loads or stores all lanes at one address. */
MOX_PACK_INLINE mox_words mox_load_words(const uint8_t *from)
{
    mox_words v;
    memcpy(&v, from, sizeof v);
    return v;
}

MOX_PACK_INLINE void mox_store_words(uint8_t *to, mox_words v)
{
    memcpy(to, &v, sizeof v);
}

/* Two words that are `distance` bytes from each other. */
MOX_PACK_INLINE uint64_t mox_load_two(const uint8_t *from, int64_t distance)
{
    uint64_t both;
    uint32_t first, second;
    if (distance == 4) {
        memcpy(&both, from, sizeof both);
        return both;
    }
    memcpy(&first, from, sizeof first);
    memcpy(&second, from + distance, sizeof second);
    return first | (uint64_t)second << 32;
}

/* 2 * MOX_LANES such pairs, `next` bytes from each other. */
MOX_PACK_INLINE mox_words mox_gather_words(const uint8_t *from, int64_t distance, int64_t next)
{
    mox_double_words v = { 0 };
    for (int i = 0; i < 2 * MOX_LANES; i++)
        v[i] = mox_load_two(from + i * next, distance);
    return (mox_words)v;
}

/* Transposes: word j of v[i] becomes word i of v[j], in every lane. */
MOX_PACK_INLINE void mox_transpose_words(mox_words v[4])
{
    const mox_words a = MOX_PICK_WORDS(v[0], v[1], 0, 4, 1, 5), b = MOX_PICK_WORDS(v[0], v[1], 2, 6, 3, 7);
    const mox_words c = MOX_PICK_WORDS(v[2], v[3], 0, 4, 1, 5), d = MOX_PICK_WORDS(v[2], v[3], 2, 6, 3, 7);
    v[0] = MOX_PICK_WORDS(a, c, 0, 1, 4, 5);
    v[1] = MOX_PICK_WORDS(a, c, 2, 3, 6, 7);
    v[2] = MOX_PICK_WORDS(b, d, 0, 1, 4, 5);
    v[3] = MOX_PICK_WORDS(b, d, 2, 3, 6, 7);
}

/* Delta swap: exchanges the bits of `mask` with the bits `shift` higher. */
MOX_PACK_INLINE mox_words mox_delta_swap(mox_words x, uint32_t mask, int shift)
{
    const mox_words t = (x ^ x >> shift) & mask;
    return x ^ t ^ t << shift;
}

/* Swaps the middle bytes of each word: 0 1 2 3 -> 0 2 1 3. */
MOX_PACK_INLINE mox_words mox_swap_middle_bytes(mox_words x)
{
#if MOX_LANES == 1 /* the baseline of x86-64 has no byte shuffle */
    return mox_delta_swap(x, 0x0000ff00, 8);
#else
    typedef uint8_t bytes __attribute__((vector_size(16 * MOX_LANES)));
    const bytes b = (bytes)x;
    return (mox_words)__builtin_shufflevector(b, b, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15, 16, 18, 17,
                                              19, 20, 22, 21, 23, 24, 26, 25, 27, 28, 30, 29, 31);
#endif
}

/* Nibbles 0 .. 7 of each word to 0 2 4 6 1 3 5 7 (panel order NIBBLES, and AWQ's), and back. */
MOX_PACK_INLINE mox_words mox_deinterleave_nibbles(mox_words x)
{
    return mox_swap_middle_bytes(mox_delta_swap(x, 0x00f000f0, 4));
}

MOX_PACK_INLINE mox_words mox_interleave_nibbles(mox_words x)
{
    return mox_delta_swap(mox_swap_middle_bytes(x), 0x00f000f0, 4);
}

/* ---- memory to memory --------------------------------------------------------------------------------------- */

/* 4 x 4 elements of 32 bits, MOX_LANES blocks. The rows of each block follow those of the block before. */
MOX_PACK_INLINE void mox_transpose_32(const uint8_t *from, int64_t from_stride, uint8_t *to, int64_t to_stride)
{
    mox_words v[4];
    for (int i = 0; i < 4; i++)
        v[i] = mox_load_lanes(from + i * from_stride, 4 * from_stride);
    mox_transpose_words(v);
    for (int i = 0; i < 4; i++)
        mox_store_words(to + i * to_stride, v[i]);
}

/* 8 x 8 elements of 16 bits. */
MOX_PACK_INLINE void mox_transpose_16(const uint8_t *from, int64_t from_stride, uint8_t *to, int64_t to_stride)
{
    mox_v8u16 v[8], u[8];
    for (int i = 0; i < 8; i++)
        memcpy(&v[i], from + i * from_stride, sizeof v[i]);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            u[2 * i] = __builtin_shufflevector(v[i], v[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            u[2 * i + 1] = __builtin_shufflevector(v[i], v[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        memcpy(v, u, sizeof v);
    }
    for (int i = 0; i < 8; i++)
        memcpy(to + i * to_stride, &v[i], sizeof v[i]);
}

/* 16 x 16 elements of 8 bits. */
MOX_PACK_INLINE void mox_transpose_8(const uint8_t *from, int64_t from_stride, uint8_t *to, int64_t to_stride)
{
    mox_v16u8 v[16], u[16];
    for (int i = 0; i < 16; i++)
        memcpy(&v[i], from + i * from_stride, sizeof v[i]);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            u[2 * i] = __builtin_shufflevector(v[i], v[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            u[2 * i + 1] =
                __builtin_shufflevector(v[i], v[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        memcpy(v, u, sizeof v);
    }
    for (int i = 0; i < 16; i++)
        memcpy(to + i * to_stride, &v[i], sizeof v[i]);
}

#endif
