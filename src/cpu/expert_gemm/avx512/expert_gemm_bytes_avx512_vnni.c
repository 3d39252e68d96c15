/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_bytes_avx512_vnni.c - kernel avx512_bytes (class TOL): weights times activations that are rounded to
 * bytes, one scale per step (sum "BYTE_ACTIVATIONS", panel_kernel.h). For processors with AVX512-VNNI. Here are the
 * instances of
 *
 *     4-bit weights            int_dot_panels_avx512.h
 *     8-bit integer weights    panel_quad_bytes_avx512.h
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

#ifdef __AVX512VNNI__

#include "cpu/expert_gemm/avx512/int_dot_panels_avx512.h"
#include "cpu/expert_gemm/avx512/panel_quad_bytes_avx512.h"

/* ---- 4-bit weights ------------------------------------------------------------------------------------------- */

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

/* ---- 8-bit integer weights ----------------------------------------------------------------------------------- */

static void times_quads(bool zeros, mox_zmm_quad_decode_fn decode, const mox_panel_matrix *m, const moxie_quant *weight,
                        int64_t panel, int panels, const mox_panel_rows *a, float *c, void *scratch)
{
    static const mox_block_fields whole = { .m_at = -1, .run = MOX_PANEL_STEP, .offset = 1 };
    const int sign_bits = mox_element_sign_bits(weight->element);
    mox_carver carver = mox_carver_of(scratch);
    mox_quad_bytes_scratch sc;
    mox_quad_bytes_lay_out(&carver, m->cols, m->groups, a->rows, &sc);
    mox_zmm_quad_job j = { .fma = { .values = a->data,
                                    .stride = m->steps * MOX_PANEL_STEP,
                                    .c = c,
                                    .part = sc.fma.part,
                                    .slab = sc.fma.slab },
                           .lines = sc.lines,
                           .flip = _mm512_set1_epi8((char)sign_bits) };
    mox_segment_iter_init(&j.fma.iter, m, weight, panel, panels, a, MOX_PANEL_STEP, sc.fma.scale);
    mox_floats_tables(weight->element, &j.fma.tables);
    const unsigned mxcsr = mox_segment_flush_subnormals();
    if (!a->again)
        *sc.floats = mox_block_bytes_prepare(a, j.fma.iter.steps, &whole, false, sc.lines);
    if (zeros)
        mox_zmm_quad_all(true, decode, &j, *sc.floats > 0);
    else
        mox_zmm_quad_all(false, decode, &j, *sc.floats > 0);
    _mm_setcsr(mxcsr);
}

#define VARIANT(name, element, zeros)                                                                                  \
    static void decode_##name(const mox_fma_job *j, const mox_segment_pos *at, int64_t s)                              \
    {                                                                                                                  \
        for (int p = 0; p < j->iter.panels; p++)                                                                       \
            mox_fma_decode(element, zeros, 4, j, p, s, mox_fma_zero(element, zeros, j, at, p), j->slab);               \
    }                                                                                                                  \
    static void times_##name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,          \
                             const mox_panel_rows *a, float *c, void *scratch)                                         \
    {                                                                                                                  \
        times_quads(zeros, decode_##name, m, weight, panel, panels, a, c, scratch);                                    \
    }
VARIANT(i8, MOXIE_I8, false)
VARIANT(i8_zeros, MOXIE_I8, true)
VARIANT(u8b128, MOXIE_U8B128, false)
VARIANT(u8b128_zeros, MOXIE_U8B128, true)
#undef VARIANT

/* ---- variants ------------------------------------------------------------------------------------------------ */

static const mox_panel_variant variants[] = {
    { MOXIE_F4_E2M1, false, times_bytes, times_bytes_by_16 },
    { MOXIE_I4, true, times_bytes_zeros, times_bytes_zeros_by_16 },
    { MOXIE_U4B8, true, times_bytes_zeros, times_bytes_zeros_by_16 },
    { MOXIE_I8, false, times_i8, NULL },
    { MOXIE_I8, true, times_i8_zeros, NULL },
    { MOXIE_U8B128, false, times_u8b128, NULL },
    { MOXIE_U8B128, true, times_u8b128_zeros, NULL },
};
const mox_panel_variants mox_avx512_bytes_variants = { variants, sizeof variants / sizeof variants[0] };

#else

const mox_panel_variants mox_avx512_bytes_variants = { NULL, 0 };

#endif
