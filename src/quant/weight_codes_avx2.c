/* SPDX-License-Identifier: Apache-2.0
 *
 * weight_codes_avx2.c - the loops of weight_codes.h, in vectors.
 */
#include "quant/weight_codes.h"

#ifdef __AVX2__
const mox_weight_loops mox_weight_loops_avx2 = MOX_WEIGHT_LOOPS;
#else
const mox_weight_loops mox_weight_loops_avx2 = { NULL, NULL, NULL, NULL };
#endif
