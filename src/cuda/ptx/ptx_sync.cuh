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
template <int COUNT> __device__ __forceinline__ void mox_registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void mox_registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

__device__ __forceinline__ uint32_t mox_load_acquire(const uint32_t *global)
{
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global) : "memory");
    return value;
}

__device__ __forceinline__ void mox_store_release(uint32_t *global, uint32_t value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(global), "r"(value) : "memory");
}

/* Adds and returns what was there; orders this thread's accesses before and after. */
__device__ __forceinline__ uint32_t mox_add_acquire_release(uint32_t *global, uint32_t value)
{
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(global), "r"(value) : "memory");
    return old;
}

#endif
