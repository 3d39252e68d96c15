/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_numbers.cuh - what the fast kernels of family quant_act share: four neighbouring columns of a row at a
 * time.
 *
 *     mox_raw_load()       memory -> raw words; columns after the last are zero. Raw, so that a thread can have many
 *                          loads in flight before it converts any
 *     mox_raw_number()     raw words -> f32
 *     mox_quant_codes..()  f32 -> codes, one byte each
 *     mox_quant_store()    codes -> activations; a traced run gets the codes' values instead (MOX_ACTIVATIONS_F32)
 */
#ifndef MOX_CUDA_QUANT_ACT_NUMBERS_CUH
#define MOX_CUDA_QUANT_ACT_NUMBERS_CUH

#include "cuda/device/device_format.cuh"
#include "cuda/ptx/ptx_convert.cuh"
#include "cpu/quant_act/quant_act_args.h"
#include "quant/act_rules.h"

constexpr int MOX_QUANT_VECTOR = 4;

/* Four neighbouring numbers as they lie in memory. */
template <moxie_dtype DTYPE> struct mox_raw_numbers {
    static constexpr int WORDS = DTYPE == MOXIE_F32 ? 4 : 2;
    uint32_t word[WORDS];
};

/* Columns column .. column + 3 of the row that begins at element `first` of x; zero after the last column.
 * `vectorized`: mox_quant_is_vectorizable(). */
template <moxie_dtype DTYPE>
__device__ mox_raw_numbers<DTYPE> mox_raw_load(const mox_quant_act_args &args, bool vectorized, int64_t first,
                                               int64_t column)
{
    mox_raw_numbers<DTYPE> raw = {};
    if (vectorized) { /* one aligned load */
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
    for (int i = 0; i < MOX_QUANT_VECTOR; i++) {
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

/* E4M3 codes of two numbers, in 16 bits. */
static __device__ uint32_t mox_quant_codes_e4m3x2(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    return mox_convert_e4m3x2(low, high);
#else
    const float limit = mox_device_largest(MOXIE_F8_E4M3);
    return mox_f8_e4m3_encode(mox_act_clamp(low, limit)) | mox_f8_e4m3_encode(mox_act_clamp(high, limit)) << 8;
#endif
}

/* The code nearest to x, clamped: what mox_minifloat_encode() gives, in a quarter of its instructions. Added to
 * 1.5 * 2^(n + 23 - m), a number of size 2^n keeps exactly the m bits behind its first one that a code has; times a
 * power of two, it has the code's bits where an f32 has its first ones, subnormal ones too. */
static __device__ __forceinline__ uint32_t mox_quant_code(const mox_minifloat *f, float x)
{
    const uint32_t shift = 23 - f->mantissa_bits, min_normal = (128u - f->bias) << 23;
    const float bounded = fminf(fabsf(x), mox_minifloat_decode(f, f->max_code)); /* of NaN: the largest */
    const uint32_t power = max(mox_float_bits(bounded) & 0x7f800000u, min_normal);
    const float large = mox_float_of(power + (shift << 23 | 0x400000u));
    const float rounded = __fsub_rn(__fadd_rn(bounded, large), large);
    const uint32_t sign = mox_float_bits(x) >> 31 << (f->exponent_bits + f->mantissa_bits);
    const uint32_t magnitude = mox_float_bits(__fmul_rn(rounded, mox_float_of(f->bias << 23))) >> shift;
    return x == x ? sign | magnitude : f->nan_code != 0 ? f->nan_code : f->max_code;
}

static __device__ __forceinline__ uint32_t mox_quant_codes_of(const mox_minifloat *f, float x0, float x1, float x2,
                                                              float x3)
{
    return mox_quant_code(f, x0) | mox_quant_code(f, x1) << 8 | mox_quant_code(f, x2) << 16 |
           mox_quant_code(f, x3) << 24;
}

/* Codes of four numbers, of any float but E4M3. */
static __device__ __noinline__ uint32_t mox_quant_codes_x4(moxie_dtype element, float x0, float x1, float x2, float x3)
{
    switch (element) {
    case MOXIE_F8_E5M2: return mox_quant_codes_of(&mox_f8_e5m2_fields, x0, x1, x2, x3);
    case MOXIE_F6_E3M2: return mox_quant_codes_of(&mox_f6_e3m2_fields, x0, x1, x2, x3);
    case MOXIE_F6_E2M3: return mox_quant_codes_of(&mox_f6_e2m3_fields, x0, x1, x2, x3);
    default: return mox_quant_codes_of(&mox_f4_e2m1_fields, x0, x1, x2, x3);
    }
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
    for (int i = 0; i < MOX_QUANT_VECTOR; i++)
        static_cast<float *>(args.out.data)[at + i] = args.table[codes >> 8 * i & 0xff];
}

static __device__ float mox_quant_static_scale(const mox_quant_act_args &args, int64_t row)
{
    return args.row_scale != nullptr ? args.row_scale[row] : args.static_scale;
}

/* Four neighbouring columns can be one aligned load. */
static bool mox_quant_is_vectorizable(const mox_quant_act_args *args)
{
    const uintptr_t bytes = args->x_dtype == MOXIE_F32 ? 16 : 8;
    return args->cols % MOX_QUANT_VECTOR == 0 && reinterpret_cast<uintptr_t>(args->x) % bytes == 0;
}

#endif
