/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_pairs.cuh - arithmetic on pairs of bf16 or f16. Each result is rounded once, to nearest even; subnormal numbers
 * are kept (PTX ISA, "add", "mul", "fma").
 */
#ifndef MOX_CUDA_PTX_PAIRS_CUH
#define MOX_CUDA_PTX_PAIRS_CUH

#include <stdint.h>

/* The low half twice. The assembler folds this into the instruction that reads it; it does not fold a byte permutation.
 */
__device__ __forceinline__ uint32_t mox_pair_broadcast_low(uint32_t pair)
{
    uint32_t d;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low};}" : "=r"(d) : "r"(pair));
    return d;
}

__device__ __forceinline__ uint32_t mox_pair_broadcast_high(uint32_t pair)
{
    uint32_t d;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high};}" : "=r"(d) : "r"(pair));
    return d;
}

/* Half 0 (low) or 1 (high) twice. */
__device__ __forceinline__ uint32_t mox_pair_broadcast(uint32_t pair, int half)
{
    return half == 0 ? mox_pair_broadcast_low(pair) : mox_pair_broadcast_high(pair);
}

__device__ __forceinline__ uint32_t mox_bf16x2_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* Before sm_90 there is no such instruction. a b - 0 is a b, also where that is a zero of either sign. */
__device__ __forceinline__ uint32_t mox_bf16x2_mul(uint32_t a, uint32_t b)
{
#if __CUDA_ARCH__ >= 900
    uint32_t d;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    return mox_bf16x2_fma(a, b, 0x80008000);
#endif
}

__device__ __forceinline__ uint32_t mox_f16x2_add(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

__device__ __forceinline__ uint32_t mox_f16x2_mul(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

#endif
