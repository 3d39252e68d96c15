/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_wgmma.cuh - warpgroup MMA of Hopper (sm_90a), and its fences: 128 threads multiply 64 rows of A by N columns (the
 * rows of B), 32 bytes deep. PTX ISA, "wgmma".
 *
 * Operands lie in shared memory in the 128-byte swizzle: row r, 128 bytes, begins at r * 128; its 16 bytes number q lie
 * in place q ^ (r % 8). Eight rows are 1024 bytes, and begin at a multiple of that.
 *
 *     mox_wgmma_fence(); mox_wgmma_bf16<N>(d, a, b, 0); ... ; mox_wgmma_commit();   mox_wgmma_wait<0>();
 */
#ifndef MOX_CUDA_PTX_WGMMA_CUH
#define MOX_CUDA_PTX_WGMMA_CUH

#include <stdint.h>

#include "cuda/ptx/ptx_wgmma_lists.h"

/* Low half of the descriptor of an operand at shared address `at`, whose groups of 8 rows are 1024 bytes apart. It
 * counts 16 bytes, so + 2 moves 32 bytes along the rows; adding to 64 bits instead takes several times as long, between
 * MMAs. */
__device__ __forceinline__ uint32_t mox_wgmma_descriptor_low(uint32_t at)
{
    return (at >> 4) + (1 << 16);
}

__device__ __forceinline__ uint64_t mox_wgmma_descriptor(uint32_t low)
{
    const uint32_t group_distance = 1024 >> 4, swizzle_128 = 1;
    return (uint64_t)(group_distance | swizzle_128 << 30) << 32 | low;
}

/* The same of an operand that is not swizzled: eight rows of 16 bytes lie together, the next 16 bytes of these rows 128
 * bytes on, and the next eight rows `group_distance` bytes on. */
__device__ __forceinline__ uint64_t mox_wgmma_descriptor_plain(uint32_t low, uint32_t group_distance)
{
    const uint32_t depth_distance = 128 >> 4;
    return (uint64_t)(group_distance >> 4) << 32 | (low + ((depth_distance - 1) << 16));
}

/* Before the first MMA, and whenever other instructions wrote registers that it reads. */
__device__ __forceinline__ void mox_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Ends a group of MMAs. */
__device__ __forceinline__ void mox_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all groups but the PENDING latest are done. */
template <int PENDING> __device__ __forceinline__ void mox_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* ---- A in shared memory ---------------------------------------------------------------------------------------- */

#define MOX_WGMMA_A       uint64_t
#define MOX_WGMMA_AB(n)   MOX_AB_##n
#define MOX_WGMMA_KEEP(n) MOX_KEEP_##n
#define MOX_WGMMA_BIND_A  "l"(a)

#define MOX_WGMMA_SUM    int32_t
#define MOX_WGMMA_D(d)   "+r"(d)
#define MOX_WGMMA_HAS(n) ((n) <= 32 || (n) % 16 == 0)

#define MOX_WGMMA_NAME  mox_wgmma_s8
#define MOX_WGMMA_STEP  "k32"
#define MOX_WGMMA_TYPES ".s32.s8.s8"
#define MOX_WGMMA_FLAGS ""
#include "cuda/ptx/ptx_wgmma_tmpl.cuh"
#undef MOX_WGMMA_SUM
#undef MOX_WGMMA_D
#undef MOX_WGMMA_HAS

#define MOX_WGMMA_SUM    float
#define MOX_WGMMA_D(d)   "+f"(d)
#define MOX_WGMMA_HAS(n) true

#define MOX_WGMMA_NAME  mox_wgmma_bf16
#define MOX_WGMMA_STEP  "k16"
#define MOX_WGMMA_TYPES ".f32.bf16.bf16"
#define MOX_WGMMA_FLAGS ", 1, 1, 0, 0"
#include "cuda/ptx/ptx_wgmma_tmpl.cuh"

#define MOX_WGMMA_NAME  mox_wgmma_f16
#define MOX_WGMMA_STEP  "k16"
#define MOX_WGMMA_TYPES ".f32.f16.f16"
#define MOX_WGMMA_FLAGS ", 1, 1, 0, 0"
#include "cuda/ptx/ptx_wgmma_tmpl.cuh"

#define MOX_WGMMA_NAME  mox_wgmma_e4m3
#define MOX_WGMMA_STEP  "k32"
#define MOX_WGMMA_TYPES ".f32.e4m3.e4m3"
#define MOX_WGMMA_FLAGS ", 1, 1"
#include "cuda/ptx/ptx_wgmma_tmpl.cuh"
#undef MOX_WGMMA_A
#undef MOX_WGMMA_AB
#undef MOX_WGMMA_KEEP
#undef MOX_WGMMA_BIND_A

/* ---- A in registers: a[0] .. a[3] ------------------------------------------------------------------------------ */

#define MOX_WGMMA_A       const uint32_t *
#define MOX_WGMMA_AB(n)   MOX_RB_##n
#define MOX_WGMMA_KEEP(n) MOX_KEEP_R_##n
#define MOX_WGMMA_BIND_A  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

#define MOX_WGMMA_NAME  mox_wgmma_registers_bf16
#define MOX_WGMMA_STEP  "k16"
#define MOX_WGMMA_TYPES ".f32.bf16.bf16"
#define MOX_WGMMA_FLAGS ", 1, 1, 0"
#include "cuda/ptx/ptx_wgmma_tmpl.cuh"

#define MOX_WGMMA_NAME  mox_wgmma_registers_f16
#define MOX_WGMMA_STEP  "k16"
#define MOX_WGMMA_TYPES ".f32.f16.f16"
#define MOX_WGMMA_FLAGS ", 1, 1, 0"
#include "cuda/ptx/ptx_wgmma_tmpl.cuh"

#define MOX_WGMMA_NAME  mox_wgmma_registers_e4m3
#define MOX_WGMMA_STEP  "k32"
#define MOX_WGMMA_TYPES ".f32.e4m3.e4m3"
#define MOX_WGMMA_FLAGS ", 1, 1"
#include "cuda/ptx/ptx_wgmma_tmpl.cuh"
#undef MOX_WGMMA_A
#undef MOX_WGMMA_AB
#undef MOX_WGMMA_KEEP
#undef MOX_WGMMA_BIND_A
#undef MOX_WGMMA_SUM
#undef MOX_WGMMA_D
#undef MOX_WGMMA_HAS

#endif
