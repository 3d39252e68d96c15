/* SPDX-License-Identifier: Apache-2.0
 *
 * code_book.h - the code books of IQ types (format/block_grids.h), with what a search in them needs.
 *
 *     8 or 4 weights / scale -> each to the nearest level: a point of the lattice -> the entries nearest to that point
 *                            -> of those the one with the least error                      (code_book_search.h)
 *
 * An entry is a point of the lattice too: a level's number for each weight, 2 bits for each of 8 (three levels) or 3
 * bits for each of 4 (eight levels). There are 3^8 or 8^4 points, and a list of the nearest entries for each.
 */
#ifndef MOX_QUANT_CODE_BOOK_H
#define MOX_QUANT_CODE_BOOK_H

#include <stdint.h>

/* Entries of a list: as many as a vector has lanes. 16 were 0.1 to 0.6 % nearer, and took half as long again. */
enum { MOX_BOOK_NEAR = 8, MOX_BOOK_POINTS = 6561 };

typedef enum mox_book_kind {
    MOX_BOOK_IQ2_XXS,
    MOX_BOOK_IQ2_XS,
    MOX_BOOK_IQ2_S,
    MOX_BOOK_IQ3_XXS,
    MOX_BOOK_IQ3_S,
    MOX_BOOK_IQ1,
    MOX_BOOKS
} mox_book_kind;

typedef struct mox_code_book {
    const uint16_t *grid;
    int32_t entries, bits; /* bits of a level's number: 2 (8 weights) or 3 (4 weights) */
    /* Of a point: the nearest entries, nearest first. The grid's word in the low half, its number in the high one. */
    uint32_t near[MOX_BOOK_POINTS][MOX_BOOK_NEAR];
} mox_code_book;

/* Immutable; made when it is first asked for. Thread-safe. */
const mox_code_book *mox_code_book_of(mox_book_kind kind);

/* Of 8 weights, bit i of `mask` for weight i: the number to base 3 whose digit i is that bit. */
extern uint16_t mox_book_base3[256];

#endif
