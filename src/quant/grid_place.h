/* SPDX-License-Identifier: Apache-2.0
 *
 * grid_place.h - where an element of a grid lies: the formulas of grid.c, for the host and for kernels that pack.
 *
 *     word of (r, c)  = data + r * row_stride + (c / per_word) * col_stride      along_rows == 0
 *                       data + (r / per_word) * row_stride + c * col_stride      along_rows == 1
 *     element i of it = bits [i' * bits, i' * bits + bits) of the little-endian word; AWQ: i' = 0 4 1 5 2 6 3 7
 */
#ifndef MOX_QUANT_GRID_PLACE_H
#define MOX_QUANT_GRID_PLACE_H

#include <moxie/moxie.h>

#include "base/shared.h"

/* Packings of codes inside the blocks of a GGUF file: a word is all codes of a block, `per_word` of them in
 * `word_bytes` bytes, along a row. Codes of 8 bits lie in order. Of codes of 4 bits, the first half lie in the low
 * nibbles, the second half in the high ones: halves of the block, or with the second order of every 16 codes. */
#define MOX_ORDER_HALVES    18
#define MOX_ORDER_HALVES_16 19
MOX_SHARED bool mox_is_halves(const moxie_packing *packing)
{
    return packing->order == MOX_ORDER_HALVES || packing->order == MOX_ORDER_HALVES_16;
}

typedef struct mox_grid_place {
    int64_t word;   /* bytes from the grid's first; of halves: the byte itself */
    uint32_t shift; /* lowest bit of the element in it */
} mox_grid_place;

MOX_SHARED mox_grid_place mox_halves_place(const moxie_grid *grid, int64_t r, int64_t c)
{
    const moxie_packing p = grid->packing;
    const int32_t run = p.order == MOX_ORDER_HALVES_16 ? 16 : p.per_word, i = (int32_t)(c % p.per_word);
    mox_grid_place place = { r * grid->row_stride + c / p.per_word * grid->col_stride, 0 };
    if (p.word_bytes == p.per_word) {
        place.word += i;
        return place;
    }
    place.shift = i % run < run / 2 ? 0 : 4;
    place.word += i / run * (run / 2) + i % (run / 2);
    return place;
}

/* Element i of a word lies in the `slot`-th lowest bits: orders LINEAR and AWQ. */
MOX_SHARED int32_t mox_word_slot(const moxie_packing *packing, int32_t i)
{
    return packing->order == MOXIE_ORDER_AWQ ? (i & 1) * 4 + i / 2 : i;
}

/* Orders LINEAR and AWQ, whose words have 1, 2, 4 or 8 elements. */
MOX_SHARED mox_grid_place mox_grid_place_of(const moxie_grid *grid, int64_t r, int64_t c, int32_t bits)
{
    const int32_t per_word = grid->packing.per_word, log = (per_word >> 1) - (per_word >> 3);
    int32_t i;
    if (grid->packing.along_rows) {
        i = (int32_t)(r & (per_word - 1));
        r >>= log;
    } else {
        i = (int32_t)(c & (per_word - 1));
        c >>= log;
    }
    const mox_grid_place place = { r * grid->row_stride + c * grid->col_stride,
                                   (uint32_t)(mox_word_slot(&grid->packing, i) * bits) };
    return place;
}

/* The code of `bits` (16 at most) at (r, c): reads only the bytes that hold it. Not of streams and blocks. */
MOX_SHARED uint32_t mox_grid_short_code(const moxie_grid *grid, int64_t r, int64_t c, int32_t bits)
{
    const mox_grid_place place =
        mox_is_halves(&grid->packing) ? mox_halves_place(grid, r, c) : mox_grid_place_of(grid, r, c, bits);
    const uint8_t *at = (const uint8_t *)grid->data + place.word + place.shift / 8;
    const uint32_t shift = place.shift % 8;
    uint32_t code = (uint32_t)at[0] >> shift;
    if (shift + (uint32_t)bits > 8)
        code |= (uint32_t)at[1] << (8 - shift);
    return code & ((1u << bits) - 1);
}

#endif
