/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_matrix.h - the layer's own plain matrices, router [E, router_width], shared gate [1, H] and the
 * weights of norms [1, N], as f32 copies.
 *
 * Every token reads them, and they are small beside one expert. So they are widened once, at preparation.
 */
#ifndef MOX_LAYER_DENSE_MATRIX_H
#define MOX_LAYER_DENSE_MATRIX_H

#include "layer/weights/layer.h"

/* Fills an allocated matrix from a view of the same size. `what` names it in an error: "router". */
moxie_status mox_dense_matrix_read(mox_dense_matrix *dense, const moxie_matrix *matrix, const char *what,
                                   moxie_error *error);
/* Reads the weight of a norm, if `dense` has memory for one: a matrix of one row, and weight_add. */
moxie_status mox_norm_weight_read(mox_dense_matrix *dense, const moxie_row_norm *norm, const moxie_matrix *matrix,
                                  const char *what, moxie_error *error);
/* The view is a plain float matrix of this size, with or without a bias. */
moxie_status mox_dense_matrix_check(const moxie_matrix *matrix, int64_t rows, int64_t cols, bool has_bias,
                                    const char *what, moxie_error *error);

#endif
