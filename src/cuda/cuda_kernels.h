/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernels.h - the CUDA kernels of all families as one list.
 *
 *     cuda_families.def -> cuda_dense.def, cuda_topk.def, ... one after the other
 */
#ifndef MOX_CUDA_CUDA_KERNELS_H
#define MOX_CUDA_CUDA_KERNELS_H

#include "cuda/cuda_kernel.h"

/* CUDA kernel i of all families; NULL past the last. Immutable. */
const mox_cuda_kernel *mox_cuda_kernel_at(int32_t i);

#endif
