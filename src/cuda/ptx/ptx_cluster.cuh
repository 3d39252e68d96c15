/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_cluster.cuh - access to the shared memory of other blocks of a cluster (sm_90), one instruction a function. PTX
 * ISA, "mapa", "red.shared::cluster", "mbarrier.arrive", "barrier.cluster".
 *
 * The address of a place in another block is the address of the same place in this block, mapped to the other's rank.
 * It is valid until that block ends: so blocks that are written to wait for each other before they end.
 */
#ifndef MOX_CUDA_PTX_CLUSTER_CUH
#define MOX_CUDA_PTX_CLUSTER_CUH

#include "cuda/ptx/ptx_barrier.cuh"

/* The address of `shared` in block `rank` of the cluster. */
__device__ __forceinline__ uint32_t mox_cluster_address(const void *shared, uint32_t rank)
{
    uint32_t at;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(mox_shared_address(shared)), "r"(rank));
    return at;
}

/* The maximum of a word and `value` replaces the word: here in this block, below in any; others may do so at the same
 * time. */
__device__ __forceinline__ void mox_shared_max(uint32_t *shared, uint32_t value)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.cluster.shared::cta.max.u32 [%0], %1;" ::"r"(mox_shared_address(shared)), "r"(value)
                 : "memory");
#else /* there are no clusters */
    asm volatile("red.relaxed.cta.shared.max.u32 [%0], %1;" ::"r"(mox_shared_address(shared)), "r"(value) : "memory");
#endif
}

__device__ __forceinline__ void mox_cluster_max(uint32_t at, uint32_t value)
{
    asm volatile("red.relaxed.cluster.shared::cluster.max.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}

/* Arrives at a barrier of any block of the cluster; orders no writes. */
__device__ __forceinline__ void mox_cluster_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* The same; what this thread wrote or observed before is visible to the barrier's waiters. It takes a cluster fence. */
__device__ __forceinline__ void mox_cluster_arrive_release(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* mox_mbarrier_wait() for data that other blocks wrote. */
__device__ __forceinline__ void mox_cluster_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n\t"
                 ".reg .pred done;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t"
                 "}" ::"r"(mox_shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* All threads of all blocks of the cluster wait for each other. */
__device__ __forceinline__ void mox_cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;\n\t"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

#endif
