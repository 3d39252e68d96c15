/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_move.c - the contents of panels (panel_move.h).
 *
 *     codes     dense rows, or words that lie by columns or by rows -> steps (panel_codes.h); other packings
 *               become tiles of dense rows first (grid_tile.h)
 *     scales    [16][groups] -> [groups][16]
 *     zeros     likewise, as bytes
 *
 * Where rows are neighbours in memory, as in tensors of GPTQ and AWQ, the same columns of up to 16 panels are packed
 * one after another: 128 rows of AWQ share a cache line.
 */
#include "pack/panel/panel_move.h"

#include "base/sizes.h"
#include "pack/transpose.h"
#include "pack/grid_move.h"
#include "pack/grid_tile.h"
#include "pack/panel/block_panel.h"
#include "pack/panel/panel_codes.h"

#define ROWS          MOX_PANEL_ROWS
#define STEPS_OF_TILE (MOX_TILE_COLS / MOX_PANEL_STEP)

enum { LINE = 64, MAX_PANELS_AT_ONCE = 16 };

static void zero_fill(uint8_t *from, const uint8_t *to)
{
    memset(from, 0, (size_t)(to - from));
}

/* ---- codes -------------------------------------------------------------------------------------------------- */

static bool rows_are_neighbours(const moxie_grid *grid)
{
    return grid->row_stride < grid->col_stride;
}

/* Bytes from one panel's rows to the next panel's in a column of words. Only called when there is a next panel: a grid
 * with one word per column may have any stride. */
static int64_t panel_span(const moxie_grid *grid)
{
    return grid->row_stride * (ROWS / (grid->packing.along_rows ? grid->packing.per_word : 1));
}

/* How many panels to pack column by column at once: a kilobyte of each column, so that the hardware prefetcher sees a
 * stream. */
static int64_t panels_at_once(const moxie_grid *grid)
{
    if (grid->rows <= ROWS || !rows_are_neighbours(grid) || grid->row_stride == 0)
        return 1;
    return mox_max_i64(1, mox_min_i64(1024 / panel_span(grid), MAX_PANELS_AT_ONCE));
}

/* True for 4-byte words along K (the words of a column side by side); the next one for words along N. */
static bool has_word_columns(const moxie_grid *grid)
{
    const moxie_packing *p = &grid->packing;
    return mox_pack_has_full_words(grid) && !p->along_rows && p->word_bytes == 4 && p->per_word > 1 &&
           grid->row_stride == 4;
}

static bool has_word_rows(const moxie_grid *grid)
{
    const moxie_packing *p = &grid->packing;
    return p->along_rows && p->word_bytes == 4 && p->per_word == 8 && mox_dtype_bits(grid->dtype) == 4;
}

/* Packs steps [step, step + steps) of 16 rows of any packing. */
static void pack_tile(const mox_panel_matrix *m, const moxie_grid *from, int64_t row, int64_t step, int64_t steps,
                      uint8_t *panel)
{
    const mox_panel_order order = mox_panel_order_of(from->dtype);
    const int64_t col = step * MOX_PANEL_STEP, cols = steps * MOX_PANEL_STEP, per_word = from->packing.per_word;
    const bool whole = row + ROWS <= from->rows && col + cols <= from->cols;
    const uint8_t *data = from->data;
    uint8_t *to = panel + (uint64_t)step * m->step_bytes;
    mox_tile tile;
    int64_t stride;
    if (whole && has_word_columns(from))
        mox_panel_codes_pack_columns(order, data + row * 4 + col / per_word * from->col_stride, from->col_stride, steps,
                                     to);
    else if (whole && has_word_rows(from))
        mox_panel_codes_pack_rows(from->packing.order == MOXIE_ORDER_AWQ,
                                  data + row / per_word * from->row_stride + col * from->col_stride, from->row_stride,
                                  from->col_stride, steps, to);
    else {
        const uint8_t *rows = mox_tile_read(from, row, col, cols, &tile, &stride);
        mox_panel_codes_pack(order, rows, stride, steps, to);
    }
}

/* Always inline: GCC treats a function that only prefetches as one without effect, and drops the call. */
MOX_PACK_INLINE void prefetch(const uint8_t *from, int64_t stride, int64_t count, int64_t bytes)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t b = 0; b < bytes; b += LINE)
            __builtin_prefetch(from + i * stride + b);
}

/* Packs steps [0, full) of 16 dense rows, one cache line of each row at a time, and prefetches the next panel's
 * lines. */
static void pack_dense_rows(const mox_panel_matrix *m, const moxie_grid *from, int64_t row, int64_t full,
                            uint8_t *panel)
{
    const mox_panel_order order = mox_panel_order_of(from->dtype);
    const int64_t step_row = (int64_t)m->step_bytes / ROWS, stride = from->row_stride, steps_per_line = LINE / step_row;
    const uint8_t *rows = (const uint8_t *)from->data + row * stride;
    const bool has_next = row + 2 * ROWS <= from->rows;
    for (int64_t s = 0; s < full; s += steps_per_line) {
        const int64_t steps = mox_min_i64(steps_per_line, full - s);
        if (has_next)
            prefetch(rows + ROWS * stride + s * step_row, stride, ROWS, steps * step_row);
        mox_panel_codes_pack(order, rows + s * step_row, stride, steps, panel + (uint64_t)s * m->step_bytes);
    }
}

static void pack_codes(const mox_panel_matrix *m, const moxie_grid *from, int64_t row, int64_t count, uint8_t *panel,
                       uint64_t distance)
{
    const int64_t full = m->cols / MOX_PANEL_STEP; /* an incomplete last step is packed alone: edges are slow to read */
    int64_t s = 0;
    if (mox_pack_has_dense_rows(from) && row + ROWS <= from->rows) {
        pack_dense_rows(m, from, row, full, panel);
        s = full;
    }
    while (s < m->steps) {
        const int64_t steps = s < full ? mox_min_i64(STEPS_OF_TILE, full - s) : 1;
        for (int64_t i = 0; i < count; i++)
            pack_tile(m, from, row + i * ROWS, s, steps, panel + (uint64_t)i * distance);
        s += steps;
    }
}

static void unpack_codes(const mox_panel_matrix *m, const uint8_t *panel, const moxie_grid *to, int64_t row)
{
    mox_tile tile;
    for (int64_t s = 0; s < m->steps; s += STEPS_OF_TILE) {
        const int64_t steps = mox_min_i64(STEPS_OF_TILE, m->steps - s), cols = steps * MOX_PANEL_STEP;
        const int64_t stride = (int64_t)mox_dense_row_bytes(to->dtype, cols);
        mox_panel_codes_unpack(mox_panel_order_of(to->dtype), panel + (uint64_t)s * m->step_bytes, steps, tile.bytes,
                               stride);
        mox_tile_write(to, row, s * MOX_PANEL_STEP, cols, tile.bytes, stride);
    }
}

/* ---- scales ------------------------------------------------------------------------------------------------- */

/* Transposes columns first .. groups - 1 of 16 rows, element by element. */
static void transpose_elements(const uint8_t *rows, int64_t stride, int64_t size, int64_t first, int64_t groups,
                               uint8_t *to)
{
    for (int64_t g = first; g < groups; g++)
        for (int64_t n = 0; n < ROWS; n++)
            memcpy(to + (g * ROWS + n) * size, rows + n * stride + g * size, (size_t)size);
}

/* Transposes dense rows [16][groups] of elements of 1, 2 or 4 bytes to [groups][16]. The last block overlaps the one
 * before. */
static void transpose_rows(const uint8_t *rows, int64_t stride, int64_t size, int64_t groups, uint8_t *to)
{
    const int64_t block = 16 / size;
    if (groups < block) {
        transpose_elements(rows, stride, size, 0, groups, to);
        return;
    }
    for (int64_t next = 0; next < groups; next += block) {
        const int64_t g = mox_min_i64(next, groups - block);
        const uint8_t *from = rows + g * size;
        uint8_t *out = to + g * ROWS * size;
        if (size == 1)
            mox_transpose_8(from, stride, out, 16);
        for (int64_t n = 0; size == 2 && n < ROWS; n += 8)
            mox_transpose_16(from + n * stride, stride, out + n * 2, 32);
        for (int64_t n = 0; size == 4 && n < ROWS; n += 4)
            mox_transpose_32(from + n * stride, stride, out + n * 4, 64);
    }
}

/* The scales of a panel as a grid [groups, lanes]. */
static moxie_grid scale_view(const mox_panel_matrix *m, moxie_dtype dtype, const uint8_t *panel)
{
    return mox_grid_dense(panel + m->scale_at, dtype, m->groups, m->scale_lanes);
}

/* Packs the scales of 16 whole rows with one scale per row, stored densely by rows or by columns. False for other
 * grids. */
static bool pack_whole_scales(const mox_panel_matrix *m, const moxie_grid *from, int64_t row, uint8_t *to)
{
    const int64_t size = mox_dtype_bytes(from->dtype);
    if (m->scale_lanes != ROWS || from->rows != m->rows || row + ROWS > m->rows || from->packing.per_word != 1)
        return false;
    const uint8_t *data = (const uint8_t *)from->data + row * from->row_stride;
    if (from->row_stride == size) {
        for (int64_t g = 0; g < m->groups; g++)
            memcpy(to + g * ROWS * size, data + g * from->col_stride, (size_t)(ROWS * size));
        return true;
    }
    if (!mox_pack_has_dense_rows(from))
        return false;
    transpose_rows(data, from->row_stride, size, m->groups, to);
    return true;
}

static void pack_scales(const mox_panel_matrix *m, const moxie_quant *q, const moxie_grid *from, int64_t row,
                        uint8_t *panel)
{
    const int64_t group_rows = mox_group_rows(q, m->rows);
    const moxie_grid to = scale_view(m, q->scale, panel);
    uint8_t *begin = panel + m->scale_at;
    if (!pack_whole_scales(m, from, row, begin))
        for (int64_t g = 0; g < m->groups; g++)
            for (int64_t n = 0; n < m->scale_lanes; n++)
                mox_grid_store(&to, g, n, row + n < m->rows ? mox_grid_code(from, (row + n) / group_rows, g) : 0);
    zero_fill(begin + to.bytes, panel + (m->zero_at != 0 ? m->zero_at : m->panel_bytes));
}

static void unpack_scales(const mox_panel_matrix *m, const moxie_quant *q, const uint8_t *panel, const moxie_grid *to,
                          int64_t row)
{
    const int64_t group_rows = mox_group_rows(q, m->rows);
    const moxie_grid from = scale_view(m, q->scale, panel);
    for (int64_t n = 0; n < m->scale_lanes && row + n < m->rows; n++)
        for (int64_t g = 0; g < m->groups && (row + n) % group_rows == 0; g++)
            mox_grid_store(to, (row + n) / group_rows, g, mox_grid_code(&from, g, n));
}

/* ---- zero points -------------------------------------------------------------------------------------------- */

static int32_t zero_bias(moxie_dtype element)
{
    return mox_dtype_bits(element) == 4 ? MOX_PANEL_ZERO_BIAS : MOX_PANEL_ZERO_BIAS_8;
}

bool mox_panel_zero_byte(const moxie_matrix *from, int64_t r, int64_t g, uint8_t *out)
{
    const float bias = (float)zero_bias(from->codes.dtype);
    const float max_value = bias == MOX_PANEL_ZERO_BIAS ? MOX_PANEL_ZERO_MAX : MOX_PANEL_ZERO_MAX_8;
    const float value = mox_pack_plus(mox_pack_get_float(&from->zero, r, g), from->zero_add) + bias;
    if (!(value >= 0 && value <= max_value) || value != (float)(int32_t)value)
        return false;
    const float back = mox_pack_plus(value - bias, -from->zero_add);
    *out = (uint8_t)value;
    return mox_format_of(from->zero.dtype)->encode(back) == mox_grid_code(&from->zero, r, g);
}

bool mox_panel_has_safe_zeros(const moxie_matrix *from)
{
    return mox_dtype_bits(from->zero.dtype) == 4 && (from->zero_add == 0.0f || from->zero_add == 1.0f);
}

/* Zero points of 16 rows and groups g, g + 1, from words of 8 rows. */
static void pack_zero_words(const moxie_matrix *from, int64_t row, int64_t g, uint8_t *to)
{
    const moxie_grid *zero = &from->zero;
    const uint8_t *data = (const uint8_t *)zero->data + row / 8 * zero->row_stride + g * zero->col_stride;
    mox_words v = mox_gather_words(data, zero->row_stride, zero->col_stride);
    if (zero->packing.order == MOXIE_ORDER_AWQ)
        v = mox_interleave_nibbles(v);
    const uint8_t sign_flip = zero->dtype == MOXIE_I4 ? 8 : 0, add = (uint8_t)from->zero_add;
    const mox_v16u8 low = (mox_v16u8)(v & 0x0f0f0f0f), high = (mox_v16u8)(v >> 4 & 0x0f0f0f0f);
    const mox_v16u8 first = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const mox_v16u8 next =
        __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    mox_store_words(to, (mox_words)((first ^ sign_flip) + add));
    mox_store_words(to + ROWS, (mox_words)((next ^ sign_flip) + add));
}

/* Packs the zero points of 16 whole rows in words along N, as AWQ, GPTQ and compressed-tensors store them. False for
 * other grids. */
static bool pack_whole_zeros(const mox_panel_matrix *m, const moxie_matrix *from, int64_t row, uint8_t *to)
{
    const moxie_packing *p = &from->zero.packing;
    if (!mox_panel_has_safe_zeros(from) || from->zero.rows != m->rows || row + ROWS > m->rows || m->groups < 2 ||
        !p->along_rows || p->per_word != 8 || p->word_bytes != 4)
        return false;
    for (int64_t next = 0; next < m->groups; next += 2) {
        const int64_t g = mox_min_i64(next, m->groups - 2);
        pack_zero_words(from, row, g, to + g * ROWS);
    }
    return true;
}

static void pack_zeros(const mox_panel_matrix *m, const moxie_quant *q, const moxie_matrix *from, int64_t row,
                       uint8_t *panel)
{
    const int64_t group_rows = mox_group_rows(q, m->rows);
    uint8_t *to = panel + m->zero_at;
    if (!pack_whole_zeros(m, from, row, to))
        for (int64_t g = 0; g < m->groups; g++)
            for (int64_t n = 0; n < ROWS; n++) {
                to[g * ROWS + n] = 0;
                if (row + n < m->rows)
                    (void)mox_panel_zero_byte(from, (row + n) / group_rows, g, to + g * ROWS + n);
            }
    zero_fill(to + m->groups * ROWS, panel + m->panel_bytes);
}

static void unpack_zeros(const mox_panel_matrix *m, const moxie_quant *q, const uint8_t *panel, const moxie_matrix *to,
                         int64_t row)
{
    const int64_t group_rows = mox_group_rows(q, m->rows);
    const uint8_t *from = panel + m->zero_at;
    for (int64_t n = 0; n < ROWS && row + n < m->rows; n++)
        for (int64_t g = 0; g < m->groups && (row + n) % group_rows == 0; g++) {
            const float value = (float)(from[g * ROWS + n] - zero_bias(q->element));
            mox_pack_put_float(&to->zero, (row + n) / group_rows, g, mox_pack_plus(value, -to->zero_add));
        }
}

/* ---- panels ------------------------------------------------------------------------------------------------- */

void mox_panel_pack(const mox_panel_matrix *m, const moxie_quant *quant, const moxie_matrix *from, int64_t row,
                    int64_t count, uint8_t *panel, uint64_t distance)
{
    const int64_t at_once = panels_at_once(&from->codes);
    const bool blocks = mox_quant_is_block(quant);
    for (int64_t i = 0; i < count; i++, row += ROWS, panel += distance) {
        if (blocks) {
            mox_block_panel_pack(m, &from->codes, row, panel);
            continue;
        }
        if (i % at_once == 0)
            pack_codes(m, &from->codes, row, mox_min_i64(at_once, count - i), panel, distance);
        if (m->scale_lanes > 0)
            pack_scales(m, quant, &from->scale, row, panel);
        if (m->zero_at != 0)
            pack_zeros(m, quant, from, row, panel);
    }
}

void mox_panel_unpack(const mox_panel_matrix *m, const moxie_quant *quant, const uint8_t *panel, const moxie_matrix *to,
                      int64_t row)
{
    if (mox_quant_is_block(quant))
        mox_block_panel_unpack(m, panel, &to->codes, row);
    else
        unpack_codes(m, panel, &to->codes, row);
    if (m->scale_lanes > 0)
        unpack_scales(m, quant, panel, &to->scale, row);
    if (m->zero_at != 0)
        unpack_zeros(m, quant, panel, to, row);
}

/* ---- rows --------------------------------------------------------------------------------------------------- */

/* The position of row r of a half among the rows of all panels. */
static int64_t panel_row(const mox_panel_matrix *m, int half, int64_t r)
{
    const int64_t block = r / ROWS, panel = m->gated ? 2 * block + half : block;
    return panel * ROWS + r % ROWS;
}

void mox_panel_pack_rows(const mox_panel_matrix *m, const moxie_grid *from, int half, float *to)
{
    const int64_t padded = mox_ceil_div(m->rows, ROWS) * ROWS;
    for (int64_t r = 0; r < padded; r++)
        to[panel_row(m, half, r)] = r < m->rows ? mox_pack_get_float(from, from->rows == 1 ? 0 : r, 0) : 0.0f;
}

void mox_panel_unpack_rows(const mox_panel_matrix *m, const float *from, int half, const moxie_grid *to)
{
    for (int64_t r = 0; r < to->rows; r++)
        mox_pack_put_float(to, r, 0, from[panel_row(m, half, r)]);
}
