/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_blocks.h - block types (format/block_fields.def) in layout "hopper_codes": those of 256 weights whose codes
 * have 4 or 5 bits and scales of 32 weights (q4_k, iq4_xs, q5_k), or 6 bits and scales of 16 (q6_k).
 *
 *     codes          in the order of other codes of as many bits (hopper.h)
 *     block of scales, 256 columns of a row    | d | m | 4 chunks: integers of the runs of 64 columns |
 *
 * d and m are f16; m is 0 when the type has none. Integers are bytes: s of each run, then t of each run when the type
 * has minimums. The file has 6 bits or 8 for each: a record has 1 to 3 % more bytes.
 *
 * In the flow: blocks of a checkpoint -> [dense rows of codes, scales of rows] -> record, and back.
 */
#ifndef MOX_PACK_HOPPER_BLOCKS_H
#define MOX_PACK_HOPPER_BLOCKS_H

#include "format/block_parts.h"
#include "quant/quant.h"

enum { MOX_HOPPER_SUPER_COLS = 256, MOX_HOPPER_SUPER_SHIFT = 2 }; /* columns of a block; they are 1 << 2 chunks */

/* How the layout holds a block type; bits 0: it does not. */
typedef struct mox_hopper_block {
    const mox_block_fields *fields;
    int32_t bits;        /* of a code */
    int32_t order;       /* of codes in words: a dtype, or a number of hopper_moves.h */
    int32_t runs;        /* of a chunk */
    int32_t chunk_bytes; /* of the integers of a row in a chunk */
    int32_t row_bytes;   /* of a row in a block of scales */
    bool has_minimums, looked_up;
} mox_hopper_block;

mox_hopper_block mox_hopper_block_of(moxie_dtype element);

/* Rows row .. row + rows - 1 of a grid of blocks as dense codes of the 256 columns of block `block`, 32 * bits bytes a
 * row. Rows past the last are zero. */
void mox_hopper_block_codes(const mox_hopper_block *b, const moxie_grid *grid, int64_t row, int64_t rows, int64_t block,
                            uint8_t *to);
/* Writes one block of row `row` from its codes, a byte each, and its scales. */
void mox_hopper_block_store(const mox_hopper_block *b, const moxie_grid *grid, int64_t row, int64_t block,
                            const uint8_t *codes, const uint8_t *scales);
/* The scales of a block of row `row`, row_bytes. */
void mox_hopper_block_scales(const mox_hopper_block *b, const moxie_grid *grid, int64_t row, int64_t block,
                             uint8_t *to);
/* The first row with a d or an m that is infinite or NaN; -1: none. */
int64_t mox_hopper_block_special(const mox_hopper_block *b, const moxie_grid *grid);

#endif
