/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_convert.cuh - conversions of two floats to a pair of 16 or 8 bits, a clamp for before and a transpose for after
 * them, one instruction a function. PTX ISA, "cvt", "min", "movmatrix". `low` becomes the low half.
 */
#ifndef MOX_CUDA_PTX_CONVERT_CUH
#define MOX_CUDA_PTX_CONVERT_CUH

#include <stdint.h>

/* To nearest, ties to even; NaN becomes 0x7fff. */
__device__ __forceinline__ uint32_t mox_convert_bf16x2(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ uint32_t mox_convert_f16x2(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* To nearest, ties to even; saturates at 448; NaN becomes 0x7f. */
__device__ __forceinline__ uint32_t mox_convert_e4m3x2(float low, float high)
{
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}

/* 0xff in place of each byte whose top bit is set, 0 in place of others. */
__device__ __forceinline__ uint32_t mox_byte_signs(uint32_t bytes)
{
    uint32_t signs;
    asm("prmt.b32 %0, %1, %1, 0xba98;" : "=r"(signs) : "r"(bytes));
    return signs;
}

/* x with its magnitude clamped to `max`, above 0; keeps the sign. NaN gives NaN. */
__device__ __forceinline__ float mox_clamp_magnitude(float x, float max)
{
    float bounded;
#if __CUDA_ARCH__ >= 860
    asm("min.NaN.xorsign.abs.f32 %0, %1, %2;" : "=f"(bounded) : "f"(x), "f"(max));
    return bounded;
#else
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(bounded) : "f"(fabsf(x)), "f"(max));
    return copysignf(bounded, x);
#endif
}

/* Transposes a matrix of 8 by 8 elements of 16 bits; lane l has elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4. */
__device__ __forceinline__ uint32_t mox_transpose_8x8(uint32_t pair)
{
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}

#endif
