/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_convert.cuh - conversions of two floats at once, one function per instruction. PTX ISA, "cvt". `low` goes to the
 * low half.
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

#endif
