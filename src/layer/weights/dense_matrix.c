/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_matrix.c - checks a view of a plain matrix and widens it to f32 (dense_matrix.h).
 */
#include "layer/weights/dense_matrix.h"

#include <string.h>

moxie_status mox_dense_matrix_check(const moxie_matrix *matrix, int64_t rows, int64_t cols, bool has_bias,
                                    const char *what, moxie_error *error)
{
    const moxie_quant plain = { .element = matrix->codes.dtype };
    MOX_FAIL_IF(matrix->codes.data == NULL, MOXIE_ERR_MISMATCH, error,
                "the %s is absent; the configuration calls for a [%lld, %lld] float matrix", what, (long long)rows,
                (long long)cols);
    MOX_FAIL_IF(!mox_quant_is_plain(&plain), MOXIE_ERR_UNSUPPORTED, error,
                "the %s has elements of %s; it must be f32, f16 or bf16", what, mox_dtype_name(plain.element));
    return mox_matrix_check(matrix, &plain, rows, cols, has_bias, what, error);
}

/* Rows of f32, as expert files have them, are copied: a model has hundreds of millions of such numbers. */
static void read_row(const moxie_grid *codes, int64_t n, int64_t cols, float *to)
{
    if (codes->dtype == MOXIE_F32 && codes->packing.per_word == 1 && codes->col_stride == (int64_t)sizeof *to) {
        memcpy(to, (const uint8_t *)codes->data + n * codes->row_stride, (size_t)cols * sizeof *to);
        return;
    }
    for (int64_t k = 0; k < cols; k++)
        to[k] = (float)mox_grid_value(codes, n, k);
}

moxie_status mox_dense_matrix_read(mox_dense_matrix *dense, const moxie_matrix *matrix, const char *what,
                                   moxie_error *error)
{
    MOX_TRY(mox_dense_matrix_check(matrix, dense->rows, dense->cols, dense->bias != NULL, what, error));
    for (int64_t n = 0; n < dense->rows; n++) {
        read_row(&matrix->codes, n, dense->cols, dense->weight + n * dense->cols);
        if (dense->bias != NULL)
            dense->bias[n] = (float)mox_grid_value(&matrix->bias, n, 0);
    }
    return MOXIE_OK;
}

moxie_status mox_norm_weight_read(mox_dense_matrix *dense, const moxie_row_norm *norm, const moxie_matrix *matrix,
                                  const char *what, moxie_error *error)
{
    if (dense->weight == NULL)
        return MOXIE_OK;
    MOX_TRY(mox_dense_matrix_read(dense, matrix, what, error));
    for (int64_t k = 0; k < dense->cols; k++)
        dense->weight[k] = dense->weight[k] + norm->weight_add;
    return MOXIE_OK;
}
