/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_variants.h - variants of the NEON kernels that need an extension of the processor. Each has a separate file that
 * is compiled for the extension. The functions return NULL if the processor or the build lacks it.
 */
#ifndef MOX_CPU_NEON_VARIANTS_H
#define MOX_CPU_NEON_VARIANTS_H

#include "cpu/expert_gemm/panel_kernel.h"

/* bf16 activations, by BFMLALB and BFMLALT. */
mox_panel_multiply_fn mox_neon_bf16_variant(void);
/* int8 activations, by SDOT. */
mox_panel_multiply_fn mox_neon_dotprod_variant(void);

#endif
