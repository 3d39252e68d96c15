/* SPDX-License-Identifier: Apache-2.0
 *
 * limits_avx2.c - probes in vectors of 32 bytes. The class AVX2 does not include VPDPBUSD (AVX-VNNI), so this file is
 * compiled without its flag: the instruction is written as assembly, and its probe tests the processor.
 */
#include "cpu/limits/limits.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#define LIMITS_VECTOR       32
#define LIMITS_CHAINS       10
#define LIMITS_FMA(a, b, c) ((limits_floats)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#include "cpu/limits/limits_tmpl.h"

/* Streaming stores bypass the caches, so the written lines are not read first. */
static void probe_stream_copy(const mox_limit_probe *probe, mox_limit_part *part)
{
    (void)probe;
    for (uint64_t round = 0; round < part->rounds; round++)
        for (uint64_t at = 0; at < part->bytes; at += 128) {
            const __m256i *from = (const __m256i *)(const void *)(part->data + at);
            __m256i *to = (__m256i *)(void *)(part->to + at);
            _mm_prefetch(part->data + at + 2048, _MM_HINT_T0);
            _mm_prefetch(part->data + at + 2112, _MM_HINT_T0);
            const __m256i a = from[0], b = from[1], c = from[2], d = from[3];
            _mm256_stream_si256(to, a);
            _mm256_stream_si256(to + 1, b);
            _mm256_stream_si256(to + 2, c);
            _mm256_stream_si256(to + 3, d);
        }
    _mm_sfence();
    part->sink = (uint64_t)(unsigned char)part->to[0];
}

static bool has_avx_vnni(void)
{
    return mox_cpu()->avx_vnni;
}

/* One round: 12 independent instructions, each 8 sums of 4 products. */
static void probe_vnni(const mox_limit_probe *probe, mox_limit_part *part)
{
    uint64_t rounds = part->rounds;
    (void)probe;
    __asm__ volatile("vpxor %%xmm14, %%xmm14, %%xmm14\n\t"
                     "vpxor %%xmm15, %%xmm15, %%xmm15\n"
                     "1:\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm0\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm1\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm2\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm3\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm4\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm5\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm6\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm7\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm8\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm9\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm10\n\t"
                     "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm11\n\t"
                     "dec %0\n\t"
                     "jnz 1b\n\t"
                     "vzeroupper"
                     : "+r"(rounds)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                       "xmm10", "xmm11", "xmm14", "xmm15", "cc");
    part->sink = rounds;
}

static const mox_limit_probe probes[] = {
    LIMITS_COMMON_PROBES(MOX_ISA_AVX2),
    { .limit = MOX_LIMIT_COPY, .name = "streaming stores", .isa = MOX_ISA_AVX2, .run = probe_stream_copy },
    { .limit = MOX_LIMIT_INT8,
      .name = "vpdpbusd ymm",
      .isa = MOX_ISA_AVX2,
      .present = has_avx_vnni,
      .run = probe_vnni,
      .ops = 2.0 * 12 * 8 * 4 },
};

const mox_limit_list mox_limit_probes_avx2 = { probes, sizeof probes / sizeof probes[0] };

#else
const mox_limit_list mox_limit_probes_avx2 = { NULL, 0 };
#endif
