/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_acts.cuh - dequantizes activations to bf16: eight neighbouring codes of a row, times the scale of their group.
 * The gather does this; the epilogue of W13 computes the same numbers (mma_epilogue.cuh).
 *
 *     float code    | sign | magnitude |: shifted to where f32 has sign and exponent, the number is too small by a
 *                   power of two that depends on the element; times `rebias`, times the scale
 *     integer       the number itself
 *
 * All of it is exact: the code of a float has up to 4 significant bits and an e4m3 scale 4 more, other scales are
 * powers of two, and bf16 has 8 bits. Below 2^-129 a number may lose less than 2^-132; the bound of the product allows
 * more for numbers that underflow (ref/ref_bounds.h).
 */
#ifndef MOX_CUDA_SM90_ACTS_CUH
#define MOX_CUDA_SM90_ACTS_CUH

#include "cuda/expert_gemm/tensor_cores/mma_args.h"
#include "cuda/ptx/ptx_convert.cuh"

/* Magnitudes beyond max_code become infinity or NaN, by their mantissa. */
__device__ __forceinline__ float mox_sm90_act_float(const mox_sm90_acts &acts, uint32_t code, float scale)
{
    const uint32_t magnitude = code & ((1u << (acts.bits - 1)) - 1);
    const uint32_t bits = magnitude << acts.shift | (magnitude > acts.max_code ? 0x7f800000u : 0u);
    return __fmul_rn(__fmul_rn(__uint_as_float(bits | (code << (32 - acts.bits) & 0x80000000u)), acts.rebias), scale);
}

/* Four codes, one byte each. */
__device__ __forceinline__ uint2 mox_sm90_four_acts(const mox_sm90_acts &acts, uint32_t codes, float scale)
{
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t code = codes >> 8 * i & 0xff;
        x[i] = acts.integer ? (float)(int8_t)code : mox_sm90_act_float(acts, code, scale);
    }
    return make_uint2(mox_convert_bf16x2(x[0], x[1]), mox_convert_bf16x2(x[2], x[3]));
}

/* Codes of a row from `column` on, a multiple of 8; zeros behind its last column. */
struct mox_sm90_eight_acts {
    uint2 codes;
    float scale;
};

__device__ __forceinline__ mox_sm90_eight_acts mox_sm90_load_acts(const mox_sm90_gather_args &args, int64_t row,
                                                                  int column)
{
    const mox_sm90_acts &acts = args.acts;
    if (2 * column >= args.a_bytes)
        return { make_uint2(0, 0), 0.0f };
    const float *scales = args.a_scale + row * args.a_scale_stride;
    return { *(const uint2 *)(args.a + row * args.a_stride + column),
             acts.group > 0 ? scales[column / acts.group] * acts.scale_factor : 1.0f };
}

__device__ __forceinline__ uint4 mox_sm90_decode_acts(const mox_sm90_acts &acts, const mox_sm90_eight_acts &from)
{
    const uint2 low = mox_sm90_four_acts(acts, from.codes.x, from.scale);
    const uint2 high = mox_sm90_four_acts(acts, from.codes.y, from.scale);
    return make_uint4(low.x, low.y, high.x, high.y);
}

/* The factor of the sums of row `row`: scales that its bf16 numbers do not contain. */
__device__ __forceinline__ float mox_sm90_factor_of_row(const mox_sm90_gather_args &args, int64_t row)
{
    const mox_sm90_acts &acts = args.acts;
    const float factor = acts.group > 0 ? acts.row_factor : args.a_scale[row * args.a_scale_stride];
    if (acts.global == nullptr)
        return factor;
    return acts.global_divides ? __fdiv_rn(factor, acts.global[row]) : __fmul_rn(factor, acts.global[row]);
}

#endif
