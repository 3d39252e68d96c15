/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_expert_gemm.h - the list of family expert_gemm on CUDA. The problem is the CPU's
 * (cpu/expert_gemm/expert_gemm.h): a record's shape, which product, how its two operands are quantized.
 *
 * A row may do more than its product:
 *     MOX_FUSES_GLU   a row for W13 that applies the activation and makes the operand of W2 (rounded or quantized,
 *                          in the kind that the row for W2 reads or gathers its rows to): no glu, no second quant_act
 *     MOX_FUSES_ACT   a row for W13 that applies the activation and leaves its f32 rows: no glu, but a quant_act
 *
 * Rows whose layout is not "rowmajor" come in pairs for both products, since a record has one layout.
 *
 * To add a row: a line in cuda_expert_gemm.def, its admit() and scratch_bytes() in C (declared below from the list),
 * its launcher mox_cuda_expert_gemm_<name>_launch() in a .cu file of this folder. The harness and the bench follow.
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
    mox_activations_kind activations; /* of quantized activations; unquantized ones come NATIVE unless this is F32 */
    bool (*admit)(const mox_expert_gemm_problem *problem, const mox_cuda_features *device, mox_rejection *why);
    /* Device memory for one launch; a pure function of its arguments. */
    uint64_t (*scratch_bytes)(const mox_expert_gemm_problem *problem, const mox_cuda_features *device, int64_t slots,
                              int64_t max_pairs);
} mox_cuda_expert_gemm_kernel;

const mox_cuda_expert_gemm_kernel *mox_cuda_expert_gemm_at(int32_t i); /* NULL past the last */

/* What every row of cuda_expert_gemm.def provides. */
#define MOX_CUDA_ROW(family, id, ...)                                                                                  \
    bool mox_cuda_expert_gemm_##id##_admit(const mox_expert_gemm_problem *problem, const mox_cuda_features *device,    \
                                           mox_rejection *why);                                                        \
    uint64_t mox_cuda_expert_gemm_##id##_scratch_bytes(                                                                \
        const mox_expert_gemm_problem *problem, const mox_cuda_features *device, int64_t slots, int64_t max_pairs);
#include "cuda/expert_gemm/cuda_expert_gemm.def"
#undef MOX_CUDA_ROW

#endif
