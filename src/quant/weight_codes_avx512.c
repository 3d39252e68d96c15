/* SPDX-License-Identifier: Apache-2.0
 *
 * weight_codes_avx512.c - the loops of weight_codes.h, in vectors.
 */
#include "quant/weight_codes.h"

#ifdef __AVX512BW__
const mox_weight_loops mox_weight_loops_avx512 = MOX_WEIGHT_LOOPS;
#else
const mox_weight_loops mox_weight_loops_avx512 = { NULL, NULL, NULL, NULL };
#endif
