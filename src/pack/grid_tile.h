/* SPDX-License-Identifier: Apache-2.0
 *
 * grid_tile.h - 16 rows of a grid, 128 columns at a time, as dense rows: whatever the checkpoint's packing,
 * the code behind sees one form.
 *
 *     grid, any packing        tile
 *     row  r ..                row n = element 0, 1, ... each of `bits` bits, low bits first, from a whole byte
 *     rows and columns past the grid's last are zero
 *
 * In the flow: checkpoint grid -> [tile] -> panel (panel_move.c), and back.
 */
#ifndef MOX_PACK_GRID_TILE_H
#define MOX_PACK_GRID_TILE_H

#include "quant/quant.h"

#define MOX_TILE_ROWS  16
#define MOX_TILE_COLS  128
#define MOX_TILE_BYTES (MOX_TILE_ROWS * MOX_TILE_COLS * 2)

/* Memory of a tile; elements of up to 16 bits. */
typedef struct mox_tile {
    _Alignas(64) uint8_t bytes[MOX_TILE_BYTES];
} mox_tile;

/* Rows row .. row + 15 and columns col .. col + cols - 1 of `grid`, where row < grid->rows, col < grid->cols, col is a
 * multiple of 8 and cols a multiple of 8 up to MOX_TILE_COLS. Gives the address of row 0 and in *stride the bytes from
 * row to row: in `tile`, or in the grid itself when its rows are dense there and none is missing. */
const uint8_t *mox_tile_read(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, mox_tile *tile,
                             int64_t *stride);
/* The inverse: dense rows to those elements of a writable grid that it has. */
void mox_tile_write(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, const uint8_t *rows,
                    int64_t stride);

#endif
