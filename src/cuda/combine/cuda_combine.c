/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_combine.c - the kernel list of family combine on CUDA, made from cuda_combine.def.
 */
#include "cuda/combine/cuda_combine.h"

#include "cuda/cuda_table.h"

#define MOX_CUDA_ROW(family_, id, needs_, exactness_)                                                                  \
    { .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = "" },                    \
                .needs = needs_,                                                                                       \
                .launcher = MOX_CUDA_AT_##family_##_##id } },
static const mox_cuda_combine_kernel kernels[] = {
#include "cuda/combine/cuda_combine.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_combine_kernel *mox_cuda_combine_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
