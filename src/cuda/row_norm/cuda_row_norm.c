/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_row_norm.c - the kernel list of family row_norm on CUDA, made from cuda_row_norm.def.
 */
#include "cuda/row_norm/cuda_row_norm.h"

#include "cuda/cuda_table.h"

#define MOX_CUDA_ROW(family_, id, needs_, exactness_)                                                                  \
    { .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = "" },                    \
                .needs = needs_,                                                                                       \
                .launcher = MOX_CUDA_AT_##family_##_##id } },
static const mox_cuda_row_norm_kernel kernels[] = {
#include "cuda/row_norm/cuda_row_norm.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_row_norm_kernel *mox_cuda_row_norm_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
