/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_plan.h - what a plan knows of the NEON kernels: their functions, and how a call cuts its scratch. Plain C: a
 * plan may be made on a processor that lacks an extension, so the functions here are compiled without its flags.
 *
 *     neon_plan.c               which problems the kernels accept, bytes of scratch         no flags
 *     expert_gemm_neon*.c       the kernels                                                 flags of their extension
 */
#ifndef MOX_CPU_NEON_PLAN_H
#define MOX_CPU_NEON_PLAN_H

#include "base/carver.h"
#include "cpu/expert_gemm/panel_kernel.h"

/* NULL: not in this build. */
extern const mox_panel_multiply_fn mox_neon_fma_multiply, mox_neon_i8_multiply; /* on every aarch64 processor */
extern const mox_panel_multiply_fn mox_neon_bf16_multiply;                      /* by BFMLALB and BFMLALT */
extern const mox_panel_multiply_fn mox_neon_dotprod_multiply;                   /* int8 activations, by SDOT */

typedef struct mox_neon_scratch {
    float *scale;   /* [2][groups][16] */
    uint32_t *part; /* [rows][16]: sums of the current segment */
} mox_neon_scratch;
void mox_neon_lay_out(mox_carver *carver, int64_t groups, mox_neon_scratch *out);

#endif
