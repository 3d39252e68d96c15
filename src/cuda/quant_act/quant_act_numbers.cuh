/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_numbers.cuh - four neighbours of a row at a time, from memory to numbers and from numbers to codes: what
 * the rows of family quant_act that run at memory's speed share.
 *
 *     mox_raw_numbers    as they lie in memory, zero behind the last: all loads of a thread are under way at once
 *     mox_quant_...      their codes, a byte each, to an operand; codes as numbers (MOX_ACTIVATIONS_F32) are for those
 * who look at a run
 */
#ifndef MOX_CUDA_QUANT_ACT_NUMBERS_CUH
#define MOX_CUDA_QUANT_ACT_NUMBERS_CUH

#include "cuda/device/device_format.cuh"
#include "cuda/ptx/ptx_convert.cuh"
#include "cpu/quant_act/quant_act_args.h"
#include "quant/act_rules.h"

constexpr int MOX_QUANT_EACH = 4;

/* Four neighbouring numbers as they lie in memory. */
template <moxie_dtype DTYPE> struct mox_raw_numbers {
    static constexpr int WORDS = DTYPE == MOXIE_F32 ? 4 : 2;
    uint32_t word[WORDS];
};

/* Columns column .. column + 3 of a row that begins at element `first` of x; zero behind the last. */
template <moxie_dtype DTYPE>
__device__ mox_raw_numbers<DTYPE> mox_raw_load(const mox_quant_act_args &args, bool whole, int64_t first,
                                               int64_t column)
{
    mox_raw_numbers<DTYPE> raw = {};
    if (whole) { /* columns are a multiple of 4, and so aligned */
        if (column >= args.cols)
            return raw;
        if constexpr (DTYPE == MOXIE_F32) {
            const uint4 v =
                __ldcs(reinterpret_cast<const uint4 *>(static_cast<const uint32_t *>(args.x) + first + column));
            raw.word[0] = v.x, raw.word[1] = v.y, raw.word[2] = v.z, raw.word[3] = v.w;
        } else {
            const uint2 v =
                __ldcs(reinterpret_cast<const uint2 *>(static_cast<const uint16_t *>(args.x) + first + column));
            raw.word[0] = v.x, raw.word[1] = v.y;
        }
        return raw;
    }
#pragma unroll
    for (int i = 0; i < MOX_QUANT_EACH; i++) {
        if (column + i >= args.cols)
            break;
        if constexpr (DTYPE == MOXIE_F32)
            raw.word[i] = static_cast<const uint32_t *>(args.x)[first + column + i];
        else
            raw.word[i / 2] |= static_cast<uint32_t>(static_cast<const uint16_t *>(args.x)[first + column + i])
                               << i % 2 * 16;
    }
    return raw;
}

template <moxie_dtype DTYPE> __device__ float mox_raw_number(const mox_raw_numbers<DTYPE> &raw, int i)
{
    if constexpr (DTYPE == MOXIE_F32)
        return mox_float_of(raw.word[i]);
    const uint32_t half = i % 2 == 0 ? raw.word[i / 2] & 0xffffu : raw.word[i / 2] >> 16;
    return DTYPE == MOXIE_BF16 ? mox_bf16_decode(half) : mox_f16_decode(half);
}

/* Codes of two numbers in 16 bits. */
static __device__ uint32_t mox_quant_two(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    return mox_convert_e4m3x2(low, high);
#else
    const float most = mox_device_largest(MOXIE_F8_E4M3);
    return mox_f8_e4m3_encode(mox_act_clamp(low, most)) | mox_f8_e4m3_encode(mox_act_clamp(high, most)) << 8;
#endif
}

/* Codes of four of any other element. */
static __device__ __noinline__ uint32_t mox_quant_four(moxie_dtype element, float x0, float x1, float x2, float x3)
{
    const float most = mox_device_largest(element), x[MOX_QUANT_EACH] = { x0, x1, x2, x3 };
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < MOX_QUANT_EACH; i++)
        codes |= mox_device_encode(element, mox_act_clamp(x[i], most)) << 8 * i;
    return codes;
}

static __device__ void mox_quant_store(const mox_quant_act_args &args, int64_t row, int64_t column, uint32_t codes)
{
    const int64_t at = row * args.out.stride + column;
    if (column >= args.out.stride)
        return;
    if (args.out.kind == MOX_ACTIVATIONS_CODES) {
        *reinterpret_cast<uint32_t *>(static_cast<uint8_t *>(args.out.data) + at) = codes;
        return;
    }
#pragma unroll
    for (int i = 0; i < MOX_QUANT_EACH; i++)
        static_cast<float *>(args.out.data)[at + i] = args.table[codes >> 8 * i & 0xff];
}

static __device__ float mox_quant_static_scale(const mox_quant_act_args &args, int64_t row)
{
    return args.row_scale != nullptr ? args.row_scale[row] : args.static_scale;
}

/* Four neighbours are one load. */
static bool mox_quant_is_whole(const mox_quant_act_args *args)
{
    const uintptr_t bytes = args->x_dtype == MOXIE_F32 ? 16 : 8;
    return args->cols % MOX_QUANT_EACH == 0 && reinterpret_cast<uintptr_t>(args->x) % bytes == 0;
}

#endif
