/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_topk.c - the kernel list of family topk on CUDA, made from cuda_topk.def, and what it rejects.
 */
#include "cuda/topk/cuda_topk.h"

#include "cpu/topk/topk.h"
#include "cuda/cuda_table.h"

static bool admit(const moxie_routing *routing, int64_t experts, int64_t top_k, mox_rejection *why)
{
    if (routing->select == MOXIE_SELECT_CUSTOM)
        return mox_reject(why, "route outside and pass ids and weights",
                          "cannot call a custom routing callback from the device");
    return mox_topk_scalar_admit(routing, experts, top_k, why);
}

#define MOX_CUDA_ROW(family_, id, needs_, exactness_)                                                                  \
    { .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = "" },                    \
                .needs = needs_,                                                                                       \
                .launcher = MOX_CUDA_AT_##family_##_##id },                                                            \
      .admit = admit },
static const mox_cuda_topk_kernel kernels[] = {
#include "cuda/topk/cuda_topk.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_topk_kernel *mox_cuda_topk_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
