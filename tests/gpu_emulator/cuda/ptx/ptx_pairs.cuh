/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_pairs.cuh - src/cuda/ptx/ptx_pairs.cuh, emulated: products and sums of what these kernels multiply are exact in
 * double.
 */
#ifndef MOX_CUDA_PTX_PAIRS_CUH
#define MOX_CUDA_PTX_PAIRS_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cuda/device/device_format.cuh"

static inline double emulated_bf16(uint32_t code)
{
    const uint32_t bits = code << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return static_cast<double>(value);
}

/* To nearest even, subnormal numbers too. */
static inline uint32_t emulated_to_bf16(double x)
{
    const int e = x == 0 || !isfinite(x) ? 0 : ilogb(x) < -126 ? -126 : ilogb(x);
    const float value =
        isfinite(x) ? static_cast<float>(ldexp(nearbyint(ldexp(x, 7 - e)), e - 7)) : static_cast<float>(x);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 16;
}

static inline uint32_t mox_bf16x2_fma(uint32_t a, uint32_t b, uint32_t c)
{
    return emulated_to_bf16(emulated_bf16(a & 0xffff) * emulated_bf16(b & 0xffff) + emulated_bf16(c & 0xffff)) |
           emulated_to_bf16(emulated_bf16(a >> 16) * emulated_bf16(b >> 16) + emulated_bf16(c >> 16)) << 16;
}

static inline uint32_t mox_pair_broadcast(uint32_t pair, int half)
{
    return (pair >> 16 * half & 0xffff) * 0x10001;
}
static inline uint32_t mox_pair_broadcast_low(uint32_t pair)
{
    return mox_pair_broadcast(pair, 0);
}
static inline uint32_t mox_pair_broadcast_high(uint32_t pair)
{
    return mox_pair_broadcast(pair, 1);
}

static inline uint32_t mox_bf16x2_mul(uint32_t a, uint32_t b)
{
    return emulated_to_bf16(emulated_bf16(a & 0xffff) * emulated_bf16(b & 0xffff)) |
           emulated_to_bf16(emulated_bf16(a >> 16) * emulated_bf16(b >> 16)) << 16;
}

static inline double emulated_f16(uint32_t code)
{
    return static_cast<double>(mox_f16_decode(code & 0xffff));
}

static inline uint32_t mox_f16x2_add(uint32_t a, uint32_t b)
{
    return mox_f16_narrow(static_cast<float>(emulated_f16(a) + emulated_f16(b))) |
           mox_f16_narrow(static_cast<float>(emulated_f16(a >> 16) + emulated_f16(b >> 16))) << 16;
}

static inline uint32_t mox_f16x2_mul(uint32_t a, uint32_t b)
{
    return mox_f16_narrow(static_cast<float>(emulated_f16(a) * emulated_f16(b))) |
           mox_f16_narrow(static_cast<float>(emulated_f16(a >> 16) * emulated_f16(b >> 16))) << 16;
}

#endif
