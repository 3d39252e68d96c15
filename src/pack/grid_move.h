/* SPDX-License-Identifier: Apache-2.0
 *
 * grid_move.h - what every layout needs from the grids of a checkpoint: how rows lie in memory, floats in and out, and
 * whether columns are in natural order (no GPTQ act order).
 */
#ifndef MOX_PACK_GRID_MOVE_H
#define MOX_PACK_GRID_MOVE_H

#include "quant/quant.h"

/* True when words are full of elements, low bits first: an element begins where the one before it ends. */
bool mox_pack_has_full_words(const moxie_grid *grid);
/* True when the elements of a row lie so, too: a row is one run of bits. */
bool mox_pack_has_dense_rows(const moxie_grid *grid);

/* The element as f32. An f32 keeps its bits, NaN payloads included; narrower floats keep their value. */
float mox_pack_get_float(const moxie_grid *grid, int64_t r, int64_t c);
/* The inverse, into a writable grid. */
void mox_pack_put_float(const moxie_grid *grid, int64_t r, int64_t c, float value);
/* value + add. Adding 0 returns `value` itself, because -0 + 0 would lose the sign. */
float mox_pack_plus(float value, float add);

/* True when `group_index` [cols] is NULL or every entry is column / group_cols. */
bool mox_pack_is_natural_order(const int32_t *group_index, int64_t cols, int64_t group_cols);
/* Lists the columns group by group, ascending within a group, in `order` [cols]. */
void mox_pack_sort_columns(const int32_t *group_index, int64_t cols, int64_t groups, int32_t *order);
/* Writes natural order to the group_index [cols] of `to`, if it has one. The memory is the caller's and writable; only
 * the view is const. */
void mox_pack_put_natural_order(const moxie_matrix *to, int64_t cols, int64_t group_cols);

#endif
