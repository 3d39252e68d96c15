/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_permute.h - the kernel list of family permute on CUDA: pairs grouped by slot (route/route.h).
 */
#ifndef MOX_CUDA_CUDA_PERMUTE_H
#define MOX_CUDA_CUDA_PERMUTE_H

#include "cuda/cuda_kernel.h"

typedef struct mox_cuda_permute_kernel {
    mox_cuda_kernel cuda;
} mox_cuda_permute_kernel;

const mox_cuda_permute_kernel *mox_cuda_permute_at(int32_t i); /* NULL past the last */

#endif
