/* SPDX-License-Identifier: Apache-2.0
 *
 * combine_simple.cu - the weighted sum over a token's experts, one thread a number, in slot order: to the bit what
 * cpu/combine does (product and sum rounded apart, the total once).
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"

enum { THREADS = 256 };

static __device__ int64_t row_of(const mox_cuda_combine_args &args, int64_t choice)
{
    if (args.position != nullptr)
        return args.position[choice];
    const int32_t id = args.ids[choice];
    return id >= 0 && id < args.experts ? choice : -1;
}

static __global__ void combine_kernel(mox_cuda_combine_args args)
{
    const int64_t token = blockIdx.x, column = static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x;
    if (column >= args.hidden)
        return;
    float sum = 0;
    for (int64_t j = 0; j < args.top_k; j++) {
        const int64_t choice = token * args.top_k + j, row = row_of(args, choice);
        if (row >= 0)
            sum = sum + (args.weights != nullptr ? args.weights[choice] : 1.0f) * args.y[row * args.hidden + column];
    }
    if (args.shared != nullptr)
        sum = sum + (args.shared_weight != nullptr ? args.shared_weight[token] : 1.0f) *
                        args.shared[token * args.hidden + column];
    mox_device_store(args.out_dtype, args.out, token * args.hidden + column, sum);
}

moxie_status mox_cuda_combine_simple_launch(const mox_cuda_combine_args *args, mox_cuda_stream stream,
                                            moxie_error *error)
{
    if (args->tokens == 0)
        return MOXIE_OK;
    const dim3 grid(static_cast<unsigned>(args->tokens), static_cast<unsigned>((args->hidden + THREADS - 1) / THREADS));
    combine_kernel<<<grid, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return mox_cuda_launched("combine simple", error);
}
