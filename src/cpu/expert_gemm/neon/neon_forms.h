/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_forms.h - forms of the NEON rows that need an extension of the processor. Each lies in a file that is compiled
 * for it, and is NULL where the processor, or the build, lacks it.
 */
#ifndef MOX_CPU_NEON_FORMS_H
#define MOX_CPU_NEON_FORMS_H

#include "cpu/expert_gemm/panel_kernel.h"

/* bf16 operand, by BFMLALB and BFMLALT. */
mox_panel_multiply_fn mox_neon_bf16_form(void);
/* i8 operand, by SDOT. */
mox_panel_multiply_fn mox_neon_dotprod_form(void);

#endif
