/* SPDX-License-Identifier: Apache-2.0
 *
 * block_fit_avx512.c - the loops of block_fit.h, in vectors.
 */
#include "quant/block_fit.h"

#include <stddef.h>

#ifdef __AVX512BW__
const mox_fit_loops mox_fit_loops_avx512 = MOX_FIT_LOOPS;
#else
const mox_fit_loops mox_fit_loops_avx512 = { .codes = NULL };
#endif
