/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix_slice.c - some rows and columns of a quantized matrix, as views of the same memory.
 *
 *     codes [N,K]              scale, zero            global, bias
 *     +---+--------+---+       +--+----+--+           +-+
 *     |   |        |   |       |  |    |  |           | |   one row: shared by every slice
 *     +---+--------+---+ row   +--+----+--+ row / gr  +-+
 *     |   |########|   |       |  |####|  |           |#|
 *     +---+--------+---+       +--+----+--+           +-+
 *        col                    col / gc
 *
 * An edge must not cut a group of gr x gc elements, nor a word of any grid: a view cannot describe half of one. A group
 * as long as the matrix is no obstacle, since every slice shares its scale. Columns in act order belong to scattered
 * groups: their slices would have no contiguous scales, so they are rejected. In the flow: checkpoint views -> [slice
 * of one rank] -> packing (pack, vendor).
 */
#include "quant/quant.h"

#include "base/sizes.h"

/* Columns that share a word, or a block. */
static int64_t cols_per_word(const moxie_grid *grid)
{
    return grid->packing.order == MOX_ORDER_BLOCK ? mox_block_of(grid->dtype)->weights
           : grid->packing.along_rows             ? 1
                                                  : grid->packing.per_word;
}

static bool is_edge(int64_t at, int64_t extent, int64_t multiple)
{
    return at == extent || at % multiple == 0;
}

bool mox_grid_slice(const moxie_grid *grid, const mox_rectangle *at, moxie_grid *out)
{
    const bool down = grid->packing.along_rows;
    const int64_t word_rows = down ? grid->packing.per_word : 1, word_cols = cols_per_word(grid);
    const bool inside = at->row >= 0 && at->rows >= 0 && at->rows <= grid->rows - at->row && at->col >= 0 &&
                        at->cols >= 0 && at->cols <= grid->cols - at->col;
    if (!inside || !is_edge(at->row, grid->rows, word_rows) || !is_edge(at->row + at->rows, grid->rows, word_rows) ||
        !is_edge(at->col, grid->cols, word_cols) || !is_edge(at->col + at->cols, grid->cols, word_cols))
        return false;
    moxie_grid taken = *grid;
    taken.rows = at->rows;
    taken.cols = at->cols;
    /* An empty slice may begin at the grid's end, beyond its last word. */
    if (at->rows > 0 && at->cols > 0) {
        const int64_t skip = at->row / word_rows * grid->row_stride + at->col / word_cols * grid->col_stride;
        taken.data = (const char *)grid->data + skip;
        taken.bytes -= (uint64_t)skip;
    }
    *out = taken;
    return true;
}

/* ---- matrices ------------------------------------------------------------------------------------- */

/* One grid of a matrix, and how many rows and columns of the matrix share one of its elements. */
typedef struct slice_part {
    const char *name;
    moxie_grid *grid;
    int64_t unit_rows, unit_cols;
} slice_part;

enum { SLICE_PARTS = 5 };
#define UNCUT INT64_MAX /* all rows or columns share it, so a slice keeps it whole */

static void parts_of(moxie_matrix *matrix, const moxie_quant *quant, slice_part parts[SLICE_PARTS])
{
    const int64_t n = matrix->codes.rows, k = matrix->codes.cols;
    const int64_t gr = mox_group_rows(quant, n), gc = mox_group_cols(quant, k);
    const int64_t global_rows = matrix->global.rows == n ? 1 : UNCUT;
    parts[0] = (slice_part) { "codes", &matrix->codes, 1, 1 };
    parts[1] = (slice_part) { "scales", &matrix->scale, gr, gc };
    parts[2] = (slice_part) { "zero points", &matrix->zero, gr, gc };
    parts[3] = (slice_part) { "globals", &matrix->global, global_rows, UNCUT };
    parts[4] = (slice_part) { "biases", &matrix->bias, 1, UNCUT };
}

/* Converts the range [first, first + count) of a matrix axis to a range of a grid with one element per `unit`. False
 * when an edge lies inside a unit. */
static bool in_units(int64_t first, int64_t count, int64_t extent, int64_t unit, int64_t *out_first, int64_t *out_count)
{
    if (unit >= extent) { /* one element for all */
        *out_first = 0;
        *out_count = count > 0 || unit == UNCUT;
        return true;
    }
    *out_first = mox_ceil_div(first, unit);
    *out_count = mox_ceil_div(first + count, unit) - *out_first;
    return is_edge(first, extent, unit) && is_edge(first + count, extent, unit);
}

static moxie_status take_part(const slice_part *part, int64_t n, int64_t k, const mox_rectangle *at, const char *what,
                              moxie_error *error)
{
    mox_rectangle mine;
    MOX_FAIL_IF(!in_units(at->row, at->rows, n, part->unit_rows, &mine.row, &mine.rows) ||
                    !in_units(at->col, at->cols, k, part->unit_cols, &mine.col, &mine.cols),
                MOXIE_ERR_UNSUPPORTED, error,
                "%s: rows %lld to %lld and columns %lld to %lld of [%lld, %lld] cut a group: %s stand for %lld x %lld "
                "elements each",
                what, (long long)at->row, (long long)(at->row + at->rows), (long long)at->col,
                (long long)(at->col + at->cols), (long long)n, (long long)k, part->name, (long long)part->unit_rows,
                (long long)part->unit_cols);
    MOX_FAIL_IF(!mox_grid_slice(part->grid, &mine, part->grid), MOXIE_ERR_UNSUPPORTED, error,
                "%s: rows %lld to %lld and columns %lld to %lld of [%lld, %lld] cut a word: %s are stored %d in a word "
                "along %s",
                what, (long long)at->row, (long long)(at->row + at->rows), (long long)at->col,
                (long long)(at->col + at->cols), (long long)n, (long long)k, part->name, part->grid->packing.per_word,
                part->grid->packing.along_rows ? "rows" : "columns");
    return MOXIE_OK;
}

static bool in_act_order(const moxie_matrix *matrix, int64_t group_cols)
{
    for (int64_t k = 0; matrix->group_index && k < matrix->codes.cols; k++)
        if (matrix->group_index[k] != k / group_cols)
            return true;
    return false;
}

moxie_status mox_matrix_slice(const moxie_matrix *matrix, const moxie_quant *quant, const mox_rectangle *at,
                              const char *what, moxie_matrix *out, moxie_error *error)
{
    const int64_t n = matrix->codes.rows, k = matrix->codes.cols;
    moxie_matrix taken = *matrix;
    slice_part parts[SLICE_PARTS];
    if (at->col != 0 || at->cols != k) {
        MOX_FAIL_IF(in_act_order(matrix, mox_group_cols(quant, k)), MOXIE_ERR_UNSUPPORTED, error,
                    "%s: columns %lld to %lld of %lld cannot be taken: they are in act order (g_idx), which scatters "
                    "them over all groups; take whole rows, or a checkpoint without act order",
                    what, (long long)at->col, (long long)(at->col + at->cols), (long long)k);
        taken.group_index = NULL;
    }
    parts_of(&taken, quant, parts);
    for (int i = 0; i < SLICE_PARTS; i++)
        if (parts[i].grid->data != NULL)
            MOX_TRY(take_part(&parts[i], n, k, at, what, error));
    *out = taken;
    return MOXIE_OK;
}

int64_t mox_matrix_slice_multiple(const moxie_matrix *matrix, const moxie_quant *quant, bool cols)
{
    const int64_t extent = cols ? matrix->codes.cols : matrix->codes.rows;
    moxie_matrix view = *matrix;
    slice_part parts[SLICE_PARTS];
    parts_of(&view, quant, parts);
    int64_t cut = 1;
    for (int i = 0; i < SLICE_PARTS; i++) {
        const moxie_grid *grid = parts[i].grid;
        const int64_t unit = cols ? parts[i].unit_cols : parts[i].unit_rows;
        if (grid->data == NULL || unit >= extent)
            continue;
        const int64_t words = cols ? cols_per_word(grid) : grid->packing.along_rows != 0 ? grid->packing.per_word : 1;
        cut = mox_common_multiple(cut, unit * words);
    }
    return cut;
}
