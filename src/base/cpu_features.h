/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu_features.h - which instructions this processor has and the system permits, and the cap on what is used.
 *
 * Classes are cumulative: SCALAR < AVX2 < AVX512 < AMX on x86-64; aarch64 has SCALAR < NEON. The cap
 * comes from MOXIE_MAX_ISA, read once, and can be lowered further per plan. A set-user-ID program
 * ignores MOXIE_MAX_ISA (secure_getenv).
 * CPUID is read directly, since some supported compilers do not know the newest names in
 * __builtin_cpu_supports. AMX counts only after the system granted permission for tile data.
 */
#ifndef MOX_BASE_CPU_FEATURES_H
#define MOX_BASE_CPU_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum mox_isa {
    MOX_ISA_SCALAR = 0,
    MOX_ISA_NEON = 1,
    MOX_ISA_AVX2 = 2,   /* with FMA and F16C */
    MOX_ISA_AVX512 = 3, /* F, BW, DQ, VL */
    MOX_ISA_AMX = 4     /* TILE, BF16, INT8, on top of AVX512 with VBMI and BF16 */
} mox_isa;

typedef struct mox_cpu_features {
    mox_isa best;    /* found and permitted */
    mox_isa allowed; /* after MOXIE_MAX_ISA */
    bool avx2, fma, f16c, avx_vnni;
    bool avx512, avx512_vnni, avx512_bf16, avx512_vbmi, avx512_fp16;
    bool full_rate_bf16; /* avx512_bf16, and VDPBF16PS has the throughput of a multiply-add */
    bool amx_tile, amx_bf16, amx_int8, amx_fp16;
    bool neon, dotprod, sve, neon_bf16, i8mm;
    const char *amx; /* why tiles may or may not be used: "absent", "disabled", "refused", "permitted" */
    char brand[64];
    int32_t processors; /* mox_processor_count() at the time */
} mox_cpu_features;

/* Found once, then constant. Thread-safe. */
const mox_cpu_features *mox_cpu(void);
/* MOXIE_ERR_ARGUMENT when MOXIE_MAX_ISA names no class of this architecture; then only scalar code is allowed. Every
 * call that chooses kernels checks this. Thread-safe. */
moxie_status mox_cpu_check_cap(moxie_error *error);
/* The usual processor of a class ("avx512": Ice Lake, "amx": Sapphire Rapids), with its features and nothing else.
 * NULL when this architecture has no class of that name, or `name` is NULL. Static. */
const mox_cpu_features *mox_cpu_usual(const char *name);
/* Until it is called with NULL, kernels are chosen in this thread as on that processor, which must outlive the time.
 * For plans that are only explained. */
void mox_cpu_assume(const mox_cpu_features *features);
/* For tests: pretends to be another processor; `features` must outlive its use. NULL: the real one again. Not
 * thread-safe. */
void mox_cpu_replace(const mox_cpu_features *features);

/* Processors this process may keep busy: those in its affinity mask, no more than the cgroup's CPU quota
 * rounded up; at least 1. Thread-safe. */
int32_t mox_processor_count(void);

/* "scalar", "neon", "avx2", "avx512", "amx". */
const char *mox_isa_name(mox_isa isa);
/* NULL and "" give the highest class. MOXIE_ERR_ARGUMENT, for names of other architectures too, lists the names. */
moxie_status mox_isa_from_name(const char *name, mox_isa *out, moxie_error *error);

/* Writes the names of what was found, space separated. */
void mox_cpu_feature_names(const mox_cpu_features *features, char *buffer, uint64_t size);

#endif
