/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_combine.h - the kernel list of family combine on CUDA: the weighted sum over a token's experts
 * (cpu/combine/combine.h).
 */
#ifndef MOX_CUDA_CUDA_COMBINE_H
#define MOX_CUDA_CUDA_COMBINE_H

#include "cuda/cuda_kernel.h"

typedef struct mox_cuda_combine_kernel {
    mox_cuda_kernel cuda;
} mox_cuda_combine_kernel;

const mox_cuda_combine_kernel *mox_cuda_combine_at(int32_t i); /* NULL past the last */

#endif
