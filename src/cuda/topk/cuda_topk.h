/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_topk.h - the kernel list of family topk on CUDA: every routing method but a custom callback (route/route.h).
 */
#ifndef MOX_CUDA_CUDA_TOPK_H
#define MOX_CUDA_CUDA_TOPK_H

#include "cuda/cuda_kernel.h"

typedef struct mox_cuda_topk_kernel {
    mox_cuda_kernel cuda;
    bool (*admit)(const moxie_routing *routing, int64_t experts, int64_t top_k, mox_rejection *why);
} mox_cuda_topk_kernel;

const mox_cuda_topk_kernel *mox_cuda_topk_at(int32_t i); /* NULL past the last */

#endif
