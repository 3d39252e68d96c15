/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_cluster.cuh - src/cuda/ptx/ptx_cluster.cuh, emulated.
 */
#ifndef MOX_CUDA_PTX_CLUSTER_CUH
#define MOX_CUDA_PTX_CLUSTER_CUH

#include "cuda/ptx/ptx_barrier.cuh"

static inline uint32_t mox_cluster_address(const void *shared, uint32_t rank)
{
    return (emulated_address(shared) & ((1 << EMULATED_RANK_SHIFT) - 1)) | rank << EMULATED_RANK_SHIFT;
}

static inline void mox_shared_max(uint32_t *shared, uint32_t value)
{
    *shared = *shared > value ? *shared : value;
}

static inline void mox_cluster_max(uint32_t at, uint32_t value)
{
    mox_shared_max(static_cast<uint32_t *>(emulated_at(at)), value);
}

static inline void mox_cluster_arrive(uint32_t barrier)
{
    emulated_barrier_arrive(static_cast<uint64_t *>(emulated_at(barrier)), 0);
}

static inline void mox_cluster_arrive_release(uint32_t barrier)
{
    mox_cluster_arrive(barrier);
}

static inline void mox_cluster_wait(uint64_t *barrier, uint32_t parity)
{
    mox_mbarrier_wait(barrier, parity);
}

static inline void mox_cluster_sync()
{
    emulated_sync_cluster();
}

#endif
