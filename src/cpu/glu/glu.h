/* SPDX-License-Identifier: Apache-2.0
 *
 * glu.h - family glu: the activation between the two products, in fp32.
 *
 *     out[p, i] = act(h[p, gate i], h[p, up i])        gated: h[p] is [gate I | up I]
 *     out[p, i] = act(h[p, i])                         ungated
 *
 * In the flow: expert_gemm 1 -> h -> [glu] -> out -> quant_act, which rounds out once, to the type of the second
 * product's activations. Kinds and formulas: src/activation. A kernel is a function of one tile (glu_tile.h). All
 * kernels compile glu_lanes.h, each for one instruction set, and give the same bits.
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
    mox_glu_tile_fn tile; /* the same for one tile, for callers that fuse it; NULL: there is none. Immutable. */
} mox_glu_kernel;

const mox_glu_kernel *mox_glu_at(int32_t i);

/* The common part of every kernel of glu.def: run() cuts the rows of h into tiles. */
void mox_glu_run_tiles(mox_glu_tile_fn tile, const mox_glu_args *args, const moxie_executor *executor);
bool mox_glu_admit(const moxie_activation *activation, mox_rejection *why);

/* What every kernel of glu.def provides. */
#define MOX_GLU(id, isa, exactness, layout)                                                                            \
    void mox_glu_##id##_run(const mox_glu_args *args, const moxie_executor *executor);                                 \
    void mox_glu_##id##_tile(const mox_glu_tile *tile);
#include "cpu/glu/glu.def"
#undef MOX_GLU

#endif
