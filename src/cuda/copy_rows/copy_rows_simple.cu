/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_rows_simple.cu - rows copied within a device (cuda_copy_rows_args.h).
 *
 *     a block    one row after the other, gridDim.x apart
 *     a thread   every THREADS-th piece of the row: 16 bytes where types are equal and all is aligned, else one number
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_sync.cuh"

namespace
{

constexpr int THREADS = 128;
constexpr int64_t MAX_BLOCKS = 65536;

enum copy_kind { WIDE, BITS32, BITS16, CONVERT };

template <class WORD> __device__ void copy_words(const char *from, char *to, int64_t words, int64_t all)
{
#pragma unroll 2
    for (int64_t i = threadIdx.x; i < all; i += THREADS)
        reinterpret_cast<WORD *>(to)[i] = i < words ? reinterpret_cast<const WORD *>(from)[i] : WORD {};
}

__device__ float number(moxie_dtype dtype, const char *from, int64_t i)
{
    if (dtype == MOXIE_F32)
        return reinterpret_cast<const float *>(from)[i];
    const uint16_t code = reinterpret_cast<const uint16_t *>(from)[i];
    return dtype == MOXIE_F16 ? mox_f16_decode(code) : mox_bf16_decode(code);
}

__device__ void convert(const mox_cuda_copy_rows_args &args, const char *from, char *to, int64_t cols)
{
    for (int64_t i = threadIdx.x; i < args.to_cols; i += THREADS)
        mox_device_store(args.to_dtype, to, i, i < cols ? number(args.from_dtype, from, i) : 0.0f);
}

__global__ void __launch_bounds__(THREADS)
    copy_rows(const __grid_constant__ mox_cuda_copy_rows_args args, copy_kind kind)
{
    mox_grid_release();
    mox_grid_wait();
    for (int64_t i = blockIdx.x; i < args.rows; i += gridDim.x) {
        const int64_t source = args.row != nullptr ? args.row[i] : i, cols = source < 0 ? 0 : args.cols;
        const char *from = static_cast<const char *>(args.from) + source * args.from_stride;
        char *to = static_cast<char *>(args.to) + i * args.to_stride;
        const int64_t each = args.from_dtype == MOXIE_F32 ? 4 : 8;
        switch (kind) {
        case WIDE: copy_words<uint4>(from, to, cols / each, args.to_cols / each); break;
        case BITS32: copy_words<uint32_t>(from, to, cols, args.to_cols); break;
        case BITS16: copy_words<uint16_t>(from, to, cols, args.to_cols); break;
        default: convert(args, from, to, cols); break;
        }
    }
}

bool is_wide(const mox_cuda_copy_rows_args *args)
{
    const int64_t each = args->from_dtype == MOXIE_F32 ? 4 : 8;
    const uintptr_t all = reinterpret_cast<uintptr_t>(args->from) | reinterpret_cast<uintptr_t>(args->to) |
                          static_cast<uintptr_t>(args->from_stride) | static_cast<uintptr_t>(args->to_stride);
    return all % 16 == 0 && args->cols % each == 0 && args->to_cols % each == 0;
}

} // namespace

moxie_status mox_cuda_copy_rows_launch(const mox_cuda_copy_rows_args *args, mox_cuda_stream stream, moxie_error *error)
{
    if (args->rows == 0 || args->to_cols == 0)
        return MOXIE_OK;
    const dim3 grid(static_cast<unsigned>(args->rows < MAX_BLOCKS ? args->rows : MAX_BLOCKS));
    const copy_kind kind = args->from_dtype != args->to_dtype ? CONVERT
                           : is_wide(args)                    ? WIDE
                           : args->from_dtype == MOXIE_F32    ? BITS32
                                                              : BITS16;
    return mox_cuda_status(mox_device_launch_dependent(copy_rows, grid, THREADS, 0, stream, *args, kind), "copy_rows",
                           error);
}
