/* SPDX-License-Identifier: Apache-2.0
 *
 * block_fit_levels.h - the nearest of iq4_nl's 16 levels, for the loops of block_fit.h:
 *
 *     -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
 *
 * A code is the number of middles between two levels that v is above; NaN is above none.
 */
#ifndef MOX_QUANT_BLOCK_FIT_LEVELS_H
#define MOX_QUANT_BLOCK_FIT_LEVELS_H

#include <stdint.h>

#include "quant/block_fit_vector.h"

enum { MOX_FIT_LEVEL_TRIES = 8 };

/* The level: -127 and the steps up to it. */
MOX_FIT_INLINE float mox_fit_level(float v)
{
    float level = -127;
#define STEP(middle, step) level += v > (middle) ? (step) : 0.0f
    STEP(-115.5f, 23), STEP(-93.5f, 21), STEP(-74, 18), STEP(-57, 16), STEP(-42, 14), STEP(-28.5f, 13), STEP(-16, 12);
    STEP(-4.5f, 11), STEP(7, 12), STEP(19, 12), STEP(31.5f, 13), STEP(45.5f, 15), STEP(61, 16), STEP(79, 20);
    STEP(101, 24);
#undef STEP
    return level;
}

MOX_FIT_INLINE int32_t mox_fit_level_code(float v)
{
    return (v > -115.5f) + (v > -93.5f) + (v > -74) + (v > -57) + (v > -42) + (v > -28.5f) + (v > -16) + (v > -4.5f) +
           (v > 7) + (v > 19) + (v > 31.5f) + (v > 45.5f) + (v > 61) + (v > 79) + (v > 101);
}

#ifdef __AVX2__
/* Eight values at once: a search in four steps, each of which looks up the middle of what is left. Masks are -1, so
 * sums of them are the bits of the code found so far, negated; tables are in the order of negated indices. */
typedef struct mox_fit_place {
    __m256i code; /* negated */
    __m256 level;
} mox_fit_place;

MOX_FIT_INLINE __m256i mox_fit_above(__m256 v, __m256 middle)
{
    return _mm256_castps_si256(_mm256_cmp_ps(v, middle, _CMP_GT_OQ));
}

MOX_FIT_INLINE mox_fit_place mox_fit_level_search(__m256 v)
{
    const __m256 third = _mm256_setr_ps(-93.5f, 79, 19, -28.5f, -93.5f, 79, 19, -28.5f);
    const __m256 fourth = _mm256_setr_ps(-115.5f, 101, 61, 31.5f, 7, -16, -42, -74);
    const __m256 even = _mm256_setr_ps(-127, 89, 53, 25, 1, -22, -49, -83);
    const __m256 odd = _mm256_setr_ps(-104, 113, 69, 38, 13, -10, -35, -65);
    const __m256i half = mox_fit_above(v, _mm256_set1_ps(-4.5f));
    const __m256 second = _mm256_blendv_ps(_mm256_set1_ps(-57), _mm256_set1_ps(45.5f), _mm256_castsi256_ps(half));
    __m256i code = _mm256_add_epi32(_mm256_add_epi32(half, half), mox_fit_above(v, second));
    const __m256i quarter = mox_fit_above(v, _mm256_permutevar_ps(third, code));
    code = _mm256_add_epi32(_mm256_add_epi32(code, code), quarter);
    const __m256i last = mox_fit_above(v, _mm256_permutevar8x32_ps(fourth, code));
    const __m256 levels[2] = { _mm256_permutevar8x32_ps(even, code), _mm256_permutevar8x32_ps(odd, code) };
    return (mox_fit_place) { _mm256_add_epi32(_mm256_add_epi32(code, code), last),
                             _mm256_blendv_ps(levels[0], levels[1], _mm256_castsi256_ps(last)) };
}
#endif

/* code[i] = the code of x[i] inverse; `count` is a multiple of MOX_FIT_LANES. */
MOX_FIT_INLINE void mox_fit_put_level_codes(const float *x, int32_t count, float inverse, uint8_t *code)
{
#ifdef __AVX2__
    for (int32_t i = 0; i < count; i += MOX_FIT_LANES) {
        const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(inverse));
        const __m256i codes = _mm256_sub_epi32(_mm256_setzero_si256(), mox_fit_level_search(v).code);
        const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
        _mm_storel_epi64((__m128i *)(void *)(code + i), _mm_packus_epi16(words, words));
    }
#else
    for (int32_t i = 0; i < count; i++)
        code[i] = (uint8_t)mox_fit_level_code(x[i] * inverse);
#endif
}

/* lx[t] = sum p l x, ll[t] = sum p l l, weight after weight, with the levels l nearest to x inverse[t]. p NULL: 1. */
MOX_FIT_INLINE void mox_fit_level_sums(const float *x, const float *p, int32_t count, const float *inverse, float *lx,
                                       float *ll)
{
#ifdef __AVX2__
    const __m256 scale = _mm256_loadu_ps(inverse);
    __m256 sums[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };
    for (int32_t i = 0; i < count; i++) {
        const __m256 weight = _mm256_set1_ps(x[i]);
        const __m256 l = mox_fit_level_search(_mm256_mul_ps(weight, scale)).level;
        const __m256 pl = p ? _mm256_mul_ps(_mm256_set1_ps(p[i]), l) : l;
        sums[0] = _mm256_add_ps(sums[0], _mm256_mul_ps(pl, weight));
        sums[1] = _mm256_add_ps(sums[1], _mm256_mul_ps(pl, l));
    }
    _mm256_storeu_ps(lx, sums[0]);
    _mm256_storeu_ps(ll, sums[1]);
#else
    for (int t = 0; t < MOX_FIT_LEVEL_TRIES; t++)
        lx[t] = ll[t] = 0;
    for (int32_t i = 0; i < count; i++)
        for (int t = 0; t < MOX_FIT_LEVEL_TRIES; t++) {
            const float l = mox_fit_level(x[i] * inverse[t]), pl = p ? p[i] * l : l;
            lx[t] += pl * x[i];
            ll[t] += pl * l;
        }
#endif
}

#endif
