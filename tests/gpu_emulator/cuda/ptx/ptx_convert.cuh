/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_convert.cuh - src/cuda/ptx/ptx_convert.cuh, emulated.
 */
#ifndef MOX_CUDA_PTX_CONVERT_CUH
#define MOX_CUDA_PTX_CONVERT_CUH

#include <math.h>

#include "cuda/device/device_format.cuh"
#include "cuda_runtime.h"

static inline uint32_t mox_convert_bf16x2(float low, float high)
{
    const uint32_t l = isnan(low) ? 0x7fff : mox_bf16_narrow(low), h = isnan(high) ? 0x7fff : mox_bf16_narrow(high);
    return l | h << 16;
}

static inline uint32_t mox_convert_f16x2(float low, float high)
{
    const uint32_t l = isnan(low) ? 0x7fff : mox_f16_narrow(low), h = isnan(high) ? 0x7fff : mox_f16_narrow(high);
    return l | h << 16;
}

static inline uint32_t mox_byte_signs(uint32_t bytes)
{
    return (bytes >> 7 & 0x01010101) * 0xff;
}

static inline uint32_t emulated_e4m3(float x)
{
    return isnan(x) ? 0x7f : mox_device_encode(MOXIE_F8_E4M3, fminf(fmaxf(x, -448.0f), 448.0f));
}

static inline uint32_t mox_convert_e4m3x2(float low, float high)
{
    return emulated_e4m3(low) | emulated_e4m3(high) << 8;
}

static inline float mox_clamp_magnitude(float x, float max)
{
    return isnan(x) ? x : copysignf(fminf(fabsf(x), max), x);
}

static inline uint32_t mox_transpose_8x8(uint32_t pair)
{
    const emulated_words &words = emulated_exchange(pair);
    const unsigned lane = threadIdx.x % 32, column = lane / 4;
    uint32_t turned = 0;
    for (unsigned e = 0; e < 2; e++) {
        const unsigned row = lane % 4 * 2 + e;
        turned |= static_cast<uint32_t>(words.of[row * 4 + column / 2] >> column % 2 * 16 & 0xffff) << e * 16;
    }
    return turned;
}

#endif
