/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_halves.h - the part of the emulated immintrin.h whose instructions work on each lane, or inside each 16
 * bytes: the AVX2 instruction of that name does each half.
 */
#ifndef EMULATED_HALVES_H
#define EMULATED_HALVES_H

/* ---- constants, loads, stores ---------------------------------------------------------------------------------- */

EMULATED __m512i emulated_join(__m256i low, __m256i high)
{
    return (emulated_lanes) { .half = { low, high } }.i;
}

EMULATED __m512 emulated_join_ps(__m256 low, __m256 high)
{
    return (emulated_lanes) { .half_f = { low, high } }.f;
}

EMULATED __m512 _mm512_setzero_ps(void)
{
    return emulated_join_ps(_mm256_setzero_ps(), _mm256_setzero_ps());
}

EMULATED __m512i _mm512_setzero_si512(void)
{
    return emulated_join(_mm256_setzero_si256(), _mm256_setzero_si256());
}

EMULATED __m512 _mm512_set1_ps(float x)
{
    return emulated_join_ps(_mm256_set1_ps(x), _mm256_set1_ps(x));
}

EMULATED __m512i _mm512_set1_epi8(char x)
{
    return emulated_join(_mm256_set1_epi8(x), _mm256_set1_epi8(x));
}

EMULATED __m512i _mm512_set1_epi16(short x)
{
    return emulated_join(_mm256_set1_epi16(x), _mm256_set1_epi16(x));
}

EMULATED __m512i _mm512_set1_epi32(int x)
{
    return emulated_join(_mm256_set1_epi32(x), _mm256_set1_epi32(x));
}

EMULATED __m512i _mm512_set_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l,
                                  int m, int n, int o, int p)
{
    return emulated_join(_mm256_set_epi32(i, j, k, l, m, n, o, p), _mm256_set_epi32(a, b, c, d, e, f, g, h));
}

EMULATED __m512i _mm512_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l,
                                   int m, int n, int o, int p)
{
    return _mm512_set_epi32(p, o, n, m, l, k, j, i, h, g, f, e, d, c, b, a);
}

EMULATED __m512i _mm512_loadu_si512(const void *from)
{
    __m512i a;
    memcpy(&a, from, sizeof a);
    return a;
}

EMULATED __m512 _mm512_loadu_ps(const void *from)
{
    return (__m512)_mm512_loadu_si512(from);
}

EMULATED __m512i _mm512_load_si512(const void *from)
{
    emulated_aligned(from);
    return _mm512_loadu_si512(from);
}

EMULATED __m512 _mm512_load_ps(const void *from)
{
    return (__m512)_mm512_load_si512(from);
}

EMULATED void _mm512_storeu_ps(void *to, __m512 a)
{
    memcpy(to, &a, sizeof a);
}

EMULATED void _mm512_store_si512(void *to, __m512i a)
{
    emulated_aligned(to);
    memcpy(to, &a, sizeof a);
}

EMULATED void _mm512_store_ps(void *to, __m512 a)
{
    _mm512_store_si512(to, (__m512i)a);
}

/* ---- casts, halves and quarters -------------------------------------------------------------------------------- */

EMULATED __m512 _mm512_castsi512_ps(__m512i a)
{
    return (__m512)a;
}

EMULATED __m512i _mm512_castps_si512(__m512 a)
{
    return (__m512i)a;
}

EMULATED __m512h _mm512_castsi512_ph(__m512i a)
{
    return (__m512h)a;
}

EMULATED __m512i _mm512_castph_si512(__m512h a)
{
    return (__m512i)a;
}

EMULATED __m256i _mm512_extracti64x4_epi64(__m512i a, int half)
{
    return (emulated_lanes) { .i = a }.half[half];
}

EMULATED __m256i _mm512_castsi512_si256(__m512i a)
{
    return _mm512_extracti64x4_epi64(a, 0);
}

EMULATED __m512i _mm512_castsi256_si512(__m256i a)
{
    return emulated_join(a, _mm256_set1_epi8((char)0xa5));
}

EMULATED __m512i _mm512_inserti64x4(__m512i a, __m256i b, int half)
{
    emulated_lanes x = { .i = a };
    x.half[half] = b;
    return x.i;
}

EMULATED __m512i _mm512_broadcast_i32x4(__m128i a)
{
    return emulated_join(_mm256_broadcastsi128_si256(a), _mm256_broadcastsi128_si256(a));
}

/* ---- one operand ----------------------------------------------------------------------------------------------- */

EMULATED __m512 _mm512_cvtepi32_ps(__m512i a)
{
    const emulated_lanes x = { .i = a };
    return emulated_join_ps(_mm256_cvtepi32_ps(x.half[0]), _mm256_cvtepi32_ps(x.half[1]));
}

EMULATED __m512i _mm512_cvtps_epi32(__m512 a)
{
    const emulated_lanes x = { .f = a };
    return emulated_join(_mm256_cvtps_epi32(x.half_f[0]), _mm256_cvtps_epi32(x.half_f[1]));
}

EMULATED __m512i _mm512_cvtepu8_epi32(__m128i a)
{
    return emulated_join(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}

EMULATED __m512i _mm512_cvtepi8_epi32(__m128i a)
{
    return emulated_join(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)));
}

EMULATED __m512i _mm512_cvtepi16_epi32(__m256i a)
{
    return emulated_join(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(a)),
                         _mm256_cvtepi16_epi32(_mm256_extracti128_si256(a, 1)));
}

EMULATED __m512 _mm512_cvtph_ps(__m256i a)
{
    return emulated_join_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(a)),
                            _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}

EMULATED __m256i _mm512_cvtps_ph(__m512 a, const int rounding)
{
    const emulated_lanes x = { .f = a };
    return _mm256_set_m128i(_mm256_cvtps_ph(x.half_f[1], rounding), _mm256_cvtps_ph(x.half_f[0], rounding));
}

#define EMULATED_SHIFT(name)                                                                                           \
    EMULATED __m512i _mm512_##name(__m512i a, unsigned bits)                                                           \
    {                                                                                                                  \
        const emulated_lanes x = { .i = a };                                                                           \
        return emulated_join(_mm256_##name(x.half[0], (int)bits), _mm256_##name(x.half[1], (int)bits));                \
    }
EMULATED_SHIFT(slli_epi16)
EMULATED_SHIFT(slli_epi32)
EMULATED_SHIFT(srli_epi16)
EMULATED_SHIFT(srli_epi32)
EMULATED_SHIFT(srai_epi16)
EMULATED_SHIFT(srai_epi32)
#undef EMULATED_SHIFT

/* ---- two operands and three ------------------------------------------------------------------------------------ */

#define EMULATED_INTEGERS(name, by)                                                                                    \
    EMULATED __m512i _mm512_##name(__m512i a, __m512i b)                                                               \
    {                                                                                                                  \
        const emulated_lanes x = { .i = a }, y = { .i = b };                                                           \
        return emulated_join(_mm256_##by(x.half[0], y.half[0]), _mm256_##by(x.half[1], y.half[1]));                    \
    }
EMULATED_INTEGERS(and_si512, and_si256)
EMULATED_INTEGERS(andnot_si512, andnot_si256)
EMULATED_INTEGERS(or_si512, or_si256)
EMULATED_INTEGERS(xor_si512, xor_si256)
EMULATED_INTEGERS(add_epi16, add_epi16)
EMULATED_INTEGERS(add_epi32, add_epi32)
EMULATED_INTEGERS(sub_epi8, sub_epi8)
EMULATED_INTEGERS(sub_epi16, sub_epi16)
EMULATED_INTEGERS(sub_epi32, sub_epi32)
EMULATED_INTEGERS(subs_epu16, subs_epu16)
EMULATED_INTEGERS(mulhi_epu16, mulhi_epu16)
EMULATED_INTEGERS(mullo_epi32, mullo_epi32)
EMULATED_INTEGERS(min_epu8, min_epu8)
EMULATED_INTEGERS(max_epu8, max_epu8)
EMULATED_INTEGERS(max_epu32, max_epu32)
EMULATED_INTEGERS(min_epi32, min_epi32)
EMULATED_INTEGERS(sllv_epi32, sllv_epi32)
EMULATED_INTEGERS(srav_epi32, srav_epi32)
EMULATED_INTEGERS(unpacklo_epi8, unpacklo_epi8)
EMULATED_INTEGERS(unpackhi_epi8, unpackhi_epi8)
EMULATED_INTEGERS(unpacklo_epi16, unpacklo_epi16)
EMULATED_INTEGERS(unpackhi_epi16, unpackhi_epi16)
EMULATED_INTEGERS(shuffle_epi8, shuffle_epi8)
#undef EMULATED_INTEGERS

#define EMULATED_FLOATS(name)                                                                                          \
    EMULATED __m512 _mm512_##name(__m512 a, __m512 b)                                                                  \
    {                                                                                                                  \
        const emulated_lanes x = { .f = a }, y = { .f = b };                                                           \
        return emulated_join_ps(_mm256_##name(x.half_f[0], y.half_f[0]), _mm256_##name(x.half_f[1], y.half_f[1]));     \
    }
EMULATED_FLOATS(add_ps)
EMULATED_FLOATS(sub_ps)
EMULATED_FLOATS(mul_ps)
EMULATED_FLOATS(div_ps)
EMULATED_FLOATS(min_ps)
EMULATED_FLOATS(max_ps)
EMULATED_FLOATS(andnot_ps)
EMULATED_FLOATS(xor_ps)
#undef EMULATED_FLOATS

#define EMULATED_FUSED(name)                                                                                           \
    EMULATED __m512 _mm512_##name(__m512 a, __m512 b, __m512 c)                                                        \
    {                                                                                                                  \
        const emulated_lanes x = { .f = a }, y = { .f = b }, z = { .f = c };                                           \
        return emulated_join_ps(_mm256_##name(x.half_f[0], y.half_f[0], z.half_f[0]),                                  \
                                _mm256_##name(x.half_f[1], y.half_f[1], z.half_f[1]));                                 \
    }
EMULATED_FUSED(fmadd_ps)
EMULATED_FUSED(fmsub_ps)
EMULATED_FUSED(fnmadd_ps)
#undef EMULATED_FUSED

/* `how` is one of _CMP_*. */
EMULATED __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, const int how)
{
    const emulated_lanes x = { .f = a }, y = { .f = b };
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(x.half_f[0], y.half_f[0], how));
    const int high = _mm256_movemask_ps(_mm256_cmp_ps(x.half_f[1], y.half_f[1], how));
    return (__mmask16)(low | high << 8);
}

/* Each bit of the result is the bit of `table` that three bits number: of a (4), of b (2), of c (1). */
EMULATED __m512i _mm512_ternarylogic_epi32(__m512i a, __m512i b, __m512i c, const int table)
{
    __m512i result = _mm512_setzero_si512();
    for (int i = 0; i < 8; i++)
        if (table >> i & 1)
            result |= ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
    return result;
}

/* ---- dot products ---------------------------------------------------------------------------------------------- */

/* Four unsigned bytes of a by four signed ones of b: no sum saturates. Their even bytes and their odd ones are words,
 * whose products and sums of two are exact. */
EMULATED __m256i _mm256_dpbusd_avx_epi32(__m256i sum, __m256i a, __m256i b)
{
    const __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(0xff)), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}

EMULATED __m512i _mm512_dpbusd_epi32(__m512i sum, __m512i a, __m512i b)
{
    const emulated_lanes s = { .i = sum }, x = { .i = a }, y = { .i = b };
    return emulated_join(_mm256_dpbusd_avx_epi32(s.half[0], x.half[0], y.half[0]),
                         _mm256_dpbusd_avx_epi32(s.half[1], x.half[1], y.half[1]));
}

/* Two signed words of a by two of b. */
EMULATED __m512i _mm512_dpwssd_epi32(__m512i sum, __m512i a, __m512i b)
{
    const emulated_lanes s = { .i = sum }, x = { .i = a }, y = { .i = b };
    return emulated_join(_mm256_add_epi32(s.half[0], _mm256_madd_epi16(x.half[0], y.half[0])),
                         _mm256_add_epi32(s.half[1], _mm256_madd_epi16(x.half[1], y.half[1])));
}

/* Two bf16 of a by two of b: the upper pair first, each by a fused multiply-add. Rounded to nearest with subnormals
 * zero, whatever MXCSR says; here MXCSR must say so. */
EMULATED __m512 _mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000), x = (__m512i)a, y = (__m512i)b;
    if ((_mm_getcsr() & 0xe040u) != 0x8040u)
        emulated_fault("VDPBF16PS while MXCSR does not round to nearest with subnormals zero");
    sum = _mm512_fmadd_ps((__m512)(x & upper), (__m512)(y & upper), sum);
    return _mm512_fmadd_ps((__m512)_mm512_slli_epi32(x, 16), (__m512)_mm512_slli_epi32(y, 16), sum);
}

#endif
