/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_barrier.cuh - barriers in shared memory (mbarrier) and barriers of a part of a block (bar.sync), one instruction
 * a function. PTX ISA, "mbarrier" and "bar".
 *
 * An mbarrier counts arrivals and bytes. When both counts of a phase are complete, its phase bit flips. A waiter names
 * the parity of the phase that it waits for: 0 the first time, then 1, 0, ... A wait for parity 1 on a fresh barrier
 * returns at once: so a producer finds an empty ring ready. A waiter must not fall two phases behind.
 */
#ifndef MOX_CUDA_PTX_BARRIER_CUH
#define MOX_CUDA_PTX_BARRIER_CUH

#include <stdint.h>

/* The 32-bit address of shared memory that PTX instructions use. */
__device__ __forceinline__ uint32_t mox_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* By one thread, before mox_mbarrier_init_fence() and a block barrier. */
__device__ __forceinline__ void mox_mbarrier_init(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mox_shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

/* Makes initialised barriers visible to the copy engine. */
__device__ __forceinline__ void mox_mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mox_mbarrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mox_shared_address(barrier)) : "memory");
}

/* Arrives, and the phase now also waits for `bytes` of copies. */
__device__ __forceinline__ void mox_mbarrier_arrive_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mox_shared_address(barrier)), "r"(bytes)
                 : "memory");
}

/* Returns when the phase of that parity is complete; then what its arrivers wrote before is visible. */
__device__ __forceinline__ void mox_mbarrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n\t"
                 ".reg .pred done;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t"
                 "}" ::"r"(mox_shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* `threads` threads, a multiple of 32, wait for each other at barrier `id`, 1 to 15 (0 is __syncthreads()). */
__device__ __forceinline__ void mox_named_barrier(uint32_t id, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif
