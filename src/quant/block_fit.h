/* SPDX-License-Identifier: Apache-2.0
 *
 * block_fit.h - the loops that fit the scale of a run of weights, written so that compilers vectorise them.
 *
 *     run of 16 to 64 weights x, importances p
 *         symmetric     x ~ d l          l in [lowest, highest]
 *         with minimum  x ~ d l + m      l in [0, highest]
 *         levels        x ~ d v(l)       v: the 16 levels of iq4_nl
 *         f4            x ~ d v(l)       v: twice the numbers of e2m1; d is given
 *
 * Each takes scales to try. Under one, the nearest integers l give sums  sum p l x, sum p l l, ...  from which the d
 * (and m) with the least  sum p (x - d l - m)^2  follows. The try with the least error wins, the first of equals.
 *
 * block_fit.c, block_fit_avx2.c and block_fit_avx512.c compile these lines for their instruction sets. Every operation
 * is one of IEEE 754 and each try has sums of its own, made weight after weight, so all give the same bits.
 * Thread-safe.
 */
#ifndef MOX_QUANT_BLOCK_FIT_H
#define MOX_QUANT_BLOCK_FIT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOX_FIT_LANES = 8, MOX_FIT_TRIES = 16, MOX_FIT_LEVEL_TRIES = 8 };

/* A run, and what integers its type has. `count` is a multiple of MOX_FIT_LANES. */
typedef struct mox_fit_run {
    const float *x, *p;
    int32_t count;
    float lowest, highest;
} mox_fit_run;

typedef struct mox_fit {
    float d, m;
} mox_fit;

typedef struct mox_fit_loops {
    /* inverse [MOX_FIT_TRIES]: 1 / scale of each try */
    mox_fit (*symmetric)(const mox_fit_run *run, const float *inverse);
    mox_fit (*minimum)(const mox_fit_run *run, const float *inverse, float low, bool free_sign);
    mox_fit (*levels)(const mox_fit_run *run, const float *inverse); /* [MOX_FIT_LEVEL_TRIES] */
    /* The one of MOX_FIT_TRIES d and m under which x ~ d l + m has the least error. d 0: x ~ m. */
    int (*choose)(const mox_fit_run *run, const float *d, const float *m);
    /* Smallest and largest weight. */
    void (*extent)(const float *x, int32_t count, float *low, float *high);
    /* code[i] = x[i] inverse to nearest, halves away from 0, within 127. */
    void (*bytes)(const float *x, float inverse, int32_t count, uint8_t *code);
    /* code[i] = the integer nearest to (x[i] - m) inverse, less `lowest` */
    void (*codes)(const mox_fit_run *run, float inverse, float m, uint8_t *code);
    void (*level_codes)(const mox_fit_run *run, float inverse, uint8_t *code);
    /* Codes under d, whose inverse is given too; returns their error. Ties go to the smaller magnitude, as in ggml. */
    float (*f4)(const mox_fit_run *run, float d, float inverse, uint8_t *code);
} mox_fit_loops;

/* The pointers are NULL when the build has no such instructions. */
extern const mox_fit_loops mox_fit_loops_any, mox_fit_loops_avx2, mox_fit_loops_avx512;
/* The best that this processor and MOXIE_MAX_ISA allow. */
const mox_fit_loops *mox_fit_loops_best(void);

#define MOX_FIT_INLINE static inline __attribute__((always_inline))

/* To nearest, ties to even; |v| below 2^22. */
MOX_FIT_INLINE float mox_fit_nearest(float v)
{
    return (v + 0x1.8p23f) - 0x1.8p23f;
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

/* The nearest of iq4_nl's levels: -127 and the steps up to it. */
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

/* x ~ d l: the gain of a try is (sum p l x)^2 / sum p l l. `tries` is a constant after inlining. */
MOX_FIT_INLINE mox_fit mox_fit_scaled(const mox_fit_run *run, bool levels, int tries, const float *inverse)
{
    float lx[MOX_FIT_TRIES] = { 0 }, ll[MOX_FIT_TRIES] = { 0 };
    for (int32_t i = 0; i < run->count; i++) {
        const float x = run->x[i], p = run->p[i];
        for (int t = 0; t < tries; t++) {
            const float v = x * inverse[t];
            const float l = levels ? mox_fit_level(v) : mox_fit_clamp(mox_fit_nearest(v), run->lowest, run->highest);
            const float pl = p * l;
            lx[t] += pl * x;
            ll[t] += pl * l;
        }
    }
    mox_fit best = { 0, 0 };
    double best_gain = 0;
    for (int t = 0; t < tries; t++) {
        const double a = (double)lx[t], b = (double)ll[t];
        if (b > 0 && a * a > best_gain * b) {
            best_gain = a * a / b;
            best.d = (float)(a / b);
        }
    }
    return best;
}

/* The least squares d and m of integers with these sums, m at most 0 unless `free_sign`; *error: of them, infinite for
 * a d that is not positive. Without branches, for vectors. */
MOX_FIT_INLINE void mox_fit_solve(const double x[3], double l1, double l2, double lx, bool free_sign, double *d,
                                  double *m, double *error)
{
    const double determinant = x[0] * l2 - l1 * l1;
    const double d1 = (x[0] * lx - l1 * x[1]) / determinant, m1 = (l2 * x[1] - l1 * lx) / determinant, d0 = lx / l2;
    const bool alone = (determinant <= 0) | (!free_sign & (m1 > 0));
    const double a = alone ? d0 : d1, b = alone ? 0 : m1;
    const double e = x[2] - 2 * (a * lx + b * x[1]) + a * a * l2 + 2 * a * b * l1 + b * b * x[0];
    *error = a > 0 ? e : (double)INFINITY;
    *d = a;
    *m = b;
}

MOX_FIT_INLINE mox_fit mox_fit_shifted(const mox_fit_run *run, const float *inverse, float low, bool free_sign)
{
    float l1[MOX_FIT_TRIES] = { 0 }, l2[MOX_FIT_TRIES] = { 0 }, lx[MOX_FIT_TRIES] = { 0 };
    double sums[3] = { 0 }, d[MOX_FIT_TRIES], m[MOX_FIT_TRIES], error[MOX_FIT_TRIES];
    for (int32_t i = 0; i < run->count; i++) {
        const float x = run->x[i], p = run->p[i], above = x - low;
        sums[0] += (double)p;
        sums[1] += (double)(p * x);
        sums[2] += (double)(p * x * x);
        for (int t = 0; t < MOX_FIT_TRIES; t++) {
            const float l = mox_fit_clamp(mox_fit_nearest(above * inverse[t]), 0, run->highest), pl = p * l;
            l1[t] += pl;
            l2[t] += pl * l;
            lx[t] += pl * x;
        }
    }
    for (int t = 0; t < MOX_FIT_TRIES; t++)
        mox_fit_solve(sums, (double)l1[t], (double)l2[t], (double)lx[t], free_sign, &d[t], &m[t], &error[t]);
    int best = 0;
    for (int t = 1; t < MOX_FIT_TRIES; t++)
        best = error[t] < error[best] ? t : best;
    return error[best] < (double)INFINITY ? (mox_fit) { (float)d[best], (float)m[best] } : (mox_fit) { 0, 0 };
}

static inline void mox_fit_extent_of(const float *x, int32_t count, float *low, float *high)
{
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
}

static inline void mox_fit_bytes_of(const float *x, float inverse, int32_t count, uint8_t *code)
{
    for (int32_t i = 0; i < count; i++) {
        const float product = x[i] * inverse, v = mox_fit_clamp(product == product ? product : 0, -127, 127);
        code[i] = (uint8_t)(int32_t)(v + copysignf(0.5f, v));
    }
}

static inline mox_fit mox_fit_symmetric_of(const mox_fit_run *run, const float *inverse)
{
    return mox_fit_scaled(run, false, MOX_FIT_TRIES, inverse);
}

static inline mox_fit mox_fit_levels_of(const mox_fit_run *run, const float *inverse)
{
    return mox_fit_scaled(run, true, MOX_FIT_LEVEL_TRIES, inverse);
}

static inline mox_fit mox_fit_minimum_of(const mox_fit_run *run, const float *inverse, float low, bool free_sign)
{
    return mox_fit_shifted(run, inverse, low, free_sign);
}

static inline int mox_fit_choose_of(const mox_fit_run *run, const float *d, const float *m)
{
    float inverse[MOX_FIT_TRIES], error[MOX_FIT_TRIES] = { 0 };
    for (int t = 0; t < MOX_FIT_TRIES; t++)
        inverse[t] = 1.0f / (d[t] == 0 ? 1.0f : d[t]);
    for (int32_t i = 0; i < run->count; i++) {
        const float x = run->x[i], p = run->p[i];
        for (int t = 0; t < MOX_FIT_TRIES; t++) {
            const float above = x - m[t];
            const float l = mox_fit_clamp(mox_fit_nearest(above * inverse[t]), 0, run->highest);
            const float difference = l * d[t] - above;
            error[t] += p * difference * difference;
        }
    }
    int best = 0;
    for (int t = 1; t < MOX_FIT_TRIES; t++)
        best = error[t] < error[best] ? t : best;
    return best;
}

static inline void mox_fit_codes_of(const mox_fit_run *run, float inverse, float m, uint8_t *code)
{
    for (int32_t i = 0; i < run->count; i++)
        code[i] =
            (uint8_t)(int32_t)(mox_fit_clamp(mox_fit_nearest((run->x[i] - m) * inverse), run->lowest, run->highest) -
                               run->lowest);
}

static inline void mox_fit_level_codes_of(const mox_fit_run *run, float inverse, uint8_t *code)
{
    for (int32_t i = 0; i < run->count; i++)
        code[i] = (uint8_t)mox_fit_level_code(run->x[i] * inverse);
}

static inline float mox_fit_f4_of(const mox_fit_run *run, float d, float inverse, uint8_t *code)
{
    float lane[MOX_FIT_LANES] = { 0 };
    for (int32_t i = 0; i < run->count; i += MOX_FIT_LANES) {
        int32_t codes[MOX_FIT_LANES];
        for (int j = 0; j < MOX_FIT_LANES; j++) {
            const float x = run->x[i + j], v = fabsf(x * inverse);
            float level = 0; /* 0 1 2 3 4 6 8 12 */
            int32_t l = 0;
#define STEP(middle, step) level += v > (middle) ? (step) : 0.0f, l += v > (middle) ? 1 : 0
            STEP(0.5f, 1), STEP(1.5f, 1), STEP(2.5f, 1), STEP(3.5f, 1), STEP(5, 2), STEP(7, 2), STEP(10, 4);
#undef STEP
            const float difference = level * d - fabsf(x);
            lane[j] += run->p[i + j] * difference * difference;
            codes[j] = l + (x < -0.5f * d ? 8 : 0);
        }
        for (int j = 0; j < MOX_FIT_LANES; j++)
            code[i + j] = (uint8_t)codes[j];
    }
    return mox_fit_sum(lane);
}

#define MOX_FIT_LOOPS                                                                                                  \
    {                                                                                                                  \
        mox_fit_symmetric_of, mox_fit_minimum_of, mox_fit_levels_of, mox_fit_choose_of, mox_fit_extent_of,             \
            mox_fit_bytes_of, mox_fit_codes_of, mox_fit_level_codes_of, mox_fit_f4_of                                  \
    }

#endif
