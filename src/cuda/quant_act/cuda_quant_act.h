/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_quant_act.h - the list of family quant_act on CUDA: activations to operands (cpu/quant_act/quant_act.h).
 */
#ifndef MOX_CUDA_CUDA_QUANT_ACT_H
#define MOX_CUDA_CUDA_QUANT_ACT_H

#include "cuda/cuda_kernel.h"
#include "cpu/activations.h"

/* A run that is looked at has F32 made besides what the product reads. */
typedef struct mox_cuda_quant_act_problem {
    const moxie_quant *quant;
    mox_activations_kind kind; /* that the product reads */
    bool weighed;              /* with row_weight */
} mox_cuda_quant_act_problem;

typedef struct mox_cuda_quant_act_kernel {
    mox_cuda_kernel cuda;
    bool (*admit)(const mox_cuda_quant_act_problem *problem, mox_rejection *why);
} mox_cuda_quant_act_kernel;

const mox_cuda_quant_act_kernel *mox_cuda_quant_act_at(int32_t i); /* NULL past the last */

#endif
