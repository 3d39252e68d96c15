/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_simple.cu - the activation between the two products, one thread per number, with the bits of cpu/glu.
 *
 *     out[p, i] = act(h[p, i], h[p, I + i])        block (p, c), thread t: i = c * THREADS + t
 *
 * The grid has blocks for max_pairs rows. Only the device knows how many there are; blocks after the last row return.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"
#include "cuda/device/device_slots.cuh"
#include "cuda/glu/glu_one_lane.cuh"
#include "cuda/ptx/ptx_sync.cuh"

enum { THREADS = 256 };

static __global__ void glu_kernel(const __grid_constant__ mox_glu_args args)
{
    const int64_t p = blockIdx.x, n = args.intermediate, i = static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x;
    mox_grid_release();
    mox_grid_wait();
    if (p >= args.offsets[args.slots] || i >= n)
        return;
    const bool gated = mox_activation_is_gated(args.activation.kind);
    const int64_t expert =
        args.expert_of != nullptr ? args.expert_of[mox_device_slot_of(args.offsets, args.slots, p)] : -1;
    const mox_glu_parameters parameters = mox_glu_resolve(&args.activation, expert);
    const float *row = args.h + p * (gated ? 2 * n : n);
    args.out[p * n + i] = mox_device_activate(args.activation.kind, parameters, row[i], gated ? row[n + i] : 0.0f);
}

moxie_status mox_cuda_glu_simple_launch(const mox_glu_args *args, mox_cuda_stream stream, moxie_error *error)
{
    const dim3 grid(static_cast<unsigned>(args->max_pairs),
                    static_cast<unsigned>((args->intermediate + THREADS - 1) / THREADS));
    if (args->max_pairs == 0)
        return MOXIE_OK;
    return mox_cuda_status(mox_device_launch_dependent(glu_kernel, grid, THREADS, 0, stream, *args), "glu simple",
                           error);
}
