/* SPDX-License-Identifier: Apache-2.0
 *
 * block_panel.h - panels of layout panel16 (panel.h) whose weights are a block type of block_fields.def or
 * block_levels.def.
 *
 *     panel   | 16 blocks: columns 0 .. W-1 | 16 blocks: columns W .. 2W-1 | ...     filled up to 64 bytes
 *     blocks  | d [16] | m [16] | s [runs][16] | t [runs][16] | codes: step 0, step 1, ... |
 *
 * d and m are f16; m, s and t are only there when the type has them (for NIBBLES the byte of s has t, too). A step is
 * 16 rows x 32 columns: the low bits of all codes, then the high bits. A plane of b bits is 2 b vectors of 32 bytes.
 * Each vector belongs to 8 rows (half h) and has 8/b fields of 4 columns. Of vector 2 u + h, byte 16 L + 4 v + r, bits
 * f b .. f b + b - 1 belong to row 8 h + 4 L + r and column 4 (8/b u + f) + v of the step:
 *
 *     byte      0     1     2     3     4     5    ...  15  | 16 ...                    31
 *     row       0     1     2     3     0     1         3   | 4  5  6  7  4 ...         7       (+ 8 h)
 *     column    0     0     0     0     1     1         3   | 0  0  0  0  1 ...         3       (+ 4 x field)
 *
 * So one shift and one mask give four columns of eight rows, and unpacking them gives a vector of floats a column. The
 * bytes of a file are kept to within 4 %: integers of 6 bits take 8.
 *
 * Types of block_levels.def lie as in the file: 16 blocks are the block of row 0, of row 1, ... to row 15.
 */
#ifndef MOX_PACK_BLOCK_PANEL_H
#define MOX_PACK_BLOCK_PANEL_H

#include "format/block_parts.h"
#include "pack/panel/panel.h"

/* Offsets inside 16 blocks that lie together; 0 for parts that the type lacks (d is at 0). */
typedef struct mox_block_panel {
    int32_t weights, runs, steps; /* of a block: weights, runs with integers of their own, steps of 32 columns */
    int32_t m_at, s_at, t_at, codes_at;
    int32_t step_bytes, bytes;
} mox_block_panel;

/* With constant fields the result is constant, too. `weights`: of a block. */
static inline __attribute__((always_inline)) mox_block_panel mox_block_panel_of(const mox_block_fields *f,
                                                                                int32_t weights)
{
    const int32_t runs = f->integers == MOX_BLOCK_NONE ? 0 : weights / f->run, lane = MOX_PANEL_ROWS;
    const int32_t s_at = 2 * lane * (f->m_at >= 0 ? 2 : 1), t_at = s_at + runs * lane;
    const int32_t codes_at = t_at + (f->integers == MOX_BLOCK_SIX_AND_SIX ? runs * lane : 0);
    const int32_t steps = weights / MOX_PANEL_STEP, step_bytes = 4 * lane * (f->low.bits + f->high.bits);
    return (mox_block_panel) { .weights = weights,
                               .runs = runs,
                               .steps = steps,
                               .m_at = 2 * lane,
                               .s_at = s_at,
                               .t_at = t_at,
                               .codes_at = codes_at,
                               .step_bytes = step_bytes,
                               .bytes = codes_at + steps * step_bytes };
}

/* True when panels hold the block type. */
bool mox_block_panel_holds(moxie_dtype element);
/* Bytes of 16 blocks; columns of a block. The panels hold `element`. */
int64_t mox_block_panel_bytes(moxie_dtype element);
int64_t mox_block_panel_cols(moxie_dtype element);

/* Rows row .. row + 15 of a grid of blocks to one panel, and back. Rows past the last are blocks of zero bytes; they
 * are not unpacked. */
void mox_block_panel_pack(const mox_panel_matrix *m, const moxie_grid *from, int64_t row, uint8_t *panel);
void mox_block_panel_unpack(const mox_panel_matrix *m, const uint8_t *panel, const moxie_grid *to, int64_t row);

#endif
