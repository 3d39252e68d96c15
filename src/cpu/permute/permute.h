/* SPDX-License-Identifier: Apache-2.0
 *
 * permute.h - family permute: groups the pairs (token, choice) by expert slot, in a stable order, and writes each
 * pair's token, weight and static scales in that order (permute_args.h).
 *
 *     ids [T,K] -> offsets [slots+1], pair_at [pairs], position [T*K]       as mox_permute() of route/route.h
 *
 * In the flow: after topk (or the caller's ids), before the experts.
 */
#ifndef MOX_CPU_PERMUTE_H
#define MOX_CPU_PERMUTE_H

#include "cpu/kernel.h"
#include "cpu/permute/permute_args.h"
#include "route/route.h"

typedef struct mox_permute_kernel {
    mox_kernel base;
    void (*run)(const mox_permute_args *args, const moxie_executor *executor);
} mox_permute_kernel;

const mox_permute_kernel *mox_permute_at(int32_t i);

/* What every kernel of permute.def provides. */
#define MOX_PERMUTE(id, isa, exactness, layout)                                                                        \
    void mox_permute_##id##_run(const mox_permute_args *args, const moxie_executor *executor);
#include "cpu/permute/permute.def"
#undef MOX_PERMUTE

#endif
