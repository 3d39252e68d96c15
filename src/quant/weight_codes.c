/* SPDX-License-Identifier: Apache-2.0
 *
 * weight_codes.c - the loops of weight_codes.h for any processor, and the choice among all compiled loops.
 */
#include "quant/weight_codes.h"

#include "base/cpu_features.h"

const mox_weight_loops mox_weight_loops_any = MOX_WEIGHT_LOOPS;

const mox_weight_loops *mox_weight_loops_best(void)
{
    const mox_isa allowed = mox_cpu()->allowed;
    if (allowed >= MOX_ISA_AVX512 && mox_weight_loops_avx512.codes != NULL)
        return &mox_weight_loops_avx512;
    if (allowed >= MOX_ISA_AVX2 && mox_weight_loops_avx2.codes != NULL)
        return &mox_weight_loops_avx2;
    return &mox_weight_loops_any;
}
