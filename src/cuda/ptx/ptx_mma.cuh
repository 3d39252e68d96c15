/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_mma.cuh - warp MMA with operands in registers, one instruction a function. PTX ISA, "mma", "ldmatrix".
 *
 *     d[16, 8] += A[16, 32 bytes] * B[8, 32 bytes]^T
 *
 * Lane l has rows l / 4 and l / 4 + 8 of A and of d, and row l / 4 of B; of each the columns of its place in the quad,
 * q = l % 4:
 *
 *     a[0], a[1]    the two rows, bytes 4 q .. 4 q + 3         a[2], a[3]    the same rows, 16 bytes further
 *     b[0], b[1]    bytes 4 q .. 4 q + 3, and 16 further
 *     d[0], d[1]    columns 2 q and 2 q + 1 of the first row   d[2], d[3]    of the second row
 */
#ifndef MOX_CUDA_PTX_MMA_CUH
#define MOX_CUDA_PTX_MMA_CUH

#include <stdint.h>

/* 16 columns of bf16. sm_80. */
__device__ __forceinline__ void mox_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* 16 columns of f16. */
__device__ __forceinline__ void mox_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* 32 columns of e4m3. sm_89. */
__device__ __forceinline__ void mox_mma_e4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* 32 columns of 8-bit integers: sums are exact. sm_80. */
__device__ __forceinline__ void mox_mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four matrices of eight rows of 16 bytes in shared memory. Lane l passes the address of row l % 8 of matrix l / 8, and
 * gets bytes 4 (l % 4) .. + 3 of row l / 4 of each matrix. */
__device__ __forceinline__ void mox_ldmatrix_x4(uint32_t (&m)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(row)
                 : "memory");
}

#endif
