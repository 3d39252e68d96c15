/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_copy.cuh - copies from global into shared memory that do not pass through registers, one function per instruction.
 * PTX ISA, "cp.async" (sm_80) and "cp.async.bulk" (sm_90).
 *
 *     bulk      one thread, any multiple of 16 bytes of contiguous memory; signals an mbarrier by bytes
 *     cp.async  every thread 16 or 4 bytes, completes in groups that the issuing thread waits for
 *
 * What cp.async wrote was written by the generic proxy: a thread that waited for it passes mox_fence_async_proxy()
 * (ptx_sync.cuh) before its wgmma reads it.
 */
#ifndef MOX_CUDA_PTX_COPY_CUH
#define MOX_CUDA_PTX_COPY_CUH

#include "cuda/ptx/ptx_barrier.cuh"

/* `bytes`, a multiple of 16, between addresses that are multiples of 16; `barrier` has been told to expect them. */
__device__ __forceinline__ void mox_bulk_copy(void *shared, const void *global, uint32_t bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     mox_shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(mox_shared_address(barrier))
                 : "memory");
}

/* Asks for `bytes` (a multiple of 16) to be in L2 soon. */
__device__ __forceinline__ void mox_bulk_prefetch(const void *global, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

/* 16 bytes, of which the first `valid` (0 to 16) are read and the rest is zero. Past L1: rows are read once. */
__device__ __forceinline__ void mox_copy16(uint32_t shared, const void *global, uint32_t valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid) : "memory");
}

/* 4 bytes, read when `valid` is 4 and zero when it is 0. Through L1: neighbours are read soon. */
__device__ __forceinline__ void mox_copy4(uint32_t shared, const void *global, uint32_t valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(valid) : "memory");
}

/* Arrives at `barrier` when all of this thread's copies so far have. One of the arrivals that it was set up for. */
__device__ __forceinline__ void mox_copy_arrive(uint64_t *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(mox_shared_address(barrier)) : "memory");
}

/* Ends this thread's group of copies. */
__device__ __forceinline__ void mox_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Returns when all of this thread's groups but the `PENDING` latest have arrived. */
template <int PENDING> __device__ __forceinline__ void mox_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#endif
