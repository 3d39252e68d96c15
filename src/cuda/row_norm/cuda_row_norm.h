/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_row_norm.h - the kernel list of family row_norm on CUDA: norms of rows (cpu/row_norm/row_norm.h).
 */
#ifndef MOX_CUDA_CUDA_ROW_NORM_H
#define MOX_CUDA_CUDA_ROW_NORM_H

#include "cuda/cuda_kernel.h"

typedef struct mox_cuda_row_norm_kernel {
    mox_cuda_kernel cuda;
} mox_cuda_row_norm_kernel;

const mox_cuda_row_norm_kernel *mox_cuda_row_norm_at(int32_t i); /* NULL past the last */

#endif
