/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_args.h - the arguments of a kernel of family dense (dense.h). Pointers are to the memory of the device that
 * runs it.
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
    int32_t logistic;           /* out is 1 / (1 + e^-v) instead of v */
    float *out;                 /* [T,N] */
    float *x_scratch;           /* host: [T,K], for x as f32 */
} mox_dense_args;

#endif
