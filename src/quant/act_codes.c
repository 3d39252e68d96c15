/* SPDX-License-Identifier: Apache-2.0
 *
 * act_codes.c - the loops of act_codes.h for any processor, and the choice among all compiled loops.
 */
#include "quant/act_codes.h"

#include "base/cpu_features.h"

const mox_act_loops mox_act_loops_any = { mox_act_amax_of, mox_act_row_of, mox_act_values_of };

const mox_act_loops *mox_act_loops_best(void)
{
    const mox_isa allowed = mox_cpu()->allowed;
    if (allowed >= MOX_ISA_AVX512 && mox_act_loops_avx512.row != NULL)
        return &mox_act_loops_avx512;
    if (allowed >= MOX_ISA_AVX2 && mox_act_loops_avx2.row != NULL)
        return &mox_act_loops_avx2;
    return &mox_act_loops_any;
}
