/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_sync.cuh - order between memory accesses, between kernels, and of registers between warps, one function per
 * instruction. PTX ISA, "fence", "griddepcontrol", "setmaxnreg", "ld.acquire", "st.release".
 */
#ifndef MOX_CUDA_PTX_SYNC_CUH
#define MOX_CUDA_PTX_SYNC_CUH

#include <stdint.h>

/* Shared memory that this thread wrote, or waited for, is then seen by the copy engine and wgmma. */
__device__ __forceinline__ void mox_fence_async_proxy()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Until the kernels that this launch depends on have ended and their writes are visible; at once when there are none.
 * Before sm_90 nothing is launched to depend (device_launch.cuh). */
__device__ __forceinline__ void mox_grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* When every block has said so (or ended), the next kernel of the stream may start, if it was launched to. */
__device__ __forceinline__ void mox_grid_release()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* By all warps of a warpgroup: COUNT registers a thread from here on, a multiple of 8. Others must have given them. */
template <int COUNT> __device__ __forceinline__ void mox_registers_increase()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void mox_registers_decrease()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* A word that other blocks write or read meanwhile: it is whole, and says nothing of any other. */
__device__ __forceinline__ uint64_t mox_load_relaxed(const uint64_t *global)
{
    uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(global) : "memory");
    return value;
}

__device__ __forceinline__ void mox_store_relaxed(uint64_t *global, uint64_t value)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(global), "l"(value) : "memory");
}

#endif
