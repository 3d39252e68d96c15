/* SPDX-License-Identifier: Apache-2.0
 *
 * block_books.h - block types of code books as entries, signs and integers (the bytes: format/block_levels.h):
 *
 *     w = d unit (2 s + 1) level          s of a run of 16 or 32 weights; levels of an entry for each 8 or 4 weights
 *
 * IQ2 and IQ3: levels are magnitudes with signs beside them. IQ1: levels are 8 e - 8, and 1 more, or less if `down`.
 */
#ifndef MOX_QUANT_BLOCK_BOOKS_H
#define MOX_QUANT_BLOCK_BOOKS_H

#include "format/block.h"
#include "quant/code_book_search.h"

typedef enum mox_book_signs {
    MOX_BOOK_NO_SIGNS,
    MOX_BOOK_EVEN_SIGNS, /* seven of eight are stored: an even number is set */
    MOX_BOOK_ALL_SIGNS
} mox_book_signs;

/* A block. Signs and `down` are of 8 weights each: a bit each, and 0 or 1. */
typedef struct mox_book_parts {
    uint16_t entry[64];
    uint8_t sign[32], down[32], s[16], d[2];
} mox_book_parts;

typedef struct mox_book_type {
    moxie_dtype dtype;
    mox_book_kind book;
    mox_book_signs signs;
    int32_t run, highest; /* weights with one s; the largest s */
    float unit;
    const mox_book_levels *levels;                            /* [1], or with shifts [2]: up, down */
    int32_t shift;                                            /* weights with one shift; 0: there are none */
    void (*put)(const mox_book_parts *parts, uint8_t *block); /* writes every byte */
} mox_book_type;

/* NULL: no such type. Immutable. */
const mox_book_type *mox_book_type_of(moxie_dtype dtype);

#endif
