/* SPDX-License-Identifier: Apache-2.0
 *
 * grid_tile.c - grids of any packing to dense rows, tile by tile, and back (grid_tile.h).
 *
 *     packing                      words of a grid                   to rows
 *     dense rows, words along K    one after the other in a row      where they lie, or copied
 *     GPTQ                         one after the other in a column   4 x 4 words turned over
 *     transposed                   elements down a column            4 x 4, 8 x 8 or 16 x 16 turned over
 *     AWQ, words along N           8 rows in a word                  8 x 8 nibbles turned over
 *     row pairs                    2 rows in a byte                  nibbles parted
 *     others, and edges                                              element by element
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

/* Tile rows of 4-byte words that lie down the grid's columns, or of elements of 4 bytes. */
static void read_turned_32(const uint8_t *from, int64_t col_stride, int64_t words, mox_tile *tile, int64_t stride)
{
    for (int64_t w = 0; w < words; w += 4)
        for (int64_t n = 0; n < MOX_TILE_ROWS; n += 4)
            mox_flip_32(from + w * col_stride + n * 4, col_stride, tile->bytes + n * stride + w * 4, stride);
}

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

/* Exchanges the bits of b under `mask` with those of a `shift` higher. */
MOX_FLIP_INLINE void exchange_between(mox_words *a, mox_words *b, uint32_t mask, int shift)
{
    const mox_words t = (*a >> shift ^ *b) & mask;
    *b ^= t;
    *a ^= t << shift;
}

/* Nibble i of x[j] becomes nibble j of x[i], in every word. */
MOX_FLIP_INLINE void flip_nibbles(mox_words x[8])
{
    for (int i = 0; i < 4; i++)
        exchange_between(&x[2 * i], &x[2 * i + 1], 0x0f0f0f0f, 4);
    for (int i = 0; i < 4; i++)
        exchange_between(&x[i / 2 * 4 + i % 2], &x[i / 2 * 4 + i % 2 + 2], 0x00ff00ff, 8);
    for (int i = 0; i < 4; i++)
        exchange_between(&x[i], &x[i + 4], 0x0000ffff, 16);
}

/* 16 columns of words of 8 rows: x[i] has the nibbles i of columns k .. k+7 in lanes 0 (first word of a column) and
 * 1 (second word), those of the next 8 columns in lanes 2 and 3. */
MOX_FLIP_INLINE void turn_word_rows(const uint8_t *from, int64_t word_stride, int64_t col_stride, mox_words x[8])
{
    for (int j = 0; j < 8; j++)
        x[j] = mox_gather_words(from + j * col_stride, word_stride, 8 * col_stride);
    flip_nibbles(x);
}

/* 32 columns at a time, 16 bytes of every tile row. awq: row i of a word is nibble 0 4 1 5 2 6 3 7 of it. */
MOX_FLIP_INLINE void read_word_rows(const uint8_t *from, int64_t word_stride, int64_t col_stride, int64_t cols,
                                    bool awq, mox_tile *tile, int64_t stride)
{
    static const uint8_t linear[8] = { 0, 1, 2, 3, 4, 5, 6, 7 }, interleaved[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    const uint8_t *nibble = awq ? interleaved : linear;
    for (int64_t k = 0; k < cols; k += 32, from += 32 * col_stride) {
        mox_words low[8], high[8];
        turn_word_rows(from, word_stride, col_stride, low);
        turn_word_rows(from + 16 * col_stride, word_stride, col_stride, high);
        for (int i = 0; i < 8; i++) {
            const mox_words a = low[nibble[i]], b = high[nibble[i]];
            uint8_t *to = tile->bytes + i * stride + k / 2;
            mox_store_words(to, MOX_PICK_WORDS(a, b, 0, 2, 4, 6));
            mox_store_words(to + 8 * stride, MOX_PICK_WORDS(a, b, 1, 3, 5, 7));
        }
    }
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
    const bool awq = p.order == MOXIE_ORDER_AWQ;
    const uint8_t *words = p.along_rows ? at(grid, row / p.per_word, col) : at(grid, row, col / p.per_word);
    if (p.along_rows && bits == 4 && p.per_word == 8 && p.word_bytes == 4 && grid->row_stride == 4)
        read_word_rows(words, 4, grid->col_stride, cols, awq, tile, stride);
    else if (p.along_rows && bits == 4 && p.per_word == 8 && p.word_bytes == 4)
        read_word_rows(words, grid->row_stride, grid->col_stride, cols, awq, tile, stride);
    else if (p.along_rows && bits == 4 && p.per_word == 2 && p.word_bytes == 1 && grid->col_stride == 1)
        read_row_pairs(words, grid->row_stride, cols, tile, stride);
    else if (p.along_rows || !mox_pack_has_full_words(grid) || grid->row_stride != p.word_bytes)
        return false;
    else if (p.word_bytes == 4)
        read_turned_32(words, grid->col_stride, cols / p.per_word, tile, stride);
    else if (p.word_bytes == 2 && p.per_word == 1)
        read_turned_16(words, grid->col_stride, cols, tile, stride);
    else if (p.word_bytes == 1 && p.per_word == 1)
        read_turned_8(words, grid->col_stride, cols, tile, stride);
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
