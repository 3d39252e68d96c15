/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_lanes_avx512.c - the instructions of emulated_lanes.h: loops over lanes.
 */
#include <immintrin.h>
#include <math.h>

/* ---- permutations ---------------------------------------------------------------------------------------------- */

/* An index has as many bits as number the lanes; those above are ignored. */
__m512i _mm512_permutexvar_epi16(__m512i index, __m512i a)
{
    const emulated_lanes at = { .i = index }, x = { .i = a };
    emulated_lanes y;
    for (int n = 0; n < 32; n++)
        y.u16[n] = x.u16[at.u16[n] & 31];
    return y.i;
}

__m512i _mm512_permutexvar_epi8(__m512i index, __m512i a)
{
    const emulated_lanes at = { .i = index }, x = { .i = a };
    emulated_lanes y;
    for (int n = 0; n < 64; n++)
        y.u8[n] = x.u8[at.u8[n] & 63];
    return y.i;
}

__m512 _mm512_permutexvar_ps(__m512i index, __m512 a)
{
    const emulated_lanes at = { .i = index }, x = { .f = a };
    emulated_lanes y;
    for (int n = 0; n < 16; n++)
        y.u32[n] = x.u32[at.u32[n] & 15];
    return y.f;
}

/* One more bit chooses b. */
__m512i _mm512_permutex2var_epi8(__m512i a, __m512i index, __m512i b)
{
    const emulated_lanes at = { .i = index }, x[2] = { { .i = a }, { .i = b } };
    emulated_lanes y;
    for (int n = 0; n < 64; n++)
        y.u8[n] = x[at.u8[n] >> 6 & 1].u8[at.u8[n] & 63];
    return y.i;
}

__m512 _mm512_permutex2var_ps(__m512 a, __m512i index, __m512 b)
{
    const emulated_lanes at = { .i = index }, x[2] = { { .f = a }, { .f = b } };
    emulated_lanes y;
    for (int n = 0; n < 16; n++)
        y.u32[n] = x[at.u32[n] >> 4 & 1].u32[at.u32[n] & 15];
    return y.f;
}

/* Inside each quarter: lane n becomes lane `order >> 2 n & 3`. */
__m512i _mm512_shuffle_epi32(__m512i a, int order)
{
    const emulated_lanes x = { .i = a };
    emulated_lanes y;
    for (int n = 0; n < 16; n++)
        y.u32[n] = x.u32[n / 4 * 4 + (order >> n % 4 * 2 & 3)];
    return y.i;
}

__m512 _mm512_permute_ps(__m512 a, int order)
{
    return (__m512)_mm512_shuffle_epi32((__m512i)a, order);
}

/* Two quarters of a, then two of b. */
__m512i _mm512_shuffle_i32x4(__m512i a, __m512i b, int order)
{
    const emulated_lanes x = { .i = a }, y = { .i = b };
    return (emulated_lanes) {
        .quarter = { x.quarter[order & 3], x.quarter[order >> 2 & 3], y.quarter[order >> 4 & 3],
                     y.quarter[order >> 6 & 3] }
    }.i;
}

__m512 _mm512_shuffle_f32x4(__m512 a, __m512 b, int order)
{
    return (__m512)_mm512_shuffle_i32x4((__m512i)a, (__m512i)b, order);
}

__m512i _mm512_i32gather_epi32(__m512i index, const void *base, int scale)
{
    const emulated_lanes at = { .i = index };
    emulated_lanes y;
    for (int n = 0; n < 16; n++)
        memcpy(&y.u32[n], (const char *)base + (int64_t)at.s32[n] * scale, sizeof y.u32[n]);
    return y.i;
}

/* ---- narrower lanes, one lane ---------------------------------------------------------------------------------- */

__m256i _mm512_cvtepi32_epi16(__m512i a)
{
    const emulated_lanes x = { .i = a };
    emulated_lanes y;
    for (int n = 0; n < 16; n++)
        y.u16[n] = (uint16_t)x.u32[n];
    return y.half[0];
}

__m128i _mm512_cvtepi32_epi8(__m512i a)
{
    const emulated_lanes x = { .i = a };
    emulated_lanes y;
    for (int n = 0; n < 16; n++)
        y.u8[n] = (uint8_t)x.u32[n];
    return y.quarter[0];
}

__m128i _mm256_cvtepi16_epi8(__m256i a)
{
    const emulated_lanes x = { .half = { a } };
    emulated_lanes y;
    for (int n = 0; n < 16; n++)
        y.u8[n] = (uint8_t)x.u16[n];
    return y.quarter[0];
}

unsigned _mm512_reduce_max_epu32(__m512i a)
{
    const emulated_lanes x = { .i = a };
    unsigned most = 0;
    for (int n = 0; n < 16; n++)
        most = x.u32[n] > most ? x.u32[n] : most;
    return most;
}

int _mm512_reduce_or_epi32(__m512i a)
{
    const emulated_lanes x = { .i = a };
    int all = 0;
    for (int n = 0; n < 16; n++)
        all |= x.s32[n];
    return all;
}

/* a 2^floor(b), rounded once; a zero or infinite power as scalbnf() has it. */
__m512 _mm512_scalef_ps(__m512 a, __m512 b)
{
    const emulated_lanes x = { .f = a }, n = { .f = b };
    emulated_lanes y;
    for (int i = 0; i < 16; i++) {
        const float power = fminf(fmaxf(floorf(n.f32[i]), -1000.0f), 1000.0f);
        y.f32[i] = isnan(n.f32[i]) ? n.f32[i] : scalbnf(x.f32[i], (int)power);
        if (isinf(n.f32[i]) && (n.f32[i] > 0 ? x.f32[i] == 0 : isinf(x.f32[i])))
            y.f32[i] = NAN;
    }
    return y.f;
}

/* ---- comparisons ----------------------------------------------------------------------------------------------- */

#define EMULATED_MASK(name, mask, lanes, member, op)                                                                   \
    mask _mm512_##name##_mask(__m512i a, __m512i b)                                                                    \
    {                                                                                                                  \
        const emulated_lanes x = { .i = a }, y = { .i = b };                                                           \
        mask m = 0;                                                                                                    \
        for (int n = 0; n < (lanes); n++)                                                                              \
            m |= (mask)((mask)((x.member[n] op y.member[n]) != 0) << n);                                               \
        return m;                                                                                                      \
    }
EMULATED_MASK(cmpge_epu32, __mmask16, 16, u32, >=)
EMULATED_MASK(test_epi32, __mmask16, 16, u32, &)
EMULATED_MASK(cmpeq_epi16, __mmask32, 32, u16, ==)
EMULATED_MASK(cmplt_epu16, __mmask32, 32, u16, <)
EMULATED_MASK(cmpgt_epu16, __mmask32, 32, u16, >)
EMULATED_MASK(cmpge_epu16, __mmask32, 32, u16, >=)
EMULATED_MASK(test_epi16, __mmask32, 32, u16, &)
#undef EMULATED_MASK

__mmask32 _mm512_mask_cmplt_epu16_mask(__mmask32 k, __m512i a, __m512i b)
{
    return k & _mm512_cmplt_epu16_mask(a, b);
}

__mmask16 _mm_cmpeq_epi8_mask(__m128i a, __m128i b)
{
    return (__mmask16)_mm_movemask_epi8(_mm_cmpeq_epi8(a, b));
}

__mmask16 _mm256_cmpeq_epi16_mask(__m256i a, __m256i b)
{
    const __m256i other = _mm256_set1_epi8(0);
    return (__mmask16)_mm512_cmpeq_epi16_mask(emulated_join(a, other), emulated_join(b, other));
}

/* ---- masked lanes ---------------------------------------------------------------------------------------------- */

/* Lanes of b where k is 1, of a elsewhere. */
__m512i _mm512_mask_blend_epi16(__mmask32 k, __m512i a, __m512i b)
{
    const emulated_lanes x = { .i = a }, y = { .i = b };
    emulated_lanes z;
    for (int n = 0; n < 32; n++)
        z.u16[n] = (k >> n & 1) != 0 ? y.u16[n] : x.u16[n];
    return z.i;
}

__m512i _mm512_mask_mov_epi16(__m512i a, __mmask32 k, __m512i b)
{
    return _mm512_mask_blend_epi16(k, a, b);
}

__m512i _mm512_mask_mov_epi32(__m512i a, __mmask16 k, __m512i b)
{
    const emulated_lanes x = { .i = a }, y = { .i = b };
    emulated_lanes z;
    for (int n = 0; n < 16; n++)
        z.u32[n] = (k >> n & 1) != 0 ? y.u32[n] : x.u32[n];
    return z.i;
}

__m512 _mm512_mask_mov_ps(__m512 a, __mmask16 k, __m512 b)
{
    return (__m512)_mm512_mask_mov_epi32((__m512i)a, k, (__m512i)b);
}

__m512i _mm512_mask_broadcast_i32x4(__m512i from, __mmask16 k, __m128i a)
{
    return _mm512_mask_mov_epi32(from, k, _mm512_broadcast_i32x4(a));
}

__m512i _mm512_mask_add_epi16(__m512i from, __mmask32 k, __m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(k, from, _mm512_add_epi16(a, b));
}

__m512i _mm512_maskz_add_epi16(__mmask32 k, __m512i a, __m512i b)
{
    return _mm512_mask_add_epi16(_mm512_setzero_si512(), k, a, b);
}

__m512i _mm512_mask_permutexvar_epi16(__m512i from, __mmask32 k, __m512i index, __m512i a)
{
    return _mm512_mask_blend_epi16(k, from, _mm512_permutexvar_epi16(index, a));
}

__m512i _mm512_maskz_permutexvar_epi16(__mmask32 k, __m512i index, __m512i a)
{
    return _mm512_mask_permutexvar_epi16(_mm512_setzero_si512(), k, index, a);
}

/* The lanes of a that k names, moved together; zeros after them. */
__m512i _mm512_maskz_compress_epi32(__mmask16 k, __m512i a)
{
    const emulated_lanes x = { .i = a };
    emulated_lanes y = { .i = _mm512_setzero_si512() };
    for (int n = 0, to = 0; n < 16; n++)
        if ((k >> n & 1) != 0)
            y.u32[to++] = x.u32[n];
    return y.i;
}

void _mm512_mask_store_ps(void *to, __mmask16 k, __m512 a)
{
    const emulated_lanes x = { .f = a };
    emulated_aligned(to);
    for (int n = 0; n < 16; n++)
        if ((k >> n & 1) != 0)
            memcpy((float *)to + n, &x.f32[n], sizeof(float));
}
