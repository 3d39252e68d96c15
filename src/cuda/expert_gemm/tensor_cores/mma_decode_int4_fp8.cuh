/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_decode_int4_fp8.cuh - converts 4-bit integers of layout hopper_fp8 to e4m3: a quarter of -8 .. 7. The scales of
 * groups of 128 columns and more multiply the sums of chunks.
 *
 *     magnitude   0 1 .. 7 as e4m3, a quarter of each: 00 28 30 34 38 3a 3c 3e; and 8: 40, which alone has bit 6
 *     table       all of them negative, -8 in place of 0. Bits 7 and 6 of a code without sign are then cleared: of
 *                 0 they are all that is there, of others they leave the magnitude
 */
#ifndef MOX_CUDA_SM90_DECODE_INT4_FP8_CUH
#define MOX_CUDA_SM90_DECODE_INT4_FP8_CUH

#include "cuda/expert_gemm/tensor_cores/mma_scales.cuh"
#include "cuda/ptx/ptx_convert.cuh"

struct mox_sm90_decode_int4_fp8 : mox_sm90_typed_scales<uint32_t, false> {
    static constexpr int GROUPS = 1;
    using codes = mox_sm90_codes_of_8;
    struct multipliers {
    };

    static __device__ __forceinline__ multipliers prepare(scales, const mox_sm90_args &)
    {
        return {};
    }

    /* Four codes. signs: those of each in the top bit of a byte, among other bits. */
    static __device__ __forceinline__ uint32_t look_up(uint32_t magnitudes, uint32_t signs)
    {
        return __byte_perm(0xb4b0a8c0, 0xbebcbab8, magnitudes) & (mox_byte_signs(signs) | 0x3f3f3f3f);
    }

    /* Codes of two rows of this thread, from column 32 t of the chunk on. */
    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint2 rows, multipliers, int)
    {
        const uint32_t x = rows.x & 0x77777777, y = rows.y & 0x77777777;
        a[0] = look_up(x, rows.x);
        a[1] = look_up(y, rows.y);
        a[2] = look_up(x >> 16, rows.x << 4);
        a[3] = look_up(y >> 16, rows.y << 4);
    }

    /* Both are bf16: of row r in the low half, of row r + 8 in the high one. */
    static __device__ __forceinline__ float2 sum_scales(scales s, int, const mox_sm90_args &)
    {
        return make_float2(__uint_as_float(s << 16), __uint_as_float(s & 0xffff0000));
    }
};

#endif
