/* SPDX-License-Identifier: Apache-2.0
 *
 * topk.h - family topk: routing.
 *
 *     logits [T,E] -> ids [T,K], weights [T,K]        by any routing method (route/route.h states them)
 *
 * In the flow: after the router (or the caller's logits), before permute.
 */
#ifndef MOX_CPU_TOPK_H
#define MOX_CPU_TOPK_H

#include "cpu/kernel.h"
#include "cpu/topk/topk_args.h"
#include "route/route.h"

typedef struct mox_topk_kernel {
    mox_kernel base;
    moxie_status (*run)(const mox_topk_args *args, const moxie_executor *executor, moxie_error *error);
    bool (*admit)(const moxie_routing *routing, int64_t experts, int64_t top_k, mox_rejection *why);
} mox_topk_kernel;

const mox_topk_kernel *mox_topk_at(int32_t i); /* NULL past the last; list order is best first */

/* What every kernel of topk.def provides. */
#define MOX_TOPK(id, isa, exactness, layout)                                                                           \
    moxie_status mox_topk_##id##_run(const mox_topk_args *args, const moxie_executor *executor, moxie_error *error);   \
    bool mox_topk_##id##_admit(const moxie_routing *routing, int64_t experts, int64_t top_k, mox_rejection *why);
#include "cpu/topk/topk.def"
#undef MOX_TOPK

#endif
