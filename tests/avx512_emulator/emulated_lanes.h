/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_lanes.h - the part of the emulated immintrin.h that moves data across lanes, narrows it, or has masks: loops
 * over lanes, in emulated_lanes_avx512.c.
 */
#ifndef EMULATED_LANES_H
#define EMULATED_LANES_H

/* ---- permutations ---------------------------------------------------------------------------------------------- */

__m512i _mm512_permutexvar_epi16(__m512i index, __m512i a);
__m512i _mm512_permutexvar_epi8(__m512i index, __m512i a);
__m512 _mm512_permutexvar_ps(__m512i index, __m512 a);
__m512i _mm512_permutex2var_epi8(__m512i a, __m512i index, __m512i b);
__m512 _mm512_permutex2var_ps(__m512 a, __m512i index, __m512 b);
__m512i _mm512_shuffle_epi32(__m512i a, int order);
__m512 _mm512_permute_ps(__m512 a, int order);
__m512i _mm512_shuffle_i32x4(__m512i a, __m512i b, int order);
__m512 _mm512_shuffle_f32x4(__m512 a, __m512 b, int order);
__m512i _mm512_i32gather_epi32(__m512i index, const void *base, int scale);

/* ---- narrower lanes, one lane ---------------------------------------------------------------------------------- */

__m256i _mm512_cvtepi32_epi16(__m512i a);
__m128i _mm512_cvtepi32_epi8(__m512i a);
__m128i _mm256_cvtepi16_epi8(__m256i a);
unsigned _mm512_reduce_max_epu32(__m512i a);
int _mm512_reduce_or_epi32(__m512i a);
__m512 _mm512_scalef_ps(__m512 a, __m512 b);

/* ---- comparisons ----------------------------------------------------------------------------------------------- */

__mmask16 _mm512_cmpge_epu32_mask(__m512i a, __m512i b);
__mmask16 _mm512_test_epi32_mask(__m512i a, __m512i b);
__mmask32 _mm512_cmpeq_epi16_mask(__m512i a, __m512i b);
__mmask32 _mm512_cmplt_epu16_mask(__m512i a, __m512i b);
__mmask32 _mm512_cmpgt_epu16_mask(__m512i a, __m512i b);
__mmask32 _mm512_cmpge_epu16_mask(__m512i a, __m512i b);
__mmask32 _mm512_test_epi16_mask(__m512i a, __m512i b);
__mmask32 _mm512_mask_cmplt_epu16_mask(__mmask32 k, __m512i a, __m512i b);
__mmask16 _mm_cmpeq_epi8_mask(__m128i a, __m128i b);
__mmask16 _mm256_cmpeq_epi16_mask(__m256i a, __m256i b);

/* ---- masked lanes ---------------------------------------------------------------------------------------------- */

__m512i _mm512_mask_blend_epi16(__mmask32 k, __m512i a, __m512i b);
__m512i _mm512_mask_mov_epi16(__m512i a, __mmask32 k, __m512i b);
__m512i _mm512_mask_mov_epi32(__m512i a, __mmask16 k, __m512i b);
__m512 _mm512_mask_mov_ps(__m512 a, __mmask16 k, __m512 b);
__m512i _mm512_mask_broadcast_i32x4(__m512i from, __mmask16 k, __m128i a);
__m512i _mm512_mask_add_epi16(__m512i from, __mmask32 k, __m512i a, __m512i b);
__m512i _mm512_maskz_add_epi16(__mmask32 k, __m512i a, __m512i b);
__m512i _mm512_mask_permutexvar_epi16(__m512i from, __mmask32 k, __m512i index, __m512i a);
__m512i _mm512_maskz_permutexvar_epi16(__mmask32 k, __m512i index, __m512i a);
__m512i _mm512_maskz_compress_epi32(__mmask16 k, __m512i a);
void _mm512_mask_store_ps(void *to, __mmask16 k, __m512 a);

#endif
