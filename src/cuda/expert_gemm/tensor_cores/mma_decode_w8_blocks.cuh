/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_decode_w8_blocks.cuh - dequantizes FP8 codes of layout hopper_codes to bf16, without their scales: each code
 * becomes exactly its value. The f32 scales of blocks, of two rows at a time, multiply the sum of each chunk.
 */
#ifndef MOX_CUDA_SM90_DECODE_W8_BLOCKS_CUH
#define MOX_CUDA_SM90_DECODE_W8_BLOCKS_CUH

#include "cuda/expert_gemm/tensor_cores/mma_decode_w8.cuh"

struct mox_sm90_decode_w8_blocks : mox_sm90_decode_w8 {
    static constexpr int GROUPS = 1;
    static constexpr bool MINIMUMS = false;
    using scales = float2; /* of rows r and r + 8 */

    static __device__ __forceinline__ int pair_bytes(const mox_sm90_args &)
    {
        return sizeof(scales);
    }

    static __device__ __forceinline__ scales load(const uint8_t *at, const mox_sm90_args &, int)
    {
        return *(const scales *)at;
    }

    /* What makes a code its value: the same for all. */
    static __device__ __forceinline__ multipliers prepare(scales, const mox_sm90_args &args)
    {
        const uint32_t unit = args.w8.unit;
        return { { unit, unit }, { unit, unit }, args.w8 };
    }

    static __device__ __forceinline__ float2 sum_scales(scales s, int, const mox_sm90_args &)
    {
        return s;
    }
};

/* Activations have scales of groups, too. */
using mox_sm90_decode_w8_blocks_qact = mox_sm90_decode_w8_blocks;

#endif
