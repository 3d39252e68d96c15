/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_wgmma_tmpl.cuh - one warpgroup MMA for one pair of element types, with its operands in shared memory, or A in
 * registers. ptx_wgmma.cuh includes it once for each pair, with these macros; the first four are undefined at its end:
 *
 *     MOX_WGMMA_NAME    the function
 *     MOX_WGMMA_STEP    "k16" or "k32": columns in 32 bytes
 *     MOX_WGMMA_TYPES   ".f32.bf16.bf16"
 *     MOX_WGMMA_FLAGS   what follows the predicate: signs of floats; for 16-bit types, which operands are transposed
 *     MOX_WGMMA_A       the type of A; _AB(n), _KEEP(n), _BIND_A: the lists of ptx_wgmma_lists.h for it
 *     MOX_WGMMA_SUM     float or int32_t; MOX_WGMMA_D(d): the constraint that binds one
 *     MOX_WGMMA_HAS(n)  whether there is such an MMA
 *
 *     d[64, N] = keep * d + A[64, 32 bytes] * B[N, 32 bytes]^T
 *
 * Asynchronous: nothing may touch d, A and B until mox_wgmma_wait(). Thread t of the warpgroup has of the result d[4 j
 * + 2 h + c] = row 16 (t / 32) + 8 h + (t % 32) / 4, column 8 j + 2 (t % 4) + c. A in registers has the same rows in
 * a[2 i + h]: of 16 bits columns 8 i + 2 (t % 4) and, in the high half, the next one; of 8 bits columns 16 i + 4 (t %
 * 4) and the next three. These registers may not be touched meanwhile either.
 */
#define MOX_WGMMA_CASE(n)                                                                                              \
    if constexpr (N == n)                                                                                              \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " MOX_WGMMA_KEEP(                                                      \
                     n) ", 0; wgmma.mma_async.sync.aligned.m64n" #n MOX_WGMMA_STEP MOX_WGMMA_TYPES " " MOX_D_##n       \
                 ", " MOX_WGMMA_AB(n) ", p" MOX_WGMMA_FLAGS ";}"                                                       \
                 : MOX_BIND_##n                                                                                        \
                 : MOX_WGMMA_BIND_A, "l"(b), "r"(keep))

template <int N>
__device__ __forceinline__ void MOX_WGMMA_NAME(MOX_WGMMA_SUM (&d)[N / 2], MOX_WGMMA_A a, uint64_t b, int keep)
{
    static_assert(N % 8 == 0 && N >= 8 && N <= 256 && MOX_WGMMA_HAS(N), "no such MMA");
    MOX_WGMMA_CASE(8);
    MOX_WGMMA_CASE(16);
    MOX_WGMMA_CASE(24);
    MOX_WGMMA_CASE(32);
    MOX_WGMMA_CASE(40);
    MOX_WGMMA_CASE(48);
    MOX_WGMMA_CASE(56);
    MOX_WGMMA_CASE(64);
    MOX_WGMMA_CASE(72);
    MOX_WGMMA_CASE(80);
    MOX_WGMMA_CASE(88);
    MOX_WGMMA_CASE(96);
    MOX_WGMMA_CASE(104);
    MOX_WGMMA_CASE(112);
    MOX_WGMMA_CASE(120);
    MOX_WGMMA_CASE(128);
    MOX_WGMMA_CASE(136);
    MOX_WGMMA_CASE(144);
    MOX_WGMMA_CASE(152);
    MOX_WGMMA_CASE(160);
    MOX_WGMMA_CASE(168);
    MOX_WGMMA_CASE(176);
    MOX_WGMMA_CASE(184);
    MOX_WGMMA_CASE(192);
    MOX_WGMMA_CASE(200);
    MOX_WGMMA_CASE(208);
    MOX_WGMMA_CASE(216);
    MOX_WGMMA_CASE(224);
    MOX_WGMMA_CASE(232);
    MOX_WGMMA_CASE(240);
    MOX_WGMMA_CASE(248);
    MOX_WGMMA_CASE(256);
}
#undef MOX_WGMMA_CASE
#undef MOX_WGMMA_NAME
#undef MOX_WGMMA_STEP
#undef MOX_WGMMA_TYPES
#undef MOX_WGMMA_FLAGS
