/* SPDX-License-Identifier: Apache-2.0
 *
 * widen.h - parts of a matrix that no view can describe, as copies: codes of 2, 3 and 5 to 7 bits (MOX_ORDER_STREAM),
 * codes of one number format in another (model_pair.h), and GPTQ's zero points of the first version where they borrow.
 */
#ifndef MOX_CKPT_WIDEN_H
#define MOX_CKPT_WIDEN_H

#include "base/memory.h"
#include "quant/quant.h"

/* True when readers must widen the grid. */
bool mox_grid_is_narrow(const moxie_grid *grid);
/* The same codes in the grid's dtype, in memory of the arena. `look`: no copy is made; *out then has the right shape
 * but not the numbers, for a caller that only describes. */
moxie_status mox_grid_widen(const moxie_grid *grid, bool look, mox_arena *arena, moxie_grid *out, moxie_error *error);

/* Codes of another number format, by those of a grid's. */
typedef struct mox_code_map {
    moxie_dtype to;
    uint8_t code[256];
} mox_code_map;

/* A copy in `map->to`; `look` as above. */
moxie_status mox_grid_recode(const moxie_grid *grid, const mox_code_map *map, bool look, mox_arena *arena,
                             moxie_grid *out, moxie_error *error);

/* GPTQ v1 stores zero points less one. With 2, 4 and 8 bits, its exporter subtracts from whole 32-bit words, so that a
 * zero point of 0 borrows from its neighbour; with 3 bits each zero point wraps around by itself. Undoes that:
 * *zero_add stays 1 and *out stays the view where no word borrows, else *out is a copy and *zero_add 0. */
moxie_status mox_gptq_zeros(const moxie_grid *grid, bool look, mox_arena *arena, float *zero_add, moxie_grid *out,
                            moxie_error *error);

#endif
