/* SPDX-License-Identifier: Apache-2.0
 *
 * device_format.cuh - number formats in kernels: the host's headers, chosen by dtype through formats.def. All threads
 * of a warp take the same branch of these switches, and for a constant dtype the compiler removes them.
 */
#ifndef MOX_CUDA_DEVICE_DEVICE_FORMAT_CUH
#define MOX_CUDA_DEVICE_DEVICE_FORMAT_CUH

#include <math.h>
#include <stdint.h>

#include <moxie/moxie.h>

#define MOX_FORMAT(...)
#include "format/formats.def"
#undef MOX_FORMAT

/* The value of a code; NaN when `dtype` is no number format. */
static __device__ inline float mox_device_decode(moxie_dtype dtype, uint32_t code)
{
    switch (dtype) {
#define MOX_FORMAT(id, number, ...)                                                                                    \
    case number:                                                                                                       \
        return mox_##id##_decode(code);
#include "format/formats.def"
#undef MOX_FORMAT
    default: return mox_f32_decode(MOX_F32_NAN);
    }
}

/* The code nearest to a number, which must be within the format's range. */
static __device__ inline uint32_t mox_device_encode(moxie_dtype dtype, float value)
{
    switch (dtype) {
#define MOX_FORMAT(id, number, ...)                                                                                    \
    case number:                                                                                                       \
        return mox_##id##_encode(value);
#include "format/formats.def"
#undef MOX_FORMAT
    default: return 0;
    }
}

static __device__ inline float mox_device_largest(moxie_dtype dtype)
{
    switch (dtype) {
#define MOX_FORMAT(id, number, name, bits, kind, max, ...)                                                             \
    case number:                                                                                                       \
        return max;
#include "format/formats.def"
#undef MOX_FORMAT
    default: return 0.0f;
    }
}

/* Element i of an aligned array of a format of 8, 16 or 32 bits. */
static __device__ inline float mox_device_load(moxie_dtype dtype, const void *array, int64_t i)
{
    switch (dtype) {
    case MOXIE_F32: return static_cast<const float *>(array)[i];
    case MOXIE_F16: return mox_f16_decode(static_cast<const uint16_t *>(array)[i]);
    case MOXIE_BF16: return mox_bf16_decode(static_cast<const uint16_t *>(array)[i]);
    default: return mox_device_decode(dtype, static_cast<const uint8_t *>(array)[i]);
    }
}

/* Rounding of results (format.h) to F32, F16 or BF16: NaN becomes the type's canonical NaN. */
static __device__ inline float mox_device_round_to(moxie_dtype dtype, float value)
{
    if (dtype == MOXIE_F16)
        return mox_f16_decode(mox_f16_narrow(value));
    if (dtype == MOXIE_BF16)
        return mox_bf16_decode(mox_bf16_narrow(value));
    return isnan(value) ? mox_f32_decode(MOX_F32_NAN) : value;
}

static __device__ inline void mox_device_store(moxie_dtype dtype, void *array, int64_t i, float value)
{
    if (dtype == MOXIE_F16)
        static_cast<uint16_t *>(array)[i] = static_cast<uint16_t>(mox_f16_narrow(value));
    else if (dtype == MOXIE_BF16)
        static_cast<uint16_t *>(array)[i] = static_cast<uint16_t>(mox_bf16_narrow(value));
    else
        static_cast<float *>(array)[i] = mox_device_round_to(MOXIE_F32, value);
}

#endif
