/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_product.h - converts a product's arguments to the form that its launcher on a GPU reads: offsets of a record's
 * sections, and shapes by value, since a kernel cannot read the host's structs.
 */
#ifndef MOX_BACKEND_CUDA_PRODUCT_H
#define MOX_BACKEND_CUDA_PRODUCT_H

#include "cpu/expert_gemm/expert_gemm.h"
#include "cuda/cuda_features.h"
#include "cuda/expert_gemm/cuda_expert_gemm_args.h"

/* Pointers in `args` may be NULL when nothing will be launched (layer/plan/launch.c). Immutable. */
mox_cuda_expert_gemm_args mox_cuda_product_args(const mox_cuda_features *device, const mox_kernel *kernel,
                                                const mox_expert_gemm_args *args);

#endif
