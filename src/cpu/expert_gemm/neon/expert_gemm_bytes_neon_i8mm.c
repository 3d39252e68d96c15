/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_bytes_neon_i8mm.c - kernel neon_bytes (neon_int_dot.h) for processors with SMMLA, which all have SDOT.
 */
#include "cpu/expert_gemm/neon/neon_plan.h"

#if defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_DOTPROD)

#include "cpu/expert_gemm/neon/neon_int_dot.h"

const mox_panel_multiply_fn mox_neon_bytes_i8mm_multiply = neon_multiply_bytes;

#else

const mox_panel_multiply_fn mox_neon_bytes_i8mm_multiply = NULL;

#endif
