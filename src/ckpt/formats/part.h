/* SPDX-License-Identifier: Apache-2.0
 *
 * part.h - one tensor of a matrix as a grid of numbers. Only this file turns stored shapes into strides, for reading
 * and for writing.
 */
#ifndef MOX_CKPT_PART_H
#define MOX_CKPT_PART_H

#include "ckpt/families/tables.h"

/* Where a matrix lies in a tensor that may hold more. */
typedef struct mox_part_place {
    int64_t n, k;    /* of the whole stored matrix: [2I, H] when gate and up share it */
    int64_t stacked; /* experts in the tensor, 0: none */
    int64_t expert;  /* which expert */
    bool in_out;     /* stored K before N regardless of the part */
} mox_part_place;

/* Which rows of the stored matrix. */
typedef enum mox_part_rows {
    MOX_ROWS_ALL,
    MOX_ROWS_FIRST_HALF,
    MOX_ROWS_SECOND_HALF,
    MOX_ROWS_EVEN,
    MOX_ROWS_ODD
} mox_part_rows;

/* The number format of the elements of a part, in a tensor with this dtype. */
moxie_dtype mox_part_value(const mox_part *part, moxie_dtype file);
/* The grid of one stored matrix: [N, K] (codes), [ceil(N/gr), ceil(K/gc)] (scales, zero points), [1, 1] or [N, 1]. The
 * shape of the tensor was checked to be mox_part_shape()'s or an equivalent one. */
moxie_grid mox_part_grid(const mox_part *part, const moxie_quant *weight, const moxie_tensor *tensor, uint64_t bytes,
                         const mox_part_place *place);
/* Narrows a grid of `n` rows in groups of `group_rows` to half of the rows; *group_rows becomes that of the half. False
 * when the cut falls inside a row or a word of the grid, so that the half would need a copy. */
bool mox_grid_select_rows(moxie_grid *grid, mox_part_rows rows, int64_t n, int64_t *group_rows);
/* True when a stored shape is `want` or an equivalent one: [] and [1], [N] and [N,1], one scalar for all stacked
 * experts, [E*N, K] for [E, N, K]. */
bool mox_part_shape_fits(const mox_part *part, const moxie_tensor *tensor, int32_t rank, const int64_t *want,
                         int64_t stacked);

#endif
