/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernel.c - what all CUDA kernel lists share: the part of every admit() that does not depend on the family, and
 * the walk over all rows of all families.
 */
#include "cuda/cuda_kernel.h"

#include <stdio.h>
#include <string.h>

#include "cpu/cpu_kernels.h"
#include "cuda/combine/cuda_combine.h"
#include "cuda/dense/cuda_dense.h"
#include "cuda/expert_gemm/cuda_expert_gemm.h"
#include "cuda/glu/cuda_glu.h"
#include "cuda/permute/cuda_permute.h"
#include "cuda/quant_act/cuda_quant_act.h"
#include "cuda/topk/cuda_topk.h"

bool mox_cuda_kernel_admit(const mox_cuda_kernel *kernel, const mox_cuda_features *device, moxie_mode mode,
                           mox_rejection *why)
{
    const uint32_t lacking = kernel->needs & ~device->words;
    char names[96];
    if (lacking != 0)
        return mox_reject(why, "run on a device that has it", "needs %s, %.60s (sm_%d) lacks it",
                          mox_cuda_word_names(lacking, names, sizeof names), device->name, (int)device->sm);
    if (kernel->base.exactness == MOX_TOL && mode != MOXIE_MODE_FAST)
        return mox_reject(why, "choose fast mode",
                          "rounds more than the numeric contract allows (class TOL), the mode is exact");
    return true;
}

/* By needs: what every device has goes without saying. Static strings, so that plans can keep them. */
const char *mox_cuda_kernel_needs(const mox_cuda_kernel *kernel)
{
    static const struct {
        uint32_t words;
        const char *text;
    } texts[] = {
        { MOX_CUDA_WGMMA, "cuda wgmma" },
        { MOX_CUDA_BULK_COPY, "cuda bulk_copy" },
        { MOX_CUDA_MMA_FP8, "cuda mma_fp8" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (kernel->needs & texts[i].words)
            return texts[i].text;
    return "cuda";
}

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
