/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_avx512_vbmi.c - kernel avx512_fma for f8 weights on processors with AVX512-VBMI: codes are decoded by
 * VPERMI2B look-ups (panel_fma_avx512.h). e4m3 and e5m2 differ only in the tables.
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

#ifdef __AVX512VBMI__

#include "cpu/expert_gemm/avx512/panel_fma_avx512.h"

static void times_zipped(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                         const mox_panel_rows *a, float *c, void *scratch)
{
    mox_fma_multiply(MOXIE_F8_E4M3, false, 4, m, weight, panel, panels, a, c, scratch);
}

static const mox_panel_variant variants[] = {
    { MOXIE_F8_E4M3, false, times_zipped, NULL },
    { MOXIE_F8_E5M2, false, times_zipped, NULL },
};
const mox_panel_variants mox_avx512_fma_vbmi_variants = { variants, sizeof variants / sizeof variants[0] };

#else

const mox_panel_variants mox_avx512_fma_vbmi_variants = { NULL, 0 };

#endif
