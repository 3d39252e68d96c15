/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernel.c - the part of every CUDA kernel's admit() that does not depend on the family: the device has the flags
 * that the kernel needs, and the mode allows its rounding.
 */
#include "cuda/cuda_kernel.h"

#include <stdio.h>
#include <string.h>

bool mox_cuda_kernel_admit(const mox_cuda_kernel *kernel, const mox_cuda_features *device, moxie_mode mode,
                           mox_rejection *why)
{
    const uint32_t lacking = kernel->needs & ~device->flags;
    char names[96];
    if (lacking != 0)
        return mox_reject(why, "run on a device that has it", "needs %s, %.60s (sm_%d) lacks it",
                          mox_cuda_flag_names(lacking, names, sizeof names), device->name, (int)device->sm);
    if (kernel->base.exactness == MOX_TOL && mode != MOXIE_MODE_FAST)
        return mox_reject(why, "choose fast mode",
                          "rounds more than the numeric contract allows (class TOL), the mode is exact");
    return true;
}

/* Names only the most special flag, and none that every device has. The strings are static, so plans can keep them. */
const char *mox_cuda_kernel_needs(const mox_cuda_kernel *kernel)
{
    static const struct {
        uint32_t flags;
        const char *text;
    } texts[] = {
        { MOX_CUDA_WGMMA, "cuda wgmma" },
        { MOX_CUDA_BULK_COPY, "cuda bulk_copy" },
        { MOX_CUDA_MMA_FP8, "cuda mma_fp8" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (kernel->needs & texts[i].flags)
            return texts[i].text;
    return "cuda";
}
