/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_dense.h - the kernel list of family dense on CUDA: router and shared gate (cpu/dense/dense.h).
 */
#ifndef MOX_CUDA_CUDA_DENSE_H
#define MOX_CUDA_CUDA_DENSE_H

#include "cuda/cuda_kernel.h"

typedef struct mox_cuda_dense_kernel {
    mox_cuda_kernel cuda;
} mox_cuda_dense_kernel;

const mox_cuda_dense_kernel *mox_cuda_dense_at(int32_t i); /* NULL past the last */

#endif
