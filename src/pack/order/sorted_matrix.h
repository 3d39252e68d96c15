/* SPDX-License-Identifier: Apache-2.0
 *
 * sorted_matrix.h - the codes of a matrix with permuted columns, 16 rows at a time (grid_tile.h):
 *
 *     grid, any packing -> dense rows -> columns order[0], order[1], ... -> dense rows         and back
 *
 * Elements have 4 or 8 bits. In the flow: column_order.c -> [here] -> base layout.
 */
#ifndef MOX_PACK_SORTED_MATRIX_H
#define MOX_PACK_SORTED_MATRIX_H

#include "base/memory.h"
#include "quant/quant.h"

/* `out` is `from` with columns order[i], in natural order; its codes are memory of `arena`. MOXIE_ERR_MEMORY alone can
 * happen. `out` may be `from`. */
moxie_status mox_sorted_matrix(const moxie_matrix *from, const int32_t *order, mox_arena *arena, moxie_matrix *out);
/* Writes the codes of `sorted`, dense rows, to the writable grid of `to`: column k is the sorted column place[k]. */
moxie_status mox_unsort_matrix(const moxie_matrix *sorted, const int32_t *place, mox_arena *arena,
                               const moxie_matrix *to);

#endif
