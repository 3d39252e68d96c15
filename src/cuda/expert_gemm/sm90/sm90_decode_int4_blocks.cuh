/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_decode_int4_blocks.cuh - dequantizes 4-bit integers with f16 scales of layout hopper_codes to bf16, without the
 * scales: exactly 2^-9 (n - zero). The scales multiply the sum of each group, or of each chunk of it.
 *
 *     code     n in bits 7 .. 4 is the bf16 2^-129 n; so is the zero point, once shifted. One fused multiply-add brings
 *              both to 2^-9, small enough that no sum of 64 products overflows
 *     scale    an f16 in the low half of a row's word, 2^17 times too large. Its bits, moved to the places of an f32,
 *              are 2^-112 times its value
 */
#ifndef MOX_CUDA_SM90_DECODE_INT4_BLOCKS_CUH
#define MOX_CUDA_SM90_DECODE_INT4_BLOCKS_CUH

#include "cuda/expert_gemm/sm90/sm90_scales.cuh"
#include "cuda/ptx/ptx_pairs.cuh"

/* The zero point of a row's word, negated, as a pair of bf16. */
__device__ __forceinline__ uint32_t mox_sm90_negated_zero(uint32_t word)
{
    constexpr uint32_t NUMBER = 0x01f001f0, MINUS_2_120 = 0xfb80fb80;
    return mox_bf16x2_mul(mox_pair_broadcast_high(word) >> 3 & NUMBER, MINUS_2_120);
}

/* The scale of a row's word, as sums need it. */
__device__ __forceinline__ float mox_sm90_scale_of_sum(uint32_t word)
{
    return __fmul_rn(__int_as_float((int)(word << 16) >> 3 & (int)0x8fffe000), 0x1p104f);
}

/* SCALES: [rows r, r + 8][groups of the chunk] words. */
template <class SCALES> struct mox_sm90_decode_int4_blocks : mox_sm90_typed_scales<SCALES, sizeof(SCALES) == 16> {
    static constexpr bool F16 = false;
    static constexpr int GROUPS = sizeof(SCALES) / 8; /* of a chunk */
    using codes = mox_sm90_codes_of_4;
    struct multipliers {
        uint32_t low[GROUPS], high[GROUPS]; /* negated zero points of rows r and r + 8 */
    };

    static __device__ __forceinline__ multipliers prepare(const SCALES &s, const mox_sm90_args &)
    {
        multipliers m;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            m.low[g] = mox_sm90_negated_zero(word_of(s, g));
            m.high[g] = mox_sm90_negated_zero(word_of(s, GROUPS + g));
        }
        return m;
    }

    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t word, const multipliers &m, int j)
    {
        constexpr uint32_t CODE = 0x00f000f0, TO_2_120 = 0x7b807b80;
        const uint32_t low = m.low[j * GROUPS / 4], high = m.high[j * GROUPS / 4];
        a[0] = mox_bf16x2_fma(word << 4 & CODE, TO_2_120, low);
        a[1] = mox_bf16x2_fma(word & CODE, TO_2_120, high);
        a[2] = mox_bf16x2_fma(word >> 4 & CODE, TO_2_120, low);
        a[3] = mox_bf16x2_fma(word >> 8 & CODE, TO_2_120, high);
    }

    /* What multiplies the sums of group `g` of the chunk, for rows r and r + 8. */
    static __device__ __forceinline__ float2 sum_scales(const SCALES &s, int g)
    {
        return make_float2(mox_sm90_scale_of_sum(word_of(s, g)), mox_sm90_scale_of_sum(word_of(s, GROUPS + g)));
    }

  private:
    static __device__ __forceinline__ uint32_t word_of(const uint2 &s, int i)
    {
        return i == 0 ? s.x : s.y;
    }
    static __device__ __forceinline__ uint32_t word_of(const uint4 &s, int i)
    {
        return i == 0 ? s.x : i == 1 ? s.y : i == 2 ? s.z : s.w;
    }
};

using mox_sm90_decode_int4_blocks_short = mox_sm90_decode_int4_blocks<uint4>; /* two groups of 32 columns */
using mox_sm90_decode_int4_blocks_long = mox_sm90_decode_int4_blocks<uint2>;

#endif
