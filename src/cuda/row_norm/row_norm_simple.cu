/* SPDX-License-Identifier: Apache-2.0
 *
 * row_norm_simple.cu - the root mean square norm of every row, with the bits of cpu/row_norm.
 *
 * A block has one row. Sixteen lanes (half a warp) sum the squares of one segment in the order of dense_simple.cu, and
 * leave the sum in shared memory. Then every thread adds the segments' sums in order and scales its own columns.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"
#include "cuda/device/device_launch.cuh"
#include "cuda/ptx/ptx_sync.cuh"

namespace
{

enum { LANES = 16, THREADS = 256, GROUPS = THREADS / LANES, SEGMENT = 512 };

__device__ float input(const mox_row_norm_args &args, int64_t row, int64_t k)
{
    const float x = mox_device_load(args.x_dtype, args.x, row * args.cols + k);
    return args.weight_first && args.weight != nullptr ? x * args.weight[k] : x;
}

/* The sum of a segment's squares, in the half-warp's first lane. */
__device__ float segment_squares(const mox_row_norm_args &args, int64_t row, int64_t first, int lane)
{
    const int64_t end = first + SEGMENT < args.cols ? first + SEGMENT : args.cols;
    float sum = 0.0f;
    for (int64_t k = first + lane; k < end; k += LANES) {
        const float u = input(args, row, k);
        sum = sum + u * u;
    }
    for (int width = LANES / 2; width > 0; width /= 2)
        sum = sum + __shfl_down_sync(0xffffffffu, sum, width, LANES);
    return sum;
}

__device__ float row_squares(const mox_row_norm_args &args, int64_t row, float *parts)
{
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    float total = 0.0f;
    for (int64_t first = 0; first < args.cols; first += GROUPS * SEGMENT) {
        const float own = segment_squares(args, row, first + group * SEGMENT, lane);
        if (lane == 0)
            parts[group] = own;
        __syncthreads();
        for (int g = 0; g < GROUPS && first + g * SEGMENT < args.cols; g++)
            total = total + parts[g];
        __syncthreads();
    }
    return total;
}

__global__ void __launch_bounds__(THREADS) row_norm_kernel(const __grid_constant__ mox_row_norm_args args)
{
    __shared__ float parts[GROUPS];
    const int64_t row = blockIdx.x;
    mox_grid_release();
    mox_grid_wait();
    if (args.rows != nullptr && row >= *args.rows)
        return;
    const float scale = 1.0f / sqrtf(row_squares(args, row, parts) / static_cast<float>(args.cols) + args.eps);
    for (int64_t k = threadIdx.x; k < args.cols; k += THREADS) {
        float v = input(args, row, k) * scale;
        if (!args.weight_first && args.weight != nullptr)
            v = v * args.weight[k];
        args.out[row * args.cols + k] = v * args.factor;
    }
}

} // namespace

moxie_status mox_cuda_row_norm_simple_launch(const mox_row_norm_args *args, mox_cuda_stream stream, moxie_error *error)
{
    if (args->max_rows == 0)
        return MOXIE_OK;
    const dim3 grid(static_cast<unsigned>(args->max_rows));
    return mox_cuda_status(mox_device_launch_dependent(row_norm_kernel, grid, THREADS, 0, stream, *args),
                           "row_norm simple", error);
}
