/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_shared_amx.c - parts of kernel amx_bf16 that are compiled once for all formats: decoding with scales that the
 * fast way (amx_lines.h) cannot apply, and products of lines that are already decoded.
 *
 *     the fast way adds exponents or multiplies in f16; here code times scale is a product of f32, cut to bf16
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_square.h"
#include "cpu/expert_gemm/panel_scales.h"

/* ---- decoding with any scale --------------------------------------------------------------------- */

/* The 16 scales of one group of a panel. */
MOX_KERNEL_INLINE __m512 mox_amx_e8m0_row(const uint8_t *codes)
{
    float row[MOX_PANEL_ROWS];
    mox_scales_read(MOXIE_F8_E8M0, codes, MOX_PANEL_ROWS, row);
    return _mm512_loadu_ps(row);
}

MOX_KERNEL_INLINE __m512 mox_amx_e4m3_row(const uint8_t *codes)
{
    float row[MOX_PANEL_ROWS];
    mox_scales_read(MOXIE_F8_E4M3, codes, MOX_PANEL_ROWS, row);
    return _mm512_loadu_ps(row);
}

/* Pairs of bf16 times any scale, also NaN; products may be infinite or subnormal. */
static __m512i mox_amx_times_floats(__m512i pairs, __m512 scale)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    const __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), scale);
    const __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(pairs, upper)), scale);
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16),
                           _mm512_and_si512(_mm512_castps_si512(odd), upper));
}

/* Decodes a whole step. */
MOX_KERNEL_INLINE void mox_amx_decode_any_scale_of(mox_amx_variant v, const mox_amx_job *j, const mox_amx_stream *from,
                                                   int64_t s, uint8_t *to)
{
    for (int q = 0; q < 4; q++) {
        __m512i pairs[4];
        /* The second half of the last step may have no group, and what lies there could be NaN. */
        const int64_t group =
            v.scaling == MOX_AMX_E4M3_IN_WEIGHT ? mox_min_i64(2 * s + q / 2, j->groups - 1) : mox_amx_group_of(j, s);
        __m512 scale;
        if (v.scaling == MOX_AMX_E4M3_IN_WEIGHT)
            scale = _mm512_mul_ps(mox_amx_e4m3_row(from->scale_codes + group * MOX_PANEL_ROWS),
                                  _mm512_set1_ps(1 / MOX_AMX_E4M3_END));
        else
            scale = _mm512_div_ps(mox_amx_e8m0_row(from->scale_codes + group * MOX_PANEL_ROWS),
                                  _mm512_loadu_ps(from->end_factor));
        mox_pairs_quarter(v.decode_class, false, &j->tables, from->codes + s * j->step_bytes, q,
                          mox_pairs_no_zeros(v.decode_class), pairs);
        for (int i = 0; i < 4; i++)
            _mm512_store_si512(to + (4 * q + i) * 64, mox_amx_times_floats(pairs[i], scale));
    }
}

/* Not inlined, so that the fast way stays small. */
void mox_amx_decode_any_scale(const mox_amx_job *j, int p, moxie_dtype decode_class, mox_amx_scaling scaling, int64_t s,
                              uint8_t *to)
{
    const mox_amx_stream *from = &j->panel[p];
    if (scaling == MOX_AMX_E4M3_IN_WEIGHT)
        mox_amx_decode_any_scale_of((mox_amx_variant) { MOXIE_F4_E2M1, false, MOX_AMX_E4M3_IN_WEIGHT }, j, from, s, to);
    else if (mox_pairs_order(decode_class) == MOX_PANEL_NIBBLES)
        mox_amx_decode_any_scale_of((mox_amx_variant) { MOXIE_F4_E2M1, false, MOX_AMX_E8M0_IN_WEIGHT }, j, from, s, to);
    else if (mox_pairs_order(decode_class) == MOX_PANEL_PLANES)
        mox_amx_decode_any_scale_of((mox_amx_variant) { MOXIE_F6_E3M2, false, MOX_AMX_E8M0_IN_WEIGHT }, j, from, s, to);
    else
        mox_amx_decode_any_scale_of((mox_amx_variant) { MOXIE_F8_E4M3, false, MOX_AMX_E8M0_IN_WEIGHT }, j, from, s, to);
}

/* ---- tall ---------------------------------------------------------------------------------------- */

/* The job is copied: the compiler can then keep its fields in registers across fences. */
void mox_amx_tall_rest(const mox_amx_job *from, int64_t row, int64_t first, int64_t last)
{
    const mox_amx_job j = *from;
    const mox_amx_variant none = { MOXIE_BF16, false, MOX_AMX_SCALE_PER_SEGMENT };
    for (; row < j.rows; row += 16)
        for (int p = 0; p < j.panels; p++)
            mox_amx_tall(none, false, &j, p, row, first, last);
}

/* ---- square -------------------------------------------------------------------------------------- */

void mox_amx_square_predecoded(const mox_amx_job *j)
{
    const mox_amx_variant none = { MOXIE_BF16, false, MOX_AMX_SCALE_PER_SEGMENT };
    mox_amx_all_square(none, false, j);
}

#endif
