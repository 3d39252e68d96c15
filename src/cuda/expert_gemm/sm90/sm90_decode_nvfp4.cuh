/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_decode_nvfp4.cuh - e2m1 with e4m3 scales of 16 columns, from layout hopper_codes to bf16. A code comes as 2^-126
 * times its value, as in sm90_decode_mxfp4.cuh; a scale, with its bits where a bf16 has them, as 2^-120 times its own,
 * and two multiplications by 2^119 make that 2^118. What is left, 2^8, the row's factor has.
 */
#ifndef MOX_CUDA_SM90_DECODE_NVFP4_CUH
#define MOX_CUDA_SM90_DECODE_NVFP4_CUH

#include "cuda/expert_gemm/sm90/sm90_decode_mxfp4.cuh"

/* Scales of a pair of rows in a chunk: row r's four, row r + 8's four. */
struct mox_sm90_decode_nvfp4 : mox_sm90_typed_scales<uint2> {
    static constexpr bool F16 = false;
    using codes = mox_sm90_codes_of_4;

    /* Of each row's four: 0 and 2, then 1 and 3. */
    struct multipliers {
        uint32_t low[2], high[2];
    };

    static __device__ __forceinline__ multipliers prepare(scales s, const mox_sm90_args &)
    {
        return { { prescaled(s.x << 4), prescaled(s.x >> 4) }, { prescaled(s.y << 4), prescaled(s.y >> 4) } };
    }

    /* Eight codes of columns 16 j .. of the chunk, of which this thread has two rows. */
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
