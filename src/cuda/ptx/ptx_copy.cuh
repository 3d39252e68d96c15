/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_copy.cuh - copies from global to shared memory that do not pass through registers, one instruction a function.
 * PTX ISA, "cp.async.bulk" (sm_90).
 *
 * One thread copies any multiple of 16 bytes of contiguous memory. An mbarrier counts the bytes that have arrived.
 */
#ifndef MOX_CUDA_PTX_COPY_CUH
#define MOX_CUDA_PTX_COPY_CUH

#include "cuda/ptx/ptx_barrier.cuh"

/* `bytes` and both addresses are multiples of 16; `barrier` has been told to expect the bytes. */
__device__ __forceinline__ void mox_bulk_copy(void *shared, const void *global, uint32_t bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     mox_shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(mox_shared_address(barrier))
                 : "memory");
}

/* Multicast: the same, to the same place of every block of the cluster whose bit is set in `ranks`; each block's own
 * barrier counts. */
__device__ __forceinline__ void mox_bulk_copy_multicast(void *shared, const void *global, uint32_t bytes,
                                                        uint64_t *barrier, uint16_t ranks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(mox_shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(mox_shared_address(barrier)), "h"(ranks)
                 : "memory");
}

/* L2 policy for data that is read once: L2 evicts it first. */
__device__ __forceinline__ uint64_t mox_policy_read_once()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* mox_bulk_copy() with an L2 policy. */
__device__ __forceinline__ void mox_bulk_copy_hint(void *shared, const void *global, uint32_t bytes, uint64_t *barrier,
                                                   uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(mox_shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(mox_shared_address(barrier)), "l"(policy)
                 : "memory");
}

/* Prefetches `bytes` (a multiple of 16) to L2. */
__device__ __forceinline__ void mox_bulk_prefetch_hint(const void *global, uint32_t bytes, uint64_t policy)
{
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(global), "r"(bytes), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void mox_bulk_prefetch(const void *global, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

/* Copies 16 bytes past L1, both addresses multiples of 16. Copies of a thread belong to its next group; a thread waits
 * until at most so many of its groups are in flight. sm_80. PTX ISA, "cp.async". */
__device__ __forceinline__ void mox_async_copy_16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(mox_shared_address(shared)), "l"(global) : "memory");
}

__device__ __forceinline__ void mox_async_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int GROUPS> __device__ __forceinline__ void mox_async_copy_wait_groups()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

/* Copies four bytes; mox_async_copy_wait() waits for all copies of this thread. PTX ISA, "cp.async". */
__device__ __forceinline__ void mox_async_copy_word(void *shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(mox_shared_address(shared)), "l"(global) : "memory");
}

__device__ __forceinline__ void mox_async_copy_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif
