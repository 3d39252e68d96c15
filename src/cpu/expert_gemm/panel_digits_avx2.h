/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_digits_avx2.h - the sums of row avx2_fma over 4-bit codes, in integers wherever no sum can round.
 *
 * In one step (32 columns, or 16) let every activation be an integer A[k] times a unit u, a power of two, and every
 * weight an integer W[k] times h (e2m1: 1/2; integers: 1), |W| <= most. A chain of multiply-adds over the even columns,
 * or the odd ones, only ever holds multiples of u h. While  most * sum |A[k]| <= 2^24  over the chain they are floats,
 * and nothing is rounded: the chain ends at u h sum A W, and the step, even + odd, at the float nearest to the sum over
 * all its columns. So is the conversion of that integer, times u h. (The unit is kept from where floats are subnormal
 * or infinite. A chain begins at +0 and nothing exact takes it to -0, so a sum of zero has its sign, too.)
 *
 * This holds for most steps of bf16 activations, and then a byte product takes the place of a multiply-add:
 *
 *     W + offset  0 .. 24          one look-up of a nibble; sum A W = sum A (W + offset) - offset sum A
 *     A           d0 + 2^8 d1 + 2^16 d2, each -128 .. 127; two digits or three, as the step's largest needs
 *
 * Steps that fail the test are multiplied in floats (panel_fma_avx2.h). Results are the same bits either way; with
 * one row of activations, where decoding to floats is what costs, this one costs half.
 *
 *     digits    [row][step] lines of 8 columns, 32 bytes:
 *                   | d0 d1 d2 x of columns 0 4 1 5 | d0 d1 d2 x of columns 2 6 3 7 |      each d four bytes
 *                   x in the first line: u h as a float, less offset sum A (with zero points: less sum A);
 *                   in the second: how many digits, 0 for floats
 *     counts    [step][line][columns 0 4 1 5, columns 2 6 3 7][half][row] four bytes: W + offset, of a slab's steps
 */
#ifndef MOX_CPU_PANEL_DIGITS_AVX2_H
#define MOX_CPU_PANEL_DIGITS_AVX2_H

#include "base/sizes.h"
#include "cpu/expert_gemm/panel_fma_avx2.h"

enum { MOX_DIGITS_LINE = 32, MOX_COUNTS_LINE = 256 };

/* The formats of ways NIBBLES and NIBBLES_ZEROS in integers. */
typedef struct mox_digits_rule {
    float h;
    int32_t most, offset; /* offset: what the sum of A is multiplied by; 1 with zero points */
} mox_digits_rule;

/* Where the digits of a call are, in scratch. */
typedef struct mox_digits_head {
    int64_t floats; /* steps of all rows that are not exact in integers */
} mox_digits_head;

/* Digits of all rows of `job`; returns how many steps are left to floats. */
int64_t mox_digits_prepare(const mox_ymm_job *job, const mox_digits_rule *rule);

/* The products of a call. The same code with different flags; the second is NULL where the compiler has no AVX-VNNI. */
typedef void (*mox_digits_fn)(const mox_ymm_job *job);
void mox_digits_avx2(const mox_ymm_job *job);
extern const mox_digits_fn mox_digits_avxvnni;

/* ---- one step ------------------------------------------------------------------------------------ */

MOX_KERNEL_INLINE __m256i mox_digits_spread(const int8_t *four)
{
    return _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)four));
}

MOX_KERNEL_INLINE __m256i mox_digits_counts(const uint8_t *counts)
{
    return _mm256_load_si256((const __m256i *)(const void *)counts);
}

/* Adds one line of D digits times H halves. */
#ifdef __AVXVNNI__

/* sum + counts . four, where sum is: left to itself gcc moves sums from register to register, and then spills. */
MOX_KERNEL_INLINE __m256i mox_digits_dot(__m256i counts, __m256i four, __m256i sum)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(counts), "x"(four));
    return sum;
}

MOX_KERNEL_INLINE void mox_digits_line(int H, int D, const uint8_t *counts, const int8_t *digits, __m256i sum[3][4])
{
    MOX_KERNEL_UNROLL
    for (int part = 0; part < 2; part++) {
        __m256i four[3];
        MOX_KERNEL_UNROLL
        for (int d = 0; d < D; d++)
            four[d] = mox_digits_spread(digits + 16 * part + 4 * d);
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++) {
            const __m256i w = mox_digits_counts(counts + 128 * part + 32 * h);
            MOX_KERNEL_UNROLL
            for (int d = 0; d < D; d++)
                sum[d][h] = mox_digits_dot(w, four[d], sum[d][h]);
        }
    }
}

#else

/* Two products are at most 2 * 24 * 128, four of them fit 16 bits. */
MOX_KERNEL_INLINE void mox_digits_line(int H, int D, const uint8_t *counts, const int8_t *digits, __m256i sum[3][4])
{
    const __m256i ones = _mm256_set1_epi16(1);
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        const __m256i w0 = mox_digits_counts(counts + 32 * h), w1 = mox_digits_counts(counts + 128 + 32 * h);
        MOX_KERNEL_UNROLL
        for (int d = 0; d < D; d++) {
            const __m256i four = _mm256_add_epi16(_mm256_maddubs_epi16(w0, mox_digits_spread(digits + 4 * d)),
                                                  _mm256_maddubs_epi16(w1, mox_digits_spread(digits + 16 + 4 * d)));
            sum[d][h] = _mm256_add_epi32(sum[d][h], _mm256_madd_epi16(four, ones));
        }
    }
}

#endif

/* One step of H halves times one row, of D digits. */
MOX_KERNEL_INLINE void mox_digits_step(int H, int D, const mox_ymm_job *j, const mox_ymm_place *at, int64_t row,
                                       const uint8_t *counts, const int8_t *digits)
{
    const float *points = j->zero + at->group * MOX_PANEL_ROWS;
    const __m256 unit = _mm256_broadcast_ss((const float *)(const void *)(digits + 12));
    const mox_ymm_sink sink = mox_ymm_sink_of(j, at, row);
    __m256i sum[3][4];
    __m256 total[1][4];
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        sum[0][h] = mox_digits_spread(digits + 28);
        if (j->zeros)
            sum[0][h] = _mm256_mullo_epi32(
                sum[0][h], _mm256_cvtps_epi32(_mm256_load_ps(points + h / 2 * j->panel_floats + h % 2 * 8)));
        sum[1][h] = sum[2][h] = _mm256_setzero_si256();
    }
    for (const int8_t *end = digits + j->quarters * MOX_DIGITS_LINE; digits < end;
         digits += MOX_DIGITS_LINE, counts += MOX_COUNTS_LINE)
        mox_digits_line(H, D, counts, digits, sum);
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        __m256i all = _mm256_add_epi32(sum[0][h], _mm256_slli_epi32(sum[1][h], 8));
        if (D == 3)
            all = _mm256_add_epi32(all, _mm256_slli_epi32(sum[2][h], 16));
        total[0][h] = _mm256_mul_ps(_mm256_cvtepi32_ps(all), unit);
    }
    mox_ymm_add_step(1, H, j, &sink, 0, 0, total);
}

/* ---- one call ------------------------------------------------------------------------------------ */

/* Counts of `steps` steps of H halves to the slab. */
MOX_KERNEL_INLINE void mox_digits_expand(int H, const mox_ymm_job *j, int64_t step, int64_t steps)
{
    const __m256i lookup = j->counts, mask = j->tables.nibble;
    const int64_t second = (int64_t)j->matrix->panel_bytes;
    const uint8_t *line = j->codes + step * j->quarters * 64, *end = line + steps * j->quarters * 64;
    uint8_t *counts = (uint8_t *)j->slab;
    for (; line < end; line += 64, counts += MOX_COUNTS_LINE) {
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++) {
            const __m256i codes = mox_half_line(line + (h < 2 ? 0 : second) + h % 2 * 32);
            const __m256i low = _mm256_and_si256(codes, mask);
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask);
            _mm256_store_si256((__m256i *)(void *)(counts + 32 * h), _mm256_shuffle_epi8(lookup, low));
            _mm256_store_si256((__m256i *)(void *)(counts + 128 + 32 * h), _mm256_shuffle_epi8(lookup, high));
        }
    }
}

typedef void (*mox_digits_floats_fn)(const mox_ymm_job *j, const mox_ymm_place *at, int64_t row);

/* The slab's steps times row `row`. */
MOX_KERNEL_INLINE void mox_digits_row(int H, const mox_ymm_job *j, const mox_ymm_place *start, int64_t steps,
                                      int64_t row, mox_digits_floats_fn floats)
{
    const int64_t step_bytes = j->quarters * MOX_DIGITS_LINE;
    const int8_t *digits = j->digits + (row * j->steps + start->step) * step_bytes;
    const uint8_t *counts = (const uint8_t *)j->slab;
    mox_ymm_place at = *start;
    for (int64_t s = 0; s < steps; s++, mox_ymm_advance(j, &at)) {
        const int count = digits[MOX_DIGITS_LINE + 12];
        if (count == 2)
            mox_digits_step(H, 2, j, &at, row, counts, digits);
        else if (count == 3)
            mox_digits_step(H, 3, j, &at, row, counts, digits);
        else
            floats(j, &at, row);
        digits += step_bytes;
        counts += j->quarters * MOX_COUNTS_LINE;
    }
}

MOX_KERNEL_INLINE void mox_digits_panels(int H, const mox_ymm_job *j, mox_digits_floats_fn floats)
{
    mox_ymm_place at = { 0 };
    while (at.step < j->steps) {
        const int64_t steps = mox_min_i64(MOX_YMM_SLAB, j->steps - at.step);
        for (int64_t s = 0; s < steps; s++)
            for (int p = 0; p < j->panels; p++)
                mox_ymm_prefetch(MOX_HALF_NIBBLES, j, p, at.step + s);
        mox_digits_expand(H, j, at.step, steps);
        for (int64_t row = 0; row < j->a->rows; row++)
            mox_digits_row(H, j, &at, steps, row, floats);
        for (int64_t s = 0; s < steps; s++)
            mox_ymm_advance(j, &at);
    }
}

#define MOX_DIGITS_FLOATS(name, way, H)                                                                                \
    static __attribute__((noinline)) void name(const mox_ymm_job *j, const mox_ymm_place *at, int64_t row)             \
    {                                                                                                                  \
        mox_ymm_narrow_step(way, 1, H, j, at, 0, row);                                                                 \
    }
MOX_DIGITS_FLOATS(digits_floats_one, MOX_HALF_NIBBLES, 2)
MOX_DIGITS_FLOATS(digits_floats_pair, MOX_HALF_NIBBLES, 4)
MOX_DIGITS_FLOATS(digits_floats_one_zeros, MOX_HALF_NIBBLES_ZEROS, 2)
MOX_DIGITS_FLOATS(digits_floats_pair_zeros, MOX_HALF_NIBBLES_ZEROS, 4)

static inline void mox_digits_all(const mox_ymm_job *j)
{
    if (j->panels == 2)
        mox_digits_panels(4, j, j->zeros ? digits_floats_pair_zeros : digits_floats_pair);
    else
        mox_digits_panels(2, j, j->zeros ? digits_floats_one_zeros : digits_floats_one);
}

#endif
