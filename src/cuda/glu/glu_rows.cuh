/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_rows.cuh - the activation between the two products, one thread per number:
 *
 *     out[p, i] = act(h[p, i], h[p, I + i])        block (p, c), thread t: i = c * THREADS + t
 *
 * The grid has blocks for max_pairs rows. Only the device knows how many there are; blocks after the last row return.
 *
 * Parameter ACTIVATE: float (int32_t kind, const mox_glu_parameters &, float gate, float up).
 */
#ifndef MOX_CUDA_GLU_GLU_ROWS_CUH
#define MOX_CUDA_GLU_GLU_ROWS_CUH

#include "cuda/device/device_launch.cuh"
#include "cuda/device/device_slots.cuh"
#include "cuda/glu/glu_one_lane.cuh"
#include "cuda/ptx/ptx_sync.cuh"

enum { MOX_GLU_THREADS = 256 };

template <auto ACTIVATE> static __global__ void mox_glu_rows(const __grid_constant__ mox_glu_args args)
{
    const int64_t p = blockIdx.x, n = args.intermediate,
                  i = static_cast<int64_t>(blockIdx.y) * MOX_GLU_THREADS + threadIdx.x;
    mox_grid_release();
    mox_grid_wait();
    if (p >= args.offsets[args.slots] || i >= n)
        return;
    const bool gated = mox_activation_is_gated(args.activation.kind);
    const int64_t expert =
        args.expert_of != nullptr ? args.expert_of[mox_device_slot_of(args.offsets, args.slots, p)] : -1;
    const mox_glu_parameters parameters = mox_glu_resolve(&args.activation, expert);
    const float *row = args.h + p * (gated ? 2 * n : n);
    args.out[p * n + i] = ACTIVATE(args.activation.kind, parameters, row[i], gated ? row[n + i] : 0.0f);
}

template <auto ACTIVATE> static inline cudaError_t mox_glu_launch(const mox_glu_args *args, void *stream)
{
    const dim3 grid(static_cast<unsigned>(args->max_pairs),
                    static_cast<unsigned>((args->intermediate + MOX_GLU_THREADS - 1) / MOX_GLU_THREADS));
    if (args->max_pairs == 0)
        return cudaSuccess;
    return mox_device_launch_dependent(mox_glu_rows<ACTIVATE>, grid, MOX_GLU_THREADS, 0, stream, *args);
}

#endif
