/* SPDX-License-Identifier: Apache-2.0
 *
 * combine.h - family combine: the weighted sum over a token's experts.
 *
 *     y = round(y)                                                 to a 16-bit type, where the layer says so
 *     acc = 0; for j = 0..K-1 in order: if position[t,j] >= 0: acc = acc + w[t,j] * y[position[t,j]]
 *                                       if the choice is an identity expert: acc = acc + w[t,j] * x[t]
 *     acc = acc + (shared_weight[t] * shared_scale) * shared[t]    when there is a shared expert
 *     out[t] = round(acc)                                          once, to the output type
 *
 * In fp32; product and sum are rounded separately (no fma), so every back end gives the same bytes.
 *
 * In the flow: after the second expert_gemm, whose results are y. The last step of a run.
 */
#ifndef MOX_CPU_COMBINE_H
#define MOX_CPU_COMBINE_H

#include "cpu/combine/combine_args.h"
#include "cpu/kernel.h"

typedef struct mox_combine_kernel {
    mox_kernel base;
    void (*run)(const mox_combine_args *args, const moxie_executor *executor);
} mox_combine_kernel;

const mox_combine_kernel *mox_combine_at(int32_t i);
/* Number `at` of y, rounded where args say so. Immutable. */
float mox_combine_y(const mox_combine_args *args, int64_t at);

/* What every kernel of combine.def provides. */
#define MOX_COMBINE(id, isa, exactness, layout)                                                                        \
    void mox_combine_##id##_run(const mox_combine_args *args, const moxie_executor *executor);
#include "cpu/combine/combine.def"
#undef MOX_COMBINE

#endif
