/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_copy.cuh - src/cuda/ptx/ptx_copy.cuh, emulated.
 */
#ifndef MOX_CUDA_PTX_COPY_CUH
#define MOX_CUDA_PTX_COPY_CUH

#include "cuda/ptx/ptx_cluster.cuh"

static inline void mox_bulk_copy(void *shared, const void *global, uint32_t bytes, uint64_t *barrier)
{
    emulated_copy(emulated_address(shared), global, bytes, emulated_address(barrier));
}

static inline void mox_bulk_copy_multicast(void *shared, const void *global, uint32_t bytes, uint64_t *barrier,
                                           uint16_t ranks)
{
    for (uint32_t rank = 0; rank < 16; rank++)
        if (ranks >> rank & 1)
            emulated_copy(mox_cluster_address(shared, rank), global, bytes, mox_cluster_address(barrier, rank));
}

static inline uint64_t mox_policy_read_once()
{
    return 0;
}

static inline void mox_bulk_copy_hint(void *shared, const void *global, uint32_t bytes, uint64_t *barrier, uint64_t)
{
    mox_bulk_copy(shared, global, bytes, barrier);
}

static inline void mox_bulk_prefetch_hint(const void *, uint32_t, uint64_t)
{
}
static inline void mox_bulk_prefetch(const void *, uint32_t)
{
}

static inline void mox_async_copy_word(void *shared, const void *global)
{
    emulated_copy_async(shared, global, 4);
}

static inline void mox_async_copy_16(void *shared, const void *global)
{
    emulated_copy_async(shared, global, 16);
}

static inline void mox_async_copy_commit()
{
    emulated_copy_commit();
}

template <int GROUPS> static inline void mox_async_copy_wait_groups()
{
    emulated_copied(GROUPS);
}

static inline void mox_async_copy_wait()
{
    emulated_copy_commit();
    emulated_copied(0);
}

#endif
