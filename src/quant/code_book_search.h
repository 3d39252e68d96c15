/* SPDX-License-Identifier: Apache-2.0
 *
 * code_book_search.h - entries of a code book for weights under a given scale, for the loops of block_fit.h:
 *
 *     weight i: cost[l] = p (a - scale level[l])^2 for each level l
 *     8 (or 4) weights: floor(a unit / scale + offset) -> a point -> its list: sums of costs -> the least
 *
 * Costs are summed by pairs of neighbours, pairs of pairs and so on, and of equals the first entry wins. So all
 * instruction sets choose the same entries.
 */
#ifndef MOX_QUANT_CODE_BOOK_SEARCH_H
#define MOX_QUANT_CODE_BOOK_SEARCH_H

#include <math.h>

#include "quant/block_fit_vector.h"
#include "quant/code_book.h"

/* The numbers that levels stand for. Of an entry with 2 bits for a weight, three. */
typedef struct mox_book_levels {
    float level[8], unit, offset;
} mox_book_levels;

/* `count`, a multiple of 8, weights a and what their squared errors weigh. Where levels are magnitudes, so are the
 * weights. */
typedef struct mox_book_run {
    const mox_code_book *book;
    const mox_book_levels *levels;
    const float *a, *p;
    int32_t count;
} mox_book_run;

/* Of the chosen levels g: sum p g a, sum p g g; and sum p (a - scale g)^2. */
typedef struct mox_book_sums {
    float ga, gg, cost;
} mox_book_sums;

#ifdef __AVX2__

/* Sums of chosen levels by lane: p g a and p g g. */
typedef struct mox_book_lanes {
    __m256 ga, gg;
} mox_book_lanes;

MOX_FIT_INLINE mox_book_lanes mox_book_no_lanes(void)
{
    return (mox_book_lanes) { _mm256_setzero_ps(), _mm256_setzero_ps() };
}

MOX_FIT_INLINE mox_book_sums mox_book_sums_of(const mox_book_lanes *lanes, float cost)
{
    float ga[MOX_FIT_LANES], gg[MOX_FIT_LANES];
    _mm256_storeu_ps(ga, lanes->ga);
    _mm256_storeu_ps(gg, lanes->gg);
    return (mox_book_sums) { mox_fit_sum(ga), mox_fit_sum(gg), cost };
}

/* The word of a list that has the least cost, and that cost. */
MOX_FIT_INLINE uint32_t mox_book_least(__m256 cost, const uint32_t *list, float *least)
{
    __m256 low = _mm256_min_ps(cost, _mm256_permute2f128_ps(cost, cost, 1));
    low = _mm256_min_ps(low, _mm256_permute_ps(low, 0x4e));
    low = _mm256_min_ps(low, _mm256_permute_ps(low, 0xb1));
    const unsigned equal = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(cost, low, _CMP_EQ_OQ));
    *least = _mm256_cvtss_f32(low);
    return list[__builtin_ctz(equal | 1u << 7)];
}

/* Costs of the entries of a list. table[i]: by level, the costs of weight i, then of weight i + 4. So the lower half of
 * a register has sums over the first four weights of four entries, the upper half those over the last four. */
MOX_FIT_INLINE __m256 mox_book_cost2(const __m256 *table, const uint32_t *list)
{
    const __m256i halves = _mm256_setr_epi32(0, 0, 0, 0, 8, 8, 8, 8);
    __m256 sum[2];
    for (int i = 0; i < 2; i++) {
        const __m128i four = _mm_loadu_si128((const __m128i *)(const void *)(list + 4 * i));
        const __m256i word = _mm256_srlv_epi32(_mm256_broadcastsi128_si256(four), halves);
        const __m256 first = _mm256_add_ps(_mm256_permutevar_ps(table[0], word),
                                           _mm256_permutevar_ps(table[1], _mm256_srli_epi32(word, 2)));
        const __m256 last = _mm256_add_ps(_mm256_permutevar_ps(table[2], _mm256_srli_epi32(word, 4)),
                                          _mm256_permutevar_ps(table[3], _mm256_srli_epi32(word, 6)));
        sum[i] = _mm256_add_ps(first, last);
    }
    return _mm256_add_ps(_mm256_permute2f128_ps(sum[0], sum[1], 0x20), _mm256_permute2f128_ps(sum[0], sum[1], 0x31));
}

MOX_FIT_INLINE __m256 mox_book_cost3(const __m256 *table, __m256i word)
{
    __m256 two[2];
    for (int i = 0; i < 2; i++)
        two[i] = _mm256_add_ps(_mm256_permutevar8x32_ps(table[2 * i], _mm256_srli_epi32(word, 6 * i)),
                               _mm256_permutevar8x32_ps(table[2 * i + 1], _mm256_srli_epi32(word, 6 * i + 3)));
    return _mm256_add_ps(two[0], two[1]);
}

MOX_FIT_INLINE __m256 mox_book_off(__m256 a, __m256 p, __m256 scaled)
{
    const __m256 off = _mm256_sub_ps(a, scaled);
    return _mm256_mul_ps(_mm256_mul_ps(p, off), off);
}

/* Adds 8 weights whose levels are g. */
MOX_FIT_INLINE void mox_book_add(__m256 a, __m256 p, __m256 g, mox_book_lanes *lanes)
{
    const __m256 pg = _mm256_mul_ps(p, g);
    lanes->ga = _mm256_add_ps(lanes->ga, _mm256_mul_ps(pg, a));
    lanes->gg = _mm256_add_ps(lanes->gg, _mm256_mul_ps(pg, g));
}

/* The costs of 8 weights by level, as mox_book_cost2() wants them. */
MOX_FIT_INLINE void mox_book_table2(__m256 a, __m256 p, float scale, const float *level, __m256 table[4])
{
    __m256 cost[3];
    for (int l = 0; l < 3; l++)
        cost[l] = mox_book_off(a, p, _mm256_set1_ps(scale * level[l]));
    for (int half = 0; half < 2; half++) {
        const __m256 low = half ? _mm256_unpackhi_ps(cost[0], cost[1]) : _mm256_unpacklo_ps(cost[0], cost[1]);
        const __m256 high = half ? _mm256_unpackhi_ps(cost[2], cost[2]) : _mm256_unpacklo_ps(cost[2], cost[2]);
        table[2 * half] = _mm256_shuffle_ps(low, high, 0x44);
        table[2 * half + 1] = _mm256_shuffle_ps(low, high, 0xee);
    }
}

/* The entry for 8 weights, and its cost. */
MOX_FIT_INLINE uint32_t mox_book_entry2(const mox_book_run *run, const mox_book_levels *levels, int32_t first,
                                        float scale, float inverse, float *least)
{
    const __m256 a = _mm256_loadu_ps(run->a + first), p = _mm256_loadu_ps(run->p + first);
    const __m256 v = _mm256_add_ps(_mm256_mul_ps(a, _mm256_set1_ps(inverse)), _mm256_set1_ps(levels->offset));
    const int some = _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_set1_ps(1), _CMP_GE_OQ));
    const int more = _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_set1_ps(2), _CMP_GE_OQ));
    const uint32_t *list = run->book->near[mox_book_base3[some] + mox_book_base3[more]];
    __m256 table[4];
    mox_book_table2(a, p, scale, levels->level, table);
    return mox_book_least(mox_book_cost2(table, list), list, least);
}

/* Adds 8 weights whose entry is `word`. */
MOX_FIT_INLINE void mox_book_add2(const mox_book_run *run, const mox_book_levels *levels, int32_t first, uint32_t word,
                                  mox_book_lanes *lanes)
{
    const __m256i number =
        _mm256_srlv_epi32(_mm256_set1_epi32((int)word), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    const __m128 three = _mm_loadu_ps(levels->level);
    mox_book_add(_mm256_loadu_ps(run->a + first), _mm256_loadu_ps(run->p + first),
                 _mm256_permutevar_ps(_mm256_set_m128(three, three), number), lanes);
}

/* Two entries for 4 weights each. Returns their cost. */
MOX_FIT_INLINE float mox_book_eight3(const mox_book_run *run, int32_t first, float scale, float inverse, uint32_t *out,
                                     mox_book_lanes *lanes)
{
    const float *from = run->a + first, *weight = run->p + first;
    const mox_book_levels *levels = run->levels;
    const __m256i shifts = _mm256_setr_epi32(0, 3, 6, 9, 0, 3, 6, 9);
    const __m256 a = _mm256_loadu_ps(from), p = _mm256_loadu_ps(weight), level = _mm256_loadu_ps(levels->level);
    const __m256 scaled = _mm256_mul_ps(level, _mm256_set1_ps(scale));
    __m256 v = _mm256_add_ps(_mm256_mul_ps(a, _mm256_set1_ps(inverse)), _mm256_set1_ps(levels->offset));
    v = _mm256_min_ps(_mm256_max_ps(v, _mm256_setzero_ps()), _mm256_set1_ps(7));
    __m256i point = _mm256_sllv_epi32(_mm256_cvttps_epi32(v), shifts);
    point = _mm256_or_si256(point, _mm256_shuffle_epi32(point, 0x4e));
    point = _mm256_or_si256(point, _mm256_shuffle_epi32(point, 0xb1));
    const int points[2] = { _mm256_cvtsi256_si32(point), _mm_cvtsi128_si32(_mm256_extracti128_si256(point, 1)) };
    float sum = 0;
    for (int half = 0; half < 2; half++) {
        __m256 table[4];
        float least;
        for (int i = 0; i < 4; i++)
            table[i] = mox_book_off(_mm256_set1_ps(from[4 * half + i]), _mm256_set1_ps(weight[4 * half + i]), scaled);
        const uint32_t *list = run->book->near[points[half]];
        out[half] = mox_book_least(mox_book_cost3(table, _mm256_loadu_si256((const __m256i *)(const void *)list)), list,
                                   &least);
        sum += least;
    }
    const __m256i words = _mm256_set_m128i(_mm_set1_epi32((int)out[1]), _mm_set1_epi32((int)out[0]));
    mox_book_add(a, p, _mm256_permutevar8x32_ps(level, _mm256_srlv_epi32(words, shifts)), lanes);
    return sum;
}

/* Takes the signs off 8 weights: a bit each. `even`: their number is; where it is not, the weight of least p x x keeps
 * its sign, turned, in a. */
MOX_FIT_INLINE uint32_t mox_book_signs8(const float *x, const float *p, int even, float *a)
{
    const __m256 v = _mm256_loadu_ps(x), magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
    const __m256 loss = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(p), magnitude), magnitude);
    const uint32_t bits = (uint32_t)_mm256_movemask_ps(v);
    const uint32_t turn = even ? (uint32_t)__builtin_parity(bits) : 0;
    __m256 low = _mm256_min_ps(loss, _mm256_permute2f128_ps(loss, loss, 1));
    low = _mm256_min_ps(low, _mm256_permute_ps(low, 0x4e));
    low = _mm256_min_ps(low, _mm256_permute_ps(low, 0xb1));
    const unsigned equal = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(loss, low, _CMP_EQ_OQ)) | 1u << 7;
    const uint32_t at = turn << __builtin_ctz(equal);
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i turned = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)at), lane), lane);
    const __m256i sign = _mm256_and_si256(turned, _mm256_set1_epi32(INT32_MIN));
    _mm256_storeu_ps(a, _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign)));
    return bits ^ at;
}

#else

/* Sums of chosen levels by lane: p g a and p g g. */
typedef struct mox_book_lanes {
    float ga[MOX_FIT_LANES], gg[MOX_FIT_LANES];
} mox_book_lanes;

MOX_FIT_INLINE mox_book_lanes mox_book_no_lanes(void)
{
    return (mox_book_lanes) { .ga = { 0 } };
}

MOX_FIT_INLINE mox_book_sums mox_book_sums_of(const mox_book_lanes *lanes, float cost)
{
    return (mox_book_sums) { mox_fit_sum(lanes->ga), mox_fit_sum(lanes->gg), cost };
}

/* The entry for 8 weights of 2 bits, or 4 of 3, and its cost. */
MOX_FIT_INLINE uint32_t mox_book_entry(const mox_book_run *run, const mox_book_levels *levels, int bits, int32_t first,
                                       float scale, float inverse, float *least)
{
    const float *a = run->a + first, *p = run->p + first;
    const int weights = bits == 2 ? 8 : 4, top = bits == 2 ? 3 : 8, mask = bits == 2 ? 3 : 7;
    float table[8][8];
    uint32_t point = 0, word = 0;
    for (int i = weights - 1; i >= 0; i--) {
        const float v = a[i] * inverse + levels->offset;
        const float held = v > 0 ? v : 0; /* NaN: 0 */
        point = point * (uint32_t)top + (uint32_t)(held < (float)(top - 1) ? held : (float)(top - 1));
        for (int l = 0; l < top; l++) {
            const float off = a[i] - scale * levels->level[l];
            table[i][l] = (p[i] * off) * off;
        }
    }
    const uint32_t *list = run->book->near[point];
    *least = 0;
    for (int k = 0; k < MOX_BOOK_NEAR; k++) {
        float sum[8];
        for (int i = 0; i < weights; i++)
            sum[i] = table[i][list[k] >> bits * i & (uint32_t)mask];
        for (int half = 1; half < weights; half *= 2)
            for (int i = 0; i < weights; i += 2 * half)
                sum[i] += sum[i + half];
        word = k == 0 || sum[0] < *least ? list[k] : word;
        *least = k == 0 || sum[0] < *least ? sum[0] : *least;
    }
    return word;
}

/* Adds the weights of an entry, from lane `lane` on. */
MOX_FIT_INLINE void mox_book_add(const mox_book_run *run, const mox_book_levels *levels, int bits, int32_t first,
                                 int lane, uint32_t word, mox_book_lanes *lanes)
{
    const int weights = bits == 2 ? 8 : 4, mask = bits == 2 ? 3 : 7;
    for (int i = 0; i < weights; i++) {
        const float g = levels->level[word >> bits * i & (uint32_t)mask], pg = run->p[first + i] * g;
        lanes->ga[lane + i] += pg * run->a[first + i];
        lanes->gg[lane + i] += pg * g;
    }
}

MOX_FIT_INLINE uint32_t mox_book_entry2(const mox_book_run *run, const mox_book_levels *levels, int32_t first,
                                        float scale, float inverse, float *least)
{
    return mox_book_entry(run, levels, 2, first, scale, inverse, least);
}

MOX_FIT_INLINE void mox_book_add2(const mox_book_run *run, const mox_book_levels *levels, int32_t first, uint32_t word,
                                  mox_book_lanes *lanes)
{
    mox_book_add(run, levels, 2, first, 0, word, lanes);
}

MOX_FIT_INLINE float mox_book_eight3(const mox_book_run *run, int32_t first, float scale, float inverse, uint32_t *out,
                                     mox_book_lanes *lanes)
{
    float least[2];
    for (int half = 0; half < 2; half++) {
        out[half] = mox_book_entry(run, run->levels, 3, first + 4 * half, scale, inverse, &least[half]);
        mox_book_add(run, run->levels, 3, first + 4 * half, 4 * half, out[half], lanes);
    }
    return least[0] + least[1];
}

MOX_FIT_INLINE uint32_t mox_book_signs8(const float *x, const float *p, int even, float *a)
{
    uint32_t bits = 0, parity = 0;
    float least = 0;
    int at = 0;
    for (int i = 0; i < MOX_FIT_LANES; i++) {
        const uint32_t negative = signbit(x[i]) != 0;
        a[i] = fabsf(x[i]);
        const float loss = p[i] * a[i] * a[i];
        bits |= negative << i;
        parity ^= negative;
        at = i == 0 || loss < least ? i : at;
        least = i == 0 || loss < least ? loss : least;
    }
    if (even && parity) {
        bits ^= 1u << at;
        a[at] = -a[at];
    }
    return bits;
}

#endif

#endif
