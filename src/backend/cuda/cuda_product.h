/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_product.h - a product's arguments as its launcher on a GPU reads them: sections of a record found, shapes by
 * value.
 */
#ifndef MOX_BACKEND_CUDA_PRODUCT_H
#define MOX_BACKEND_CUDA_PRODUCT_H

#include "cpu/expert_gemm/expert_gemm.h"
#include "cuda/cuda_features.h"
#include "cuda/expert_gemm/cuda_expert_gemm_args.h"

/* Pointers in `args` may be missing, for those who only ask what would be launched. Immutable. */
mox_cuda_expert_gemm_args mox_cuda_product_args(const mox_cuda_features *device, const mox_kernel *kernel,
                                                const mox_expert_gemm_args *args);

#endif
