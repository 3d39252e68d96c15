/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_permute.c - the kernel list of family permute on CUDA, made from cuda_permute.def.
 */
#include "cuda/permute/cuda_permute.h"

#include "cuda/cuda_table.h"

#define MOX_CUDA_ROW(family_, id, needs_, exactness_)                                                                  \
    { .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = "" },                    \
                .needs = needs_,                                                                                       \
                .launcher = MOX_CUDA_AT_##family_##_##id } },
static const mox_cuda_permute_kernel kernels[] = {
#include "cuda/permute/cuda_permute.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_permute_kernel *mox_cuda_permute_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
