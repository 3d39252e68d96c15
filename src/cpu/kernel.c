/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.c - what all kernel lists share: the part of every admit() that does not depend on the family,
 * and the walk over all rows of all families, for listing, explaining and testing.
 */
#include "cpu/kernel.h"

#include <stdio.h>

#include "cpu/combine/combine.h"
#include "cpu/dense/dense.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/glu/glu.h"
#include "cpu/permute/permute.h"
#include "cpu/quant_act/quant_act.h"
#include "cpu/topk/topk.h"

const char *mox_exactness_name(mox_exactness exactness)
{
    static const char *const names[] = { [MOX_EXACT] = "EXACT", [MOX_W16] = "W16", [MOX_TOL] = "TOL" };
    return names[exactness];
}

bool mox_reject(mox_rejection *why, const char *remedy, const char *reason, ...)
{
    va_list args;
    va_start(args, reason);
    vsnprintf(why->reason, sizeof why->reason, reason, args);
    va_end(args);
    snprintf(why->remedy, sizeof why->remedy, "%s", remedy);
    return false;
}

bool mox_kernel_admit(const mox_kernel *kernel, mox_isa cap, moxie_mode mode, mox_rejection *why)
{
    const mox_cpu_features *cpu = mox_cpu();
    const char *needs = mox_isa_name(kernel->isa);
    /* NEON has a number of its own below AVX2, but an x86 processor never has it. */
    if (kernel->isa > cpu->best || (kernel->isa == MOX_ISA_NEON && !cpu->neon))
        return mox_reject(why, "run on a processor that has it", "needs %s, this processor has %s", needs,
                          mox_isa_name(cpu->best));
    if (kernel->isa > cpu->allowed)
        return mox_reject(why, "raise or unset MOXIE_MAX_ISA", "needs %s, MOXIE_MAX_ISA allows %s", needs,
                          mox_isa_name(cpu->allowed));
    if (kernel->isa > cap)
        return mox_reject(why, "raise or unset the option `isa`", "needs %s, the option `isa` allows %s", needs,
                          mox_isa_name(cap));
    if (kernel->exactness == MOX_TOL && mode != MOXIE_MODE_FAST)
        return mox_reject(why, "choose fast mode",
                          "rounds more than the numeric contract allows (class TOL), the mode is exact");
    return true;
}

/* Every family's rows begin with a mox_kernel; these give row i of one family as such, or NULL. */
#define MOX_FAMILY(name)                                                                                               \
    static const void *name##_base(int32_t i)                                                                          \
    {                                                                                                                  \
        const mox_##name##_kernel *row = mox_##name##_at(i);                                                           \
        return row != NULL ? &row->base : NULL;                                                                        \
    }
#include "cpu/kernel_families.def"
#undef MOX_FAMILY

#define MOX_FAMILY(name) name##_base,
static const mox_family_at families[] = {
#include "cpu/kernel_families.def"
};
#undef MOX_FAMILY

const void *mox_kernel_of_families(const mox_family_at *list, size_t count, int32_t i)
{
    if (i < 0)
        return NULL;
    for (size_t f = 0; f < count; f++) {
        int32_t rows = 0;
        for (; list[f](rows) != NULL; rows++)
            if (rows == i)
                return list[f](rows);
        i -= rows;
    }
    return NULL;
}

const mox_kernel *mox_cpu_kernel_at(int32_t i)
{
    return mox_kernel_of_families(families, sizeof families / sizeof families[0], i);
}
