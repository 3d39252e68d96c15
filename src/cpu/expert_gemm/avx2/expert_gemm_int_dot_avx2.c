/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_int_dot_avx2.c - row avx2_fma over 4-bit codes in integers (int_dot_avx2.h): the digits of
 * activations, and the products without AVX-VNNI.
 *
 *     activation   2^(e - 150) * (2^23 + fraction)       u = the smallest of their lowest set bits
 *     A = a / u    exact, and rounded to int32 by a conversion that has nothing to round
 *     digits       A + 0x808080 has the bytes d + 128
 */
#include "cpu/expert_gemm/panel_kernel.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include "base/sizes.h"
#include "cpu/expert_gemm/avx2/int_dot_avx2.h"

/* Exponents of units are counted from 2^-277: e + trailing zeros + 127. Those that keep u h and sums in range: */
enum { BIAS = 277, LEAST = BIAS - 124, MOST = BIAS + 90, ABSENT = 0x7fff, TWO_DIGITS = 0x7f7f };

/* What a step's activations have in common. */
typedef struct extent {
    int32_t unit;  /* exponent, or ABSENT: all are zero */
    __m128 sums;   /* of magnitudes: lane 0 over the even columns, lane 1 over the odd ones */
    float largest; /* magnitude */
} extent;

static inline int32_t least_of(__m256i x)
{
    __m128i least = _mm_min_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    least = _mm_min_epi32(least, _mm_shuffle_epi32(least, 0x4e));
    return _mm_cvtsi128_si32(_mm_min_epi32(least, _mm_shuffle_epi32(least, 0xb1)));
}

static inline int32_t most_of(__m256i x)
{
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1)));
}

static inline float largest_of(__m256 x)
{
    __m128 largest = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    largest = _mm_max_ps(largest, _mm_movehl_ps(largest, largest));
    return _mm_cvtss_f32(_mm_max_ss(largest, _mm_movehdup_ps(largest)));
}

/* Lane 0: sum of the even lanes, 1: of the odd ones. */
static inline __m128 sums_of(__m256 x)
{
    const __m128 sums = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    return _mm_add_ps(sums, _mm_movehl_ps(sums, sums));
}

static inline int32_t sum_of(__m256i x)
{
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

/* NaN and infinities make their sum such. Subnormal activations count as zero, as in floats. */
static inline extent measure(const float *a, int64_t lines)
{
    const __m256i fraction = _mm256_set1_epi32(0x007fffff), one = _mm256_set1_epi32(0x00800000);
    __m256i unit = _mm256_set1_epi32(ABSENT);
    __m256 sum = _mm256_setzero_ps(), largest = _mm256_setzero_ps();
    for (int64_t l = 0; l < lines; l++) {
        const __m256i bits = _mm256_castps_si256(_mm256_load_ps(a + 8 * l));
        const __m256i e = _mm256_srli_epi32(_mm256_slli_epi32(bits, 1), 24);
        const __m256i absent = _mm256_cmpeq_epi32(e, _mm256_setzero_si256());
        const __m256i whole = _mm256_or_si256(_mm256_and_si256(bits, fraction), one);
        const __m256i lowest = _mm256_and_si256(whole, _mm256_sub_epi32(_mm256_setzero_si256(), whole));
        const __m256i zeros = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(lowest)), 23);
        const __m256i units = _mm256_or_si256(_mm256_add_epi32(e, zeros), _mm256_srli_epi32(absent, 17));
        const __m256i magnitude = _mm256_srli_epi32(_mm256_slli_epi32(bits, 1), 1);
        const __m256 value = _mm256_castsi256_ps(_mm256_andnot_si256(absent, magnitude));
        unit = _mm256_min_epi32(unit, units);
        sum = _mm256_add_ps(sum, value);
        largest = _mm256_max_ps(largest, value);
    }
    return (extent) { .unit = least_of(unit), .sums = sums_of(sum), .largest = largest_of(largest) };
}

static inline float power_of_two(int32_t exponent)
{
    const uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Stores the digits of 8 columns; returns A. */
static inline __m256i put_line(const float *a, __m256 per_unit, int8_t *out)
{
    const __m256i offset = _mm256_set1_epi32(0x00808080), columns = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i by_digit =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(a), per_unit));
    const __m256i digits = _mm256_xor_si256(_mm256_add_epi32(whole, offset), offset);
    const __m256i placed = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(digits, columns), by_digit);
    _mm256_store_si256((__m256i *)(void *)out, placed);
    return whole;
}

/* What a step has beside its digits: `unit` is u h. */
static inline void put_ends(float unit, int32_t start, int8_t digits, int8_t *out)
{
    memcpy(out + 12, &unit, sizeof unit);
    memcpy(out + 28, &start, sizeof start);
    out[MOX_YMM_INT_DOT_LINE + 12] = digits;
}

/* True when both sums, times `factor`, are at most 2^24. Rounding cannot hide that one is not: up to 2^24 units the sum
 * is exact, and larger ones are never rounded below that; times `most`, a multiple of 4, it is a multiple of 4, and
 * exact up to 2^26. NaN compares false: it must be asked of both, a maximum of the two would lose it. */
static inline bool fits(__m128 sums, float factor)
{
    const __m128 most = _mm_cmple_ps(_mm_mul_ps(sums, _mm_set1_ps(factor)), _mm_set1_ps(0x1p24f));
    return (_mm_movemask_ps(most) & 3) == 3;
}

/* True when the step is exact in integers; then its digits are in `out`. */
static bool put_step(const float *a, int64_t lines, const mox_ymm_int_dot_rule *rule, int8_t *out)
{
    extent x = measure(a, lines);
    out[MOX_YMM_INT_DOT_LINE + 12] = 0;
    if (x.unit == ABSENT)
        x.unit = BIAS;
    if (x.unit < LEAST || x.unit > MOST)
        return false;
    const float per_unit = power_of_two(BIAS - x.unit), unit = power_of_two(x.unit - BIAS) * rule->h;
    if (!fits(x.sums, per_unit * (float)rule->most))
        return false;
    __m256i sum = _mm256_setzero_si256();
    for (int64_t l = 0; l < lines; l++)
        sum = _mm256_add_epi32(sum, put_line(a + 8 * l, _mm256_set1_ps(per_unit), out + l * MOX_YMM_INT_DOT_LINE));
    put_ends(unit, -rule->offset * sum_of(sum), x.largest * per_unit <= (float)TWO_DIGITS ? 2 : 3, out);
    return true;
}

/* True when the step is one for bytes, as sum "bytes32" says; then they are in `out`, as two digits whose second is 0.
 * Magnitudes order as their bits do, NaN above infinity. */
static bool put_bytes(const float *a, int64_t lines, const mox_ymm_int_dot_rule *rule, int8_t *out)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256(), sum = _mm256_setzero_si256();
    for (int64_t l = 0; l < lines; l++)
        largest =
            _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(_mm256_load_ps(a + 8 * l)), magnitude));
    const int32_t bits = most_of(largest);
    const bool none = bits < 1 << 23;
    float most;
    memcpy(&most, &bits, sizeof most);
    out[MOX_YMM_INT_DOT_LINE + 12] = 0;
    if (!none && (bits < (127 - 60) << 23 || bits > (127 + 60) << 23))
        return false;
    const __m256 per_unit = _mm256_set1_ps(none ? 0.0f : 127.0f / most);
    for (int64_t l = 0; l < lines; l++)
        sum = _mm256_add_epi32(sum, put_line(a + 8 * l, per_unit, out + l * MOX_YMM_INT_DOT_LINE));
    put_ends(none ? 0.0f : most * (1.0f / 127.0f) * rule->h, -rule->offset * sum_of(sum), 2, out);
    return true;
}

/* Rows of one step by their digits, of which the step's begin at `digits`. */
static void put_order(int64_t rows, int64_t step_bytes, const int8_t *digits, uint8_t *order)
{
    static const int8_t classes[] = { 2, 3, 0 };
    int64_t count = 0;
    for (int c = 0; c < 3; c++) {
        for (int64_t row = 0; row < rows; row++)
            if (digits[row * step_bytes + MOX_YMM_INT_DOT_LINE + 12] == classes[c])
                order[2 + count++] = (uint8_t)row;
        if (c < 2)
            order[c] = (uint8_t)count;
    }
}

int64_t mox_ymm_int_dot_prepare(const mox_ymm_job *job, const mox_ymm_int_dot_rule *rule)
{
    const int64_t rows = job->a->rows, step_bytes = job->quarters * MOX_YMM_INT_DOT_LINE;
    int64_t floats = 0;
    for (int64_t s = 0; s < job->steps; s++) {
        const float *a = (const float *)job->a->data + s * job->quarters * 8;
        int8_t *out = job->digits + s * rows * step_bytes;
        for (int64_t row = 0; row < rows; row++)
            floats += !(job->bytes ? put_bytes : put_step)(a + row * job->stride, job->quarters, rule,
                                                           out + row * step_bytes);
        put_order(rows, step_bytes, out, job->order + s * mox_ymm_int_dot_order_bytes(rows));
    }
    return floats;
}

void mox_ymm_int_dot_avx2(const mox_ymm_job *job)
{
    mox_ymm_int_dot_all(job);
}

#endif
