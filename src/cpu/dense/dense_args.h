/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_args.h - what a kernel of family dense gets (dense.h); pointers are of the memory where it runs.
 */
#ifndef MOX_CPU_DENSE_ARGS_H
#define MOX_CPU_DENSE_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_dense_args {
    int64_t tokens, rows, cols; /* T, N, K */
    const float *weight;        /* [N,K] */
    const float *bias;          /* [N] or NULL */
    const void *x;              /* [T,K] contiguous */
    moxie_dtype x_dtype;        /* F32, F16, BF16 */
    int32_t logistic;
    float *out;       /* [T,N] */
    float *x_scratch; /* host: [T,K] f32, x widened */
} mox_dense_args;

#endif
