/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_int8_neon_dotprod.c - kernel neon_i8 (neon_int8.h) for processors with SDOT.
 */
#include "cpu/expert_gemm/neon/neon_plan.h"

#if defined(__ARM_FEATURE_DOTPROD)

#include "cpu/expert_gemm/neon/neon_int8.h"

const mox_panel_multiply_fn mox_neon_i8_dotprod_multiply = neon_multiply;

#else

const mox_panel_multiply_fn mox_neon_i8_dotprod_multiply = NULL;

#endif
