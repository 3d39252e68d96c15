/* SPDX-License-Identifier: Apache-2.0
 *
 * act_codes_avx2.c - the loops of act_codes.h, in vectors.
 */
#include "quant/act_codes.h"

#ifdef __AVX2__
const mox_act_loops mox_act_loops_avx2 = { mox_act_amax_of, mox_act_row_of, mox_act_values_of };
#else
const mox_act_loops mox_act_loops_avx2 = { NULL, NULL, NULL };
#endif
