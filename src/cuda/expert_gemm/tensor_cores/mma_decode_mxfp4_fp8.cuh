/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_decode_mxfp4_fp8.cuh - converts e2m1 with e8m0 scales of 32 columns, of layout hopper_fp8, to e4m3. The eight
 * magnitudes times one power of two are a table of eight bytes; one byte permutation looks up four codes at a time.
 *
 *     scale 0     0 .5 1 1.5 2 3 4 6, times 2^-5, as e4m3: 00 08 10 14 18 1c 20 24
 *     scale e     e added to the exponent of each but 0, that is e << 3: no carry up to e = 11, where 6 becomes 6 * 2^6
 */
#ifndef MOX_CUDA_SM90_DECODE_MXFP4_FP8_CUH
#define MOX_CUDA_SM90_DECODE_MXFP4_FP8_CUH

#include "cuda/expert_gemm/tensor_cores/mma_scales.cuh"

struct mox_sm90_decode_mxfp4_fp8 : mox_sm90_typed_scales<uint2> {
    static constexpr int GROUPS = 1;
    using codes = mox_sm90_codes_of_8;
    using multipliers = scales;

    static __device__ __forceinline__ multipliers prepare(scales s, const mox_sm90_args &)
    {
        return s;
    }

    /* The table of a row for columns 32 t and on. */
    static __device__ __forceinline__ uint2 table(uint32_t scales, int t)
    {
        const uint32_t e = scales >> 8 * t & 0xff;
        return make_uint2(0x14100800 + e * 0x08080800, 0x24201c18 + e * 0x08080808);
    }

    /* Eight codes of a row: four columns, and the four that are 16 columns further. */
    static __device__ __forceinline__ void look_up(uint32_t &low, uint32_t &high, uint32_t word, uint2 table)
    {
        constexpr uint32_t SIGNS = 0x80808080;
        const uint32_t magnitudes = word & 0x77777777;
        low = __byte_perm(table.x, table.y, magnitudes) | (word & SIGNS);
        high = __byte_perm(table.x, table.y, magnitudes >> 16) | (word << 4 & SIGNS);
    }

    /* Codes of two rows of this thread, from column 32 t of the chunk on. */
    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint2 rows, multipliers s, int t)
    {
        look_up(a[0], a[2], rows.x, table(s.x, t));
        look_up(a[1], a[3], rows.y, table(s.y, t));
    }

    /* Codes have their scales. */
    static __device__ __forceinline__ float2 sum_scales(scales, int, const mox_sm90_args &)
    {
        return make_float2(1.0f, 1.0f);
    }
};

/* Activations have scales of groups. */
using mox_sm90_decode_mxfp4_fp8_qact = mox_sm90_decode_mxfp4_fp8;

#endif
