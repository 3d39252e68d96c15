/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_cluster.cuh - what the blocks of a cluster (sm_90) do to each other's shared memory, one function per
 * instruction. PTX ISA, "mapa", "red.shared::cluster", "mbarrier.arrive", "barrier.cluster".
 *
 * An address of another block is that of the same place in this one, mapped to its rank. It stays good until that block
 * ends, so blocks that are written to wait for each other before they end.
 */
#ifndef MOX_CUDA_PTX_CLUSTER_CUH
#define MOX_CUDA_PTX_CLUSTER_CUH

#include "cuda/ptx/ptx_barrier.cuh"

/* The place of `shared` in block `rank` of the cluster. */
__device__ __forceinline__ uint32_t mox_cluster_address(const void *shared, uint32_t rank)
{
    uint32_t at;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(mox_shared_address(shared)), "r"(rank));
    return at;
}

/* The greater of a word and `value` takes its place. Of this block, with which others of the cluster do the same: */
__device__ __forceinline__ void mox_shared_max(uint32_t *shared, uint32_t value)
{
    asm volatile("red.relaxed.cluster.shared::cta.max.u32 [%0], %1;" ::"r"(mox_shared_address(shared)), "r"(value)
                 : "memory");
}

__device__ __forceinline__ void mox_cluster_max(uint32_t at, uint32_t value)
{
    asm volatile("red.relaxed.cluster.shared::cluster.max.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}

/* Arrives at a barrier of any block of the cluster, when there is nothing written that its waiters are to see. */
__device__ __forceinline__ void mox_cluster_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* The same, and what this thread wrote, or has seen, before is seen behind it, which takes a fence of the cluster. */
__device__ __forceinline__ void mox_cluster_arrive_release(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* mox_mbarrier_wait() for what other blocks wrote. */
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

/* All threads of all blocks of the cluster meet. */
__device__ __forceinline__ void mox_cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;\n\t"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

#endif
