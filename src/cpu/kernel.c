/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.c - the part of every admit() that does not depend on the family, and how it says why it rejects.
 */
#include "cpu/kernel.h"

#include <stdio.h>

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
    /* NEON's number is below AVX2's, but an x86 processor never has NEON. */
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
        return mox_reject(why, "choose mode fast",
                          "rounds more than the numeric contract allows (class TOL), the mode is exact");
    return true;
}
