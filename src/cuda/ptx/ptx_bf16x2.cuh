/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_bf16x2.cuh - arithmetic on pairs of bf16, each result rounded once to nearest even; subnormal numbers count (PTX
 * ISA, "mul", "fma").
 */
#ifndef MOX_CUDA_PTX_BF16X2_CUH
#define MOX_CUDA_PTX_BF16X2_CUH

#include <stdint.h>

__device__ __forceinline__ uint32_t mox_bf16x2_mul(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

__device__ __forceinline__ uint32_t mox_bf16x2_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

#endif
