/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_moves.h - how the bits of codes move to where kernels decode from (drawn in hopper.h): plain C that kernels
 * compile, too.
 */
#ifndef MOX_PACK_HOPPER_MOVES_H
#define MOX_PACK_HOPPER_MOVES_H

#include <moxie/moxie.h>

#include "base/shared.h"

/* Beside the dtypes: e2m1 codes of layout hopper_fp8; codes of block types, 4-bit ones that are looked up, and those of
 * 5 and 6 bits; integers of layout hopper_fp8, i4 and u4b8. */
enum {
    MOX_HOPPER_TO_FP8 = -1,
    MOX_HOPPER_LEVELS = -2,
    MOX_HOPPER_FIVE_BITS = -3,
    MOX_HOPPER_SIX_BITS = -4,
    MOX_HOPPER_I4_TO_FP8 = -5,
    MOX_HOPPER_U4_TO_FP8 = -6
};

/* The order of codes of an element in layout hopper_fp8. */
MOX_SHARED int mox_hopper_fp8_order(int element)
{
    return element == MOXIE_I4     ? MOX_HOPPER_I4_TO_FP8
           : element == MOXIE_U4B8 ? MOX_HOPPER_U4_TO_FP8
                                   : MOX_HOPPER_TO_FP8;
}

MOX_SHARED bool mox_hopper_is_fp8_order(int order)
{
    return order == MOX_HOPPER_TO_FP8 || order == MOX_HOPPER_I4_TO_FP8 || order == MOX_HOPPER_U4_TO_FP8;
}

/* A word of eight 4-bit codes starts as nibbles: nibble i of each half is the code of register i. Integers stay so. A
 * word of four 8-bit codes starts as bytes: the low byte of each half is the code of the first register, the high byte
 * that of the second. The bits of floats then move to the places of hopper.h. MOVE(n, mask): rotate left by n, keep the
 * bits of mask. */
#define MOX_HOPPER_E2M1_MOVES(MOVE)                                                                                    \
    MOVE(12, 0x86008600)                                                                                               \
    MOVE(6, 0x01c001c0)                                                                                                \
    MOVE(4, 0x08000800)                                                                                                \
    MOVE(30, 0x001c001c)                                                                                               \
    MOVE(26, 0x00200020)                                                                                               \
    MOVE(20, 0x70017001)                                                                                               \
    MOVE(18, 0x00020002)
#define MOX_HOPPER_E4M3_MOVES(MOVE)                                                                                    \
    MOVE(8, 0x80008000)                                                                                                \
    MOVE(4, 0x07f007f0)                                                                                                \
    MOVE(28, 0x08000800)                                                                                               \
    MOVE(0, 0x70007000)                                                                                                \
    MOVE(24, 0x000f000f)
#define MOX_HOPPER_E5M2_MOVES(MOVE)                                                                                    \
    MOVE(8, 0x80008000)                                                                                                \
    MOVE(5, 0x0fe00fe0)                                                                                                \
    MOVE(29, 0x10001000)                                                                                               \
    MOVE(26, 0x00100010)                                                                                               \
    MOVE(21, 0x600f600f)

/* Layout hopper_fp8: magnitudes stay. Signs go to the top bits of bytes, those of the second register four bits
 * lower. */
#define MOX_HOPPER_TO_FP8_MOVES(MOVE)                                                                                  \
    MOVE(0, 0x77777777)                                                                                                \
    MOVE(4, 0x00000080)                                                                                                \
    MOVE(8, 0x00008000)                                                                                                \
    MOVE(12, 0x00800000)                                                                                               \
    MOVE(16, 0x80000008)                                                                                               \
    MOVE(20, 0x00000800)                                                                                               \
    MOVE(24, 0x00080000)                                                                                               \
    MOVE(28, 0x08000000)

/* Eight integers of two's complement to signs and magnitudes, 8 as 0, and back. Of negative ones three bits are
 * negated. */
#define MOX_HOPPER_NIBBLE_SIGNS(word) ((word) >> 3 & 0x11111111)
#define MOX_HOPPER_MAGNITUDES(word)                                                                                    \
    (((((word) ^ MOX_HOPPER_NIBBLE_SIGNS(word) * 7) & 0x77777777) + MOX_HOPPER_NIBBLE_SIGNS(word)) & 0x77777777) |     \
        ((word)&0x88888888)

#define MOX_ROTATED(word, bits_left)      ((word) << (bits_left) | (word) >> (-(bits_left)&31))
#define MOX_ROTATED_BACK(word, bits_left) MOX_ROTATED(word, -(bits_left)&31)

/* Codes that are looked up four at a time: nibbles 0 to 3 of each half are those of two registers, both halves of each
 * in turn. The middle bytes change places. */
#define MOX_HOPPER_LEVELS_MOVES(MOVE)                                                                                  \
    MOVE(0, 0xff0000ff)                                                                                                \
    MOVE(8, 0x00ff0000)                                                                                                \
    MOVE(24, 0x0000ff00)

/* The body of a function that returns `plain`, a word or a vector of words, moved. `all` is 0. */
#define MOX_HOPPER_MOVE(bits_left, mask) all |= MOX_ROTATED(plain, bits_left) & (mask);
#define MOX_HOPPER_MOVED(plain, element, all)                                                                          \
    switch (element) {                                                                                                 \
    case MOX_HOPPER_U4_TO_FP8: (plain) ^= 0x88888888;                  /* fall through */                              \
    case MOX_HOPPER_I4_TO_FP8: (plain) = MOX_HOPPER_MAGNITUDES(plain); /* fall through */                              \
    case MOX_HOPPER_TO_FP8: MOX_HOPPER_TO_FP8_MOVES(MOX_HOPPER_MOVE) return all;                                       \
    case MOX_HOPPER_LEVELS: MOX_HOPPER_LEVELS_MOVES(MOX_HOPPER_MOVE) return all;                                       \
    case MOXIE_F4_E2M1: MOX_HOPPER_E2M1_MOVES(MOX_HOPPER_MOVE) return all;                                             \
    case MOXIE_F8_E4M3: MOX_HOPPER_E4M3_MOVES(MOX_HOPPER_MOVE) return all;                                             \
    case MOXIE_F8_E5M2: MOX_HOPPER_E5M2_MOVES(MOX_HOPPER_MOVE) return all;                                             \
    case MOXIE_I4: return plain ^ 0x88888888; /* two's complement to codes that count from the smallest number */      \
    case MOXIE_I8: return plain ^ 0x80808080;                                                                          \
    default: return plain;                                                                                             \
    }

MOX_SHARED uint32_t mox_hopper_moved(uint32_t plain, int element)
{
    uint32_t all = 0;
    MOX_HOPPER_MOVED(plain, element, all)
}

MOX_SHARED uint32_t mox_hopper_moved_back(uint32_t word, int element)
{
    uint32_t all = 0;
#define MOVE(bits_left, mask) all |= MOX_ROTATED_BACK(word & (mask), bits_left);
    switch (element) {
    case MOX_HOPPER_TO_FP8:
    case MOX_HOPPER_I4_TO_FP8:
    case MOX_HOPPER_U4_TO_FP8:
        MOX_HOPPER_TO_FP8_MOVES(MOVE)
        all = element == MOX_HOPPER_TO_FP8 ? all : MOX_HOPPER_MAGNITUDES(all);
        return element == MOX_HOPPER_U4_TO_FP8 ? all ^ 0x88888888 : all;
    case MOX_HOPPER_LEVELS: MOX_HOPPER_LEVELS_MOVES(MOVE) return all;
    case MOXIE_F4_E2M1: MOX_HOPPER_E2M1_MOVES(MOVE) return all;
    case MOXIE_F8_E4M3: MOX_HOPPER_E4M3_MOVES(MOVE) return all;
    case MOXIE_F8_E5M2: MOX_HOPPER_E5M2_MOVES(MOVE) return all;
    case MOXIE_I4: return word ^ 0x88888888;
    case MOXIE_I8: return word ^ 0x80808080;
    default: return word;
    }
#undef MOVE
}

/* Where the bits of a code of 6 bits, or of 5, lie. Decoded, bit 5 is in bit 5 + `top` of the register's half (the sign
 * of a float in bit 15) and the others start at bit `up`. Mask `four`: bits kept in the plane of four words, rotated
 * right by 4 per register. Mask `two`: bits kept in the second plane, rotated by `each` per register and by `odd` for
 * every 16 columns of the `parts` that share a word. */
typedef struct mox_hopper_sixes {
    uint32_t four, two;
    int up, each, odd, top, parts;
} mox_hopper_sixes;

MOX_SHARED_CONST mox_hopper_sixes mox_hopper_e2m3 = { 0x00f000f0, 0x81008100, 4, 2, 8, 10, 2 };
MOX_SHARED_CONST mox_hopper_sixes mox_hopper_e3m2 = { 0x01e001e0, 0x82008200, 5, 4, 1, 10, 2 };
MOX_SHARED_CONST mox_hopper_sixes mox_hopper_six_bits = { 0x00f000f0, 0x000c000c, 2, 2, 8, 2, 2 };
MOX_SHARED_CONST mox_hopper_sixes mox_hopper_five_bits = { 0x00f000f0, 0x00080008, 3, 1, 4, 16, 4 };

#endif
