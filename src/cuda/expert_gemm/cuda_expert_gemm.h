/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_expert_gemm.h - the kernels of family expert_gemm on CUDA, one of two products for all experts:
 *
 *     out[p, n] = sum_k w[n, k] a[p, k]        p: pairs of a token and an expert, n: outputs of W13 or of W2
 *
 * The problem is the CPU's (cpu/expert_gemm/expert_gemm.h): the shape of a record, which product, and how its weights
 * and activations are quantized. A kernel for W13 may also compute what follows (cuda_fusions.h).
 *
 * A record has one layout. So a layout other than "rowmajor" needs a kernel for W13 and one for W2.
 *
 * To add a kernel: a line in cuda_expert_gemm.def; admit() and scratch_bytes() in C, declared below from the list; a
 * launcher mox_cuda_expert_gemm_<name>_launch() in a .cu file of this folder. Tests and the bench follow from the list.
 */
#ifndef MOX_CUDA_CUDA_EXPERT_GEMM_H
#define MOX_CUDA_CUDA_EXPERT_GEMM_H

#include "cpu/expert_gemm/expert_gemm.h"
#include "cuda/cuda_kernel.h"
#include "cpu/activations.h"
#include "cuda/expert_gemm/cuda_expert_gemm_args.h"

typedef struct mox_cuda_expert_gemm_kernel {
    mox_cuda_kernel cuda;
    mox_sum sum;
    uint32_t fuses;
    mox_activations_kind
        activations; /* how it reads quantized activations; unquantized ones come NATIVE, or as F32 where this is F32 */
    bool (*admit)(const mox_expert_gemm_problem *problem, const mox_cuda_features *device, mox_rejection *why);
    /* Bytes of device memory for one launch; a pure function of its arguments. */
    uint64_t (*scratch_bytes)(const mox_expert_gemm_problem *problem, const mox_cuda_features *device, int64_t slots,
                              int64_t max_pairs);
} mox_cuda_expert_gemm_kernel;

const mox_cuda_expert_gemm_kernel *mox_cuda_expert_gemm_at(int32_t i); /* NULL past the last */

/* What every kernel of cuda_expert_gemm.def provides. */
#define MOX_CUDA_ROW(family, id, ...)                                                                                  \
    bool mox_cuda_expert_gemm_##id##_admit(const mox_expert_gemm_problem *problem, const mox_cuda_features *device,    \
                                           mox_rejection *why);                                                        \
    uint64_t mox_cuda_expert_gemm_##id##_scratch_bytes(                                                                \
        const mox_expert_gemm_problem *problem, const mox_cuda_features *device, int64_t slots, int64_t max_pairs);
#include "cuda/expert_gemm/cuda_expert_gemm.def"
#undef MOX_CUDA_ROW

#endif
