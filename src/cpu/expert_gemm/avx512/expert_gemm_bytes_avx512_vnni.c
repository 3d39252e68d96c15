/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_bytes_avx512_vnni.c - kernel avx512_bytes (class TOL): 4-bit weights times activations that are rounded
 * to bytes, one scale per step (sum "BYTE_ACTIVATIONS", panel_kernel.h). For processors with AVX512-VNNI. The code is
 * in int_dot_panels_avx512.h; here are its instances and the choice between them.
 */
#include "cpu/expert_gemm/panel_kernel.h"

#ifdef __AVX512VNNI__

#include "cpu/expert_gemm/avx512/int_dot_panels_avx512.h"

#define VARIANT(name, zeros, quarters)                                                                                 \
    static void name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,                  \
                     const mox_panel_rows *a, float *c, void *scratch)                                                 \
    {                                                                                                                  \
        mox_int_dot_multiply((mox_int_dot_variant) { true, zeros, quarters }, m, weight, panel, panels, a, c,          \
                             scratch);                                                                                 \
    }
VARIANT(times_bytes, false, 4)
VARIANT(times_bytes_zeros, true, 4)
VARIANT(times_bytes_by_16, false, 2)
VARIANT(times_bytes_zeros_by_16, true, 2)
#undef VARIANT

mox_panel_multiply_fn mox_expert_gemm_avx512_bytes_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    static const mox_panel_multiply_fn variants[2][2] = { { times_bytes, times_bytes_by_16 },
                                                          { times_bytes_zeros, times_bytes_zeros_by_16 } };
    if (!mox_cpu()->avx512_vnni) {
        mox_reject(why, "run on a processor that has it", "needs AVX512-VNNI");
        return NULL;
    }
    if (!mox_panel_admit_bytes(problem, why))
        return NULL;
    const int64_t step = mox_panel_step_cols(problem->weight, mox_expert_gemm_cols(problem));
    return variants[problem->weight->has_zero != 0][step < MOX_PANEL_STEP];
}

uint64_t mox_expert_gemm_avx512_bytes_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = mox_expert_gemm_cols(problem);
    const mox_int_dot_variant f = { .bytes = true, .Q = (int)mox_panel_step_cols(problem->weight, cols) / 8 };
    return mox_int_dot_measure(f, cols, mox_scale_cols(problem->weight, cols));
}

#else

MOX_PANEL_GEMM_ABSENT(avx512_bytes, "x86-64 with AVX512-VNNI")

#endif
