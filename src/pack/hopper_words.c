/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_words.c - eight codes to a word, 16 rows of a product at a time, and back (hopper_words.h): bytes of two rows
 * are interleaved in vector registers, as neighbours of an MMA's register are, then their bits find their places.
 */
#include "pack/hopper_words.h"

#include "pack/flip.h"
#include "pack/hopper.h"

enum { HALF = 8, ROW_BYTES = MOX_HOPPER_CODE_COLS / 2, WORDS = 4 };
enum { AHEAD = 256 }; /* bytes of a row that are asked for before: 16 or 32 rows are too many streams to guess */

/* A word of eight codes begins as nibbles: nibble i of each half is register i's code there, which is how integers
 * stay. e2m1's bits then go where hopper.h has them: by so many turns to the left, where the mask has room for them. */
#define E2M1_MOVES(MOVE)                                                                                               \
    MOVE(12, 0x86008600)                                                                                               \
    MOVE(6, 0x01c001c0)                                                                                                \
    MOVE(4, 0x08000800)                                                                                                \
    MOVE(30, 0x001c001c)                                                                                               \
    MOVE(26, 0x00200020)                                                                                               \
    MOVE(20, 0x70017001)                                                                                               \
    MOVE(18, 0x00020002)

MOX_FLIP_INLINE mox_words e2m1_bits(mox_words nibbles)
{
    mox_words all = { 0 };
#define MOVE(turn, mask) all |= (nibbles << (turn) | nibbles >> (32 - (turn))) & (mask);
    E2M1_MOVES(MOVE)
#undef MOVE
    return all;
}

static uint32_t nibbles_of(uint32_t e2m1)
{
    uint32_t all = 0;
#define MOVE(turn, mask) all |= (e2m1 & (mask)) >> (turn) | (e2m1 & (mask)) << (32 - (turn));
    E2M1_MOVES(MOVE)
#undef MOVE
    return all;
}

/* From two's complement to codes counted from -8, and back. */
static uint32_t flip_of(const moxie_quant *q)
{
    return q->element == MOXIE_I4 ? 0x88888888 : 0;
}

uint8_t mox_hopper_byte_of(const moxie_quant *q, uint32_t word, int i)
{
    const uint32_t nibbles = q->element == MOXIE_F4_E2M1 ? nibbles_of(word) : word ^ flip_of(q);
    return (uint8_t)((nibbles >> 4 * i & 15) | (nibbles >> (16 + 4 * i) & 15) << 4);
}

/* Neighbouring bytes of rows r and r + 8, eight pairs, to a word of each of four lanes. */
MOX_FLIP_INLINE mox_words words_of(mox_v16u8 pairs, bool floats, uint32_t flip)
{
    const mox_v8u16 first = (mox_v8u16)pairs, second = __builtin_shufflevector(first, first, 4, 5, 6, 7, 0, 1, 2, 3);
    const mox_words bytes = (mox_words)__builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
    const mox_words nibbles = mox_part_nibbles(bytes) ^ flip;
    return floats ? e2m1_bits(nibbles) : nibbles;
}

/* 32 columns of rows r and r + 8, to words 0 and 1 of four lanes. */
MOX_FLIP_INLINE void half_chunk(const uint8_t *low, const uint8_t *high, bool floats, uint32_t flip, mox_words v[2])
{
    mox_v16u8 a, b;
    memcpy(&a, low, sizeof a);
    memcpy(&b, high, sizeof b);
    v[0] =
        words_of(__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), floats, flip);
    v[1] = words_of(__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), floats,
                    flip);
}

/* Eight dense rows r and eight r + 8 (NULL: zeros), row by row, so that each cache line of theirs is read once. */
MOX_FLIP_INLINE void put_rows(bool floats, uint32_t flip, const uint8_t *low, int64_t low_stride, const uint8_t *high,
                              int64_t high_stride, const mox_hopper_warp *place)
{
    static const uint8_t none[MOX_HOPPER_TOGETHER * ROW_BYTES];
    for (int i = 0; i < HALF; i++) {
        const uint8_t *a = low != NULL ? low + i * low_stride : none, *b = high != NULL ? high + i * high_stride : none;
        __builtin_prefetch(a + AHEAD);
        __builtin_prefetch(b + AHEAD);
        for (int c = 0; c < place->chunks; c++) {
            uint8_t *to = place->to + c * place->chunk_bytes + i * WORDS * (int)sizeof(mox_words);
            mox_words v[WORDS];
            for (int h = 0; h < 2; h++)
                half_chunk(a + c * ROW_BYTES + h * 16, b + c * ROW_BYTES + h * 16, floats, flip, v + 2 * h);
            mox_flip_words(v);
            for (int q = 0; q < WORDS; q++)
                mox_store_words(to + q * (int)sizeof v[q], v[q]);
        }
    }
}

void mox_hopper_put_warp(const moxie_quant *q, const uint8_t *low, int64_t low_stride, const uint8_t *high,
                         int64_t high_stride, const mox_hopper_warp *place)
{
    if (q->element == MOXIE_F4_E2M1)
        put_rows(true, 0, low, low_stride, high, high_stride, place);
    else
        put_rows(false, flip_of(q), low, low_stride, high, high_stride, place);
}
