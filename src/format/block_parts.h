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
#include "format/block_at.h"

#define MOX_BLOCK_RUNS 16 /* of a block, at most */

/* s and t of runs are a byte each, s signed; of NIBBLES, s has both. */
typedef struct mox_block_parts {
    uint8_t code[MOX_BLOCK_MAX];
    uint8_t s[MOX_BLOCK_RUNS], t[MOX_BLOCK_RUNS];
    uint8_t d[2], m[2];
} mox_block_parts;

/* The row of a block type; NULL for others. Immutable. */
const mox_block_fields *mox_block_fields_of(moxie_dtype dtype);
/* Row i of the list; NULL past the last. */
const mox_block_fields *mox_block_fields_at(int32_t i);

/* True when the weights of the type have a minimum, which is subtracted. False for other dtypes, too. */
static inline bool mox_block_has_minimums(moxie_dtype dtype)
{
    const mox_block_fields *fields = mox_block_fields_of(dtype);
    return fields != NULL && fields->m_at >= 0;
}

/* `block` is of the type with these fields; the second writes every byte of it. */
void mox_block_split(const mox_block_fields *fields, const uint8_t *block, mox_block_parts *out);
void mox_block_join(const mox_block_fields *fields, const mox_block_parts *parts, uint8_t *block);

static inline bool mox_block_has_minimum_integers(mox_block_integers integers)
{
    return integers == MOX_BLOCK_SIX_AND_SIX;
}

#endif
