/* SPDX-License-Identifier: Apache-2.0
 *
 * grid_tile.c - grids of any packing to dense rows, tile by tile, and back (grid_tile.h).
 *
 *     packing                     words of the grid                     how they become rows
 *     dense rows                  side by side in a row                 used where they lie, or copied
 *     transposed                  elements down a column                8 x 8 or 16 x 16 transposed
 *     words of 4 bytes along K    GPTQ: the words of a row in a column  4 x 4 words transposed
 *     AWQ                         eight rows in a word                  8 x 8 nibbles transposed
 *     row pairs                   two rows in a byte                    nibbles separated
 *     others, and edges                                                 element by element
 *
 * The fast paths need a tile without missing rows or columns; only dense rows have a fast path for edges, too.
 */
#include "pack/grid_tile.h"

#include "base/sizes.h"
#include "pack/transpose.h"
#include "pack/grid_move.h"

static const uint8_t *at(const moxie_grid *grid, int64_t word_row, int64_t word_col)
{
    return (const uint8_t *)grid->data + word_row * grid->row_stride + word_col * grid->col_stride;
}

/* ---- dense rows at the edge of a grid -------------------------------------------------------------------- */

/* Bytes that `cols` elements fill. *last: the bits of the last byte that belong to them. */
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

static void read_transposed_16(const uint8_t *from, int64_t col_stride, int64_t cols, mox_tile *tile, int64_t stride)
{
    for (int64_t k = 0; k < cols; k += 8)
        for (int64_t n = 0; n < MOX_TILE_ROWS; n += 8)
            mox_transpose_16(from + k * col_stride + n * 2, col_stride, tile->bytes + n * stride + k * 2, stride);
}

static void read_transposed_8(const uint8_t *from, int64_t col_stride, int64_t cols, mox_tile *tile, int64_t stride)
{
    for (int64_t k = 0; k < cols; k += 16)
        mox_transpose_8(from + k * col_stride, col_stride, tile->bytes + k, stride);
}

/* Full words of 4 bytes; the words of a row lie below each other (GPTQ). */
static void read_transposed_32(const uint8_t *from, int64_t col_stride, int64_t words, uint8_t *rows, int64_t stride)
{
    for (int64_t w = 0; w < words; w += 4)
        for (int64_t n = 0; n < MOX_TILE_ROWS; n += 4)
            mox_transpose_32(from + w * col_stride + n * 4, col_stride, rows + n * stride + w * 4, stride);
}

static void write_transposed_32(const uint8_t *rows, int64_t stride, int64_t words, uint8_t *to, int64_t col_stride)
{
    for (int64_t w = 0; w < words; w += 4)
        for (int64_t n = 0; n < MOX_TILE_ROWS; n += 4)
            mox_transpose_32(rows + n * stride + w * 4, stride, to + w * col_stride + n * 4, col_stride);
}

/* Transposes 8 x 8 nibbles: swaps squares of 4, then 2, then 1 nibbles. */
static void transpose_nibbles(uint32_t w[8])
{
    static const uint32_t masks[] = { 0x0000ffff, 0x00ff00ff, 0x0f0f0f0f };
    for (int level = 0, distance = 4; distance > 0; level++, distance /= 2)
        for (int i = 0; i < 8; i++)
            if ((i & distance) == 0) {
                const uint32_t t = (w[i] >> 4 * distance ^ w[i + distance]) & masks[level];
                w[i + distance] ^= t;
                w[i] ^= t << 4 * distance;
            }
}

/* AWQ's word to nibbles in the order of rows 0 .. 7. AWQ stores the rows in nibbles 0 4 1 5 2 6 3 7. */
static uint32_t from_awq(uint32_t w)
{
    const uint32_t even = w & 0x0000ffff, odd = w >> 16;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++)
        out |= (even >> 4 * i & 15) << 8 * i | (odd >> 4 * i & 15) << (8 * i + 4);
    return out;
}

static uint32_t to_awq(uint32_t w)
{
    uint32_t out = 0;
    for (int i = 0; i < 4; i++)
        out |= (w >> 8 * i & 15) << 4 * i | (w >> (8 * i + 4) & 15) << (16 + 4 * i);
    return out;
}

/* One word per column, holding eight rows. */
static void read_awq(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, uint8_t *rows, int64_t stride)
{
    for (int64_t n = 0; n < MOX_TILE_ROWS; n += 8)
        for (int64_t k = 0; k < cols; k += 8) {
            uint32_t w[8];
            for (int i = 0; i < 8; i++) {
                memcpy(&w[i], at(grid, (row + n) / 8, col + k + i), 4);
                w[i] = from_awq(w[i]);
            }
            transpose_nibbles(w);
            for (int i = 0; i < 8; i++)
                memcpy(rows + (n + i) * stride + k / 2, &w[i], 4);
        }
}

static void write_awq(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, const uint8_t *rows,
                      int64_t stride)
{
    for (int64_t n = 0; n < MOX_TILE_ROWS; n += 8)
        for (int64_t k = 0; k < cols; k += 8) {
            uint32_t w[8];
            for (int i = 0; i < 8; i++)
                memcpy(&w[i], rows + (n + i) * stride + k / 2, 4);
            transpose_nibbles(w);
            for (int i = 0; i < 8; i++) {
                w[i] = to_awq(w[i]);
                memcpy((uint8_t *)(uintptr_t)at(grid, (row + n) / 8, col + k + i), &w[i], 4);
            }
        }
}

/* The two packings of 4-byte words. */
static bool is_gptq(const moxie_grid *grid)
{
    return !grid->packing.along_rows && mox_pack_has_full_words(grid) && grid->packing.word_bytes == 4 &&
           grid->row_stride == 4;
}

static bool is_awq(const moxie_grid *grid)
{
    const moxie_packing p = grid->packing;
    return p.along_rows && p.order == MOXIE_ORDER_AWQ && p.word_bytes == 4 && p.per_word == 8 &&
           mox_dtype_bits(grid->dtype) == 4;
}

/* Two rows in a byte, the even row in the low nibble. */
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

/* False when this packing has no fast path. */
static bool read_whole(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, mox_tile *tile, int64_t stride)
{
    const moxie_packing p = grid->packing;
    const int32_t bits = mox_dtype_bits(grid->dtype);
    if (cols % 32 != 0)
        return false;
    if (is_gptq(grid))
        read_transposed_32(at(grid, row, col / p.per_word), grid->col_stride, cols / p.per_word, tile->bytes, stride);
    else if (is_awq(grid))
        read_awq(grid, row, col, cols, tile->bytes, stride);
    else if (p.along_rows && bits == 4 && p.per_word == 2 && p.word_bytes == 1 && grid->col_stride == 1)
        read_row_pairs(at(grid, row / 2, col), grid->row_stride, cols, tile, stride);
    else if (p.along_rows || !mox_pack_has_full_words(grid) || p.per_word != 1 || grid->row_stride != p.word_bytes)
        return false;
    else if (p.word_bytes == 2)
        read_transposed_16(at(grid, row, col), grid->col_stride, cols, tile, stride);
    else if (p.word_bytes == 1)
        read_transposed_8(at(grid, row, col), grid->col_stride, cols, tile, stride);
    else
        return false;
    return true;
}

/* ---- any tile ----------------------------------------------------------------------------------------------- */

/* A grid over the dense rows. */
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

/* True when the written elements fill whole bytes of their row. */
static bool owns_bytes(const moxie_grid *grid, int64_t cols)
{
    return cols * mox_dtype_bits(grid->dtype) % 8 == 0;
}

void mox_tile_write(const moxie_grid *grid, int64_t row, int64_t col, int64_t cols, const uint8_t *rows, int64_t stride)
{
    const int32_t bits = mox_dtype_bits(grid->dtype);
    const int64_t cols_here = mox_min_i64(cols, grid->cols - col);
    const moxie_grid from = rows_view(rows, stride, grid->dtype, cols);
    if (row + MOX_TILE_ROWS <= grid->rows && cols_here == cols && cols % 32 == 0) {
        if (is_gptq(grid)) {
            uint8_t *to = (uint8_t *)(uintptr_t)at(grid, row, col / grid->packing.per_word);
            write_transposed_32(rows, stride, cols / grid->packing.per_word, to, grid->col_stride);
            return;
        }
        if (is_awq(grid)) {
            write_awq(grid, row, col, cols, rows, stride);
            return;
        }
    }
    for (int64_t r = 0; r < MOX_TILE_ROWS && row + r < grid->rows; r++) {
        if (mox_pack_has_dense_rows(grid) && owns_bytes(grid, cols_here)) {
            /* The view is const for its readers; the caller of a write guarantees that the memory is writable. */
            uint8_t *to = (uint8_t *)(uintptr_t)at(grid, row + r, 0) + col * bits / 8;
            memcpy(to, rows + r * stride, (size_t)(cols_here * bits / 8));
            continue;
        }
        for (int64_t c = 0; c < cols_here; c++)
            mox_grid_store(grid, row + r, col + c, mox_grid_code(&from, r, c));
    }
}
