/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_words.c - codes to words, 16 rows of a product at a time, and back (hopper_words.h): bytes of two rows
 * are interleaved in vector registers, as neighbours of an MMA's register are, then their bits find their places.
 */
#include "pack/hopper/hopper_words.h"

#include "pack/flip.h"
#include "pack/hopper/hopper.h"

enum { HALF = 8, PLANE_BYTES = 32, WORDS = 4 }; /* bytes of a row that a plane has */
enum { TO_FP8 = -1 };                           /* beside elements: codes of f4_e2m1 in hopper_fp8 */
enum { AHEAD = 256 }; /* bytes of a row that are asked for before: 16 or 32 rows are too many streams to guess */

/* A word of eight codes begins as nibbles: nibble i of each half is register i's code there, which is how integers
 * stay. A word of four begins as bytes: the low byte of each half is the first register's code, the high byte the
 * second's. Bits of floats then go where hopper.h has them: by so many turns to the left, where the mask has room for
 * them. */
#define E2M1_MOVES(MOVE)                                                                                               \
    MOVE(12, 0x86008600)                                                                                               \
    MOVE(6, 0x01c001c0)                                                                                                \
    MOVE(4, 0x08000800)                                                                                                \
    MOVE(30, 0x001c001c)                                                                                               \
    MOVE(26, 0x00200020)                                                                                               \
    MOVE(20, 0x70017001)                                                                                               \
    MOVE(18, 0x00020002)
#define E4M3_MOVES(MOVE)                                                                                               \
    MOVE(8, 0x80008000)                                                                                                \
    MOVE(4, 0x07f007f0)                                                                                                \
    MOVE(28, 0x08000800)                                                                                               \
    MOVE(0, 0x70007000)                                                                                                \
    MOVE(24, 0x000f000f)
#define E5M2_MOVES(MOVE)                                                                                               \
    MOVE(8, 0x80008000)                                                                                                \
    MOVE(5, 0x0fe00fe0)                                                                                                \
    MOVE(29, 0x10001000)                                                                                               \
    MOVE(26, 0x00100010)                                                                                               \
    MOVE(21, 0x600f600f)

/* Of hopper_fp8: magnitudes stay, signs go where a byte's are, the second register's four bits lower. */
#define TO_FP8_MOVES(MOVE)                                                                                             \
    MOVE(0, 0x77777777)                                                                                                \
    MOVE(4, 0x00000080)                                                                                                \
    MOVE(8, 0x00008000)                                                                                                \
    MOVE(12, 0x00800000)                                                                                               \
    MOVE(16, 0x80000008)                                                                                               \
    MOVE(20, 0x00000800)                                                                                               \
    MOVE(24, 0x00080000)                                                                                               \
    MOVE(28, 0x08000000)

#define TURNED(word, turn) ((word) << (turn) | (word) >> (-(turn)&31))

MOX_FLIP_INLINE mox_words moved(mox_words plain, int element)
{
    mox_words all = { 0 };
#define MOVE(turn, mask) all |= TURNED(plain, turn) & (mask);
    switch (element) {
    case TO_FP8: TO_FP8_MOVES(MOVE) return all;
    case MOXIE_F4_E2M1: E2M1_MOVES(MOVE) return all;
    case MOXIE_F8_E4M3: E4M3_MOVES(MOVE) return all;
    case MOXIE_F8_E5M2: E5M2_MOVES(MOVE) return all;
    case MOXIE_I4: return plain ^ 0x88888888; /* from two's complement to codes counted from the least */
    case MOXIE_I8: return plain ^ 0x80808080;
    default: return plain;
    }
#undef MOVE
}

static uint32_t moved_back(uint32_t word, int element)
{
    uint32_t all = 0;
#define MOVE(turn, mask) all |= TURNED(word & (mask), -(turn)&31);
    switch (element) {
    case TO_FP8: TO_FP8_MOVES(MOVE) return all;
    case MOXIE_F4_E2M1: E2M1_MOVES(MOVE) return all;
    case MOXIE_F8_E4M3: E4M3_MOVES(MOVE) return all;
    case MOXIE_F8_E5M2: E5M2_MOVES(MOVE) return all;
    case MOXIE_I4: return word ^ 0x88888888;
    case MOXIE_I8: return word ^ 0x80808080;
    default: return word;
    }
#undef MOVE
}

/* Neighbouring bytes of rows r and r + 8, eight pairs, to a word of each of four lanes. */
MOX_FLIP_INLINE mox_words words_of(mox_v16u8 pairs, int element)
{
    const mox_v8u16 first = (mox_v8u16)pairs, second = __builtin_shufflevector(first, first, 4, 5, 6, 7, 0, 1, 2, 3);
    const mox_words bytes = (mox_words)__builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
    return moved(mox_part_nibbles(bytes), element);
}

/* 16 bytes of a row, 32 columns, to a word of each of four lanes: four neighbours, and those 16 columns on. */
MOX_FLIP_INLINE mox_words fp8_words_of(const uint8_t *from)
{
    mox_v8u16 fours;
    memcpy(&fours, from, sizeof fours);
    return moved((mox_words)__builtin_shufflevector(fours, fours, 0, 4, 1, 5, 2, 6, 3, 7), TO_FP8);
}

/* 16 bytes of rows r and r + 8 in turn: two vectors. */
MOX_FLIP_INLINE void interleave(const uint8_t *low, const uint8_t *high, mox_v16u8 v[2])
{
    mox_v16u8 a, b;
    memcpy(&a, low, sizeof a);
    memcpy(&b, high, sizeof b);
    v[0] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    v[1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/* Four words of each of four lanes, from 32 bytes of both rows. */
MOX_FLIP_INLINE void put_plane(const uint8_t *low, const uint8_t *high, int element, bool bytes, uint8_t *to)
{
    mox_words v[WORDS];
    for (int h = 0; h < 2; h++) {
        mox_v16u8 pairs[2];
        interleave(low + 16 * h, high + 16 * h, pairs);
        for (int i = 0; i < 2; i++)
            v[2 * h + i] = element == TO_FP8 ? fp8_words_of((i == 0 ? low : high) + 16 * h)
                           : bytes           ? moved((mox_words)pairs[i], element)
                                             : words_of(pairs[i], element);
    }
    mox_flip_words(v);
    for (int q = 0; q < WORDS; q++)
        mox_store_words(to + q * (int)sizeof v[q], v[q]);
}

/* ---- 6 bits ---------------------------------------------------------------------------------------------------- */

/* A code's half of a register: its sign in bit 15, its magnitude from bit `up` on. Four bits of it go to the plane of
 * four words, turned to the right by 4 for each register, two to the plane of two words, turned by `each` for each
 * register and by `odd` for every other 16 columns. */
typedef struct sixes {
    uint32_t four, two;
    int up, each, odd;
} sixes;

static const sixes sixes_of_e2m3 = { 0x00f000f0, 0x81008100, 4, 2, 8 };
static const sixes sixes_of_e3m2 = { 0x01e001e0, 0x82008200, 5, 4, 1 };

static uint32_t six_of(const sixes *s, const uint8_t *warp, int lane, int j, int i, int half)
{
    uint32_t four, two;
    memcpy(&four, warp + (lane * WORDS + j) * 4, sizeof four);
    memcpy(&two, warp + MOX_HOPPER_PLANE + (lane * 2 + j / 2) * 4, sizeof two);
    const uint32_t both = (TURNED(four, 4 * i) & s->four) | (TURNED(two, s->each * i + s->odd * (j % 2)) & s->two);
    const uint32_t code = both >> 16 * half & 0xffff;
    return (code >> 10 & 0x20) | (code >> s->up & 0x1f);
}

/* 64 dense codes, one a byte. */
MOX_FLIP_INLINE void widen_sixes(const uint8_t *from, uint8_t *to)
{
    for (int i = 0; i < 16; i++) {
        const uint32_t v = from[3 * i] | (uint32_t)from[3 * i + 1] << 8 | (uint32_t)from[3 * i + 2] << 16;
        const uint32_t wide = (v & 0x3f) | (v << 2 & 0x3f00) | (v << 4 & 0x3f0000) | (v << 6 & 0x3f000000);
        memcpy(to + 4 * i, &wide, sizeof wide);
    }
}

#define TURNED_BACK(word, turn) TURNED(word, -(turn)&31)

/* A chunk of rows r and r + 8, to both planes from `number`, of eight, on. */
MOX_FLIP_INLINE void put_sixes(const sixes *s, const uint8_t *low, const uint8_t *high, int number, uint8_t *to)
{
    uint8_t a[MOX_HOPPER_CODE_COLS], b[MOX_HOPPER_CODE_COLS];
    mox_words four[WORDS], two[2] = { { 0 } };
    widen_sixes(low, a);
    widen_sixes(high, b);
    for (int j = 0; j < WORDS; j++) {
        mox_v16u8 pairs[2];
        interleave(a + 16 * j, b + 16 * j, pairs);
        four[j] = (mox_words) { 0 };
        for (int i = 0; i < 4; i++) {
            const mox_words code = (mox_words)pairs[i / 2] >> (8 * (i % 2));
            const mox_words half = (code & 0x00200020) << 10 | (code & 0x001f001f) << s->up;
            four[j] |= TURNED_BACK(half & s->four, 4 * i);
            two[j / 2] |= TURNED_BACK(half & s->two, s->each * i + s->odd * (j % 2));
        }
    }
    mox_flip_words(four);
    for (int q = 0; q < WORDS; q++)
        mox_store_words(to + (number * WORDS + q) * (int)sizeof four[q], four[q]);
    uint8_t *second = to + MOX_HOPPER_PLANE + number * 2 * (int)sizeof two[0];
    mox_store_words(second, __builtin_shufflevector(two[0], two[1], 0, 4, 1, 5));
    mox_store_words(second + sizeof two[0], __builtin_shufflevector(two[0], two[1], 2, 6, 3, 7));
}

/* ---- a warp ---------------------------------------------------------------------------------------------------- */

static uint32_t fp8_code_of(const uint8_t *warp, int row, int col)
{
    const int lane = row % HALF * 4 + col % 16 / 4, number = col % 64 / 32 * 2 + row / HALF;
    uint32_t word;
    memcpy(&word, warp + col / 64 * MOX_HOPPER_PLANE + (lane * WORDS + number) * 4, sizeof word);
    return moved_back(word, TO_FP8) >> (4 * (col % 4) + col % 32 / 16 * 16) & 15;
}

uint32_t mox_hopper_code_of(const moxie_quant *q, bool fp8, const uint8_t *warp, int row, int col)
{
    const int bits = mox_dtype_bits(q->element);
    if (fp8)
        return fp8_code_of(warp, row, col);
    const int lane = row % HALF * 4 + col % 8 / 2, i = row / HALF + col % 16 / 8 * 2; /* of four registers */
    const int number = (col / 16 * 4 + i) / (16 / bits), in = i % (16 / bits);        /* word, register in it */
    uint32_t word;
    if (bits == 6)
        return six_of(q->element == MOXIE_F6_E2M3 ? &sixes_of_e2m3 : &sixes_of_e3m2, warp, lane, col / 16, i, col % 2);
    memcpy(&word, warp + number / WORDS * MOX_HOPPER_PLANE + (lane * WORDS + number % WORDS) * 4, sizeof word);
    return moved_back(word, q->element) >> (bits * in + col % 2 * 16) & ((1u << bits) - 1);
}

/* Lanes 4 * number .. of a chunk, from a row r and its r + 8. */
MOX_FLIP_INLINE void put_chunk(int element, int bits, const uint8_t *low, const uint8_t *high, int number, uint8_t *to)
{
    if (bits == 6)
        put_sixes(element == MOXIE_F6_E2M3 ? &sixes_of_e2m3 : &sixes_of_e3m2, low, high, number, to);
    for (int plane = 0; bits != 6 && plane < bits / 4; plane++)
        put_plane(low + plane * PLANE_BYTES, high + plane * PLANE_BYTES, element, bits == 8,
                  to + plane * MOX_HOPPER_PLANE + number * WORDS * (int)sizeof(mox_words));
}

/* Eight dense rows r and eight r + 8 (NULL: zeros), row by row, so that each cache line of theirs is read once. */
MOX_FLIP_INLINE void put_rows(int element, int bits, const uint8_t *low, int64_t low_stride, const uint8_t *high,
                              int64_t high_stride, const mox_hopper_warp *place)
{
    static const uint8_t none[MOX_HOPPER_TOGETHER * MOX_HOPPER_CODE_COLS];
    for (int i = 0; i < HALF; i++) {
        const uint8_t *a = low != NULL ? low + i * low_stride : none, *b = high != NULL ? high + i * high_stride : none;
        __builtin_prefetch(a + AHEAD);
        __builtin_prefetch(b + AHEAD);
        for (int c = 0; c < place->chunks; c++)
            put_chunk(element, bits, a + c * 8 * bits, b + c * 8 * bits, i, place->to + c * place->chunk_bytes);
    }
}

void mox_hopper_put_warp(const moxie_quant *q, bool fp8, const uint8_t *low, int64_t low_stride, const uint8_t *high,
                         int64_t high_stride, const mox_hopper_warp *place)
{
    if (fp8) {
        put_rows(TO_FP8, 8, low, low_stride, high, high_stride, place); /* planes as of 8 bits */
        return;
    }
#define PUT(element, bits)                                                                                             \
    case element: put_rows(element, bits, low, low_stride, high, high_stride, place); break;
    switch (q->element) {
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
