/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_decode_mxfp4.cuh - dequantizes e2m1 with e8m0 scales of 32 columns, of layout hopper_codes, to bf16. With its
 * bits at the sign, exponent and mantissa of a bf16 a code is 2^-126 times its value. The byte of a scale is the
 * exponent of a bf16. Their product is exact; layout_hopper_codes.c checks that it is in range.
 */
#ifndef MOX_CUDA_SM90_DECODE_MXFP4_CUH
#define MOX_CUDA_SM90_DECODE_MXFP4_CUH

#include "cuda/expert_gemm/tensor_cores/mma_scales.cuh"
#include "cuda/ptx/ptx_pairs.cuh"

/* Eight e2m1 codes of 16 columns, two rows; times `low` and `high`. */
__device__ __forceinline__ void mox_sm90_place_e2m1(uint32_t (&a)[4], uint32_t word, uint32_t low, uint32_t high)
{
    constexpr uint32_t FLOAT = 0x81c081c0, ALL_BUT_LAST = 0x81808180, LAST = 0x00400040;
    const uint32_t last = word << 6 & LAST;
    a[0] = mox_bf16x2_mul(word & FLOAT, low);
    a[1] = mox_bf16x2_mul(word << 4 & FLOAT, high);
    a[2] = mox_bf16x2_mul(__funnelshift_l(word, word, 10) & FLOAT, low);
    a[3] = mox_bf16x2_mul((__funnelshift_l(word, word, 14) & ALL_BUT_LAST) | last, high);
}

/* Scales of row r (bytes 0, 1) and of row r + 8 (bytes 2, 3), as a pair of bf16 each. */
__device__ __forceinline__ uint2 mox_sm90_exponents(uint32_t scales)
{
    return make_uint2(__byte_perm(scales, 0, 0x4140) << 7, __byte_perm(scales, 0, 0x4342) << 7);
}

/* Scales: two of row r, two of row r + 8. */
struct mox_sm90_decode_mxfp4 : mox_sm90_typed_scales<uint32_t> {
    static constexpr bool F16 = false;
    using codes = mox_sm90_codes_of_4;
    using multipliers = uint2; /* row r, row r + 8: each a pair for columns 0-31 and 32-63 */

    static __device__ __forceinline__ multipliers prepare(scales s, const mox_sm90_args &)
    {
        return mox_sm90_exponents(s);
    }

    /* Eight codes of two rows of this thread, from column 16 j of the chunk on. */
    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t word, multipliers m, int j)
    {
        mox_sm90_place_e2m1(a, word, mox_pair_broadcast(m.x, j / 2), mox_pair_broadcast(m.y, j / 2));
    }
};

#endif
