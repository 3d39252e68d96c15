/* SPDX-License-Identifier: Apache-2.0
 *
 * block_parts.h - block types as codes, small integers and two f16, for the rows of block_fields.def:
 *
 *     w[i] = d s[i / run] (level(code[i]) - offset) -+ m t[i / run]
 *
 * A block has exactly the bits of its parts, so taking it apart and putting it together are each other's inverse.
 *
 * In the flow: block of a checkpoint -> [parts] -> panels of layout panel16, and back.
 */
#ifndef MOX_FORMAT_BLOCK_PARTS_H
#define MOX_FORMAT_BLOCK_PARTS_H

#include "format/block.h"

#define MOX_BLOCK_RUNS 16 /* of a block, at most */

/* How the integers of runs are stored: s and t as one byte each in mox_block_parts, s signed. */
typedef enum mox_block_integers {
    MOX_BLOCK_NONE,       /* there are none: s = t = 1 */
    MOX_BLOCK_BYTES,      /* s: i8 */
    MOX_BLOCK_NIBBLES,    /* s in the low nibble of a byte, t in the high one; the parts keep the byte, in s */
    MOX_BLOCK_SIX,        /* s + 32 in 6 bits: q3_k */
    MOX_BLOCK_SIX_AND_SIX, /* s and t in 6 bits each: q4_k, q5_k */
    MOX_BLOCK_SIX_SPLIT   /* s + 32 in 6 bits: iq4_xs */
} mox_block_integers;

/* Bits of all codes: byte at + run * stride + l, bits [f * bits, f * bits + bits) belong to weight
 * (run * 8 / bits + f) * stride + l. */
typedef struct mox_block_field {
    int16_t at;
    int8_t bits, stride;
} mox_block_field;

typedef struct mox_block_fields {
    moxie_dtype dtype;
    mox_block_field low, high;
    int16_t d_at, m_at; /* m_at -1: there is no m */
    int8_t m_sign;
    mox_block_integers integers;
    int16_t at, run;
    int16_t offset;
    int8_t levels;
} mox_block_fields;

typedef struct mox_block_parts {
    uint8_t code[MOX_BLOCK_MAX];
    uint8_t s[MOX_BLOCK_RUNS], t[MOX_BLOCK_RUNS];
    uint8_t d[2], m[2];
} mox_block_parts;

/* The row of a block type; NULL for others. Immutable. */
const mox_block_fields *mox_block_fields_of(moxie_dtype dtype);
/* Row i of the list; NULL past the last. */
const mox_block_fields *mox_block_fields_at(int32_t i);

/* `block` is of the type with these fields; the second writes every byte of it. */
void mox_block_split(const mox_block_fields *fields, const uint8_t *block, mox_block_parts *out);
void mox_block_join(const mox_block_fields *fields, const mox_block_parts *parts, uint8_t *block);

static inline bool mox_block_has_minimum_integers(mox_block_integers integers)
{
    return integers == MOX_BLOCK_SIX_AND_SIX;
}

#endif
