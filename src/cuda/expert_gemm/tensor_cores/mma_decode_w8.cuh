/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_decode_w8.cuh - dequantizes 8-bit codes of layout hopper_codes to bf16; exact, but for integers with scales of
 * groups. mox_sm90_w8_format says at run time what the codes are, so one kernel serves all: it waits for twice the
 * bytes that 4-bit codes have, and can spare the instructions.
 *
 *     floats      With its bits where a bf16 has them a code is 2^-120 (e4m3) or 2^-112 (e5m2) times its value. The
 *                 byte of the scale is the exponent of a bf16; the product of both is the weight.
 *     integers    u of 0 .. 255 in bits 7 .. 0 is the bf16 2^-133 u, linear through the subnormal and the first normal
 *                 numbers. One fused multiply-add gives (u - 128) times the multiplier.
 */
#ifndef MOX_CUDA_SM90_DECODE_W8_CUH
#define MOX_CUDA_SM90_DECODE_W8_CUH

#include "cuda/expert_gemm/tensor_cores/mma_scales.cuh"
#include "cuda/ptx/ptx_pairs.cuh"

struct mox_sm90_decode_w8 {
    static constexpr bool F16 = false, BY_CHUNK = false;
    using codes = mox_sm90_codes_of_8;
    using scales = uint2; /* the word of row r, and of row r + 8: the same word, or the next */

    struct multipliers {
        uint32_t low[2], high[2]; /* for columns 0-31, 32-63 */
        const mox_sm90_w8_format &format;
    };

    static __device__ __forceinline__ int pair_bytes(const mox_sm90_args &args)
    {
        return 4 * args.w8.high_word + 4;
    }

    static __device__ __forceinline__ scales load(const uint8_t *at, const mox_sm90_args &args, int)
    {
        return make_uint2(((const uint32_t *)at)[0], ((const uint32_t *)at)[args.w8.high_word]);
    }

    static __device__ __forceinline__ multipliers prepare(scales s, const mox_sm90_args &args)
    {
        const mox_sm90_w8_format &format = args.w8;
        return { { __byte_perm(s.x, 0, format.select[0][0]) * format.widen,
                   __byte_perm(s.x, 0, format.select[0][1]) * format.widen },
                 { __byte_perm(s.y, 0, format.select[1][0]) * format.widen,
                   __byte_perm(s.y, 0, format.select[1][1]) * format.widen },
                 format };
    }

    /* Eight codes of two rows of this thread, from column 16 j of the chunk on. */
    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint2 words, const multipliers &m, int j)
    {
        const uint32_t low = m.low[j / 2], high = m.high[j / 2];
        const uint32_t from_low = mox_bf16x2_mul(low, m.format.zero_point),
                       from_high = mox_bf16x2_mul(high, m.format.zero_point);
        a[0] = mox_bf16x2_fma(words.x & m.format.first_mask, low, from_low);
        a[1] = mox_bf16x2_fma(second(words.x, m.format), high, from_high);
        a[2] = mox_bf16x2_fma(words.y & m.format.first_mask, low, from_low);
        a[3] = mox_bf16x2_fma(second(words.y, m.format), high, from_high);
    }

  private:
    static __device__ __forceinline__ uint32_t second(uint32_t word, const mox_sm90_w8_format &format)
    {
        return (__funnelshift_l(word, word, format.rotate[0]) & format.second_mask[0]) |
               (__funnelshift_l(word, word, format.rotate[1]) & format.second_mask[1]);
    }
};

#endif
