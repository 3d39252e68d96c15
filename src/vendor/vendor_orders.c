/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_orders.c - orders that move runs of bytes unchanged.
 *
 *     plain            [rows][row_bytes]; blackwell_values: columns padded to 128 bytes
 *     vector           [rows]: a matrix of one column
 *     block_major      [row_bytes / 128][rows][128]: a column of 128 bytes of all rows, then the next
 *     blackwell_tiles  the same with 64 bytes, rows padded to 256 and columns to 128 bytes
 *     word_columns     [row_bytes / 4][rows][4], rows padded to 4: four bytes of all rows, then the next four
 *     f32_columns      the same for f32: scales of activations, [cols][rows]
 *     lines            [cols / f][rows][f] of scales: f = 4 columns, or 2 or 1 where they are no multiple
 *
 * Sources: FlashInfer's convert_to_block_layout, and its older scales for Hopper, not yet folded; triton_kernels'
 * blackwell_value.py and blackwell_value_shuffled.py; DeepGEMM's layout of scales (columns of whole 16 bytes).
 */
#include "base/sizes.h"
#include "vendor/vendor_parts.h"

/* ---- plain ---------------------------------------------------------------------------------------- */

static void put_plain(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                      uint8_t *tensor)
{
    for (int64_t r = 0; r < count; r++)
        memcpy(tensor + (row + r) * m->row_bytes, rows[r], (size_t)m->row_bytes);
}

static void get_plain(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                      const uint8_t *tensor)
{
    for (int64_t r = 0; r < count; r++)
        memcpy(rows[r], tensor + (row + r) * m->row_bytes, (size_t)m->row_bytes);
}

const mox_vendor_order mox_order_plain = {
    .name = "plain", .step = 1, .bytes_multiple = 1, .pad_rows = 1, .pad_cols = 1, .put = put_plain, .get = get_plain
};

const mox_vendor_order mox_order_blackwell_values = { .name = "plain, 128 bytes",
                                                      .step = 1,
                                                      .bytes_multiple = 1,
                                                      .pad_rows = 1,
                                                      .pad_cols = 256,
                                                      .put = put_plain,
                                                      .get = get_plain };

int32_t mox_vendor_vector_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->rows * m->row_bytes / m->item_bytes;
    return 1;
}

const mox_vendor_order mox_order_vector = { .name = "vector",
                                            .step = 1,
                                            .bytes_multiple = 1,
                                            .pad_rows = 1,
                                            .pad_cols = 1,
                                            .shape = mox_vendor_vector_shape,
                                            .put = put_plain,
                                            .get = get_plain };

/* ---- block_major and tiles ------------------------------------------------------------------------ */

enum { BLOCK = 128, TILE_BYTES = 64, TILE_ROWS = 256 };

static int32_t block_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->row_bytes / BLOCK;
    shape[1] = m->rows;
    shape[2] = BLOCK / m->item_bytes;
    return 3;
}

/* `size` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void put_columns(const mox_vendor_matrix *m, int64_t row, int64_t count,
                                                              const uint8_t *const *rows, uint8_t *tensor, int64_t size)
{
    for (int64_t b = 0; b < m->row_bytes / size; b++)
        for (int64_t r = 0; r < count; r++)
            memcpy(tensor + (b * m->rows + row + r) * size, rows[r] + b * size, (size_t)size);
}

static inline __attribute__((always_inline)) void get_columns(const mox_vendor_matrix *m, int64_t row, int64_t count,
                                                              uint8_t *const *rows, const uint8_t *tensor, int64_t size)
{
    for (int64_t b = 0; b < m->row_bytes / size; b++)
        for (int64_t r = 0; r < count; r++)
            memcpy(rows[r] + b * size, tensor + (b * m->rows + row + r) * size, (size_t)size);
}

static void put_blocks(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                       uint8_t *tensor)
{
    put_columns(m, row, count, rows, tensor, BLOCK);
}

static void get_blocks(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                       const uint8_t *tensor)
{
    get_columns(m, row, count, rows, tensor, BLOCK);
}

static int32_t tile_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->row_bytes / TILE_BYTES;
    shape[1] = m->rows / TILE_ROWS;
    shape[2] = TILE_ROWS;
    shape[3] = TILE_BYTES;
    return 4;
}

static void put_tiles(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                      uint8_t *tensor)
{
    put_columns(m, row, count, rows, tensor, TILE_BYTES);
}

static void get_tiles(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                      const uint8_t *tensor)
{
    get_columns(m, row, count, rows, tensor, TILE_BYTES);
}

const mox_vendor_order mox_order_blackwell_tiles = { .name = "tiles of 256 x 64 bytes",
                                                     .step = 1,
                                                     .bytes_multiple = 1,
                                                     .pad_rows = TILE_ROWS,
                                                     .pad_cols = 256,
                                                     .shape = tile_shape,
                                                     .put = put_tiles,
                                                     .get = get_tiles };

const mox_vendor_order mox_order_block_major = { .name = "block_major",
                                                 .step = 1,
                                                 .bytes_multiple = BLOCK,
                                                 .pad_rows = 1,
                                                 .pad_cols = 1,
                                                 .shape = block_shape,
                                                 .put = put_blocks,
                                                 .get = get_blocks };

/* ---- columns of words ----------------------------------------------------------------------------- */

enum { WORD = 4 };

static int32_t columns_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->row_bytes / WORD;
    shape[1] = m->rows;
    return 2;
}

static void put_words(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                      uint8_t *tensor)
{
    put_columns(m, row, count, rows, tensor, WORD);
}

static void get_words(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                      const uint8_t *tensor)
{
    get_columns(m, row, count, rows, tensor, WORD);
}

#define COLUMNS(words, cols)                                                                                           \
    {                                                                                                                  \
        .name = words, .step = 1, .bytes_multiple = WORD, .pad_rows = 16 / WORD, .pad_cols = cols,                     \
        .shape = columns_shape, .put = put_words, .get = get_words                                                     \
    }
const mox_vendor_order mox_order_word_columns = COLUMNS("columns of words", 4);
const mox_vendor_order mox_order_f32_columns = COLUMNS("columns of f32", 1);

/* ---- lines of scales ------------------------------------------------------------------------------ */

/* Columns that stay side by side in a line. */
static int64_t columns_per_line(const mox_vendor_matrix *m)
{
    return m->cols % 4 == 0 ? 4 : m->cols % 2 == 0 ? 2 : 1;
}

static int32_t lines_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->cols / columns_per_line(m);
    shape[1] = m->rows * columns_per_line(m);
    return 2;
}

static void put_lines(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                      uint8_t *tensor)
{
    switch (columns_per_line(m) * m->bits / 8) {
    case 8: put_columns(m, row, count, rows, tensor, 8); break;
    case 4: put_columns(m, row, count, rows, tensor, 4); break;
    case 2: put_columns(m, row, count, rows, tensor, 2); break;
    default: put_columns(m, row, count, rows, tensor, 1); break;
    }
}

static void get_lines(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                      const uint8_t *tensor)
{
    switch (columns_per_line(m) * m->bits / 8) {
    case 8: get_columns(m, row, count, rows, tensor, 8); break;
    case 4: get_columns(m, row, count, rows, tensor, 4); break;
    case 2: get_columns(m, row, count, rows, tensor, 2); break;
    default: get_columns(m, row, count, rows, tensor, 1); break;
    }
}

const mox_vendor_order mox_order_lines = { .name = "lines of scales",
                                           .step = 1,
                                           .bytes_multiple = 1,
                                           .pad_rows = 1,
                                           .pad_cols = 1,
                                           .shape = lines_shape,
                                           .put = put_lines,
                                           .get = get_lines };
