/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix_row.c - a row of the exact weights of a matrix (matrix.c), each rounded once to f32.
 */
#include "base/sizes.h"
#include "quant/matrix_row.h"

static bool is_contiguous(const moxie_grid *grid, int32_t bytes)
{
    const moxie_packing *p = &grid->packing;
    return p->per_word == 1 && p->word_bytes == bytes && grid->col_stride == bytes;
}

/* Columns [col, col + count) of row n, which share a scale. */
static void scaled_run(const moxie_matrix *matrix, const moxie_quant *quant, const float *table, int64_t n, int64_t col,
                       int64_t count, float *out)
{
    const int64_t row = n / mox_group_rows(quant, matrix->codes.rows), group = mox_matrix_group(matrix, quant, col);
    const double zero = quant->has_zero ? mox_grid_value(&matrix->zero, row, group) + (double)matrix->zero_add : 0;
    const double scale = mox_grid_value(&matrix->scale, row, group);
    const double global = quant->global ? mox_grid_value(&matrix->global, matrix->global.rows == 1 ? 0 : n, 0) : 1;
    for (int64_t i = 0; i < count; i++) {
        const double value = ((double)table[mox_grid_code(&matrix->codes, n, col + i) & 0xff] - zero) * scale;
        out[i] = (float)(quant->global == MOXIE_GLOBAL_DIVIDE ? value / global : value * global);
    }
}

void mox_matrix_row(const moxie_matrix *matrix, const moxie_quant *quant, int64_t n, float *out)
{
    const moxie_grid *codes = &matrix->codes;
    const float *table = mox_format_table(quant->element);
    const int64_t cols = codes->cols, group_cols = mox_group_cols(quant, cols);
    if (mox_quant_is_plain(quant) && is_contiguous(codes, mox_dtype_bytes(codes->dtype))) {
        mox_widen(codes->dtype, (const char *)codes->data + n * codes->row_stride, out, cols);
        return;
    }
    if (!table || quant->scale == MOXIE_DTYPE_NONE || matrix->group_index) {
        for (int64_t c = 0; c < cols; c++)
            out[c] = (float)mox_matrix_weight(matrix, quant, n, c);
        return;
    }
    for (int64_t c = 0; c < cols; c += group_cols)
        scaled_run(matrix, quant, table, n, c, mox_min_i64(group_cols, cols - c), out + c);
}
