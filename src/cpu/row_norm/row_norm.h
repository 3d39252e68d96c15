/* SPDX-License-Identifier: Apache-2.0
 *
 * row_norm.h - family row_norm: the root mean square norm of every row, in fp32.
 *
 *     s[r] = sum over segments of  sum_{k in segment} u[r,k]^2,    q[r] = 1 / sqrt(s[r] / cols + eps)
 *     out[r,k] = u[r,k] q[r] weight[k] factor     with u = x                   (the usual order)
 *     out[r,k] = u[r,k] q[r] factor               with u = x[r,k] weight[k]    (`weight_first`)
 *
 * Segments and the order of their sums are those of family dense. Products are rounded one after the other, from left
 * to right; a factor of 1 and an absent weight change nothing. So all kernels give the same bits.
 *
 * In the flow: hidden -> [row_norm] -> dense (router), and expert_gemm w2 -> [row_norm] -> combine.
 */
#ifndef MOX_CPU_ROW_NORM_H
#define MOX_CPU_ROW_NORM_H

#include "cpu/kernel.h"
#include "cpu/row_norm/row_norm_args.h"

typedef struct mox_row_norm_kernel {
    mox_kernel base;
    void (*run)(const mox_row_norm_args *args, const moxie_executor *executor);
} mox_row_norm_kernel;

const mox_row_norm_kernel *mox_row_norm_at(int32_t i);

/* What every kernel of row_norm.def provides. */
#define MOX_ROW_NORM(id, isa, exactness, layout)                                                                       \
    void mox_row_norm_##id##_run(const mox_row_norm_args *args, const moxie_executor *executor);
#include "cpu/row_norm/row_norm.def"
#undef MOX_ROW_NORM

#endif
