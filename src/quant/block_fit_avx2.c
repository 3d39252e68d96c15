/* SPDX-License-Identifier: Apache-2.0
 *
 * block_fit_avx2.c - the loops of block_fit.h, in vectors.
 */
#include "quant/block_fit.h"

#include <stddef.h>

#ifdef __AVX2__
const mox_fit_loops mox_fit_loops_avx2 = MOX_FIT_LOOPS;
#else
const mox_fit_loops mox_fit_loops_avx2 = { .codes = NULL };
#endif
