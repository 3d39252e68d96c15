/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_multiply.h - the mox_panel_multiply_fn of a kernel that has no other way than neon_loops.h.
 */
#ifndef MOX_CPU_NEON_MULTIPLY_H
#define MOX_CPU_NEON_MULTIPLY_H

#include "cpu/expert_gemm/neon/neon_loops.h"

/* A mox_panel_multiply_fn. Scales are read before subnormals are switched off. */
static void neon_multiply(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                          const mox_panel_rows *a, float *c, void *scratch)
{
    const uint64_t before = mox_neon_control();
    mox_neon_job j;
    mox_neon_prepare(NEON_ORDER, false, &j, m, weight, a, scratch);
    for (int p = 0; p < panels; p++) {
        mox_neon_open_panel(&j, weight, panel + p, c + p * MOX_PANEL_ROWS);
        mox_neon_set_control(before | MOX_NEON_FLUSH);
        neon_panel(&j);
        mox_neon_set_control(before);
    }
}

#endif
