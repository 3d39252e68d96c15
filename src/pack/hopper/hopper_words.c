/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_words.c - codes to words, 16 rows of a product at a time, and back (hopper_words.h; bits are drawn in
 * hopper.h).
 *
 *     dense rows r and r + 8   ->  bytes of both interleaved, as the halves of a register are
 *                              ->  bits of each word rotated to the places that the kernels decode from
 *                              ->  4 x 4 words transposed: lanes in order
 */
#include "pack/hopper/hopper_words.h"

#include "pack/transpose.h"
#include "pack/hopper/hopper.h"
#include "pack/hopper/hopper_moves.h"

enum { HALF = 8, PLANE_BYTES = 32, WORDS = 4 }; /* PLANE_BYTES: of a row in a plane; WORDS: of a lane in a plane */
enum {
    PREFETCH_BYTES = 256
}; /* bytes of a row to prefetch ahead: 16 or 32 rows are too many streams for the hardware prefetcher */

MOX_PACK_INLINE mox_words moved(mox_words plain, int element)
{
    mox_words all = { 0 };
    MOX_HOPPER_MOVED(plain, element, all)
}

/* Eight pairs of bytes of rows r and r + 8 become one word for each of four lanes. */
MOX_PACK_INLINE mox_words words_of(mox_v16u8 pairs, int element)
{
    const mox_v8u16 first = (mox_v8u16)pairs, second = __builtin_shufflevector(first, first, 4, 5, 6, 7, 0, 1, 2, 3);
    const mox_words bytes = (mox_words)__builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
    return moved(mox_deinterleave_nibbles(bytes), element);
}

/* 16 bytes of a row (32 columns) become one word for each of four lanes: four neighbouring codes and those 16 columns
 * on. */
MOX_PACK_INLINE mox_words fp8_words_of(const uint8_t *from, int order)
{
    mox_v8u16 fours;
    memcpy(&fours, from, sizeof fours);
    return moved((mox_words)__builtin_shufflevector(fours, fours, 0, 4, 1, 5, 2, 6, 3, 7), order);
}

/* Bytes of rows r and r + 8 interleaved, 16 of each, in two vectors. */
MOX_PACK_INLINE void interleave(const uint8_t *low, const uint8_t *high, mox_v16u8 v[2])
{
    mox_v16u8 a, b;
    memcpy(&a, low, sizeof a);
    memcpy(&b, high, sizeof b);
    v[0] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    v[1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/* Four words for each of four lanes, from 32 bytes of both rows. */
MOX_PACK_INLINE void put_plane(const uint8_t *low, const uint8_t *high, int element, bool bytes, uint8_t *to)
{
    mox_words v[WORDS];
    for (int h = 0; h < 2; h++) {
        mox_v16u8 pairs[2];
        interleave(low + 16 * h, high + 16 * h, pairs);
        for (int i = 0; i < 2; i++)
            v[2 * h + i] = mox_hopper_is_fp8_order(element) ? fp8_words_of((i == 0 ? low : high) + 16 * h, element)
                           : bytes                          ? moved((mox_words)pairs[i], element)
                                                            : words_of(pairs[i], element);
    }
    mox_transpose_words(v);
    for (int q = 0; q < WORDS; q++)
        mox_store_words(to + q * (int)sizeof v[q], v[q]);
}

/* ---- 5 and 6 bits ---------------------------------------------------------------------------------------------- */

MOX_PACK_INLINE const mox_hopper_sixes *sixes_of(int order)
{
    return order == MOXIE_F6_E2M3          ? &mox_hopper_e2m3
           : order == MOXIE_F6_E3M2        ? &mox_hopper_e3m2
           : order == MOX_HOPPER_FIVE_BITS ? &mox_hopper_five_bits
                                           : &mox_hopper_six_bits;
}

static uint32_t six_of(const mox_hopper_sixes *s, const uint8_t *warp, int lane, int j, int i, int half)
{
    uint32_t four, two;
    memcpy(&four, warp + (lane * WORDS + j) * 4, sizeof four);
    memcpy(&two, warp + MOX_HOPPER_PLANE + (lane * (WORDS / s->parts) + j / s->parts) * 4, sizeof two);
    const uint32_t both =
        (MOX_ROTATED(four, 4 * i) & s->four) | (MOX_ROTATED(two, s->each * i + s->odd * (j % s->parts)) & s->two);
    const uint32_t code = both >> 16 * half & 0xffff;
    return (code >> s->top & 0x20) | (code >> s->up & 0x1f);
}

/* 64 dense 6-bit codes, one per byte. */
MOX_PACK_INLINE void widen_sixes(const uint8_t *from, uint8_t *to)
{
    for (int i = 0; i < 16; i++) {
        const uint32_t v = from[3 * i] | (uint32_t)from[3 * i + 1] << 8 | (uint32_t)from[3 * i + 2] << 16;
        const uint32_t wide = (v & 0x3f) | (v << 2 & 0x3f00) | (v << 4 & 0x3f0000) | (v << 6 & 0x3f000000);
        memcpy(to + 4 * i, &wide, sizeof wide);
    }
}

/* 64 dense 5-bit codes, one per byte. */
MOX_PACK_INLINE void widen_fives(const uint8_t *from, uint8_t *to)
{
    for (int i = 0; i < 8; i++) {
        uint64_t v = 0;
        memcpy(&v, from + 5 * i, 5);
        for (int k = 0; k < 8; k++)
            to[8 * i + k] = (uint8_t)(v >> 5 * k & 0x1f);
    }
}

/* A chunk of rows r and r + 8, written to both planes. `number` is r, from 0 to 7. */
MOX_PACK_INLINE void put_sixes(const mox_hopper_sixes *s, const uint8_t *low, const uint8_t *high, int number,
                               uint8_t *to)
{
    uint8_t a[MOX_HOPPER_CODE_COLS], b[MOX_HOPPER_CODE_COLS];
    mox_words four[WORDS], two[2] = { { 0 } };
    const bool fives = s->parts == WORDS;
    (fives ? widen_fives : widen_sixes)(low, a);
    (fives ? widen_fives : widen_sixes)(high, b);
    for (int j = 0; j < WORDS; j++) {
        mox_v16u8 pairs[2];
        interleave(a + 16 * j, b + 16 * j, pairs);
        four[j] = (mox_words) { 0 };
        for (int i = 0; i < 4; i++) {
            const mox_words code = (mox_words)pairs[i / 2] >> (8 * (i % 2));
            const mox_words half = (code & 0x00200020) << s->top | (code & 0x001f001f) << s->up;
            four[j] |= MOX_ROTATED_BACK(half & s->four, 4 * i);
            two[j / s->parts] |= MOX_ROTATED_BACK(half & s->two, s->each * i + s->odd * (j % s->parts));
        }
    }
    mox_transpose_words(four);
    for (int q = 0; q < WORDS; q++)
        mox_store_words(to + (number * WORDS + q) * (int)sizeof four[q], four[q]);
    if (fives) {
        mox_store_words(to + MOX_HOPPER_PLANE + number * (int)sizeof two[0], two[0]);
        return;
    }
    uint8_t *second = to + MOX_HOPPER_PLANE + number * 2 * (int)sizeof two[0];
    mox_store_words(second, __builtin_shufflevector(two[0], two[1], 0, 4, 1, 5));
    mox_store_words(second + sizeof two[0], __builtin_shufflevector(two[0], two[1], 2, 6, 3, 7));
}

/* ---- a warp ---------------------------------------------------------------------------------------------------- */

static uint32_t fp8_code_of(const uint8_t *warp, int order, int row, int col)
{
    const int lane = row % HALF * 4 + col % 16 / 4, number = col % 64 / 32 * 2 + row / HALF;
    uint32_t word;
    memcpy(&word, warp + col / 64 * MOX_HOPPER_PLANE + (lane * WORDS + number) * 4, sizeof word);
    return mox_hopper_moved_back(word, order) >> (4 * (col % 4) + col % 32 / 16 * 16) & 15;
}

uint32_t mox_hopper_code_of(const mox_hopper_words *words, const uint8_t *warp, int row, int col)
{
    const int bits = words->bits;
    if (mox_hopper_is_fp8_order(words->order))
        return fp8_code_of(warp, words->order, row, col);
    const int lane = row % HALF * 4 + col % 8 / 2, i = row / HALF + col % 16 / 8 * 2; /* i: register, of four */
    const int number = (col / 16 * 4 + i) / (16 / bits),
              in = i % (16 / bits); /* the word, and the register within it */
    uint32_t word;
    if (bits == 5 || bits == 6)
        return six_of(sixes_of(words->order), warp, lane, col / 16, i, col % 2);
    memcpy(&word, warp + number / WORDS * MOX_HOPPER_PLANE + (lane * WORDS + number % WORDS) * 4, sizeof word);
    return mox_hopper_moved_back(word, words->order) >> (bits * in + col % 2 * 16) & ((1u << bits) - 1);
}

/* The four lanes from 4 * number on of a chunk, from row r = number and row r + 8. */
MOX_PACK_INLINE void put_chunk(int element, int bits, const uint8_t *low, const uint8_t *high, int number, uint8_t *to)
{
    if (bits == 5 || bits == 6)
        put_sixes(sixes_of(element), low, high, number, to);
    for (int plane = 0; bits % 4 == 0 && plane < bits / 4; plane++)
        put_plane(low + plane * PLANE_BYTES, high + plane * PLANE_BYTES, element, bits == 8,
                  to + plane * MOX_HOPPER_PLANE + number * WORDS * (int)sizeof(mox_words));
}

/* Eight dense rows r and eight rows r + 8 (NULL: zeros), row by row, so that each cache line is read once. */
MOX_PACK_INLINE void put_rows(int element, int bits, const uint8_t *low, int64_t low_stride, const uint8_t *high,
                              int64_t high_stride, const mox_hopper_warp *place)
{
    static const uint8_t none[MOX_HOPPER_MAX_CHUNKS * MOX_HOPPER_CODE_COLS];
    for (int i = 0; i < HALF; i++) {
        const uint8_t *a = low != NULL ? low + i * low_stride : none, *b = high != NULL ? high + i * high_stride : none;
        __builtin_prefetch(a + PREFETCH_BYTES);
        __builtin_prefetch(b + PREFETCH_BYTES);
        for (int c = 0; c < place->chunks; c++)
            put_chunk(element, bits, a + c * 8 * bits, b + c * 8 * bits, i, place->to + c * place->chunk_bytes);
    }
}

void mox_hopper_put_warp(const mox_hopper_words *words, const uint8_t *low, int64_t low_stride, const uint8_t *high,
                         int64_t high_stride, const mox_hopper_warp *place)
{
#define PUT(element, bits)                                                                                             \
    case element: put_rows(element, bits, low, low_stride, high, high_stride, place); break;
    switch (words->order) {
        PUT(MOX_HOPPER_TO_FP8, 8) /* its planes are cut like those of 8-bit codes */
        PUT(MOX_HOPPER_I4_TO_FP8, 8)
        PUT(MOX_HOPPER_U4_TO_FP8, 8)
        PUT(MOX_HOPPER_LEVELS, 4)
        PUT(MOX_HOPPER_FIVE_BITS, 5)
        PUT(MOX_HOPPER_SIX_BITS, 6)
        PUT(MOXIE_F4_E2M1, 4)
        PUT(MOXIE_I4, 4)
        PUT(MOXIE_U4B8, 4)
        PUT(MOXIE_F6_E2M3, 6)
        PUT(MOXIE_F6_E3M2, 6)
        PUT(MOXIE_F8_E4M3, 8)
        PUT(MOXIE_F8_E5M2, 8)
        PUT(MOXIE_I8, 8)
        PUT(MOXIE_U8B128, 8)
    default: break;
    }
#undef PUT
}
