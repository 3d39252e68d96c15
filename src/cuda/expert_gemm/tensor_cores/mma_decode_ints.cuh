/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_decode_ints.cuh - dequantizes integers of layout hopper_codes to bf16, without their scales: exactly 2^-11 (4
 * bits) or 2^-15 (8 bits) times n - zero. The scales multiply the sum of each group, or of each chunk of it.
 *
 *     code     a bf16 holds n in bits 7 .. 4 as 2^-129 n, and in bits 7 .. 0 as 2^-133 n; likewise the zero point. One
 *              fused multiply-add subtracts it. The result is so small that no sum of 128 products overflows
 *     scale    an f16 or a bf16 in the low half of a row's word, the zero point in its high half (hopper.h)
 */
#ifndef MOX_CUDA_SM90_DECODE_INTS_CUH
#define MOX_CUDA_SM90_DECODE_INTS_CUH

#include "cuda/expert_gemm/tensor_cores/mma_scales.cuh"
#include "cuda/ptx/ptx_pairs.cuh"

/* Both kinds of codes: SCALES are [rows r, r + 8][groups of the chunk] words. */
template <class SCALES> struct mox_sm90_decode_ints : mox_sm90_typed_scales<SCALES> {
    static constexpr bool F16 = false;
    static constexpr int GROUPS = sizeof(SCALES) / 8; /* of a chunk */
    static constexpr uint32_t TO_2_118 = 0x7a807a80, MINUS_2_118 = 0xfa80fa80;
    struct multipliers {
        uint32_t low[GROUPS], high[GROUPS]; /* negated zero points of rows r and r + 8, as codes become */
    };

    /* What multiplies the sums of group `g` of the chunk, for rows r and r + 8. */
    static __device__ __forceinline__ float2 sum_scales(const SCALES &s, int g, const mox_sm90_args &args)
    {
        return make_float2(sum_scale(word_of(s, g), args.ints), sum_scale(word_of(s, GROUPS + g), args.ints));
    }

  protected:
    static __device__ __forceinline__ uint32_t word_of(const uint2 &s, int i)
    {
        return i == 0 ? s.x : s.y;
    }
    static __device__ __forceinline__ uint32_t word_of(const uint4 &s, int i)
    {
        return i == 0 ? s.x : i == 1 ? s.y : i == 2 ? s.z : s.w;
    }

    /* SHIFT: how far the zero point lies above the codes' bits; MASK: its bits there. */
    template <int SHIFT, uint32_t MASK> static __device__ __forceinline__ multipliers negated_zeros(const SCALES &s)
    {
        multipliers m;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            m.low[g] = mox_bf16x2_mul(mox_pair_broadcast_high(word_of(s, g)) >> SHIFT & MASK, MINUS_2_118);
            m.high[g] = mox_bf16x2_mul(mox_pair_broadcast_high(word_of(s, GROUPS + g)) >> SHIFT & MASK, MINUS_2_118);
        }
        return m;
    }

  private:
    static __device__ __forceinline__ float sum_scale(uint32_t word, const mox_sm90_int_format &format)
    {
        const int placed = (int)(word << 16) >> format.scale_shift & (int)format.scale_mask;
        return __fmul_rn(__int_as_float(placed), format.scale_unit);
    }
};

template <class SCALES> struct mox_sm90_decode_ints_4 : mox_sm90_decode_ints<SCALES> {
    using base = mox_sm90_decode_ints<SCALES>;
    using multipliers = typename base::multipliers;
    using codes = mox_sm90_codes_of_4;
    static constexpr bool BY_CHUNK = base::GROUPS > 1;

    static __device__ __forceinline__ multipliers prepare(const SCALES &s, const mox_sm90_args &)
    {
        return base::template negated_zeros<3, 0x01f001f0>(s);
    }

    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t word, const multipliers &m, int j)
    {
        constexpr uint32_t CODE = 0x00f000f0;
        const uint32_t low = m.low[j * base::GROUPS / 4], high = m.high[j * base::GROUPS / 4];
        a[0] = mox_bf16x2_fma(word << 4 & CODE, base::TO_2_118, low);
        a[1] = mox_bf16x2_fma(word & CODE, base::TO_2_118, high);
        a[2] = mox_bf16x2_fma(word >> 4 & CODE, base::TO_2_118, low);
        a[3] = mox_bf16x2_fma(word >> 8 & CODE, base::TO_2_118, high);
    }
};

/* Two groups a chunk, which may have one scale. */
struct mox_sm90_decode_int8_blocks : mox_sm90_decode_ints<uint4> {
    using codes = mox_sm90_codes_of_8;
    static constexpr bool BY_CHUNK = false;

    static __device__ __forceinline__ multipliers prepare(const uint4 &s, const mox_sm90_args &)
    {
        return negated_zeros<0, 0x00ff00ff>(s);
    }

    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint2 words, const multipliers &m, int j)
    {
        constexpr uint32_t CODE = 0x00ff00ff;
        const uint32_t low = m.low[j / 2], high = m.high[j / 2];
        a[0] = mox_bf16x2_fma(words.x & CODE, TO_2_118, low);
        a[1] = mox_bf16x2_fma(words.x >> 8 & CODE, TO_2_118, high);
        a[2] = mox_bf16x2_fma(words.y & CODE, TO_2_118, low);
        a[3] = mox_bf16x2_fma(words.y >> 8 & CODE, TO_2_118, high);
    }
};

using mox_sm90_decode_int4_blocks_short = mox_sm90_decode_ints_4<uint4>; /* two groups of 32 columns */
using mox_sm90_decode_int4_blocks_long = mox_sm90_decode_ints_4<uint2>;

#endif
