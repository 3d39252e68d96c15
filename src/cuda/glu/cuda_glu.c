/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_glu.c - the kernel list of family glu on CUDA, made from cuda_glu.def. Kernels accept the activations that the
 * CPU's accept. Their bits differ, so a plan has no choice between them.
 */
#include "cuda/glu/cuda_glu.h"

#include "cpu/glu/glu.h"
#include "cuda/cuda_table.h"

static bool admit_split(const moxie_activation *activation, bool as_fused, mox_rejection *why)
{
    if (!as_fused)
        return mox_reject(why, "", "is for products that fuse the activation in plans without adapters");
    return mox_glu_admit(activation, why);
}

static bool admit_simple(const moxie_activation *activation, bool as_fused, mox_rejection *why)
{
    if (as_fused)
        return mox_reject(why, "", "has other bits than products that fuse the activation");
    return mox_glu_admit(activation, why);
}

#define MOX_CUDA_ROW(family_, id, needs_, exactness_)                                                                  \
    { .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = "" },                    \
                .needs = needs_,                                                                                       \
                .launcher = MOX_CUDA_AT_##family_##_##id },                                                            \
      .admit = admit_##id },
static const mox_cuda_glu_kernel kernels[] = {
#include "cuda/glu/cuda_glu.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_glu_kernel *mox_cuda_glu_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
