/* SPDX-License-Identifier: Apache-2.0
 *
 * limits_probes.cu - the probes that run on more than one generation, and the launchers of all (cuda_limits.def). Code
 * for a generation without the instruction does nothing, and leaves args.done as it was.
 *
 *     read_loads   two blocks per multiprocessor, 512 threads each, each thread with 8 loads of 16 bytes in flight
 *     read_bulk    one block, whose first thread keeps a ring of 12 bulk copies into shared memory full
 *     *_mma        8 warps with 8 accumulator tiles each, operands in registers
 */
#include "cuda/device/device_error.h"
#include "cuda/limits/limits_sm90.h"
#include "cuda/ptx/ptx_copy.cuh"
#include "cuda/ptx/ptx_mma.cuh"

namespace
{

constexpr int LOAD_THREADS = 512, LOADS = 8; /* together MOX_CUDA_LIMIT_PIECE bytes */
constexpr int BULK_THREADS = 32, STAGE_BYTES = 16384, STAGES = 12;
constexpr int MMA_THREADS = 256, SUMS = 8, MMA_STEPS = 16;
constexpr uint32_t NEVER = 0x9e3779b9u; /* an unlikely sum, whose test keeps the compiler from dropping the loads */
static_assert(LOAD_THREADS * LOADS * 16 == MOX_CUDA_LIMIT_PIECE, "a block reads one piece at a time");

__global__ void __launch_bounds__(LOAD_THREADS) read_loads(const __grid_constant__ mox_cuda_limits_args args)
{
    const uint4 *data = (const uint4 *)args.data;
    const int64_t count = args.bytes / 16, piece = MOX_CUDA_LIMIT_PIECE / 16;
    uint32_t seen = 0;
    for (int64_t round = 0; round < args.rounds; round++)
        for (int64_t at = blockIdx.x * piece + threadIdx.x; at < count; at += gridDim.x * piece) {
            uint4 v[LOADS];
#pragma unroll
            for (int i = 0; i < LOADS; i++)
                v[i] = __ldcs(data + at + i * LOAD_THREADS);
#pragma unroll
            for (int i = 0; i < LOADS; i++)
                seen ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
        }
    if ((blockIdx.x == 0 && threadIdx.x == 0) || seen == NEVER)
        *args.done = args.rounds;
}

__global__ void __launch_bounds__(BULK_THREADS) read_bulk(const __grid_constant__ mox_cuda_limits_args args)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ uint64_t arrived[STAGES];
    const uint8_t *data = (const uint8_t *)args.data;
    const int64_t first = (int64_t)blockIdx.x * STAGE_BYTES, step = (int64_t)gridDim.x * STAGE_BYTES;
    const int64_t pieces = args.bytes / step * args.rounds;
    uint32_t seen = 0, parity = 1; /* of the copy that was in the stage before */
    int64_t at = first;
    int stage = 0;
    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < STAGES; i++)
        mox_mbarrier_init(&arrived[i], 1);
    mox_mbarrier_init_fence();
    for (int64_t i = 0; i < pieces + STAGES; i++) {
        uint8_t *place = shared + stage * STAGE_BYTES;
        if (i >= STAGES) {
            mox_mbarrier_wait(&arrived[stage], parity);
            seen ^= *(volatile uint32_t *)place;
        }
        if (i < pieces) {
            mox_mbarrier_arrive_expect(&arrived[stage], STAGE_BYTES);
            mox_bulk_copy(place, data + at, STAGE_BYTES, &arrived[stage]);
        }
        at = at + step < args.bytes ? at + step : first;
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        parity ^= stage == 0;
    }
    if (blockIdx.x == 0 || seen == NEVER)
        *args.done = args.rounds;
#endif
}

template <bool E4M3> __device__ __forceinline__ void multiply_all(const mox_cuda_limits_args &args)
{
#if __CUDA_ARCH__ >= 890
    constexpr bool runs = true;
#else
    constexpr bool runs = !E4M3;
#endif
    if constexpr (runs) {
        const uint32_t *data = (const uint32_t *)args.data + threadIdx.x;
        uint32_t a[4], b[SUMS][2];
        float d[SUMS][4] = {}, all = 0;
        for (int i = 0; i < 4; i++)
            a[i] = data[i * MMA_THREADS];
        for (int i = 0; i < SUMS; i++)
            for (int k = 0; k < 2; k++)
                b[i][k] = data[(4 + 2 * i + k) * MMA_THREADS];
        for (int64_t round = 0; round < args.rounds; round++)
#pragma unroll
            for (int step = 0; step < MMA_STEPS; step++)
#pragma unroll
                for (int i = 0; i < SUMS; i++) {
                    if constexpr (E4M3)
                        mox_mma_e4m3(d[i], a, b[i]);
                    else
                        mox_mma_bf16(d[i], a, b[i]);
                }
        for (int i = 0; i < SUMS; i++)
            all += d[i][0] + d[i][1] + d[i][2] + d[i][3];
        if ((blockIdx.x == 0 && threadIdx.x == 0) || all == 1e-30f)
            *args.done = args.rounds;
    }
}

__global__ void __launch_bounds__(MMA_THREADS) multiply(const __grid_constant__ mox_cuda_limits_args args, bool e4m3)
{
    if (e4m3)
        multiply_all<true>(args);
    else
        multiply_all<false>(args);
}

} // namespace

moxie_status mox_cuda_limits_read_loads_launch(const mox_cuda_limits_args *args, mox_cuda_stream stream,
                                               moxie_error *error)
{
    read_loads<<<2 * args->multiprocessors, LOAD_THREADS, 0, (cudaStream_t)stream>>>(*args);
    return mox_cuda_launched("probe read_loads", error);
}

moxie_status mox_cuda_limits_read_bulk_launch(const mox_cuda_limits_args *args, mox_cuda_stream stream,
                                              moxie_error *error)
{
    const int shared = STAGES * STAGE_BYTES;
    MOX_TRY(mox_cuda_status(cudaFuncSetAttribute(read_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                            "probe read_bulk", error));
    read_bulk<<<args->multiprocessors, BULK_THREADS, shared, (cudaStream_t)stream>>>(*args);
    return mox_cuda_launched("probe read_bulk", error);
}

moxie_status mox_cuda_limits_bf16_mma_launch(const mox_cuda_limits_args *args, mox_cuda_stream stream,
                                             moxie_error *error)
{
    multiply<<<args->multiprocessors, MMA_THREADS, 0, (cudaStream_t)stream>>>(*args, false);
    return mox_cuda_launched("probe bf16_mma", error);
}

moxie_status mox_cuda_limits_e4m3_mma_launch(const mox_cuda_limits_args *args, mox_cuda_stream stream,
                                             moxie_error *error)
{
    multiply<<<args->multiprocessors, MMA_THREADS, 0, (cudaStream_t)stream>>>(*args, true);
    return mox_cuda_launched("probe e4m3_mma", error);
}

moxie_status mox_cuda_limits_bf16_wgmma_launch(const mox_cuda_limits_args *args, mox_cuda_stream stream,
                                               moxie_error *error)
{
    return mox_cuda_status((cudaError_t)mox_limits_launch_wgmma(false, args, stream), "probe bf16_wgmma", error);
}

moxie_status mox_cuda_limits_e4m3_wgmma_launch(const mox_cuda_limits_args *args, mox_cuda_stream stream,
                                               moxie_error *error)
{
    return mox_cuda_status((cudaError_t)mox_limits_launch_wgmma(true, args, stream), "probe e4m3_wgmma", error);
}
