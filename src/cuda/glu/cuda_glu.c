/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_glu.c - the kernel list of family glu on CUDA, made from cuda_glu.def. It accepts what the CPU's kernels accept.
 */
#include "cuda/glu/cuda_glu.h"

#include "cpu/glu/glu.h"
#include "cuda/cuda_table.h"

#define MOX_CUDA_ROW(family_, id, needs_, exactness_)                                                                  \
    { .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = "" },                    \
                .needs = needs_,                                                                                       \
                .launcher = MOX_CUDA_AT_##family_##_##id },                                                            \
      .admit = mox_glu_admit },
static const mox_cuda_glu_kernel kernels[] = {
#include "cuda/glu/cuda_glu.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_glu_kernel *mox_cuda_glu_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
