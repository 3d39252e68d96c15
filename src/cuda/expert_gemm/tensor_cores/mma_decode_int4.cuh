/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_decode_int4.cuh - dequantizes 4-bit integers of layout hopper_codes to the type of their scales.
 *
 *     bf16    A code n of 0 .. 15 in bits 7 .. 4 is the bf16 2^-129 n (subnormal below 8, and linear all the way).
 *             Scales are stored 2^129 times too large, so one fused multiply-add gives (n - 8) scale, rounded once.
 *     f16     In bits 10 .. 7 a code is the f16 2^-17 n. The zero point is stored negated in the same unit, so their
 *             sum is exact; times a scale that is stored 2^17 times too large it is (n - zero) scale, rounded once.
 */
#ifndef MOX_CUDA_SM90_DECODE_INT4_CUH
#define MOX_CUDA_SM90_DECODE_INT4_CUH

#include "cuda/expert_gemm/tensor_cores/mma_scales.cuh"
#include "cuda/ptx/ptx_pairs.cuh"

/* Eight codes of 16 columns, two rows of this thread. rows.x, rows.y: pairs of scales; `half` says which of a pair
 * counts. */
__device__ __forceinline__ void mox_sm90_place_int4(uint32_t (&a)[4], uint32_t word, uint2 rows, int half)
{
    constexpr uint32_t CODE = 0x00f000f0, MINUS_8_UNITS = 0x80808080; /* -2^-126, that is -8 units of 2^-129 */
    const uint32_t low = mox_pair_broadcast(rows.x, half),
                   low_8 = mox_pair_broadcast(mox_bf16x2_mul(rows.x, MINUS_8_UNITS), half);
    const uint32_t high = mox_pair_broadcast(rows.y, half),
                   high_8 = mox_pair_broadcast(mox_bf16x2_mul(rows.y, MINUS_8_UNITS), half);
    a[0] = mox_bf16x2_fma(word << 4 & CODE, low, low_8);
    a[1] = mox_bf16x2_fma(word & CODE, high, high_8);
    a[2] = mox_bf16x2_fma(word >> 4 & CODE, low, low_8);
    a[3] = mox_bf16x2_fma(word >> 8 & CODE, high, high_8);
}

/* Groups of 32 columns: two scales of row r, two of row r + 8. */
struct mox_sm90_decode_int4_short : mox_sm90_plain_scales<uint2> {
    static constexpr bool F16 = false;

    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t word, multipliers m, int j)
    {
        mox_sm90_place_int4(a, word, m, j / 2);
    }
};

/* Groups of 64 and more: one scale of row r, one of row r + 8. */
struct mox_sm90_decode_int4_long : mox_sm90_plain_scales<uint32_t, false> {
    static constexpr bool F16 = false;

    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t word, multipliers m, int)
    {
        mox_sm90_place_int4(a, word, make_uint2(m, mox_pair_broadcast_high(m)), 0);
    }
};

/* The same in f16. `low`, `high`: a row's scale in the low half, its negated zero point in the high half. */
__device__ __forceinline__ void mox_sm90_place_int4_f16(uint32_t (&a)[4], uint32_t word, uint32_t low, uint32_t high)
{
    constexpr uint32_t CODE = 0x07800780;
    const uint32_t zero[2] = { mox_pair_broadcast_high(low), mox_pair_broadcast_high(high) };
    const uint32_t scale[2] = { mox_pair_broadcast_low(low), mox_pair_broadcast_low(high) };
    a[0] = mox_f16x2_mul(mox_f16x2_add(word << 7 & CODE, zero[0]), scale[0]);
    a[1] = mox_f16x2_mul(mox_f16x2_add(word << 3 & CODE, zero[1]), scale[1]);
    a[2] = mox_f16x2_mul(mox_f16x2_add(word >> 1 & CODE, zero[0]), scale[0]);
    a[3] = mox_f16x2_mul(mox_f16x2_add(word >> 5 & CODE, zero[1]), scale[1]);
}

struct mox_sm90_decode_int4_f16_short : mox_sm90_plain_scales<uint4> {
    static constexpr bool F16 = true;

    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t word, const multipliers &m, int j)
    {
        mox_sm90_place_int4_f16(a, word, j < 2 ? m.x : m.y, j < 2 ? m.z : m.w);
    }
};

struct mox_sm90_decode_int4_f16_long : mox_sm90_plain_scales<uint2, false> {
    static constexpr bool F16 = true;

    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t word, multipliers m, int)
    {
        mox_sm90_place_int4_f16(a, word, m.x, m.y);
    }
};

#endif
