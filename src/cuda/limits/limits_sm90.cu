/* SPDX-License-Identifier: Apache-2.0
 *
 * limits_sm90.cu - how fast a Hopper multiprocessor multiplies: two warpgroups, each with 64 x 256 accumulators. Both
 * operands stay in shared memory.
 *
 *     shared:   | A of group 0: 64 rows x 128 bytes | A of group 1 | B: 256 rows x 128 bytes |
 *     a round   four MMAs per warpgroup, 32 bytes deep: 2 x 4 x (2 x 64 x 256 x 16) operations of bf16, or twice that
 *               of e4m3
 */
#include "cuda/limits/limits_sm90.h"
#include "cuda/ptx/ptx_barrier.cuh"
#include "cuda/ptx/ptx_sync.cuh"
#include "cuda/ptx/ptx_wgmma.cuh"

namespace
{

constexpr int THREADS = 256, GROUP_BYTES = 64 * 128;

template <bool E4M3>
__global__ void __launch_bounds__(THREADS, 1) multiply(const __grid_constant__ mox_cuda_limits_args args)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t at = mox_shared_address(shared);
    for (int i = threadIdx.x * 16; i < MOX_CUDA_LIMIT_OPERANDS; i += THREADS * 16)
        *(uint4 *)(shared + i) = *(const uint4 *)((const uint8_t *)args.data + i);
    mox_fence_async_proxy();
    __syncthreads();
    const uint32_t a = mox_wgmma_descriptor_low(at + threadIdx.x / 128 * GROUP_BYTES);
    const uint32_t b = mox_wgmma_descriptor_low(at + 2 * GROUP_BYTES);
    float d[128];
#pragma unroll
    for (int i = 0; i < 128; i++)
        d[i] = 0.0f;
    for (int64_t round = 0; round < args.rounds; round++) {
        mox_wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if constexpr (E4M3)
                mox_wgmma_e4m3<256>(d, mox_wgmma_descriptor(a + 2 * k), mox_wgmma_descriptor(b + 2 * k), 1);
            else
                mox_wgmma_bf16<256>(d, mox_wgmma_descriptor(a + 2 * k), mox_wgmma_descriptor(b + 2 * k), 1);
        }
        mox_wgmma_commit();
        mox_wgmma_wait<1>();
    }
    mox_wgmma_wait<0>();
    float all = 0;
#pragma unroll
    for (int i = 0; i < 128; i++)
        all += d[i];
    if ((blockIdx.x == 0 && threadIdx.x == 0) || all == 1e-30f) /* so the compiler cannot drop a sum */
        *args.done = args.rounds;
}

} // namespace

int mox_limits_launch_wgmma(bool e4m3, const mox_cuda_limits_args *args, void *stream)
{
    const auto kernel = e4m3 ? multiply<true> : multiply<false>;
    kernel<<<args->multiprocessors, THREADS, MOX_CUDA_LIMIT_OPERANDS, (cudaStream_t)stream>>>(*args);
    return cudaGetLastError();
}
