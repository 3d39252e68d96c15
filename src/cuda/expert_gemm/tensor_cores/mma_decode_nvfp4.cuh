/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_decode_nvfp4.cuh - dequantizes e2m1 with e4m3 scales of 16 columns, of layout hopper_codes, to bf16. A code is
 * 2^-126 times its value, as in mma_decode_mxfp4.cuh. The bits of a scale, as a bf16, are 2^-120 times its value; two
 * multiplications by 2^119 make that 2^118. The remaining 2^8 is in the row's factor.
 */
#ifndef MOX_CUDA_SM90_DECODE_NVFP4_CUH
#define MOX_CUDA_SM90_DECODE_NVFP4_CUH

#include "cuda/expert_gemm/tensor_cores/mma_decode_mxfp4.cuh"

/* Scales of a pair of rows in a chunk: four of row r, four of row r + 8. */
struct mox_sm90_decode_nvfp4 : mox_sm90_typed_scales<uint2> {
    static constexpr bool F16 = false;
    using codes = mox_sm90_codes_of_4;

    /* Of each row's four scales: 0 and 2, then 1 and 3. */
    struct multipliers {
        uint32_t low[2], high[2];
    };

    static __device__ __forceinline__ multipliers prepare(scales s, const mox_sm90_args &)
    {
        return { { prescaled(s.x << 4), prescaled(s.x >> 4) }, { prescaled(s.y << 4), prescaled(s.y >> 4) } };
    }

    /* Eight codes of two rows of this thread, from column 16 j of the chunk on. */
    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t word, const multipliers &m, int j)
    {
        mox_sm90_place_e2m1(a, word, mox_pair_broadcast(m.low[j % 2], j / 2), mox_pair_broadcast(m.high[j % 2], j / 2));
    }

  private:
    static __device__ __forceinline__ uint32_t prescaled(uint32_t bytes)
    {
        constexpr uint32_t E4M3 = 0x07f007f0, TWO_119 = 0x7b007b00; /* 2^119 */
        return mox_bf16x2_mul(mox_bf16x2_mul(bytes & E4M3, TWO_119), TWO_119);
    }
};

#endif
