/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_processor.c - before main() it adds AMX to the features that the library found, so that the AMX kernels are
 * chosen. On a machine that cannot emulate tiles (emulated_tiles.h) the test is skipped: so this file is compiled for
 * any processor, unlike emulated_tiles_avx512.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu_features.h"

static bool is_capped(void)
{
    const char *cap = getenv("MOXIE_MAX_ISA");
    return cap != NULL && *cap != '\0' && strcmp(cap, "amx") != 0;
}

__attribute__((constructor)) static void be_amx(void)
{
    static mox_cpu_features cpu;
    cpu = *mox_cpu();
    if (is_capped() || !cpu.avx512_vbmi || !cpu.avx512_vnni || !cpu.avx512_bf16) {
        printf("skipped: tiles are emulated with AVX-512 VBMI, VNNI and BF16, which %s\n",
               is_capped() ? "MOXIE_MAX_ISA leaves out" : "this processor lacks");
        exit(77);
    }
    cpu.best = cpu.allowed = MOX_ISA_AMX;
    cpu.amx_tile = cpu.amx_bf16 = cpu.amx_int8 = cpu.avx512_fp16 = true;
    cpu.amx = "permitted";
    mox_cpu_replace(&cpu);
}
