/* SPDX-License-Identifier: Apache-2.0
 *
 * block_fit_vector.h - the parts of block_fit.h that compilers do not turn into vectors: the best of 16 tries, smallest
 * and largest weight, rounding. With AVX2 by its instructions, else plainly; both give the same
 * bits, down to the sign of zeros.
 */
#ifndef MOX_QUANT_BLOCK_FIT_VECTOR_H
#define MOX_QUANT_BLOCK_FIT_VECTOR_H

#include <stdint.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#define MOX_FIT_INLINE static inline __attribute__((always_inline))

enum { MOX_FIT_LANES = 8, MOX_FIT_TRIES = 16 };

/* To nearest, ties to even; of |v| from 2^22 on, some number that is as far out of range. */
MOX_FIT_INLINE float mox_fit_nearest(float v)
{
#ifdef __AVX2__
    return __builtin_nearbyintf(v);
#else
    return (v + 0x1.8p23f) - 0x1.8p23f;
#endif
}

/* NaN gives `low`: it comes of 0 times the inverse of a subnormal scale. */
MOX_FIT_INLINE float mox_fit_clamp(float v, float low, float high)
{
    v = v > low ? v : low;
    return v > high ? high : v;
}

MOX_FIT_INLINE float mox_fit_sum(const float *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* ---- the least of all tries -------------------------------------------------------------------------- */

/* The first of the least of 16 errors, none of which is NaN. */
MOX_FIT_INLINE int mox_fit_first_least(const float *error)
{
#ifdef __AVX2__
    const __m256 a = _mm256_loadu_ps(error), b = _mm256_loadu_ps(error + 8);
    __m256 least = _mm256_min_ps(a, b);
    least = _mm256_min_ps(least, _mm256_permute2f128_ps(least, least, 1));
    least = _mm256_min_ps(least, _mm256_permute_ps(least, 0x4e));
    least = _mm256_min_ps(least, _mm256_permute_ps(least, 0xb1));
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(a, least, _CMP_EQ_OQ));
    const int high = _mm256_movemask_ps(_mm256_cmp_ps(b, least, _CMP_EQ_OQ));
    return __builtin_ctz((unsigned)(low | high << 8 | 1 << 16)) & 15;
#else
    int best = 0;
    for (int t = 1; t < MOX_FIT_TRIES; t++)
        best = error[t] < error[best] ? t : best;
    return best;
#endif
}

MOX_FIT_INLINE int mox_fit_first_least_double(const double *error)
{
#ifdef __AVX2__
    __m256d part[4];
    for (int i = 0; i < 4; i++)
        part[i] = _mm256_loadu_pd(error + 4 * i);
    __m256d least = _mm256_min_pd(_mm256_min_pd(part[0], part[1]), _mm256_min_pd(part[2], part[3]));
    least = _mm256_min_pd(least, _mm256_permute2f128_pd(least, least, 1));
    least = _mm256_min_pd(least, _mm256_permute_pd(least, 5));
    unsigned equal = 1u << 16;
    for (int i = 0; i < 4; i++)
        equal |= (unsigned)_mm256_movemask_pd(_mm256_cmp_pd(part[i], least, _CMP_EQ_OQ)) << 4 * i;
    return __builtin_ctz(equal) & 15;
#else
    int best = 0;
    for (int t = 1; t < MOX_FIT_TRIES; t++)
        best = error[t] < error[best] ? t : best;
    return best;
#endif
}

/* ---- the largest gain -------------------------------------------------------------------------------- */

/* a / b of the try with the largest a a / b; 0: none is above 0. One after the other. */
MOX_FIT_INLINE float mox_fit_largest_gain_in_turn(int tries, const float *lx, const float *ll)
{
    float best = 0;
    double best_gain = 0;
    for (int t = 0; t < tries; t++) {
        const double a = (double)lx[t], b = (double)ll[t];
        if (b > 0 && a * a > best_gain * b) {
            best_gain = a * a / b;
            best = (float)(a / b);
        }
    }
    return best;
}

/* The same. Where the largest gain is ahead of all others by more than they are rounded, or the others have the same
 * sums, it is the one that wins in turn; else they are compared in turn. */
MOX_FIT_INLINE float mox_fit_largest_gain(int tries, const float *lx, const float *ll)
{
#ifdef __AVX2__
    __m256d gain[MOX_FIT_TRIES / 4], most = _mm256_setzero_pd();
    for (int i = 0; i < tries / 4; i++) {
        const __m256d a = _mm256_cvtps_pd(_mm_loadu_ps(lx + 4 * i)), b = _mm256_cvtps_pd(_mm_loadu_ps(ll + 4 * i));
        const __m256d positive = _mm256_cmp_pd(b, _mm256_setzero_pd(), _CMP_GT_OQ);
        gain[i] = _mm256_and_pd(_mm256_div_pd(_mm256_mul_pd(a, a), b), positive);
        most = _mm256_max_pd(gain[i], most);
    }
    most = _mm256_max_pd(most, _mm256_permute2f128_pd(most, most, 1));
    most = _mm256_max_pd(most, _mm256_permute_pd(most, 5));
    const __m256d near = _mm256_mul_pd(most, _mm256_set1_pd(1 - 1e-9));
    unsigned ahead = 0;
    for (int i = 0; i < tries / 4; i++)
        ahead |= (unsigned)_mm256_movemask_pd(_mm256_cmp_pd(gain[i], near, _CMP_NLT_UQ)) << 4 * i;
    if (!(_mm256_cvtsd_f64(most) > 0))
        return mox_fit_largest_gain_in_turn(tries, lx, ll);
    const int best = __builtin_ctz(ahead | 1u << 16) & 15;
    for (unsigned left = ahead & (ahead - 1); left != 0; left &= left - 1) {
        const int t = __builtin_ctz(left);
        if (lx[t] != lx[best] || ll[t] != ll[best])
            return mox_fit_largest_gain_in_turn(tries, lx, ll);
    }
    return lx[best] / ll[best];
#else
    return mox_fit_largest_gain_in_turn(tries, lx, ll);
#endif
}

/* ---- smallest and largest weight --------------------------------------------------------------------- */

static inline void mox_fit_extent_of(const float *x, int32_t count, float *low, float *high)
{
#ifdef __AVX2__
    __m256 lows = _mm256_loadu_ps(x), highs = lows;
    for (int32_t i = MOX_FIT_LANES; i < count; i += MOX_FIT_LANES) {
        const __m256 v = _mm256_loadu_ps(x + i);
        lows = _mm256_min_ps(v, lows);
        highs = _mm256_max_ps(v, highs);
    }
    __m128 a = _mm_min_ps(_mm256_extractf128_ps(lows, 1), _mm256_castps256_ps128(lows));
    __m128 b = _mm_max_ps(_mm256_extractf128_ps(highs, 1), _mm256_castps256_ps128(highs));
    a = _mm_min_ps(_mm_movehl_ps(a, a), a);
    b = _mm_max_ps(_mm_movehl_ps(b, b), b);
    *low = _mm_cvtss_f32(_mm_min_ss(_mm_movehdup_ps(a), a));
    *high = _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(b), b));
#else
    float lows[MOX_FIT_LANES], highs[MOX_FIT_LANES];
    for (int j = 0; j < MOX_FIT_LANES; j++)
        lows[j] = highs[j] = x[j];
    for (int32_t i = MOX_FIT_LANES; i < count; i += MOX_FIT_LANES)
        for (int j = 0; j < MOX_FIT_LANES; j++) {
            lows[j] = x[i + j] < lows[j] ? x[i + j] : lows[j];
            highs[j] = x[i + j] > highs[j] ? x[i + j] : highs[j];
        }
    for (int half = MOX_FIT_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) {
            lows[j] = lows[j + half] < lows[j] ? lows[j + half] : lows[j];
            highs[j] = highs[j + half] > highs[j] ? highs[j + half] : highs[j];
        }
    *low = lows[0];
    *high = highs[0];
#endif
}

#endif
