/* SPDX-License-Identifier: Apache-2.0
 *
 * grid_tile.c - grids of any packing to dense rows, tile by tile, and back (grid_tile.h).
 *
 *     packing                      a grid's words                  to rows
 *     dense rows, words along K    side by side in a row           where they lie, or copied
 *     transposed                   elements down a column          8 x 8 or 16 x 16 turned over
 *     row pairs                    2 rows in a byte                nibbles parted
 *     others, and edges                                            element by element
 *
 * Only tiles without missing rows and columns go the fast ways, but for dense rows.
 */
#include "pack/grid_tile.h"

#include "base/sizes.h"
#include "pack/flip.h"
#include "pack/grid_move.h"

static const uint8_t *at(const moxie_grid *grid, int64_t word_row, int64_t word_col)
{
    return (const uint8_t *)grid->data + word_row * grid->row_stride + word_col * grid->col_stride;
}

/* ---- dense rows with missing ones --------------------------------------------------------------------------- */

/* The bytes that hold `cols` elements from bytes on; in *last those bits of the last byte that are theirs. */
static int64_t used_bytes(int64_t cols, int32_t bits, uint8_t *last)
{
    const int64_t count = cols * bits;
    *last = count % 8 != 0 ? (uint8_t)((1u << count % 8) - 1) : 0xff;
    return mox_ceil_div(count, 8);
}

static void read_dense(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, mox_tile *tile, int64_t stride)
{
    const int32_t bits = mox_dtype_bits(grid->dtype);
    const int64_t rows_here = mox_min_i64(MOX_TILE_ROWS, grid->rows - row);
    uint8_t last;
    const int64_t bytes = used_bytes(mox_min_i64(cols, grid->cols - col), bits, &last);
    memset(tile->bytes, 0, (size_t)(MOX_TILE_ROWS * stride));
    for (int64_t r = 0; r < rows_here; r++) {
        uint8_t *to = tile->bytes + r * stride;
        memcpy(to, at(grid, row + r, 0) + col * bits / 8, (size_t)bytes);
        to[bytes - 1] &= last;
    }
}

/* ---- whole tiles of other packings -------------------------------------------------------------------------- */

static void read_turned_16(const uint8_t *from, int64_t col_stride, int64_t cols, mox_tile *tile, int64_t stride)
{
    for (int64_t k = 0; k < cols; k += 8)
        for (int64_t n = 0; n < MOX_TILE_ROWS; n += 8)
            mox_flip_16(from + k * col_stride + n * 2, col_stride, tile->bytes + n * stride + k * 2, stride);
}

static void read_turned_8(const uint8_t *from, int64_t col_stride, int64_t cols, mox_tile *tile, int64_t stride)
{
    for (int64_t k = 0; k < cols; k += 16)
        mox_flip_8(from + k * col_stride, col_stride, tile->bytes + k, stride);
}

/* Two rows in a byte, the even one low. */
static void read_row_pairs(const uint8_t *from, int64_t row_stride, int64_t cols, mox_tile *tile, int64_t stride)
{
    for (int64_t n = 0; n < MOX_TILE_ROWS; n += 2, from += row_stride) {
        uint8_t *even = tile->bytes + n * stride, *odd = even + stride;
        for (int64_t b = 0; b < cols / 2; b++) {
            even[b] = (uint8_t)((from[2 * b] & 0x0f) | from[2 * b + 1] << 4);
            odd[b] = (uint8_t)(from[2 * b] >> 4 | (from[2 * b + 1] & 0xf0));
        }
    }
}

/* False when there is no fast way for this packing. */
static bool read_whole(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, mox_tile *tile, int64_t stride)
{
    const moxie_packing p = grid->packing;
    const int32_t bits = mox_dtype_bits(grid->dtype);
    if (cols % 32 != 0)
        return false;
    if (p.along_rows && bits == 4 && p.per_word == 2 && p.word_bytes == 1 && grid->col_stride == 1)
        read_row_pairs(at(grid, row / 2, col), grid->row_stride, cols, tile, stride);
    else if (p.along_rows || !mox_pack_has_full_words(grid) || p.per_word != 1 || grid->row_stride != p.word_bytes)
        return false;
    else if (p.word_bytes == 2)
        read_turned_16(at(grid, row, col), grid->col_stride, cols, tile, stride);
    else if (p.word_bytes == 1)
        read_turned_8(at(grid, row, col), grid->col_stride, cols, tile, stride);
    else
        return false;
    return true;
}

/* ---- any tile ----------------------------------------------------------------------------------------------- */

/* Dense rows as a grid of their own. */
static moxie_grid rows_view(const uint8_t *rows, int64_t stride, moxie_dtype dtype, int64_t cols)
{
    moxie_grid view = mox_grid_dense(rows, dtype, MOX_TILE_ROWS, cols);
    view.row_stride = stride;
    return view;
}

static void read_elements(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, mox_tile *tile,
                          int64_t stride)
{
    const moxie_grid to = rows_view(tile->bytes, stride, grid->dtype, cols);
    memset(tile->bytes, 0, (size_t)(MOX_TILE_ROWS * stride));
    for (int64_t r = 0; r < MOX_TILE_ROWS && row + r < grid->rows; r++)
        for (int64_t c = 0; c < cols && col + c < grid->cols; c++)
            mox_grid_store(&to, r, c, mox_grid_code(grid, row + r, col + c));
}

const uint8_t *mox_tile_read(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, mox_tile *tile,
                             int64_t *stride)
{
    const bool whole = row + MOX_TILE_ROWS <= grid->rows && col + cols <= grid->cols;
    *stride = (int64_t)mox_dense_row_bytes(grid->dtype, cols);
    if (mox_pack_has_dense_rows(grid)) {
        if (whole) {
            *stride = grid->row_stride;
            return at(grid, row, 0) + col * mox_dtype_bits(grid->dtype) / 8;
        }
        read_dense(grid, row, col, cols, tile, *stride);
    } else if (!whole || !read_whole(grid, row, col, cols, tile, *stride)) {
        read_elements(grid, row, col, cols, tile, *stride);
    }
    return tile->bytes;
}

/* True when no other element shares a byte with those written. */
static bool owns_bytes(const moxie_grid *grid, int64_t cols)
{
    return cols * mox_dtype_bits(grid->dtype) % 8 == 0;
}

void mox_tile_write(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, const uint8_t *rows, int64_t stride)
{
    const int32_t bits = mox_dtype_bits(grid->dtype);
    const int64_t cols_here = mox_min_i64(cols, grid->cols - col);
    const moxie_grid from = rows_view(rows, stride, grid->dtype, cols);
    for (int64_t r = 0; r < MOX_TILE_ROWS && row + r < grid->rows; r++) {
        if (mox_pack_has_dense_rows(grid) && owns_bytes(grid, cols_here)) {
            /* The view is const for its many readers; a writer may say that its memory is not. */
            uint8_t *to = (uint8_t *)(uintptr_t)at(grid, row + r, 0) + col * bits / 8;
            memcpy(to, rows + r * stride, (size_t)(cols_here * bits / 8));
            continue;
        }
        for (int64_t c = 0; c < cols_here; c++)
            mox_grid_store(grid, row + r, col + c, mox_grid_code(&from, r, c));
    }
}
