/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_source.c - a grid of the checkpoint as dense rows, and back.
 *
 *     rows dense in the checkpoint      used where they lie
 *     any other packing                 copied, 16 rows per task, to or from scratch of the grid's size
 *
 * In the flow: checkpoint grid -> [dense rows] -> vendor_move.c.
 */
#include "base/memory.h"
#include "base/sizes.h"
#include "pack/grid_move.h"
#include "pack/grid_tile.h"
#include "vendor/vendor_internal.h"

/* One copy between a grid and scratch. */
typedef struct transposition {
    const mox_vendor_source *source;
    bool write; /* from scratch to the grid */
} transposition;

static void move_rows(void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const transposition *t = context;
    const mox_vendor_source *s = t->source;
    const int64_t row = task * MOX_TILE_ROWS, count = mox_min_i64(MOX_TILE_ROWS, s->grid->rows - row);
    const int32_t bits = mox_dtype_bits(s->grid->dtype);
    const int64_t max_cols =
        bits > 16 ? MOX_TILE_COLS / 2 : MOX_TILE_COLS; /* the memory of a tile is for 16-bit elements */
    for (int64_t col = 0; col < s->grid->cols; col += max_cols) {
        const int64_t cols = mox_min_i64(max_cols, mox_ceil_div(s->grid->cols - col, 8) * 8);
        uint8_t *here = s->data + row * s->stride + col * bits / 8;
        if (t->write) {
            mox_tile_write(s->grid, row, col, cols, here, s->stride);
            continue;
        }
        mox_tile tile;
        int64_t stride;
        const uint8_t *from = mox_tile_read(s->grid, row, col, cols, &tile, &stride);
        for (int64_t r = 0; r < count; r++)
            memcpy(here + r * s->stride, from + r * stride, (size_t)(cols * bits / 8));
    }
}

static void move_grid(const mox_vendor_source *source, bool write, const moxie_executor *executor)
{
    transposition t = { source, write };
    mox_parallel(executor, mox_ceil_div(source->grid->rows, MOX_TILE_ROWS), move_rows, &t);
}

moxie_status mox_vendor_source_open(const moxie_grid *grid, bool read, const moxie_executor *executor,
                                    mox_vendor_source *out, moxie_error *error)
{
    *out = (mox_vendor_source) { .grid = grid };
    const bool whole = grid->cols * mox_dtype_bits(grid->dtype) % 8 == 0;
    if (grid->data == NULL)
        return MOXIE_OK;
    if (mox_pack_has_dense_rows(grid) && whole) {
        /* Views are const for their readers; a caller that writes through one guarantees that its memory is writable.
         */
        out->data = (uint8_t *)(uintptr_t)grid->data;
        out->stride = grid->row_stride;
        return MOXIE_OK;
    }
    /* Tiles are whole: 8 columns and 16 rows at a time. */
    out->stride = (int64_t)mox_dense_row_bytes(grid->dtype, mox_ceil_div(grid->cols, 8) * 8);
    const uint64_t bytes = (uint64_t)(mox_ceil_div(grid->rows, MOX_TILE_ROWS) * MOX_TILE_ROWS * out->stride);
    out->data = out->owned = mox_alloc(bytes);
    MOX_FAIL_IF(out->owned == NULL, MOXIE_ERR_MEMORY, error, "no memory: %llu bytes for a matrix as dense rows",
                (unsigned long long)bytes);
    if (read)
        move_grid(out, false, executor);
    return MOXIE_OK;
}

void mox_vendor_source_flush(const mox_vendor_source *source, const moxie_executor *executor)
{
    if (source->owned != NULL)
        move_grid(source, true, executor);
}

void mox_vendor_source_close(mox_vendor_source *source)
{
    mox_free(source->owned);
    *source = (mox_vendor_source) { 0 };
}
