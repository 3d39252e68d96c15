/* SPDX-License-Identifier: Apache-2.0
 *
 * block_fit.c - the loops of block_fit.h for any processor, and the choice among all compiled loops.
 */
#include "quant/block_fit.h"

#include "base/cpu_features.h"

const mox_fit_loops mox_fit_loops_any = MOX_FIT_LOOPS;

const mox_fit_loops *mox_fit_loops_best(void)
{
    const mox_isa allowed = mox_cpu()->allowed;
    if (allowed >= MOX_ISA_AVX512 && mox_fit_loops_avx512.codes != NULL)
        return &mox_fit_loops_avx512;
    if (allowed >= MOX_ISA_AVX2 && mox_fit_loops_avx2.codes != NULL)
        return &mox_fit_loops_avx2;
    return &mox_fit_loops_any;
}
