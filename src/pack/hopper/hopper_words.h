/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_words.h - codes of 16 rows as the words of layouts "hopper_codes" and "hopper_fp8" (drawn in hopper.h).
 *
 * A word is the 32 bits that one lane of a warp loads into a register and decodes from there. It holds the codes that
 * the lane needs for operand A of the warpgroup MMA: eight codes of 4 bits, or four of 8 bits. Codes of 6 bits are
 * split: four bits of eight codes in one word, their other two bits in half a word; of 5 bits likewise.
 *
 * In the flow: checkpoint grid -> tile of dense rows (grid_tile.h) -> [words] -> record.
 */
#ifndef MOX_PACK_HOPPER_WORDS_H
#define MOX_PACK_HOPPER_WORDS_H

#include "quant/quant.h"

#define MOX_HOPPER_PLANE                                                                                               \
    512 /* bytes of a plane: [32 lanes][4 words]; the second plane of 6-bit codes has 2 words a lane */
#define MOX_HOPPER_CHUNKS_AT_ONCE                                                                                      \
    2                           /* chunks packed at a time, so that one or two cache lines of a row are used whole */
#define MOX_HOPPER_MAX_CHUNKS 4 /* the same of block types, which are whole blocks */

/* What words are made of. `order`: a dtype, or a number of hopper_moves.h, where codes lie as those of no dtype do.
 * `bits` of a code in a word; 8 where hopper_fp8 has two planes. */
typedef struct mox_hopper_words {
    int32_t order, bits;
} mox_hopper_words;

/* Bytes of 16 rows (one warp) in a chunk. */
static inline int64_t mox_hopper_warp_bytes(const mox_hopper_words *words)
{
    return words->bits * (MOX_HOPPER_PLANE / 4);
}

/* Where the words of 16 rows are written. */
typedef struct mox_hopper_warp {
    uint8_t *to; /* mox_hopper_warp_bytes(), in the first chunk */
    int64_t chunk_bytes;
    int chunks; /* up to MOX_HOPPER_MAX_CHUNKS */
} mox_hopper_warp;

/* Packs eight dense rows r (`low`) and the eight rows r + 8 (`high`). NULL stands for rows of zeros. */
void mox_hopper_put_warp(const mox_hopper_words *words, const uint8_t *low, int64_t low_stride, const uint8_t *high,
                         int64_t high_stride, const mox_hopper_warp *place);
/* The code at a row (0 .. 15) and a column of the chunk. */
uint32_t mox_hopper_code_of(const mox_hopper_words *words, const uint8_t *warp, int row, int col);

#endif
