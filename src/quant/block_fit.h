/* SPDX-License-Identifier: Apache-2.0
 *
 * block_fit.h - the loops that fit the scale of a run of weights, written so that compilers vectorise them.
 *
 *     run of 16 to 64 weights x, importances p
 *         symmetric     x ~ d l          l in [lowest, highest]
 *         with minimum  x ~ d l + m      l in [0, highest]
 *         levels        x ~ d v(l)       v: the 16 levels of iq4_nl
 *         f4            x ~ d v(l)       v: twice the numbers of e2m1; d is given
 *         book          x ~ d v(e)       e: an entry of a code book for each 8 or 4 weights; d is given
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
#include <stddef.h>
#include <stdint.h>

#include "quant/block_fit_levels.h"
#include "quant/block_fit_vector.h"
#include "quant/code_book_search.h"

/* A run, and what integers its type has. `count` is a multiple of MOX_FIT_LANES. p NULL: all weigh the same, 1. */
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
    /* Entries under a scale above 0: words of the code book's lists, one for each 8 weights, or for each 4. */
    mox_book_sums (*book)(const mox_book_run *run, float scale, uint32_t *words);
    /* The same where each 8 weights have one of two sets of levels, the second if down: that of the less cost, or the
     * known one; known NULL: none is. Books of 2 bits. */
    mox_book_sums (*shifted)(const mox_book_run *run, float scale, const uint8_t *known, uint32_t *words,
                             uint8_t *down);
    /* Magnitudes a and signs, a bit each, of 8 weights (code_book_search.h). */
    void (*signs)(const float *x, const float *p, int32_t count, bool even, float *a, uint8_t *signs);
} mox_fit_loops;

/* The pointers are NULL when the build has no such instructions. */
extern const mox_fit_loops mox_fit_loops_any, mox_fit_loops_avx2, mox_fit_loops_avx512;
/* The best that this processor and MOXIE_MAX_ISA allow. */
const mox_fit_loops *mox_fit_loops_best(void);

/* sum + a * b of integers, all of which are f32 numbers: the same with one rounding and with two. */
MOX_FIT_INLINE float mox_fit_add_integers(float sum, float a, float b)
{
#ifdef __FMA__
    return __builtin_fmaf(a, b, sum);
#else
    return sum + a * b;
#endif
}

/* x ~ d l: the gain of a try is (sum p l x)^2 / sum p l l. `weighted` is a constant after inlining. */
MOX_FIT_INLINE mox_fit mox_fit_scaled(const mox_fit_run *run, bool weighted, const float *inverse)
{
    float lx[MOX_FIT_TRIES] = { 0 }, ll[MOX_FIT_TRIES] = { 0 };
    for (int32_t i = 0; i < run->count; i++) {
        const float x = run->x[i], p = weighted ? run->p[i] : 1;
        for (int t = 0; t < MOX_FIT_TRIES; t++) {
            const float l = mox_fit_clamp(mox_fit_nearest(x * inverse[t]), run->lowest, run->highest);
            const float pl = weighted ? p * l : l;
            lx[t] += pl * x;
            ll[t] = weighted ? ll[t] + pl * l : mox_fit_add_integers(ll[t], l, l);
        }
    }
    return (mox_fit) { mox_fit_largest_gain(MOX_FIT_TRIES, lx, ll), 0 };
}

/* Sums of a run under all tries, and of the run alone: p, p x, p x x. */
typedef struct mox_fit_sums {
    float l1[MOX_FIT_TRIES], l2[MOX_FIT_TRIES], lx[MOX_FIT_TRIES]; /* p l, p l l, p l x */
    double x[3];
} mox_fit_sums;

/* The least squares d and m of integers with these sums, m at most 0 unless `free_sign`; error: of them, infinite for
 * a d that is not positive. Without branches, for vectors. */
MOX_FIT_INLINE mox_fit mox_fit_solve(const mox_fit_sums *s, bool free_sign)
{
    double d[MOX_FIT_TRIES], m[MOX_FIT_TRIES], error[MOX_FIT_TRIES];
    int some_alone = 0;
    for (int t = 0; t < MOX_FIT_TRIES; t++) {
        const double l1 = (double)s->l1[t], l2 = (double)s->l2[t], lx = (double)s->lx[t];
        const double determinant = s->x[0] * l2 - l1 * l1;
        d[t] = (s->x[0] * lx - l1 * s->x[1]) / determinant;
        m[t] = (l2 * s->x[1] - l1 * lx) / determinant;
        const int alone = (determinant <= 0) | (!free_sign & (m[t] > 0));
        some_alone |= alone;
        error[t] = alone;
    }
    for (int t = 0; some_alone && t < MOX_FIT_TRIES; t++) {
        d[t] = error[t] != 0 ? (double)s->lx[t] / (double)s->l2[t] : d[t];
        m[t] = error[t] != 0 ? 0 : m[t];
    }
    for (int t = 0; t < MOX_FIT_TRIES; t++) {
        const double l1 = (double)s->l1[t], l2 = (double)s->l2[t], lx = (double)s->lx[t], a = d[t], b = m[t];
        error[t] = s->x[2] - 2 * (a * lx + b * s->x[1]) + a * a * l2 + 2 * a * b * l1 + b * b * s->x[0];
    }
    for (int t = 0; t < MOX_FIT_TRIES; t++)
        error[t] = d[t] > 0 ? error[t] : (double)INFINITY;
    const int best = mox_fit_first_least_double(error);
    return error[best] < (double)INFINITY ? (mox_fit) { (float)d[best], (float)m[best] } : (mox_fit) { 0, 0 };
}

MOX_FIT_INLINE mox_fit mox_fit_shifted(const mox_fit_run *run, bool weighted, const float *inverse, float low,
                                       bool free_sign)
{
    mox_fit_sums s = { .x = { 0 } };
    for (int32_t i = 0; i < run->count; i++) {
        const float x = run->x[i], p = weighted ? run->p[i] : 1, above = x - low, px = weighted ? p * x : x;
        s.x[0] += (double)p;
        s.x[1] += (double)px;
        s.x[2] += (double)(px * x);
        for (int t = 0; t < MOX_FIT_TRIES; t++) {
            const float l = mox_fit_clamp(mox_fit_nearest(above * inverse[t]), 0, run->highest);
            const float pl = weighted ? p * l : l;
            s.l1[t] += pl;
            s.l2[t] = weighted ? s.l2[t] + pl * l : mox_fit_add_integers(s.l2[t], l, l);
            s.lx[t] += pl * x;
        }
    }
    return mox_fit_solve(&s, free_sign);
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
    return run->p ? mox_fit_scaled(run, true, inverse) : mox_fit_scaled(run, false, inverse);
}

static inline mox_fit mox_fit_levels_of(const mox_fit_run *run, const float *inverse)
{
    float lx[MOX_FIT_LEVEL_TRIES], ll[MOX_FIT_LEVEL_TRIES];
    if (run->p)
        mox_fit_level_sums(run->x, run->p, run->count, inverse, lx, ll);
    else
        mox_fit_level_sums(run->x, NULL, run->count, inverse, lx, ll);
    return (mox_fit) { mox_fit_largest_gain(MOX_FIT_LEVEL_TRIES, lx, ll), 0 };
}

static inline mox_fit mox_fit_minimum_of(const mox_fit_run *run, const float *inverse, float low, bool free_sign)
{
    return run->p ? mox_fit_shifted(run, true, inverse, low, free_sign)
                  : mox_fit_shifted(run, false, inverse, low, free_sign);
}

MOX_FIT_INLINE int mox_fit_least(const mox_fit_run *run, bool weighted, const float *d, const float *m)
{
    float inverse[MOX_FIT_TRIES], error[MOX_FIT_TRIES] = { 0 };
    for (int t = 0; t < MOX_FIT_TRIES; t++)
        inverse[t] = 1.0f / (d[t] == 0 ? 1.0f : d[t]);
    for (int32_t i = 0; i < run->count; i++) {
        const float x = run->x[i], p = weighted ? run->p[i] : 1;
        for (int t = 0; t < MOX_FIT_TRIES; t++) {
            const float above = x - m[t];
            const float l = mox_fit_clamp(mox_fit_nearest(above * inverse[t]), 0, run->highest);
            const float difference = l * d[t] - above;
            error[t] += (weighted ? p * difference : difference) * difference;
        }
    }
    return mox_fit_first_least(error);
}

static inline int mox_fit_choose_of(const mox_fit_run *run, const float *d, const float *m)
{
    return run->p ? mox_fit_least(run, true, d, m) : mox_fit_least(run, false, d, m);
}

static inline void mox_fit_codes_of(const mox_fit_run *run, float inverse, float m, uint8_t *code)
{
    /* Held here, since codes are bytes, which could be bytes of the run to a compiler. */
    const float *const x = run->x, lowest = run->lowest, highest = run->highest;
    const int32_t count = run->count;
    for (int32_t i = 0; i < count; i++)
        code[i] = (uint8_t)(int32_t)(mox_fit_clamp(mox_fit_nearest((x[i] - m) * inverse), lowest, highest) - lowest);
}

static inline void mox_fit_level_codes_of(const mox_fit_run *run, float inverse, uint8_t *code)
{
    mox_fit_put_level_codes(run->x, run->count, inverse, code);
}

MOX_FIT_INLINE float mox_fit_put_f4(const mox_fit_run *run, bool weighted, float d, float inverse, uint8_t *code)
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
            lane[j] += (weighted ? run->p[i + j] * difference : difference) * difference;
            codes[j] = l + (x < -0.5f * d ? 8 : 0);
        }
        for (int j = 0; j < MOX_FIT_LANES; j++)
            code[i + j] = (uint8_t)codes[j];
    }
    return mox_fit_sum(lane);
}

static inline float mox_fit_f4_of(const mox_fit_run *run, float d, float inverse, uint8_t *code)
{
    return run->p ? mox_fit_put_f4(run, true, d, inverse, code) : mox_fit_put_f4(run, false, d, inverse, code);
}

MOX_FIT_INLINE mox_book_sums mox_fit_book_of_bits(const mox_book_run *from, int bits, float scale, uint32_t *words)
{
    const mox_book_run run = *from;
    mox_book_lanes lanes = mox_book_no_lanes();
    const float inverse = run.levels->unit / scale;
    float cost = 0;
    for (int32_t i = 0; i < run.count; i += MOX_FIT_LANES) {
        float least;
        if (bits == 2) {
            words[i / 8] = mox_book_entry2(&run, run.levels, i, scale, inverse, &least);
            mox_book_add2(&run, run.levels, i, words[i / 8], &lanes);
        } else {
            least = mox_book_eight3(&run, i, scale, inverse, words + i / 4, &lanes);
        }
        cost += least;
    }
    return mox_book_sums_of(&lanes, cost);
}

static inline mox_book_sums mox_fit_book_of(const mox_book_run *run, float scale, uint32_t *words)
{
    return run->book->bits == 2 ? mox_fit_book_of_bits(run, 2, scale, words)
                                : mox_fit_book_of_bits(run, 3, scale, words);
}

static inline mox_book_sums mox_fit_shifted_of(const mox_book_run *from, float scale, const uint8_t *known,
                                               uint32_t *words, uint8_t *down)
{
    const mox_book_run run = *from; /* bytes of `down` could be bytes of it to a compiler */
    mox_book_lanes lanes = mox_book_no_lanes();
    const float inverse = run.levels->unit / scale;
    float cost = 0;
    for (int32_t i = 0, g = 0; i < run.count; i += MOX_FIT_LANES, g++) {
        float least[2];
        uint32_t word[2];
        int chosen = known ? known[g] : 0;
        word[0] = mox_book_entry2(&run, run.levels + chosen, i, scale, inverse, &least[0]);
        if (!known) {
            word[1] = mox_book_entry2(&run, run.levels + 1, i, scale, inverse, &least[1]);
            chosen = least[1] < least[0];
        }
        words[g] = known ? word[0] : word[chosen];
        cost += known ? least[0] : least[chosen];
        mox_book_add2(&run, run.levels + chosen, i, words[g], &lanes);
        down[g] = (uint8_t)chosen;
    }
    return mox_book_sums_of(&lanes, cost);
}

static inline void mox_fit_signs_of(const float *x, const float *p, int32_t count, bool even, float *a, uint8_t *signs)
{
    for (int32_t i = 0; i < count; i += MOX_FIT_LANES)
        signs[i / 8] = (uint8_t)mox_book_signs8(x + i, p + i, even, a + i);
}

#define MOX_FIT_LOOPS                                                                                                  \
    {                                                                                                                  \
        mox_fit_symmetric_of, mox_fit_minimum_of, mox_fit_levels_of, mox_fit_choose_of, mox_fit_extent_of,             \
            mox_fit_bytes_of, mox_fit_codes_of, mox_fit_level_codes_of, mox_fit_f4_of, mox_fit_book_of,                \
            mox_fit_shifted_of, mox_fit_signs_of                                                                       \
    }

#endif
