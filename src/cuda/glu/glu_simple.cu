/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_simple.cu - the activation between the two products, one thread per number, with the bits of cpu/glu.
 *
 *     out[p, i] = act(h[p, i], h[p, I + i])        block (p, c), thread t: i = c * THREADS + t
 *
 * The grid has blocks for max_pairs rows. Only the device knows how many there are; blocks after the last row return.
 */
#include "cuda/device/device_error.h"
#include "cuda/glu/glu_one_lane.cuh"

enum { THREADS = 256 };

/* The slot that owns row p: the last s with offsets[s] <= p. */
static __device__ int64_t slot_of(const mox_glu_args &args, int64_t p)
{
    int64_t low = 0, high = args.slots;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (args.offsets[middle] <= p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static __global__ void glu_kernel(mox_glu_args args)
{
    const int64_t p = blockIdx.x, n = args.intermediate, i = static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x;
    if (p >= args.offsets[args.slots] || i >= n)
        return;
    const bool gated = mox_activation_is_gated(args.activation.kind);
    const int64_t expert = args.expert_of != nullptr ? args.expert_of[slot_of(args, p)] : -1;
    const mox_glu_parameters parameters = mox_glu_resolve(&args.activation, expert);
    const float *row = args.h + p * (gated ? 2 * n : n);
    args.out[p * n + i] = mox_device_activate(args.activation.kind, parameters, row[i], gated ? row[n + i] : 0.0f);
}

moxie_status mox_cuda_glu_simple_launch(const mox_glu_args *args, mox_cuda_stream stream, moxie_error *error)
{
    if (args->max_pairs == 0)
        return MOXIE_OK;
    const dim3 grid(static_cast<unsigned>(args->max_pairs),
                    static_cast<unsigned>((args->intermediate + THREADS - 1) / THREADS));
    glu_kernel<<<grid, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(*args);
    return mox_cuda_launched("glu simple", error);
}
