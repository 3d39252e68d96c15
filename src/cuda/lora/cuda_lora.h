/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_lora.h - the kernel list of family lora on CUDA: adapters' change of a product's result (cpu/lora/lora.h).
 */
#ifndef MOX_CUDA_CUDA_LORA_H
#define MOX_CUDA_CUDA_LORA_H

#include "cuda/cuda_kernel.h"

typedef struct mox_cuda_lora_kernel {
    mox_cuda_kernel cuda;
} mox_cuda_lora_kernel;

const mox_cuda_lora_kernel *mox_cuda_lora_at(int32_t i); /* NULL past the last */
/* Bytes of scratch for so many pairs. */
uint64_t mox_cuda_lora_scratch(int64_t max_pairs);

#endif
