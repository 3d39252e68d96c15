/* SPDX-License-Identifier: Apache-2.0
 *
 * weight_codes.h - the loops that quantize weights, written so that compilers vectorise them.
 *
 *     w [count]          -> smallest, largest, sum of squares; or the first two alone
 *     w [count], a step  -> codes [count], one a byte      code = nearest(w / scale + zero)
 *     codes, w, a step   -> sum of squares and largest magnitude of (code - zero) * scale - w
 *     w, several scales  -> the sum of squares under each (weight_tries.h)
 *
 * weight_codes.c, weight_codes_avx2.c and weight_codes_avx512.c compile these lines for their instruction sets. Every
 * operation is one of IEEE 754 and sums have eight lanes everywhere, so all give the same bits. Thread-safe.
 */
#ifndef MOX_QUANT_WEIGHT_CODES_H
#define MOX_QUANT_WEIGHT_CODES_H

#include "format/format.h"
#include "quant/block_fit_vector.h"
#include "quant/weight_tries.h"

/* How the weights of a group become codes. */
typedef struct mox_weight_step {
    moxie_dtype element; /* of 8 bits or fewer */
    float scale;         /* block scale times (or over) global: positive */
    float zero;          /* decoded zero point, integers only */
    float low, high;     /* integers only: codes are held within, decoded */
} mox_weight_step;

typedef struct mox_weight_range {
    float low, high; /* of the weights and 0 */
    bool finite;     /* no NaN and no infinity among them */
    double squares;
} mox_weight_range;

typedef struct mox_weight_error {
    double squares;
    float worst;
} mox_weight_error;

typedef struct mox_weight_loops {
    mox_weight_range (*range)(const float *w, int64_t count);
    /* Of the weights and of *low <= 0 <= *high. */
    void (*extent)(const float *w, int64_t count, float *low, float *high);
    void (*codes)(const mox_weight_step *step, const float *w, int64_t count, uint8_t *codes);
    mox_weight_error (*error)(const mox_weight_step *step, const float *w, const uint8_t *codes, int64_t count);
    /* Adds to squares [MOX_FIT_TRIES]; p: weights of the squares, or NULL. */
    void (*tries)(const mox_weight_tries *tries, const float *w, const float *p, int64_t count, double *squares);
} mox_weight_loops;

/* The pointers are NULL when the build has no such instructions. */
extern const mox_weight_loops mox_weight_loops_any, mox_weight_loops_avx2, mox_weight_loops_avx512;
/* The best that this processor and MOXIE_MAX_ISA allow. */
const mox_weight_loops *mox_weight_loops_best(void);

enum { MOX_WEIGHT_LANES = 8 };

static inline __attribute__((always_inline)) double mox_weight_lanes(const double *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* Takes MOX_WEIGHT_LANES weights into the sums of their lanes. Squares of floats are exact in double, so one rounding
 * and two are the same. */
typedef struct mox_weight_ranges {
    double squares[MOX_WEIGHT_LANES];
    float low[MOX_WEIGHT_LANES], high[MOX_WEIGHT_LANES];
    uint32_t largest[MOX_WEIGHT_LANES];
} mox_weight_ranges;

static inline __attribute__((always_inline)) void mox_weight_range_add(const float *w, mox_weight_ranges *r)
{
#ifdef __AVX2__
    const __m256 v = _mm256_loadu_ps(w), low = _mm256_loadu_ps(r->low), high = _mm256_loadu_ps(r->high);
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
    __m256i *largest = (__m256i *)(void *)r->largest;
    _mm256_storeu_si256(largest, _mm256_max_epu32(bits, _mm256_loadu_si256(largest)));
    _mm256_storeu_ps(r->low, _mm256_min_ps(v, low));
    _mm256_storeu_ps(r->high, _mm256_max_ps(v, high));
    for (int j = 0; j < MOX_WEIGHT_LANES; j += 4) {
        const __m256d part = _mm256_cvtps_pd(_mm_loadu_ps(w + j));
        _mm256_storeu_pd(r->squares + j, _mm256_add_pd(_mm256_loadu_pd(r->squares + j), _mm256_mul_pd(part, part)));
    }
#else
    for (int j = 0; j < MOX_WEIGHT_LANES; j++) {
        const uint32_t bits = mox_f32_encode(w[j]) & 0x7fffffffu;
        r->largest[j] = bits > r->largest[j] ? bits : r->largest[j];
    }
    for (int j = 0; j < MOX_WEIGHT_LANES; j++)
        r->low[j] = w[j] < r->low[j] ? w[j] : r->low[j];
    for (int j = 0; j < MOX_WEIGHT_LANES; j++)
        r->high[j] = w[j] > r->high[j] ? w[j] : r->high[j];
    for (int j = 0; j < MOX_WEIGHT_LANES; j++)
        r->squares[j] += (double)w[j] * (double)w[j];
#endif
}

static inline mox_weight_range mox_weight_range_of(const float *w, int64_t count)
{
    mox_weight_ranges r = { .low = { 0 } };
    int64_t i = 0;
    for (; i + MOX_WEIGHT_LANES <= count; i += MOX_WEIGHT_LANES)
        mox_weight_range_add(w + i, &r);
    if (i < count) {
        float part[MOX_WEIGHT_LANES] = { 0 };
        memcpy(part, w + i, (size_t)(count - i) * sizeof *part);
        mox_weight_range_add(part, &r);
    }
    mox_weight_range range = { .finite = true, .squares = mox_weight_lanes(r.squares) };
    for (int j = 0; j < MOX_WEIGHT_LANES; j++) {
        range.low = r.low[j] < range.low ? r.low[j] : range.low;
        range.high = r.high[j] > range.high ? r.high[j] : range.high;
        range.finite = range.finite && r.largest[j] < MOX_F32_INF;
    }
    return range;
}

static inline void mox_weight_extent_of(const float *w, int64_t count, float *low, float *high)
{
    float lows[MOX_WEIGHT_LANES] = { 0 }, highs[MOX_WEIGHT_LANES] = { 0 };
    int64_t i = 0;
    if (count > 0 && count <= INT32_MAX && count % MOX_FIT_LANES == 0) {
        float least, most;
        mox_fit_extent_of(w, (int32_t)count, &least, &most);
        *low = least < *low ? least : *low;
        *high = most > *high ? most : *high;
        return;
    }
    for (; i + MOX_WEIGHT_LANES <= count; i += MOX_WEIGHT_LANES)
        for (int j = 0; j < MOX_WEIGHT_LANES; j++) {
            lows[j] = w[i + j] < lows[j] ? w[i + j] : lows[j];
            highs[j] = w[i + j] > highs[j] ? w[i + j] : highs[j];
        }
    for (int j = 0; i + j < count; j++) {
        lows[j] = w[i + j] < lows[j] ? w[i + j] : lows[j];
        highs[j] = w[i + j] > highs[j] ? w[i + j] : highs[j];
    }
    for (int half = MOX_WEIGHT_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) {
            lows[j] = lows[j + half] < lows[j] ? lows[j + half] : lows[j];
            highs[j] = highs[j + half] > highs[j] ? highs[j + half] : highs[j];
        }
    *low = lows[0] < *low ? lows[0] : *low;
    *high = highs[0] > *high ? highs[0] : *high;
}

/* `encode` and `integer` are constants after inlining. */
static inline __attribute__((always_inline)) uint32_t mox_weight_code_of(uint32_t (*encode)(float), bool integer,
                                                                         const mox_weight_step *step, float w)
{
    float units = w / step->scale;
    if (integer) {
        units += step->zero;
        units = units < step->low ? step->low : units;
        units = units > step->high ? step->high : units;
    }
    return encode(units);
}

static inline __attribute__((always_inline)) void mox_weight_encode(uint32_t (*encode)(float), bool integer,
                                                                    const mox_weight_step *from, const float *w,
                                                                    int64_t count, uint8_t *codes)
{
    const mox_weight_step step = *from; /* bytes of codes could be bytes of `from` to a compiler */
    int64_t i = 0;
    for (; i + MOX_WEIGHT_LANES <= count; i += MOX_WEIGHT_LANES) {
        uint32_t code[MOX_WEIGHT_LANES]; /* words, so that a vector of floats becomes one of them */
        for (int j = 0; j < MOX_WEIGHT_LANES; j++)
            code[j] = mox_weight_code_of(encode, integer, &step, w[i + j]);
        for (int j = 0; j < MOX_WEIGHT_LANES; j++)
            codes[i + j] = (uint8_t)code[j];
    }
    for (; i < count; i++)
        codes[i] = (uint8_t)mox_weight_code_of(encode, integer, &step, w[i]);
}

/* What decoded codes are away from their weights: sums of lanes. */
typedef struct mox_weight_errors {
    double squares[MOX_WEIGHT_LANES];
    float worst[MOX_WEIGHT_LANES];
} mox_weight_errors;

/* Takes MOX_WEIGHT_LANES weights into the sums of their lanes. */
static inline __attribute__((always_inline)) void mox_weight_error_add(const mox_weight_step *step, const float *value,
                                                                       const float *w, mox_weight_errors *e)
{
#ifdef __AVX2__
    const __m256 from_zero = _mm256_sub_ps(_mm256_loadu_ps(value), _mm256_set1_ps(step->zero));
    const __m256 off = _mm256_sub_ps(_mm256_mul_ps(from_zero, _mm256_set1_ps(step->scale)), _mm256_loadu_ps(w));
    const __m256 difference = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), off);
    _mm256_storeu_ps(e->worst, _mm256_max_ps(difference, _mm256_loadu_ps(e->worst)));
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(difference));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(difference, 1));
    _mm256_storeu_pd(e->squares, _mm256_add_pd(_mm256_loadu_pd(e->squares), _mm256_mul_pd(low, low)));
    _mm256_storeu_pd(e->squares + 4, _mm256_add_pd(_mm256_loadu_pd(e->squares + 4), _mm256_mul_pd(high, high)));
#else
    for (int j = 0; j < MOX_WEIGHT_LANES; j++) {
        const float difference = fabsf((value[j] - step->zero) * step->scale - w[j]);
        e->squares[j] += (double)difference * (double)difference;
        e->worst[j] = difference > e->worst[j] ? difference : e->worst[j];
    }
#endif
}

/* The numbers of MOX_WEIGHT_LANES codes. */
static inline __attribute__((always_inline)) void mox_weight_decode(float (*decode)(uint32_t), const uint8_t *codes,
                                                                    float *value)
{
    uint32_t code[MOX_WEIGHT_LANES]; /* words, so that a vector of them becomes one of floats */
#ifdef __AVX2__
    const __m256i words = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)codes));
    _mm256_storeu_si256((__m256i *)(void *)code, words);
#else
    for (int j = 0; j < MOX_WEIGHT_LANES; j++)
        code[j] = codes[j];
#endif
    for (int j = 0; j < MOX_WEIGHT_LANES; j++)
        value[j] = decode(code[j]);
}

static inline __attribute__((always_inline)) mox_weight_error mox_weight_compare(float (*decode)(uint32_t),
                                                                                 const mox_weight_step *step,
                                                                                 const float *w, const uint8_t *codes,
                                                                                 int64_t count)
{
    mox_weight_errors e = { .worst = { 0 } };
    float value[MOX_WEIGHT_LANES], weights[MOX_WEIGHT_LANES] = { 0 };
    int64_t i = 0;
    for (; i + MOX_WEIGHT_LANES <= count; i += MOX_WEIGHT_LANES) {
        mox_weight_decode(decode, codes + i, value);
        mox_weight_error_add(step, value, w + i, &e);
    }
    if (i < count) { /* the other lanes get a zero for a zero */
        for (int j = 0; j < MOX_WEIGHT_LANES; j++)
            value[j] = i + j < count ? decode(codes[i + j]) : step->zero;
        memcpy(weights, w + i, (size_t)(count - i) * sizeof *weights);
        mox_weight_error_add(step, value, weights, &e);
    }
    mox_weight_error error = { .squares = mox_weight_lanes(e.squares) };
    for (int j = 0; j < MOX_WEIGHT_LANES; j++)
        error.worst = e.worst[j] > error.worst ? e.worst[j] : error.worst;
    return error;
}

static inline void mox_weight_codes_of(const mox_weight_step *step, const float *w, int64_t count, uint8_t *codes)
{
    switch (step->element) {
#define MOX_FORMAT(id, dtype, name, bits, kind, ...)                                                                   \
    case dtype:                                                                                                        \
        mox_weight_encode(mox_##id##_encode, (kind) == MOX_KIND_INTEGER, step, w, count, codes);                       \
        break;
#include "format/formats.def"
#undef MOX_FORMAT
    default: break;
    }
}

static inline mox_weight_error mox_weight_error_of(const mox_weight_step *step, const float *w, const uint8_t *codes,
                                                   int64_t count)
{
    switch (step->element) {
#define MOX_FORMAT(id, dtype, ...)                                                                                     \
    case dtype:                                                                                                        \
        return mox_weight_compare(mox_##id##_decode, step, w, codes, count);
#include "format/formats.def"
#undef MOX_FORMAT
    default: return (mox_weight_error) { 0 };
    }
}

#define MOX_WEIGHT_LOOPS                                                                                               \
    {                                                                                                                  \
        mox_weight_range_of, mox_weight_extent_of, mox_weight_codes_of, mox_weight_error_of, mox_weight_tries_of       \
    }

#endif
