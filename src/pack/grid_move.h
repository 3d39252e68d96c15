/* SPDX-License-Identifier: Apache-2.0
 *
 * grid_move.h - what every layout asks of a checkpoint's grids: how rows lie, floats in and out, natural column order.
 */
#ifndef MOX_PACK_GRID_MOVE_H
#define MOX_PACK_GRID_MOVE_H

#include "quant/quant.h"

/* Words are full of elements, low bits first: an element begins where the one before it ends. */
bool mox_pack_has_full_words(const moxie_grid *grid);
/* So do the elements of a row. */
bool mox_pack_has_dense_rows(const moxie_grid *grid);

/* The element as f32. An f32 keeps its bits, NaN payload and all; narrower floats keep their value. */
float mox_pack_get_float(const moxie_grid *grid, int64_t r, int64_t c);
/* The inverse, into a writable grid. */
void mox_pack_put_float(const moxie_grid *grid, int64_t r, int64_t c, float value);
/* value + add; adding +0 would lose the sign of a zero. */
float mox_pack_plus(float value, float add);

/* True when `group_index` [cols] is NULL or says no more than column / group_cols. */
bool mox_pack_is_natural_order(const int32_t *group_index, int64_t cols, int64_t group_cols);
/* Writes that order to `to`'s group_index [cols], if it has one: the caller's memory, const in a view only. */
void mox_pack_put_natural_order(const moxie_matrix *to, int64_t cols, int64_t group_cols);

#endif
