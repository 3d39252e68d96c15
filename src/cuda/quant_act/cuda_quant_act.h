/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_quant_act.h - the kernel list of family quant_act on CUDA: the activations of the next product
 * (cpu/quant_act/quant_act.h).
 */
#ifndef MOX_CUDA_CUDA_QUANT_ACT_H
#define MOX_CUDA_CUDA_QUANT_ACT_H

#include "cuda/cuda_kernel.h"
#include "cpu/activations.h"

/* What a kernel must make. A traced run makes F32 besides the kind that the product reads. */
typedef struct mox_cuda_quant_act_problem {
    const moxie_quant *quant;
    mox_activations_kind kind; /* which the product reads */
    bool weighed;              /* rows are multiplied by row_weight */
} mox_cuda_quant_act_problem;

typedef struct mox_cuda_quant_act_kernel {
    mox_cuda_kernel cuda;
    bool (*admit)(const mox_cuda_quant_act_problem *problem, mox_rejection *why);
} mox_cuda_quant_act_kernel;

const mox_cuda_quant_act_kernel *mox_cuda_quant_act_at(int32_t i); /* NULL past the last */

#endif
