/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_matvec.c - the oracle's matrix product, one weight at a time:
 *
 *     out[n] = sum_k w[n,k] x[k] + b[n]          magnitude[n] = sum_k |w[n,k]| |x[k]| + |b[n]|
 *
 * w[n,k] is the exact real weight (quant.h), read where it lies in the checkpoint. A double sum of K products
 * is off by at most K 2^-53 sum |w||x|, which is 2^-29 of the bound that an fp32 sum of the same length gets.
 */
#include "ref/ref.h"

#include "format/block_parts.h"

void mox_ref_weight_row(const moxie_matrix *matrix, const moxie_quant *quant, int64_t n, double *row)
{
    for (int64_t k = 0; k < matrix->codes.cols; k++)
        row[k] = mox_matrix_weight(matrix, quant, n, k);
}

void mox_ref_minimum_row(const moxie_matrix *matrix, int64_t n, double *row)
{
    const moxie_grid *codes = &matrix->codes;
    const mox_block_fields *f = mox_block_fields_of(codes->dtype);
    const bool minimums = mox_block_has_minimums(codes->dtype);
    const int64_t weights = minimums ? mox_block_of(codes->dtype)->weights : 1;
    const uint8_t *blocks = (const uint8_t *)codes->data + n * codes->row_stride;
    for (int64_t k = 0; k < codes->cols; k++) {
        const uint8_t *block = blocks + k / weights * codes->col_stride;
        row[k] = minimums ? fabs((double)mox_block_get_f16(block + f->m_at) *
                                 (double)mox_block_get_t(f, block, (int32_t)(k % weights) / f->run))
                          : 0.0;
    }
}

void mox_ref_matvec(const moxie_matrix *matrix, const moxie_quant *quant, const double *x, double *out,
                    double *magnitude)
{
    for (int64_t n = 0; n < matrix->codes.rows; n++) {
        const double bias = matrix->bias.data ? mox_grid_value(&matrix->bias, n, 0) : 0;
        double sum = 0, sum_of_magnitudes = 0;
        for (int64_t k = 0; k < matrix->codes.cols; k++) {
            const double product = mox_matrix_weight(matrix, quant, n, k) * x[k];
            sum += product;
            sum_of_magnitudes += fabs(product);
        }
        out[n] = sum + bias;
        magnitude[n] = sum_of_magnitudes + fabs(bias);
    }
}
