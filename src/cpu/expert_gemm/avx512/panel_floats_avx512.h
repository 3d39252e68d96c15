/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_floats_avx512.h - decodes codes of layout panel16 (pack/panel/panel.h) to fp32 columns of 16 rows, in AVX-512
 * registers.
 *
 *     column k of a step:  lane n = f32 of (row n, column k)
 *
 * Columns come in pairs, as their codes do: even[i] and odd[i] of quarter q are columns 8q + 2i and 8q + 2i + 1.
 *
 *     NIBBLES  VPERMPS looks up the low 4 bits of a lane: the even column. VPERMW with every other word zeroed looks up
 *              the low 4 bits of the lane's upper word: the odd column. So one shift serves two columns, and a load one
 *              byte further on replaces the shift by 8. Zero points are subtracted as floats
 *     QUADS    the bytes of panel_decode_avx512.h, with loads one, two and three bytes further on instead of shifts
 *     HALVES   VCVTPH2PS, which keeps subnormals whatever MXCSR says
 *     others   pair lines of panel_decode_avx512.h: a shift makes the even column, a mask the odd one
 *
 * Reads up to 3 bytes past the codes of a step. That is inside the record: scales follow the last step. All exact.
 */
#ifndef MOX_CPU_PANEL_FLOATS_AVX512_H
#define MOX_CPU_PANEL_FLOATS_AVX512_H

#include "cpu/expert_gemm/avx512/panel_decode_avx512.h"

typedef struct mox_float_tables {
    mox_pair_tables pairs; /* NIBBLES: 32 bf16 in t[0], twice the 16 */
    __m512 floats;         /* NIBBLES */
} mox_float_tables;

MOX_KERNEL_INLINE void mox_floats_tables(moxie_dtype element, mox_float_tables *tables)
{
    mox_pairs_tables(element, false, &tables->pairs);
    if (mox_pairs_order(element) == MOX_PANEL_NIBBLES)
        tables->floats = _mm512_loadu_ps(mox_format_table(element));
}

/* The 16 zero points of a group as mox_floats_quarter() subtracts them. */
MOX_KERNEL_INLINE __m512 mox_floats_zeros(moxie_dtype element, const uint8_t *zero)
{
    if (mox_pairs_order(element) == MOX_PANEL_QUADS)
        return _mm512_castsi512_ps(mox_pairs_zeros(element, zero));
    const __m512i counted = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)zero));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(counted, _mm512_set1_epi32(8)));
}

/* Loads once. The compiler would repeat the load at every use, and each crosses two cache lines. */
MOX_KERNEL_INLINE __m512i mox_floats_load(const uint8_t *line)
{
    __m512i codes = _mm512_loadu_si512(line);
    MOX_ZMM_KEEP(codes);
    return codes;
}

MOX_KERNEL_INLINE void mox_floats_nibbles(bool zeros, const mox_float_tables *tables, const uint8_t *line, __m512 zero,
                                          __m512 even[4], __m512 odd[4])
{
    const __m512i here = mox_floats_load(line), on = mox_floats_load(line + 1);
    const __m512i moved[4] = { here, _mm512_srli_epi32(here, 4), on, _mm512_srli_epi32(on, 4) };
    for (int i = 0; i < 4; i++) {
        even[i] = _mm512_permutexvar_ps(moved[i], tables->floats);
        odd[i] = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, moved[i], tables->pairs.t[0]));
        if (zeros) {
            even[i] = _mm512_sub_ps(even[i], zero);
            odd[i] = _mm512_sub_ps(odd[i], zero);
        }
    }
}

MOX_KERNEL_INLINE void mox_floats_quads(moxie_dtype element, const uint8_t *line, __m512i zero, __m512 even[2],
                                        __m512 odd[2])
{
    for (int i = 0; i < 2; i++) {
        even[i] = _mm512_castsi512_ps(mox_pairs_byte(element, _mm512_loadu_si512(line + 2 * i), zero, 0));
        odd[i] = _mm512_castsi512_ps(mox_pairs_byte(element, _mm512_loadu_si512(line + 2 * i + 1), zero, 0));
    }
}

/* Columns of quarter q of the step whose codes begin at `step`. */
MOX_KERNEL_INLINE void mox_floats_quarter(moxie_dtype element, bool zeros, const mox_float_tables *tables,
                                          const uint8_t *step, int q, __m512 zero, __m512 even[4], __m512 odd[4])
{
    switch (mox_pairs_order(element)) {
    case MOX_PANEL_NIBBLES: mox_floats_nibbles(zeros, tables, step + 64 * q, zero, even, odd); break;
    case MOX_PANEL_QUADS:
        for (int i = 0; i < 2; i++)
            mox_floats_quads(element, step + 64 * (2 * q + i),
                             zeros ? _mm512_castps_si512(zero) : mox_pairs_no_zeros(element), even + 2 * i,
                             odd + 2 * i);
        break;
    case MOX_PANEL_HALVES:
        for (int i = 0; i < 4; i++) {
            const __m256i *halves = (const __m256i *)(const void *)(step + 64 * (4 * q + i));
            even[i] = _mm512_cvtph_ps(_mm256_loadu_si256(halves));
            odd[i] = _mm512_cvtph_ps(_mm256_loadu_si256(halves + 1));
        }
        break;
    default: {
        __m512i pairs[4];
        mox_pairs_quarter(element, false, &tables->pairs, step, q, _mm512_setzero_si512(), pairs);
        for (int i = 0; i < 4; i++) {
            even[i] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs[i], 16));
            odd[i] = _mm512_castsi512_ps(_mm512_and_si512(pairs[i], _mm512_set1_epi32((int)0xffff0000)));
        }
        break;
    }
    }
}

#endif
