/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_processor.c - before main() it adds what is emulated to the features that the library found, so that the
 * kernels are chosen: AMX (emulated_tiles.h), and AVX-512 where it is emulated, too (avx512_emulator/immintrin.h). On a
 * machine that cannot emulate these the test is skipped: so this file is compiled for any processor, unlike
 * emulated_tiles_avx512.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu_features.h"

#ifdef MOX_EMULATED_AVX512

static const char needs[] = "AVX-512 and tiles are emulated with AVX2, FMA and F16C";

static bool can_emulate(const mox_cpu_features *cpu)
{
    return cpu->avx2 && cpu->fma && cpu->f16c;
}

/* full_rate_bf16: kernel avx512_bf16 is for processors that have it. */
static void add_vectors(mox_cpu_features *cpu)
{
    cpu->avx_vnni = cpu->avx512 = cpu->avx512_vnni = cpu->avx512_vbmi = cpu->avx512_bf16 = cpu->full_rate_bf16 = true;
}

#else

static const char needs[] = "tiles are emulated with AVX-512 VBMI, VNNI and BF16";

static bool can_emulate(const mox_cpu_features *cpu)
{
    return cpu->avx512_vbmi && cpu->avx512_vnni && cpu->avx512_bf16;
}

static void add_vectors(mox_cpu_features *cpu)
{
    (void)cpu;
}

#endif

static bool is_capped(void)
{
    const char *cap = getenv("MOXIE_MAX_ISA");
    return cap != NULL && *cap != '\0' && strcmp(cap, "amx") != 0;
}

__attribute__((constructor)) static void add_emulated(void)
{
    static mox_cpu_features cpu;
    cpu = *mox_cpu();
    if (is_capped() || !can_emulate(&cpu)) {
        printf("skipped: %s, which %s\n", needs, is_capped() ? "MOXIE_MAX_ISA leaves out" : "this processor lacks");
        exit(77);
    }
    add_vectors(&cpu);
    cpu.best = cpu.allowed = MOX_ISA_AMX;
    cpu.amx_tile = cpu.amx_bf16 = cpu.amx_int8 = cpu.avx512_fp16 = true;
    cpu.amx = "permitted";
    mox_cpu_replace(&cpu);
}
