/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_wgmma_tmpl.cuh - one warpgroup MMA with both operands in shared memory, for one pair of element types. Included
 * once per pair by ptx_wgmma.cuh with
 *
 *     MOX_WGMMA_NAME    the function
 *     MOX_WGMMA_STEP    "k16" or "k32": columns of 32 bytes
 *     MOX_WGMMA_TYPES   ".f32.bf16.bf16"
 *     MOX_WGMMA_FLAGS   what follows the predicate: signs, and for 16-bit types which operands are transposed
 *
 *     d[64, N] = keep * d + A[64, 32 bytes] * B[N, 32 bytes]^T
 *
 * Asynchronous: d, A and B are not to be touched until mox_wgmma_wait(). Thread t of the warpgroup holds, of the 64 x N
 * result, d[4j + 2h + c] = row 16 (t / 32) + 8 h + (t % 32) / 4, column 8 j + 2 (t % 4) + c.
 */
template <int N> __device__ __forceinline__ void MOX_WGMMA_NAME(float (&d)[N / 2], uint64_t a, uint64_t b, int keep)
{
    if constexpr (N == 8)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_8 ", 0; wgmma.mma_async.sync.aligned.m64n8"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_8 ", " MOX_AB_8 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_8
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 16)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_16 ", 0; wgmma.mma_async.sync.aligned.m64n16"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_16 ", " MOX_AB_16 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_16
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 24)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_24 ", 0; wgmma.mma_async.sync.aligned.m64n24"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_24 ", " MOX_AB_24 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_24
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 32)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_32 ", 0; wgmma.mma_async.sync.aligned.m64n32"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_32 ", " MOX_AB_32 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_32
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 48)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_48 ", 0; wgmma.mma_async.sync.aligned.m64n48"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_48 ", " MOX_AB_48 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_48
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 64)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_64 ", 0; wgmma.mma_async.sync.aligned.m64n64"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_64 ", " MOX_AB_64 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_64
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 80)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_80 ", 0; wgmma.mma_async.sync.aligned.m64n80"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_80 ", " MOX_AB_80 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_80
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 96)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_96 ", 0; wgmma.mma_async.sync.aligned.m64n96"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_96 ", " MOX_AB_96 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_96
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 112)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_112 ", 0; wgmma.mma_async.sync.aligned.m64n112"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_112 ", " MOX_AB_112 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_112
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 128)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_128 ", 0; wgmma.mma_async.sync.aligned.m64n128"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_128 ", " MOX_AB_128 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_128
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 144)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_144 ", 0; wgmma.mma_async.sync.aligned.m64n144"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_144 ", " MOX_AB_144 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_144
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 160)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_160 ", 0; wgmma.mma_async.sync.aligned.m64n160"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_160 ", " MOX_AB_160 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_160
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 176)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_176 ", 0; wgmma.mma_async.sync.aligned.m64n176"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_176 ", " MOX_AB_176 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_176
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 192)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_192 ", 0; wgmma.mma_async.sync.aligned.m64n192"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_192 ", " MOX_AB_192 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_192
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 224)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_224 ", 0; wgmma.mma_async.sync.aligned.m64n224"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_224 ", " MOX_AB_224 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_224
                     : "l"(a), "l"(b), "r"(keep));
    else if constexpr (N == 256)
        asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_KEEP_256 ", 0; wgmma.mma_async.sync.aligned.m64n256"
                     MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_256 ", " MOX_AB_256 ", p, " MOX_WGMMA_FLAGS ";}"
                     : MOX_BIND_256
                     : "l"(a), "l"(b), "r"(keep));
    else
        static_assert(N == 0, "no list of registers for this N: ptx_wgmma_lists.h");
}
