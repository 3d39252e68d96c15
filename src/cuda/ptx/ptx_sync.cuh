/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_sync.cuh - order of memory accesses and of kernels, and registers that move between warps, one instruction a
 * function. PTX ISA, "fence", "griddepcontrol", "setmaxnreg", "ld.relaxed", "st.relaxed".
 */
#ifndef MOX_CUDA_PTX_SYNC_CUH
#define MOX_CUDA_PTX_SYNC_CUH

#include <stdint.h>

/* Shared memory that this thread wrote, or waited for, is then visible to the copy engine and to wgmma. */
__device__ __forceinline__ void mox_fence_async_proxy()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Waits until the kernels that this launch depends on have ended and their writes are visible; returns at once without
 * any. Before sm_90 no kernel is launched as dependent (device_launch.cuh). */
__device__ __forceinline__ void mox_grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* When every block has called this or has ended, a dependent next kernel of the stream may start. */
__device__ __forceinline__ void mox_grid_release()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* By all warps of a warpgroup: from here on COUNT registers a thread, a multiple of 8. Others must have released as
 * many. */
template <int COUNT> __device__ __forceinline__ void mox_registers_increase()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void mox_registers_decrease()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* A word that other blocks read and write at the same time: it is never torn, and orders no other access. */
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
