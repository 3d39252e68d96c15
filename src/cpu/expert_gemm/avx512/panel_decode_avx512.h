/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_decode_avx512.h - decodes codes of layout panel16 (pack/panel/panel.h) to pair lines of bf16, in AVX-512
 * registers.
 *
 *     pair line j of a step:  32-bit lane n = bf16 of (row n, column 2j) in the low half, (row n, column 2j+1) above
 *
 * That is row j of the second operand of TDPBF16PS; a shift or a mask makes it fp32. A step has 16 lines. They are
 * decoded by quarters: quarter q (8 columns) is lines 4q .. 4q+3.
 *
 *     NIBBLES  VPERMW looks up the low 5 bits of a word and ignores the others. The table's two halves are equal, so no
 *              mask is needed, only one shift per line. With zero points the index is nibble - zero, -16 .. 15.
 *     PLANES   4 bits of the low plane and 1 of the high plane index the 32 magnitudes; the last bit is the sign.
 *     ZIPPED   with VBMI two VPERMI2B look up the lower and the upper byte, and two unpacks join them; without VBMI the
 *              fields are shifted to their places, and subnormals are looked up.
 *     QUADS    a byte in the low bits of 2^23 is a float; subtracting 2^23 + zero leaves the number, exact in bf16.
 *     PAIRS    are lines already. HALVES cannot become bf16.
 *
 * A zero point in the record counts from the element's least value (-8 or -128), as codes of unsigned formats do.
 *
 * Everything is exact, whatever MXCSR says. For files compiled with AVX-512 F, BW, DQ and VL; VBMI is used where the
 * file is compiled with it. `element` and `zeros` are constants at every call, so their tests vanish.
 *
 * Source of the instructions' rates: uops.info; VPERMW 1 a cycle, VPERMI2B 1 in 2 cycles.
 */
#ifndef MOX_CPU_PANEL_DECODE_AVX512_H
#define MOX_CPU_PANEL_DECODE_AVX512_H

#include <immintrin.h>

#include "cpu/expert_gemm/panel_kernel.h"
#include "pack/panel/element_traits.h"

/* The compiler holds vector x in a register here. (Emulated vectors of 64 bytes have none, tests/avx512_emulator.) */
#ifndef MOX_ZMM_KEEP
#define MOX_ZMM_KEEP(x) __asm__("" : "+v"(x))
#endif

/* What decoding one element needs in registers. NIBBLES, PLANES: t[0]. ZIPPED: lower bytes of magnitudes 0 .. 127 in
 * t[0], t[1], upper bytes in t[2], t[3]; without VBMI subnormals in t[0]. */
typedef struct mox_pair_tables {
    __m512i t[4];
} mox_pair_tables;

/* A constant where `element` is one. */
MOX_KERNEL_INLINE mox_panel_order mox_pairs_order(moxie_dtype element)
{
    return mox_element_traits_of(element).order;
}

/* ---- tables -------------------------------------------------------------------------------------- */

/* The upper halves of 32 floats, which are bf16 when the lower halves are zero. */
MOX_KERNEL_INLINE __m512i mox_pairs_narrow(const float *values)
{
    const __m256i low = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_loadu_si512(values), 16));
    const __m256i high = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_loadu_si512(values + 16), 16));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* The bytes at bit `shift` of 64 floats. */
MOX_KERNEL_INLINE __m512i mox_pairs_bytes(const float *values, int shift)
{
    __m512i bytes = _mm512_setzero_si512();
    for (int i = 0; i < 4; i++) {
        const __m512i moved = _mm512_srli_epi32(_mm512_loadu_si512(values + 16 * i), (unsigned)shift);
        bytes = _mm512_mask_broadcast_i32x4(bytes, (__mmask16)(0xf << 4 * i), _mm512_cvtepi32_epi8(moved));
    }
    return bytes;
}

/* bf16 of -16 .. 15 at the indices 16 .. 31, 0 .. 15: what a nibble minus a zero point is. */
MOX_KERNEL_INLINE __m512i mox_pairs_differences(void)
{
    float values[32];
    for (int i = 0; i < 32; i++)
        values[i] = (float)(i < 16 ? i : i - 32);
    return mox_pairs_narrow(values);
}

MOX_KERNEL_INLINE void mox_pairs_tables(moxie_dtype element, bool zeros, mox_pair_tables *tables)
{
    const mox_panel_order order = mox_pairs_order(element);
    if (order == MOX_PANEL_PAIRS || order == MOX_PANEL_HALVES || order == MOX_PANEL_QUADS)
        return;
    /* The table repeats past the width of the format, so 32 entries are two copies of 16. */
    const float *values = mox_format_table(element);
    tables->t[0] = zeros ? mox_pairs_differences() : mox_pairs_narrow(values);
#ifdef __AVX512VBMI__
    if (order == MOX_PANEL_ZIPPED)
        for (int i = 0; i < 4; i++)
            tables->t[i] = mox_pairs_bytes(values + 64 * (i % 2), i < 2 ? 16 : 24);
#endif
}

/* ---- zero points --------------------------------------------------------------------------------- */

/* The 16 zero points of a group as mox_pairs_quarter() subtracts them: each in all bytes of its lane (NIBBLES), or as
 * the float 2^23 + zero (QUADS). */
MOX_KERNEL_INLINE __m512i mox_pairs_zeros(moxie_dtype element, const uint8_t *zero)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)zero);
    if (mox_pairs_order(element) == MOX_PANEL_QUADS)
        return _mm512_or_si512(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(0x4b000000));
    const __m512i fourfold = _mm512_set_epi32(0x0f0f0f0f, 0x0e0e0e0e, 0x0d0d0d0d, 0x0c0c0c0c, 0x0b0b0b0b, 0x0a0a0a0a,
                                              0x09090909, 0x08080808, 0x07070707, 0x06060606, 0x05050505, 0x04040404,
                                              0x03030303, 0x02020202, 0x01010101, 0x00000000);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), fourfold);
}

/* The same for weights without zero points; mox_pairs_quarter() needs it for QUADS. */
MOX_KERNEL_INLINE __m512i mox_pairs_no_zeros(moxie_dtype element)
{
    return _mm512_set1_epi32(mox_pairs_order(element) == MOX_PANEL_QUADS ? 0x4b000080 : 0);
}

/* ---- one order after the other ------------------------------------------------------------------- */

/* Shifts words down. On processors with tiles a multiplication is faster: 8 % of a run with few rows. On others shifts
 * are. */
MOX_KERNEL_INLINE __m512i mox_pairs_down(__m512i words, int bits)
{
#ifdef __AMX_TILE__
    return _mm512_mulhi_epu16(words, _mm512_set1_epi16((short)(1 << (16 - bits))));
#else
    return _mm512_srli_epi16(words, (unsigned)bits);
#endif
}

MOX_KERNEL_INLINE void mox_pairs_nibbles(moxie_dtype element, bool zeros, const mox_pair_tables *tables, __m512i codes,
                                         __m512i zero, __m512i pairs[4])
{
    if (!zeros) {
        for (int i = 0; i < 4; i++)
            pairs[i] = _mm512_permutexvar_epi16(i == 0 ? codes : mox_pairs_down(codes, 4 * i), tables->t[0]);
        return;
    }
    /* Two's complement becomes a count from the least value. Bytes, so that a borrow meets nothing. */
    const __m512i mask = _mm512_set1_epi8(0x0f);
    const uint8_t flip = mox_element_sign_bits(element);
    const __m512i counted = flip != 0 ? _mm512_xor_si512(codes, _mm512_set1_epi8((char)flip)) : codes;
    const __m512i even = _mm512_sub_epi8(_mm512_and_si512(counted, mask), zero);
    const __m512i odd = _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(counted, 4), mask), zero);
    pairs[0] = _mm512_permutexvar_epi16(even, tables->t[0]);
    pairs[1] = _mm512_permutexvar_epi16(odd, tables->t[0]);
    pairs[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(even, 8), tables->t[0]);
    pairs[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(odd, 8), tables->t[0]);
}

/* `half`: which four of the eight pairs of bits in a word of the high plane. */
MOX_KERNEL_INLINE void mox_pairs_planes(const mox_pair_tables *tables, __m512i low, __m512i high, int half,
                                        __m512i pairs[4])
{
    const __m512i nibble = _mm512_set1_epi16(0x000f), sign = _mm512_set1_epi16((short)0x8000);
    for (int i = 0; i < 4; i++) {
        const int bit = 2 * (i + 4 * half);
        const __m512i at4 =
            bit < 4 ? _mm512_slli_epi16(high, (unsigned)(4 - bit)) : _mm512_srli_epi16(high, (unsigned)(bit - 4));
        const __m512i at14 = _mm512_slli_epi16(high, (unsigned)(14 - bit));
        /* 0xca: the mask chooses between the first and the last operand. */
        const __m512i index = _mm512_ternarylogic_epi32(nibble, _mm512_srli_epi16(low, (unsigned)(4 * i)), at4, 0xca);
        const __m512i magnitude = _mm512_permutexvar_epi16(index, tables->t[0]);
        pairs[i] = _mm512_ternarylogic_epi32(sign, at14, magnitude, 0xca);
    }
}

#ifdef __AVX512VBMI__

MOX_KERNEL_INLINE void mox_pairs_zipped(moxie_dtype element, const mox_pair_tables *tables, __m512i codes,
                                        __m512i pairs[2])
{
    (void)element;
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    const __m512i lower = _mm512_permutex2var_epi8(tables->t[0], codes, tables->t[1]);
    const __m512i upper = _mm512_permutex2var_epi8(tables->t[2], codes, tables->t[3]);
    const __m512i signed_upper = _mm512_ternarylogic_epi32(sign, codes, upper, 0xca);
    pairs[0] = _mm512_unpacklo_epi8(lower, signed_upper);
    pairs[1] = _mm512_unpackhi_epi8(lower, signed_upper);
}

#else

/* bf16 of words that hold a code in their upper byte. */
MOX_KERNEL_INLINE __m512i mox_pairs_of_f8(const mox_minifloat *f, __m512i subnormals, __m512i words)
{
    const int min_exponent = 127 - f->bias, max_exponent = min_exponent + (1 << f->exponent_bits) - 1;
    const __m512i sign = _mm512_set1_epi16((short)0x8000);
    const __m512i magnitude = _mm512_andnot_si512(sign, words);
    const __mmask32 special = _mm512_cmpgt_epu16_mask(magnitude, _mm512_set1_epi16((short)(f->max_code << 8)));
    const __mmask32 subnormal =
        _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16((short)(1 << f->mantissa_bits << 8)));
    const __m512i moved = _mm512_srli_epi16(magnitude, (unsigned)(1 + f->mantissa_bits));
    __m512i value = _mm512_add_epi16(moved, _mm512_set1_epi16((short)(min_exponent << 7)));
    /* Infinities and NaN keep their mantissa under the largest exponent. */
    value = _mm512_mask_add_epi16(value, special, value, _mm512_set1_epi16((short)((255 - max_exponent) << 7)));
    value = _mm512_mask_permutexvar_epi16(value, subnormal, _mm512_srli_epi16(words, 8), subnormals);
    return _mm512_ternarylogic_epi32(sign, words, value, 0xca);
}

MOX_KERNEL_INLINE void mox_pairs_zipped(moxie_dtype element, const mox_pair_tables *tables, __m512i codes,
                                        __m512i pairs[2])
{
    const mox_minifloat *f = element == MOXIE_F8_E4M3 ? &mox_f8_e4m3_fields : &mox_f8_e5m2_fields;
    const __m512i zero = _mm512_setzero_si512();
    pairs[0] = mox_pairs_of_f8(f, tables->t[0], _mm512_unpacklo_epi8(zero, codes));
    pairs[1] = mox_pairs_of_f8(f, tables->t[0], _mm512_unpackhi_epi8(zero, codes));
}

#endif

/* The byte at bit 8 i of each lane, as a float. 0x6a: the low 8 bits of `codes` exclusive-or those of 2^23 (+ 128 for
 * two's complement), the rest of it as it is. */
MOX_KERNEL_INLINE __m512i mox_pairs_byte(moxie_dtype element, __m512i codes, __m512i zero, int i)
{
    const __m512i base = _mm512_set1_epi32(0x4b000000 | mox_element_sign_bits(element));
    const __m512i moved = i == 0 ? codes : _mm512_srli_epi32(codes, (unsigned)(8 * i));
    const __m512i counted = _mm512_ternarylogic_epi32(moved, _mm512_set1_epi32(0xff), base, 0x6a);
    return _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(counted), _mm512_castsi512_ps(zero)));
}

MOX_KERNEL_INLINE void mox_pairs_quads(moxie_dtype element, __m512i codes, __m512i zero, __m512i pairs[2])
{
    for (int i = 0; i < 2; i++) {
        const __m512i even = mox_pairs_byte(element, codes, zero, 2 * i);
        const __m512i odd = mox_pairs_byte(element, codes, zero, 2 * i + 1);
        pairs[i] = _mm512_or_si512(_mm512_srli_epi32(even, 16), odd);
    }
}

/* Lines 4q .. 4q+3 of the step whose codes begin at `step`; `zero` from mox_pairs_zeros() or mox_pairs_no_zeros(). */
MOX_KERNEL_INLINE void mox_pairs_quarter(moxie_dtype element, bool zeros, const mox_pair_tables *tables,
                                         const uint8_t *step, int q, __m512i zero, __m512i pairs[4])
{
    const __m512i *line = (const __m512i *)(const void *)step;
    switch (mox_pairs_order(element)) {
    case MOX_PANEL_NIBBLES: mox_pairs_nibbles(element, zeros, tables, _mm512_loadu_si512(line + q), zero, pairs); break;
    case MOX_PANEL_PLANES:
        mox_pairs_planes(tables, _mm512_loadu_si512(line + q), _mm512_loadu_si512(line + 4 + q / 2), q % 2, pairs);
        break;
    case MOX_PANEL_ZIPPED:
        for (int i = 0; i < 2; i++)
            mox_pairs_zipped(element, tables, _mm512_loadu_si512(line + 2 * q + i), pairs + 2 * i);
        break;
    case MOX_PANEL_QUADS:
        for (int i = 0; i < 2; i++)
            mox_pairs_quads(element, _mm512_loadu_si512(line + 2 * q + i), zero, pairs + 2 * i);
        break;
    default:
        for (int i = 0; i < 4; i++)
            pairs[i] = _mm512_loadu_si512(line + 4 * q + i);
        break;
    }
}

#endif
