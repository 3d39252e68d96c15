/* SPDX-License-Identifier: Apache-2.0
 *
 * grid_tile.h - 16 rows x 128 columns of a grid as dense rows. Callers see one layout whatever the checkpoint's
 * packing.
 *
 *     grid, any packing        tile
 *     rows r .. r + 15         row n = elements 0, 1, ... of `bits` bits each, low bits first, starting on a byte
 *     rows and columns past the last of the grid are zero
 *
 * In the flow: checkpoint grid -> [tile] -> layout (panel_move.c, hopper/, vendor/), and back.
 */
#ifndef MOX_PACK_GRID_TILE_H
#define MOX_PACK_GRID_TILE_H

#include "quant/quant.h"

#define MOX_TILE_ROWS  16
#define MOX_TILE_COLS  128
#define MOX_TILE_BYTES (MOX_TILE_ROWS * MOX_TILE_COLS * 2)

/* Memory for a tile of elements of up to 16 bits. */
typedef struct mox_tile {
    _Alignas(64) uint8_t bytes[MOX_TILE_BYTES];
} mox_tile;

/* Reads rows row .. row + 15 and columns col .. col + cols - 1 of `grid`. row < grid->rows; col < grid->cols is a
 * multiple of 8; cols is a multiple of 8 up to MOX_TILE_COLS. Returns the address of row 0 and, in *stride, the bytes
 * from row to row. The rows lie in `tile`, or in the grid itself when they are dense there and none is missing. */
const uint8_t *mox_tile_read(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, mox_tile *tile,
                             int64_t *stride);
/* The inverse: writes dense rows to a writable grid. Elements past the last of the grid are skipped. */
void mox_tile_write(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, const uint8_t *rows,
                    int64_t stride);

#endif
