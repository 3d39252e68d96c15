/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_barrier.cuh - src/cuda/ptx/ptx_barrier.cuh, emulated.
 */
#ifndef MOX_CUDA_PTX_BARRIER_CUH
#define MOX_CUDA_PTX_BARRIER_CUH

#include "emulator.h"

static inline uint32_t mox_shared_address(const void *shared)
{
    return emulated_address(shared);
}

static inline void mox_mbarrier_init(uint64_t *barrier, uint32_t arrivals)
{
    emulated_barrier_init(barrier, arrivals);
}

static inline void mox_mbarrier_init_fence()
{
}

static inline void mox_mbarrier_arrive(uint64_t *barrier)
{
    emulated_barrier_arrive(barrier, 0);
}

static inline void mox_mbarrier_arrive_expect(uint64_t *barrier, uint32_t bytes)
{
    emulated_barrier_arrive(barrier, bytes);
}

static inline void mox_mbarrier_wait(uint64_t *barrier, uint32_t parity)
{
    while (!emulated_barrier_passed(barrier, parity))
        emulated_yield();
}

static inline void mox_named_barrier(uint32_t id, uint32_t threads)
{
    emulated_sync(id, threads);
}

#endif
