/* SPDX-License-Identifier: Apache-2.0
 *
 * dense.h - family dense: a small unquantized product for every token, in fp32: the router and the shared
 * expert's gate.
 *
 *     out[t, n] = f( sum over segments s of  sum_{k in s} weight[n,k] x[t,k]  + bias[n] )
 *     f(v) = v, or 1 / (1 + e^-v) with `logistic`
 *
 * A segment is MOX_DENSE_SEGMENT columns. Each is summed from zero in a fixed order, and the segments are added in
 * order. So the bits of a token's result depend on its own input alone.
 *
 * In the flow: hidden -> [dense] -> topk, and hidden -> [dense] -> the shared expert's weight in combine.
 */
#ifndef MOX_CPU_DENSE_H
#define MOX_CPU_DENSE_H

#include "cpu/dense/dense_args.h"
#include "cpu/kernel.h"

#define MOX_DENSE_SEGMENT 512

typedef struct mox_dense_kernel {
    mox_kernel base;
    void (*run)(const mox_dense_args *args, const moxie_executor *executor);
} mox_dense_kernel;

const mox_dense_kernel *mox_dense_at(int32_t i);

/* What every kernel of dense.def provides. */
#define MOX_DENSE(id, isa, exactness, layout)                                                                          \
    void mox_dense_##id##_run(const mox_dense_args *args, const moxie_executor *executor);
#include "cpu/dense/dense.def"
#undef MOX_DENSE

#endif
