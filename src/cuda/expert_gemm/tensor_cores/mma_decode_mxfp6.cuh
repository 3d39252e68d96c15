/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_decode_mxfp6.cuh - dequantizes e2m3 and e3m2 with e8m0 scales of 32 columns, of layout hopper_codes, to bf16.
 * With its bits at the sign, exponent and mantissa of a bf16 a code is 2^-126 (e2m3) or 2^-124 (e3m2) times its value;
 * the rest is as in mma_decode_mxfp4.cuh. mox_sm90_w6_format says at run time which of the two it is.
 */
#ifndef MOX_CUDA_SM90_DECODE_MXFP6_CUH
#define MOX_CUDA_SM90_DECODE_MXFP6_CUH

#include "cuda/expert_gemm/tensor_cores/mma_decode_mxfp4.cuh"

/* Scales: two of row r, two of row r + 8. */
struct mox_sm90_decode_mxfp6 : mox_sm90_typed_scales<uint32_t> {
    static constexpr bool F16 = false;
    using codes = mox_sm90_codes_of_6;

    struct multipliers {
        uint2 rows;
        const mox_sm90_w6_format &format;
    };

    static __device__ __forceinline__ multipliers prepare(scales s, const mox_sm90_args &args)
    {
        return { mox_sm90_exponents(s), args.w6 };
    }

    /* Eight codes of two rows of this thread, from column 16 j of the chunk on. */
    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint2 words, const multipliers &m, int j)
    {
        const uint32_t scale[2] = { mox_pair_broadcast(m.rows.x, j / 2), mox_pair_broadcast(m.rows.y, j / 2) };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t fours = __funnelshift_l(words.x, words.x, 4 * i) & m.format.mask4;
            a[i] = mox_bf16x2_mul(
                fours | (__funnelshift_l(words.y, words.y, m.format.rotate[j % 2][i]) & m.format.mask2), scale[i % 2]);
        }
    }
};

#endif
