/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_glu.h - the kernel list of family glu on CUDA: the activation between the two products (cpu/glu/glu.h).
 */
#ifndef MOX_CUDA_CUDA_GLU_H
#define MOX_CUDA_CUDA_GLU_H

#include "cuda/cuda_kernel.h"

typedef struct mox_cuda_glu_kernel {
    mox_cuda_kernel cuda;
    bool (*admit)(const moxie_activation *activation, mox_rejection *why);
} mox_cuda_glu_kernel;

const mox_cuda_glu_kernel *mox_cuda_glu_at(int32_t i); /* NULL past the last */

#endif
