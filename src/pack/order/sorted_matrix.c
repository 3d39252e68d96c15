/* SPDX-License-Identifier: Apache-2.0
 *
 * sorted_matrix.c - gathers the columns of dense rows, and moves dense rows from and to grids (sorted_matrix.h).
 */
#include "pack/order/sorted_matrix.h"

#include "base/sizes.h"
#include "pack/grid_tile.h"

/* Element i of `to` is element order[i] of `from`. */
static void gather_nibbles(const uint8_t *from, const int32_t *order, int64_t cols, uint8_t *to)
{
    for (int64_t i = 0; i < cols; i += 2) {
        const int32_t a = order[i], b = i + 1 < cols ? order[i + 1] : a;
        const int low = from[a >> 1] >> 4 * (a & 1) & 15, high = from[b >> 1] >> 4 * (b & 1) & 15;
        to[i >> 1] = (uint8_t)(i + 1 < cols ? low | high << 4 : low);
    }
}

static void gather_columns(moxie_dtype dtype, const uint8_t *from, const int32_t *order, int64_t cols, uint8_t *to)
{
    if (mox_dtype_bits(dtype) == 4) {
        gather_nibbles(from, order, cols, to);
        return;
    }
    for (int64_t i = 0; i < cols; i++)
        to[i] = from[order[i]];
}

/* Columns of a tile at `col`, up to a multiple of 8. */
static int64_t tile_cols(int64_t cols, int64_t col)
{
    return mox_min_i64(MOX_TILE_COLS, mox_ceil_div(cols - col, 8) * 8);
}

/* Bytes of a row up to a multiple of 8 columns. */
static int64_t row_bytes(moxie_dtype dtype, int64_t cols)
{
    return mox_ceil_div(cols, 8) * mox_dtype_bits(dtype);
}

/* Rows row .. row + 15 of the grid as dense rows, `stride` bytes from each other. */
static void read_rows(const moxie_grid *grid, int64_t row, uint8_t *rows, int64_t stride)
{
    const int32_t bits = mox_dtype_bits(grid->dtype);
    for (int64_t col = 0; col < grid->cols; col += MOX_TILE_COLS) {
        mox_tile tile;
        int64_t from_stride;
        const int64_t cols = tile_cols(grid->cols, col);
        const uint8_t *from = mox_tile_read(grid, row, col, cols, &tile, &from_stride);
        for (int64_t r = 0; r < mox_min_i64(MOX_TILE_ROWS, grid->rows - row); r++)
            memcpy(rows + r * stride + col * bits / 8, from + r * from_stride, (size_t)(cols * bits / 8));
    }
}

static void write_rows(const moxie_grid *grid, int64_t row, const uint8_t *rows, int64_t stride)
{
    for (int64_t col = 0; col < grid->cols; col += MOX_TILE_COLS)
        mox_tile_write(grid, row, col, tile_cols(grid->cols, col), rows + col * mox_dtype_bits(grid->dtype) / 8,
                       stride);
}

moxie_status mox_sorted_matrix(const moxie_matrix *from, const int32_t *order, mox_arena *arena, moxie_matrix *out)
{
    const moxie_grid codes = from->codes;
    const int64_t stride = row_bytes(codes.dtype, codes.cols);
    const uint64_t dense = mox_dense_row_bytes(codes.dtype, codes.cols);
    uint8_t *to = mox_arena_calloc(arena, (uint64_t)codes.rows, dense);
    uint8_t *rows = mox_arena_calloc(arena, MOX_TILE_ROWS, (uint64_t)stride);
    if (to == NULL || rows == NULL)
        return MOXIE_ERR_MEMORY;
    for (int64_t row = 0; row < codes.rows; row += MOX_TILE_ROWS) {
        read_rows(&codes, row, rows, stride);
        for (int64_t r = 0; r < mox_min_i64(MOX_TILE_ROWS, codes.rows - row); r++)
            gather_columns(codes.dtype, rows + r * stride, order, codes.cols, to + (uint64_t)(row + r) * dense);
    }
    *out = *from;
    out->codes = mox_grid_dense(to, codes.dtype, codes.rows, codes.cols);
    out->group_index = NULL;
    return MOXIE_OK;
}

moxie_status mox_unsort_matrix(const moxie_matrix *sorted, const int32_t *place, mox_arena *arena,
                               const moxie_matrix *to)
{
    const moxie_grid *codes = &sorted->codes;
    const int64_t stride = row_bytes(codes->dtype, codes->cols);
    const uint64_t dense = mox_dense_row_bytes(codes->dtype, codes->cols);
    uint8_t *rows = mox_arena_calloc(arena, MOX_TILE_ROWS, (uint64_t)stride);
    if (rows == NULL)
        return MOXIE_ERR_MEMORY;
    for (int64_t row = 0; row < codes->rows; row += MOX_TILE_ROWS) {
        for (int64_t r = 0; r < mox_min_i64(MOX_TILE_ROWS, codes->rows - row); r++)
            gather_columns(codes->dtype, (const uint8_t *)codes->data + (uint64_t)(row + r) * dense, place, codes->cols,
                           rows + r * stride);
        write_rows(&to->codes, row, rows, stride);
    }
    return MOXIE_OK;
}
