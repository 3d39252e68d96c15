/* SPDX-License-Identifier: Apache-2.0
 *
 * grid_tile.c - grids of any packing to dense rows and back, tile by tile (grid_tile.h).
 */
#include "pack/grid_tile.h"

#include "base/sizes.h"

/* The tile as a grid of its own. */
static moxie_grid dense_view(const uint8_t *rows, int64_t stride, moxie_dtype dtype, int64_t count, int64_t cols)
{
    moxie_grid view = mox_grid_dense(rows, dtype, count, cols);
    view.row_stride = stride;
    return view;
}

const uint8_t *mox_tile_read(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, mox_tile *tile,
                             int64_t *stride)
{
    const int64_t rows_here = mox_min_i64(MOX_TILE_ROWS, grid->rows - row);
    const int64_t cols_here = mox_min_i64(cols, grid->cols - col);
    *stride = (int64_t)mox_dense_row_bytes(grid->dtype, cols);
    memset(tile->bytes, 0, (size_t)(MOX_TILE_ROWS * *stride));
    const moxie_grid to = dense_view(tile->bytes, *stride, grid->dtype, MOX_TILE_ROWS, cols);
    for (int64_t r = 0; r < rows_here; r++)
        for (int64_t c = 0; c < cols_here; c++)
            mox_grid_store(&to, r, c, mox_grid_code(grid, row + r, col + c));
    return tile->bytes;
}

void mox_tile_write(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, const uint8_t *rows, int64_t stride)
{
    const int64_t rows_here = mox_min_i64(MOX_TILE_ROWS, grid->rows - row);
    const int64_t cols_here = mox_min_i64(cols, grid->cols - col);
    const moxie_grid from = dense_view(rows, stride, grid->dtype, MOX_TILE_ROWS, cols);
    for (int64_t r = 0; r < rows_here; r++)
        for (int64_t c = 0; c < cols_here; c++)
            mox_grid_store(grid, row + r, col + c, mox_grid_code(&from, r, c));
}
