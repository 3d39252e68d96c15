/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_fma_neon_dotprod.c - kernels neon_fma (neon_fma.h) and neon_bytes (neon_int_dot.h) for processors with
 * SDOT.
 */
#include "cpu/expert_gemm/neon/neon_plan.h"

#if defined(__ARM_FEATURE_DOTPROD)

#include "cpu/expert_gemm/neon/neon_int_dot.h"

const mox_panel_multiply_fn mox_neon_fma_dotprod_multiply = neon_multiply_fma,
                            mox_neon_bytes_dotprod_multiply = neon_multiply_bytes;

#else

const mox_panel_multiply_fn mox_neon_fma_dotprod_multiply = NULL, mox_neon_bytes_dotprod_multiply = NULL;

#endif
