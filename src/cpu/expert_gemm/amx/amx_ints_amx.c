/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_ints_amx.c - row amx_folded: integers of 4 bits times their scales, rounded to bf16, so that no segment ends
 * within a row. Few rows of activations, and what is out of range, go as in row amx_bf16.
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_multiply.h"

void mox_amx_times_ints_folded(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                               const mox_panel_rows *a, float *c, void *scratch)
{
    const mox_amx_form f = { MOXIE_I4, false, MOX_AMX_FOLD_INTS };
    if (a->rows <= MOX_AMX_NARROW || !mox_amx_multiply_folded(f, m, weight, panel, panels, a, c, scratch))
        mox_amx_times_nibbles(m, weight, panel, panels, a, c, scratch);
}

#endif
