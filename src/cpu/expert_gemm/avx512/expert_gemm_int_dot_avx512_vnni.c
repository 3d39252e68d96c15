/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_int_dot_avx512_vnni.c - kernel avx512_fma for 4-bit weights on processors with AVX512-VNNI. Wherever no
 * sum can round, activations are multiplied as integers; else as floats (panel_fma_avx512.h). The bits are the same.
 *
 *     up to three rows   limbs of 8 bits (int_dot_panels_avx512.h)
 *     more               words of 16 bits (int_dot_words_avx512.h)
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

#ifdef __AVX512VNNI__

#include "cpu/expert_gemm/avx512/int_dot_words_avx512.h"

#define VARIANT(name, decode_class, zeros)                                                                             \
    static void name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,                  \
                     const mox_panel_rows *a, float *c, void *scratch)                                                 \
    {                                                                                                                  \
        if (a->rows > MOX_INT_DOT_LIMB_ROWS)                                                                           \
            mox_words_multiply(decode_class, zeros, m, weight, panel, panels, a, c, scratch);                          \
        else                                                                                                           \
            mox_int_dot_multiply((mox_int_dot_variant) { false, zeros, 4 }, m, weight, panel, panels, a, c, scratch);  \
    }
VARIANT(int_dot, MOXIE_F4_E2M1, false)
VARIANT(int_dot_zeros, MOXIE_I4, true)
#undef VARIANT

static const mox_panel_variant variants[] = {
    { MOXIE_F4_E2M1, false, int_dot, NULL },
    { MOXIE_I4, true, int_dot_zeros, NULL },
    { MOXIE_U4B8, true, int_dot_zeros, NULL },
};
const mox_panel_variants mox_avx512_fma_vnni_variants = { variants, sizeof variants / sizeof variants[0] };

#else

const mox_panel_variants mox_avx512_fma_vnni_variants = { NULL, 0 };

#endif
