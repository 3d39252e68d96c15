/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_copy.cuh - copies from global into shared memory that do not pass through registers, one function per
 * instruction. PTX ISA, "cp.async.bulk" (sm_90).
 *
 * One thread copies any multiple of 16 bytes of contiguous memory; what has arrived is signalled to an mbarrier, by
 * bytes.
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

/* The same into the same place of every block of the cluster whose bit is set in `ranks`, each block's own barrier
 * told. */
__device__ __forceinline__ void mox_bulk_copy_multicast(void *shared, const void *global, uint32_t bytes,
                                                        uint64_t *barrier, uint16_t ranks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(mox_shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(mox_shared_address(barrier)), "h"(ranks)
                 : "memory");
}

/* For what is read once: L2 gives up its lines before all others. */
__device__ __forceinline__ uint64_t mox_policy_read_once()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* mox_bulk_copy() by a policy. */
__device__ __forceinline__ void mox_bulk_copy_hint(void *shared, const void *global, uint32_t bytes, uint64_t *barrier,
                                                   uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(mox_shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(mox_shared_address(barrier)), "l"(policy)
                 : "memory");
}

/* Asks for `bytes` (a multiple of 16) to be in L2 soon. */
__device__ __forceinline__ void mox_bulk_prefetch_hint(const void *global, uint32_t bytes, uint64_t policy)
{
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(global), "r"(bytes), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void mox_bulk_prefetch(const void *global, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

/* Four bytes, for this thread, which waits for all of its own. "cp.async". */
__device__ __forceinline__ void mox_async_copy_word(void *shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(mox_shared_address(shared)), "l"(global) : "memory");
}

__device__ __forceinline__ void mox_async_copy_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif
