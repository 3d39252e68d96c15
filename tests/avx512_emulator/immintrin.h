/* SPDX-License-Identifier: Apache-2.0
 *
 * immintrin.h - AVX-512's intrinsics on processors that have AVX2 alone. It stands before the compiler's own header in
 * the include path where tests compile the kernels a second time (tests/CMakeLists.txt), for any processor with AVX2,
 * FMA and F16C: so every path through the AVX-512 kernels is tested bit by bit, but not its speed.
 *
 *     vector of 64 bytes    one of the compiler's vector types: two registers of AVX2
 *     lane by lane          both halves by the AVX2 instruction of the same name (emulated_halves.h)
 *     across lanes, masks   a loop over lanes (emulated_lanes.h)
 *
 * The names are Intel's. A kernel that uses an intrinsic that is not here does not compile. The compiler gets no
 * AVX-512 flag: `-D__AVX512F__` and the like stand in its place.
 *
 * Strict: an aligned load or store of another address, or VDPBF16PS without the flags of MXCSR that all kernels set,
 * ends the program with a message; what an instruction leaves undefined is filled with 0xa5.
 *
 * Source: Intel SDM vol. 2, the instructions' operations.
 */
#ifndef EMULATED_IMMINTRIN_H
#define EMULATED_IMMINTRIN_H

#ifndef __AVX2__
#error "AVX-512 is emulated by AVX2"
#endif

/* The compiler's parts up to AVX2, FMA and F16C, which want to be included by its own immintrin.h. */
#define _IMMINTRIN_H_INCLUDED
#define __IMMINTRIN_H
#include <smmintrin.h>

#include <avxintrin.h>

#include <avx2intrin.h>

#include <f16cintrin.h>
#include <fmaintrin.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef short __m512bh __attribute__((vector_size(64), may_alias));
typedef short __m512h __attribute__((vector_size(64), may_alias));
typedef uint16_t __mmask16;
typedef uint32_t __mmask32;

/* No register holds such a vector (panel_decode_avx512.h), so nothing is gained from unrolled loops (panel_kernel.h),
 * which the compiler needs minutes for. */
#define MOX_ZMM_KEEP(x) (void)(x)
#define MOX_UNROLL_STEP
#define MOX_KERNEL_UNROLL

/* VNNI's, which the kernels write in assembly. */
#define MOX_ZMM_DPWSSD(sum, a, b) ((sum) = _mm512_dpwssd_epi32(sum, a, b))
#define MOX_YMM_DPBUSD(sum, a, b) ((sum) = _mm256_dpbusd_avx_epi32(sum, a, b))

#define EMULATED static inline __attribute__((always_inline))

typedef union emulated_lanes {
    __m512 f;
    __m512i i;
    __m256 half_f[2];
    __m256i half[2];
    __m128i quarter[4];
    float f32[16];
    int32_t s32[16];
    uint32_t u32[16];
    int16_t s16[32];
    uint16_t u16[32];
    int8_t s8[64];
    uint8_t u8[64];
} emulated_lanes;

static inline void emulated_fault(const char *what)
{
    fprintf(stderr, "emulated AVX-512: %s\n", what);
    abort();
}

EMULATED void emulated_aligned(const void *address)
{
    if (__builtin_expect(((uintptr_t)address & 63) != 0, 0))
        emulated_fault("an aligned load or store of an address that is no multiple of 64");
}

#include "emulated_halves.h"
#include "emulated_lanes.h"

#endif
