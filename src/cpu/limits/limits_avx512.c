/* SPDX-License-Identifier: Apache-2.0
 *
 * limits_avx512.c - probes in vectors of 64 bytes. The class AVX-512 (F, BW, DQ, VL) does not include VDPBF16PS and
 * VPDPBUSD: they are written as assembly, and their probes test the processor.
 */
#include "cpu/limits/limits.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#define LIMITS_VECTOR       64
#define LIMITS_CHAINS       12
#define LIMITS_FMA(a, b, c) ((limits_floats)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#include "cpu/limits/limits_tmpl.h"

static bool has_bf16(void)
{
    return mox_cpu()->avx512_bf16;
}

static bool has_vnni(void)
{
    return mox_cpu()->avx512_vnni;
}

/* One round: `op` on 24 independent accumulators, enough for any latency up to 12 at two a cycle. */
#define OP_4(op, a, b, c, d)                                                                                           \
    op " %%zmm30, %%zmm31, %%zmm" a "\n\t" op " %%zmm30, %%zmm31, %%zmm" b "\n\t" op " %%zmm30, %%zmm31, %%zmm" c      \
       "\n\t" op " %%zmm30, %%zmm31, %%zmm" d "\n\t"
#define OP_LOOP(op, rounds)                                                                                            \
    __asm__ volatile("vpxord %%zmm30, %%zmm30, %%zmm30\n\t"                                                            \
                     "vpxord %%zmm31, %%zmm31, %%zmm31\n"                                                              \
                     "1:\n\t" OP_4(op, "0", "1", "2", "3") OP_4(op, "4", "5", "6", "7") OP_4(op, "8", "9", "10", "11") \
                         OP_4(op, "12", "13", "14", "15") OP_4(op, "16", "17", "18", "19")                             \
                             OP_4(op, "20", "21", "22", "23") "dec %0\n\t"                                             \
                                                              "jnz 1b\n\t"                                             \
                                                              "vzeroupper"                                             \
                     : "+r"(rounds)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",   \
                       "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",       \
                       "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31", "cc")

static void probe_bf16(const mox_limit_probe *probe, mox_limit_part *part)
{
    uint64_t rounds = part->rounds;
    (void)probe;
    OP_LOOP("vdpbf16ps", rounds);
    part->sink = rounds;
}

static void probe_vnni(const mox_limit_probe *probe, mox_limit_part *part)
{
    uint64_t rounds = part->rounds;
    (void)probe;
    OP_LOOP("vpdpbusd", rounds);
    part->sink = rounds;
}

static const mox_limit_probe probes[] = {
    LIMITS_COMMON_PROBES(MOX_ISA_AVX512),
    { .limit = MOX_LIMIT_BF16,
      .name = "vdpbf16ps zmm",
      .isa = MOX_ISA_AVX512,
      .present = has_bf16,
      .run = probe_bf16,
      .ops = 2.0 * 24 * 16 * 2 },
    { .limit = MOX_LIMIT_INT8,
      .name = "vpdpbusd zmm",
      .isa = MOX_ISA_AVX512,
      .present = has_vnni,
      .run = probe_vnni,
      .ops = 2.0 * 24 * 16 * 4 },
};

const mox_limit_list mox_limit_probes_avx512 = { probes, sizeof probes / sizeof probes[0] };

#else
const mox_limit_list mox_limit_probes_avx512 = { NULL, 0 };
#endif
