/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_bytes_avx512_vnni.c - kernel avx512_bytes (class TOL): 4-bit weights times activations that are rounded
 * to bytes, one scale per step (sum "BYTE_ACTIVATIONS", panel_kernel.h). For processors with AVX512-VNNI. The code is
 * in int_dot_panels_avx512.h; here are its instances.
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

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

static const mox_panel_variant variants[] = {
    { MOXIE_F4_E2M1, false, times_bytes, times_bytes_by_16 },
    { MOXIE_I4, true, times_bytes_zeros, times_bytes_zeros_by_16 },
    { MOXIE_U4B8, true, times_bytes_zeros, times_bytes_zeros_by_16 },
};
const mox_panel_variants mox_avx512_bytes_variants = { variants, sizeof variants / sizeof variants[0] };

#else

const mox_panel_variants mox_avx512_bytes_variants = { NULL, 0 };

#endif
