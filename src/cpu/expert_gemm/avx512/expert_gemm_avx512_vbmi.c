/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_avx512_vbmi.c - kernel avx512_fma for f8 weights on processors with AVX512-VBMI: codes are decoded by
 * VPERMI2B look-ups (panel_fma_avx512.h). e4m3 and e5m2 differ only in the tables.
 */
#include "cpu/expert_gemm/panel_kernel.h"

#ifdef __AVX512VBMI__

#include "cpu/expert_gemm/avx512/panel_fma_avx512.h"

static void times_zipped(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                         const mox_panel_rows *a, float *c, void *scratch)
{
    mox_fma_multiply(MOXIE_F8_E4M3, false, 4, m, weight, panel, panels, a, c, scratch);
}

mox_panel_multiply_fn mox_fma_vbmi_variant(moxie_dtype element)
{
    return mox_cpu()->avx512_vbmi && mox_pairs_order(element) == MOX_PANEL_ZIPPED ? times_zipped : NULL;
}

#endif
