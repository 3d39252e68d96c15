/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernels.c - the CUDA kernels of all families as one list, for listing, explaining and testing.
 */
#include "cuda/cuda_kernels.h"

#include "cpu/cpu_kernels.h"
#include "cuda/combine/cuda_combine.h"
#include "cuda/dense/cuda_dense.h"
#include "cuda/expert_gemm/cuda_expert_gemm.h"
#include "cuda/glu/cuda_glu.h"
#include "cuda/lora/cuda_lora.h"
#include "cuda/permute/cuda_permute.h"
#include "cuda/quant_act/cuda_quant_act.h"
#include "cuda/row_norm/cuda_row_norm.h"
#include "cuda/topk/cuda_topk.h"

#define MOX_CUDA_LAUNCHER(family, args_type)                                                                           \
    static const void *family##_kernel(int32_t i)                                                                      \
    {                                                                                                                  \
        const mox_cuda_##family##_kernel *row = mox_cuda_##family##_at(i);                                             \
        return row != NULL ? &row->cuda : NULL;                                                                        \
    }
#include "cuda/cuda_families.def"
#undef MOX_CUDA_LAUNCHER

#define MOX_CUDA_LAUNCHER(family, args_type) family##_kernel,
static const mox_family_at families[] = {
#include "cuda/cuda_families.def"
};
#undef MOX_CUDA_LAUNCHER

const mox_cuda_kernel *mox_cuda_kernel_at(int32_t i)
{
    return mox_kernel_of_families(families, sizeof families / sizeof families[0], i);
}
