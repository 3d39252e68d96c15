/* SPDX-License-Identifier: Apache-2.0
 *
 * dense_simple.cu - router and shared gate, with the bits of cpu/dense.
 *
 *     out[t, n] = f(sum over segments of sum over the segment of weight[n, k] x[t, k]  + bias[n])
 *
 * Sixteen lanes (half a warp) compute one output: lane l sums columns l, l + 16, ... of a segment from zero. Then the
 * upper half of the lanes is added to the lower half until one is left, and segments are added in order. A half-warp
 * has ROWS weight rows times TOKENS tokens, so each loaded number is used several times.
 */
#include "base/shared_math.h"
#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"

enum { LANES = 16, THREADS = 256, ROWS = 4, TOKENS = 2, SEGMENT = 512 };

static __device__ float fold(float sum)
{
    for (int width = LANES / 2; width > 0; width /= 2)
        sum = sum + __shfl_down_sync(0xffffffffu, sum, width, LANES);
    return sum;
}

static __global__ void dense_kernel(mox_dense_args args)
{
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int64_t n0 = (static_cast<int64_t>(blockIdx.y) * (THREADS / LANES) + group) * ROWS;
    const int64_t t0 = static_cast<int64_t>(blockIdx.x) * TOKENS;
    float total[TOKENS][ROWS] = {};
    for (int64_t first = 0; first < args.cols; first += SEGMENT) {
        const int64_t end = first + SEGMENT < args.cols ? first + SEGMENT : args.cols;
        float part[TOKENS][ROWS] = {};
        for (int64_t k = first + lane; k < end; k += LANES) {
            float w[ROWS], x[TOKENS];
            for (int r = 0; r < ROWS; r++)
                w[r] = n0 + r < args.rows ? args.weight[(n0 + r) * args.cols + k] : 0.0f;
            for (int t = 0; t < TOKENS; t++)
                x[t] = t0 + t < args.tokens ? mox_device_load(args.x_dtype, args.x, (t0 + t) * args.cols + k) : 0.0f;
            for (int t = 0; t < TOKENS; t++)
                for (int r = 0; r < ROWS; r++)
                    part[t][r] = part[t][r] + w[r] * x[t];
        }
        for (int t = 0; t < TOKENS; t++)
            for (int r = 0; r < ROWS; r++)
                total[t][r] = total[t][r] + fold(part[t][r]);
    }
    for (int t = 0; t < TOKENS; t++)
        for (int r = 0; r < ROWS; r++)
            if (lane == 0 && t0 + t < args.tokens && n0 + r < args.rows) {
                const float v = args.bias != nullptr ? total[t][r] + args.bias[n0 + r] : total[t][r];
                args.out[(t0 + t) * args.rows + n0 + r] = args.logistic ? 1.0f / (1.0f + mox_exp(-v)) : v;
            }
}

moxie_status mox_cuda_dense_simple_launch(const mox_dense_args *args, mox_cuda_stream stream, moxie_error *error)
{
    if (args->tokens == 0)
        return MOXIE_OK;
    const int64_t rows = THREADS / LANES * ROWS;
    const dim3 grid(static_cast<unsigned>((args->tokens + TOKENS - 1) / TOKENS),
                    static_cast<unsigned>((args->rows + rows - 1) / rows));
    dense_kernel<<<grid, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return mox_cuda_launched("dense simple", error);
}
