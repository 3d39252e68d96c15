/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_lora.c - the kernel list of family lora on CUDA, made from cuda_lora.def. Every kernel accepts every adapter.
 */
#include "cuda/lora/cuda_lora.h"

#include "cuda/cuda_table.h"
#include "cuda/lora/cuda_lora_args.h"

#define MOX_CUDA_ROW(family_, id, needs_, exactness_)                                                                  \
    { .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = "" },                    \
                .needs = needs_,                                                                                       \
                .launcher = MOX_CUDA_AT_##family_##_##id } },
static const mox_cuda_lora_kernel kernels[] = {
#include "cuda/lora/cuda_lora.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_lora_kernel *mox_cuda_lora_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}

uint64_t mox_cuda_lora_scratch(int64_t max_pairs)
{
    return (uint64_t)(MOX_CUDA_LORA_CHUNKS(max_pairs) * MOX_CUDA_LORA_CHUNK) * sizeof(mox_cuda_lora_tile);
}
