/* SPDX-License-Identifier: Apache-2.0
 *
 * glu.h - family glu: the activation between the two products, in fp32 (kinds and formulas in moxie.h).
 *
 *     out[p, i] = act(h[p, gate i], h[p, up i])        gated
 *     out[p, i] = act(h[p, i])                         ungated
 *
 * The result stays fp32; the next quant_act rounds it once to the second product's operand type. A row is a tile
 * function; all rows instantiate glu_lanes.h and give the same bits.
 */
#ifndef MOX_CPU_GLU_H
#define MOX_CPU_GLU_H

#include "cpu/glu/glu_args.h"
#include "cpu/glu/glu_tile.h"
#include "cpu/kernel.h"

typedef struct mox_glu_kernel {
    mox_kernel base;
    void (*run)(const mox_glu_args *args, const moxie_executor *executor);
    bool (*admit)(const moxie_activation *activation, mox_rejection *why);
    mox_glu_tile_fn tile; /* the same for numbers in cache; NULL: the row has none. Immutable. */
} mox_glu_kernel;

const mox_glu_kernel *mox_glu_at(int32_t i);

/* The run and admit() of every row of glu.def: rows of h in tiles. */
void mox_glu_run_tiles(mox_glu_tile_fn tile, const mox_glu_args *args, const moxie_executor *executor);
bool mox_glu_admit(const moxie_activation *activation, mox_rejection *why);

/* What every row of glu.def provides. */
#define MOX_GLU(id, isa, exactness, layout)                                                                            \
    void mox_glu_##id##_run(const mox_glu_args *args, const moxie_executor *executor);                                 \
    void mox_glu_##id##_tile(const mox_glu_tile *tile);
#include "cpu/glu/glu.def"
#undef MOX_GLU

#endif
