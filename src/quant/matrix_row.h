/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix_row.h - the weights of a matrix, a row at a time.
 */
#ifndef MOX_QUANT_MATRIX_ROW_H
#define MOX_QUANT_MATRIX_ROW_H

#include "quant/quant.h"

/* Row n of mox_matrix_weight(), each weight rounded to f32. A plain float is widened: a NaN stays one. */
void mox_matrix_row(const moxie_matrix *matrix, const moxie_quant *quant, int64_t n, float *out);

#endif
