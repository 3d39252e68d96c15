/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_sync.cuh - src/cuda/ptx/ptx_sync.cuh, emulated.
 */
#ifndef MOX_CUDA_PTX_SYNC_CUH
#define MOX_CUDA_PTX_SYNC_CUH

#include <stdint.h>

static inline void mox_fence_async_proxy()
{
}
static inline void mox_grid_wait()
{
}
static inline void mox_grid_release()
{
}
template <int COUNT> static inline void mox_registers_increase()
{
}
template <int COUNT> static inline void mox_registers_decrease()
{
}

static inline uint64_t mox_load_relaxed(const uint64_t *global)
{
    return *global;
}

static inline void mox_store_relaxed(uint64_t *global, uint64_t value)
{
    *global = value;
}

#endif
