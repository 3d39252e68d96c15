/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_dense_args.h - what a launcher of family dense gets: router and shared gate (mathematics: cpu/dense/dense.h, to
 * the bit). Device pointers.
 */
#ifndef MOX_CUDA_CUDA_DENSE_ARGS_H
#define MOX_CUDA_CUDA_DENSE_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_cuda_dense_args {
    int64_t tokens, rows, cols; /* T, N, K */
    const float *weight;        /* [N,K] */
    const float *bias;          /* [N] or NULL */
    const void *x;              /* [T,K] */
    moxie_dtype x_dtype;
    int32_t logistic;
    float *out; /* [T,N] */
} mox_cuda_dense_args;

#endif
