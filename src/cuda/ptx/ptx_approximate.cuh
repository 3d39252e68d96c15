/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_approximate.cuh - functions of the special function unit, one instruction each, with the errors that the PTX ISA
 * states ("ex2", "rcp"). Numbers below 2^-126 count as zero.
 */
#ifndef MOX_CUDA_PTX_APPROXIMATE_CUH
#define MOX_CUDA_PTX_APPROXIMATE_CUH

/* 2^x with a relative error of up to 2^-22.5. NaN gives NaN, infinities give infinity and zero. */
__device__ __forceinline__ float mox_exp2_approximate(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/* 1 / x to one unit in the last place. NaN gives NaN, infinity gives zero. */
__device__ __forceinline__ float mox_reciprocal_approximate(float x)
{
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
}

#endif
