/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_shared_amx.c - parts of row amx_bf16 that are compiled once for all formats: decoding where the fast way of
 * folding scales would leave the range of bf16's exponents, and what follows the first tile of rows.
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "cpu/expert_gemm/amx/amx_square.h"
#include "cpu/expert_gemm/panel_scales.h"

/* ---- decoding with any scale --------------------------------------------------------------------- */

/* A panel's 16 scales of one group, as floats. */
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

/* Any scale: NaN, and products that are infinite or subnormal. */
static __m512i mox_amx_fold_wide(__m512i pairs, __m512 scale)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    const __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), scale);
    const __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(pairs, upper)), scale);
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16),
                           _mm512_and_si512(_mm512_castps_si512(odd), upper));
}

/* A whole step in the slow way. */
MOX_KERNEL_INLINE void mox_amx_decode_wide(mox_amx_form f, const mox_amx_job *j, const mox_amx_stream *from, int64_t s,
                                           uint8_t *to)
{
    for (int q = 0; q < 4; q++) {
        __m512i pairs[4];
        /* Half of the last step may have no group; what lies there may be NaN. */
        const int64_t group =
            f.fold == MOX_AMX_FOLD_E4M3 ? mox_min_i64(2 * s + q / 2, j->groups - 1) : mox_amx_group_of(j, s);
        __m512 scale;
        if (f.fold == MOX_AMX_FOLD_E4M3)
            scale = _mm512_mul_ps(mox_amx_e4m3_row(from->folded + group * MOX_PANEL_ROWS),
                                  _mm512_set1_ps(1 / MOX_AMX_HALF_END));
        else
            scale = _mm512_div_ps(mox_amx_e8m0_row(from->folded + group * MOX_PANEL_ROWS), _mm512_loadu_ps(from->end));
        mox_pairs_quarter(f.like, false, &j->tables, from->codes + s * j->step_bytes, q, mox_pairs_no_zeros(f.like),
                          pairs);
        for (int i = 0; i < 4; i++)
            _mm512_store_si512(to + (4 * q + i) * 64, mox_amx_fold_wide(pairs[i], scale));
    }
}

/* One function a form, so that the fast way stays small. */
void mox_amx_decode_any_wide(const mox_amx_job *j, int p, moxie_dtype like, mox_amx_folding fold, int64_t s,
                             uint8_t *to)
{
    const mox_amx_stream *from = &j->panel[p];
    if (fold == MOX_AMX_FOLD_E4M3)
        mox_amx_decode_wide((mox_amx_form) { MOXIE_F4_E2M1, false, MOX_AMX_FOLD_E4M3 }, j, from, s, to);
    else if (mox_pairs_order(like) == MOX_PANEL_NIBBLES)
        mox_amx_decode_wide((mox_amx_form) { MOXIE_F4_E2M1, false, MOX_AMX_FOLD_E8M0 }, j, from, s, to);
    else if (mox_pairs_order(like) == MOX_PANEL_PLANES)
        mox_amx_decode_wide((mox_amx_form) { MOXIE_F6_E3M2, false, MOX_AMX_FOLD_E8M0 }, j, from, s, to);
    else
        mox_amx_decode_wide((mox_amx_form) { MOXIE_F8_E4M3, false, MOX_AMX_FOLD_E8M0 }, j, from, s, to);
}

/* ---- tall ---------------------------------------------------------------------------------------- */

/* The job is copied, so that the compiler keeps its fields in registers across fences. */
void mox_amx_tall_again(const mox_amx_job *from, int64_t row, int64_t first, int64_t last)
{
    const mox_amx_job j = *from;
    const mox_amx_form none = { MOXIE_BF16, false, MOX_AMX_DRAINED };
    for (; row < j.rows; row += 16)
        for (int p = 0; p < j.panels; p++)
            mox_amx_tall(none, false, &j, p, row, first, last);
}

/* ---- square -------------------------------------------------------------------------------------- */

void mox_amx_square_kept(const mox_amx_job *j)
{
    const mox_amx_form none = { MOXIE_BF16, false, MOX_AMX_DRAINED };
    mox_amx_all_square(none, false, j);
}

#endif
