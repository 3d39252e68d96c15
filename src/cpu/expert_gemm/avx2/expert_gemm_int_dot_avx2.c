/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_int_dot_avx2.c - activations to limbs for kernels avx2_fma and avx2_bytes (int_dot_avx2.h has the layout
 * and the reasons), and the integer products for processors without AVX-VNNI.
 *
 *     a = 2^(e - 150) * (2^23 + fraction)     an activation
 *     u = the smallest of their lowest set bits over a step
 *     A = a / u                               exact, so the conversion to int32 rounds nothing
 *     limbs of A                              the bytes of A + 0x808080 are limb + 128
 */
#include "cpu/expert_gemm/panel_kernel.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include "base/sizes.h"
#include "cpu/expert_gemm/avx2/int_dot_avx2.h"

/* A unit 2^x is stored as x + BIAS (e + trailing zeros + 127 of its activation). Units from MIN_UNIT to MAX_UNIT keep u
 * h and the sums in range. ABSENT: all activations are zero. TWO_LIMBS: the largest A of two limbs. */
enum { BIAS = 277, MIN_UNIT = BIAS - 124, MAX_UNIT = BIAS + 90, ABSENT = 0x7fff, TWO_LIMBS = 0x7f7f };

/* Measured over the activations of a step. */
typedef struct extent {
    int32_t unit;  /* stored as above */
    __m128 sums;   /* of magnitudes: lane 0 over the even columns, lane 1 over the odd columns */
    float largest; /* magnitude */
} extent;

static inline int32_t min_of(__m256i x)
{
    __m128i min = _mm_min_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    min = _mm_min_epi32(min, _mm_shuffle_epi32(min, 0x4e));
    return _mm_cvtsi128_si32(_mm_min_epi32(min, _mm_shuffle_epi32(min, 0xb1)));
}

static inline int32_t max_of(__m256i x)
{
    __m128i max = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(max, _mm_shuffle_epi32(max, 0xb1)));
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

/* NaN and infinity carry over to the sums. Subnormal activations count as zero, as in the float kernels. */
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
    return (extent) { .unit = min_of(unit), .sums = sums_of(sum), .largest = largest_of(largest) };
}

static inline float power_of_two(int32_t exponent)
{
    const uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Stores the limbs of 8 columns, of `swapped` signs with 128 added, and returns A. */
static inline __m256i put_line(bool swapped, const float *a, __m256 per_unit, int8_t *out)
{
    const __m256i offset = _mm256_set1_epi32(0x00808080), columns = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i by_limb =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(a), per_unit));
    const __m256i above = _mm256_add_epi32(whole, offset), limbs = swapped ? above : _mm256_xor_si256(above, offset);
    const __m256i placed = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(limbs, columns), by_limb);
    _mm256_store_si256((__m256i *)(void *)out, placed);
    return whole;
}

/* Stores what follows the limbs of a step. `unit`: u h; `start`: what the sum starts from. */
static inline void put_ends(float unit, int32_t start, int8_t limbs, int8_t *out)
{
    memcpy(out + 12, &unit, sizeof unit);
    memcpy(out + 28, &start, sizeof start);
    out[MOX_YMM_INT_DOT_LINE + 12] = limbs;
}

/* True when both sums times `factor` (max |W| / u) are at most 2^24. Rounding cannot hide a larger sum: a sum is exact
 * up to 2^24 units, and a larger one is never rounded to below that. max |W| is a multiple of 4, so the product is one,
 * and exact up to 2^26. Both lanes are compared, because a maximum of the two would lose a NaN. */
static inline bool fits(__m128 sums, float factor)
{
    const __m128 fit = _mm_cmple_ps(_mm_mul_ps(sums, _mm_set1_ps(factor)), _mm_set1_ps(0x1p24f));
    return (_mm_movemask_ps(fit) & 3) == 3;
}

/* Stores a step as limbs in `out`; false when integers are not exact. */
static bool put_step(const float *a, int64_t lines, const mox_ymm_int_dot_format *format, int8_t *out)
{
    extent x = measure(a, lines);
    out[MOX_YMM_INT_DOT_LINE + 12] = 0;
    if (x.unit == ABSENT)
        x.unit = BIAS;
    if (x.unit < MIN_UNIT || x.unit > MAX_UNIT)
        return false;
    const float per_unit = power_of_two(BIAS - x.unit), unit = power_of_two(x.unit - BIAS) * format->h;
    if (!fits(x.sums, per_unit * (float)format->max))
        return false;
    __m256i sum = _mm256_setzero_si256();
    for (int64_t l = 0; l < lines; l++)
        sum =
            _mm256_add_epi32(sum, put_line(false, a + 8 * l, _mm256_set1_ps(per_unit), out + l * MOX_YMM_INT_DOT_LINE));
    put_ends(unit, -format->offset * sum_of(sum), x.largest * per_unit <= (float)TWO_LIMBS ? 2 : 3, out);
    return true;
}

/* Stores a step as bytes in `out`, as two limbs whose second is 0; false when sum "BYTE_ACTIVATIONS" wants floats.
 * Magnitudes compare as their bits do, with NaN above infinity. */
static bool put_bytes(bool swapped, const float *a, int64_t lines, const mox_ymm_int_dot_format *format, int8_t *out)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256(), sum = _mm256_setzero_si256();
    for (int64_t l = 0; l < lines; l++)
        largest =
            _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(_mm256_load_ps(a + 8 * l)), magnitude));
    const int32_t bits = max_of(largest);
    const bool none = bits < 1 << 23;
    float max;
    memcpy(&max, &bits, sizeof max);
    out[MOX_YMM_INT_DOT_LINE + 12] = 0;
    if (!none && (bits < (127 - 60) << 23 || bits > (127 + 60) << 23))
        return false;
    const __m256 per_unit = _mm256_set1_ps(none ? 0.0f : 127.0f / max);
    for (int64_t l = 0; l < lines; l++)
        sum = _mm256_add_epi32(sum, put_line(swapped, a + 8 * l, per_unit, out + l * MOX_YMM_INT_DOT_LINE));
    put_ends(none ? 0.0f : max * (1.0f / 127.0f) * format->h, -format->offset * sum_of(sum), 2, out);
    return true;
}

/* Sorts the rows of a step by their number of limbs. */
static void put_order(int64_t rows, int64_t step_bytes, const int8_t *limbs, uint8_t *order)
{
    static const int8_t classes[] = { 2, 3, 0 };
    int64_t count = 0;
    for (int c = 0; c < 3; c++) {
        for (int64_t row = 0; row < rows; row++)
            if (limbs[row * step_bytes + MOX_YMM_INT_DOT_LINE + 12] == classes[c])
                order[2 + count++] = (uint8_t)row;
        if (c < 2)
            order[c] = (uint8_t)count;
    }
}

int64_t mox_ymm_int_dot_prepare(const mox_ymm_job *job, const mox_ymm_int_dot_format *format)
{
    const int64_t rows = job->a->rows, step_bytes = job->quarters * MOX_YMM_INT_DOT_LINE;
    const bool swapped = mox_ymm_int_dot_swapped(job);
    int64_t floats = 0;
    for (int64_t s = 0; s < job->steps; s++) {
        const float *a = (const float *)job->a->data + s * job->quarters * 8;
        int8_t *out = job->limbs + s * rows * step_bytes;
        for (int64_t row = 0; row < rows; row++)
            floats += job->bytes
                          ? !put_bytes(swapped, a + row * job->stride, job->quarters, format, out + row * step_bytes)
                          : !put_step(a + row * job->stride, job->quarters, format, out + row * step_bytes);
        put_order(rows, step_bytes, out, job->order + s * mox_ymm_int_dot_order_bytes(rows));
    }
    return floats;
}

void mox_ymm_int_dot_avx2(const mox_ymm_job *job)
{
    mox_ymm_int_dot_all(job);
}

#endif
