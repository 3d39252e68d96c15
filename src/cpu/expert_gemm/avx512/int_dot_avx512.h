/* SPDX-License-Identifier: Apache-2.0
 *
 * int_dot_avx512.h - one step (32 columns) of activations times 4-bit weights by integer dot products (VPDPBUSD).
 *
 *     t[n] = sum over the step's columns k of  a[k] w[n, k]          n < 16, the rows of a panel
 *
 * Let u be a power of two with a[k] = A[k] u, and h the unit of the number format with w = W h: A and W are integers.
 * The floating-point kernel sums the even columns in one chain of multiply-adds and the odd ones in another. All sums
 * on the way are multiples of u h. While  max |W| * sum |A[k]| <= 2^24  over each chain, they are floats and nothing
 * is rounded. Then t is the float nearest to u h sum A W, and the integer sum, converted, times u h is the same float.
 * (u is within 2^-60 .. 2^30, so nothing is subnormal or infinite. Chains begin at +0, so no sum is -0.)
 *
 *     W + offset  is 0 .. 24, looked up by code        sum A W = sum A (W + offset) - offset sum A
 *     A           is l0 + 2^8 l1 + 2^16 l2, each limb -128 .. 127; l2 is left out where it is zero
 *
 * A step of limbs has 128 bytes. Its columns lie as codes in NIBBLES do (pack/panel/panel.h); each limb below stands
 * for four bytes, those of four columns:
 *
 *     16 q       | l0 of columns 8q + 0 4 1 5 | l0 of 8q + 2 6 3 7 | l1 of 0 4 1 5 | l1 of 2 6 3 7 |     q = 0 .. 3
 *     64 + 16 q  | l2 of columns 8q + 0 4 1 5 | l2 of 8q + 2 6 3 7 | q = 0: INITIAL, UNIT          |
 *
 *     UNIT       u h as a float
 *     INITIAL    what the sum starts from: -offset sum A; with zero points -sum A, as words b and c: b + 256 c
 *
 * Kernels of class TOL round any activations to bytes (sum "BYTE_ACTIVATIONS", panel_kernel.h): l0 alone, and a unit
 * that is no power of two. A step has 64 bytes then, with INITIAL and UNIT in the place of the first l1.
 *
 * For files compiled with AVX-512 F, BW, DQ, VL and VNNI. With VBMI a look-up is one instruction instead of two.
 */
#ifndef MOX_CPU_INT_DOT_AVX512_H
#define MOX_CPU_INT_DOT_AVX512_H

#include <immintrin.h>

#include "cpu/expert_gemm/avx512/avx512_plan.h"

/* Max rows of bytes that are multiplied at once. */
enum { MOX_INT_DOT_BYTE_ROWS = 6 };
/* Where INITIAL and UNIT lie in a row's step: of limbs, and of bytes. */
enum { MOX_INT_DOT_LIMBS_INITIAL = 72, MOX_INT_DOT_LIMBS_UNIT = 76 };
enum { MOX_INT_DOT_BYTES_INITIAL = 8, MOX_INT_DOT_BYTES_UNIT = 12 };

/* Kinds of a step: how it is multiplied. */
enum { MOX_INT_DOT_TWO_LIMBS = 0, MOX_INT_DOT_BYTES = 0, MOX_INT_DOT_THREE_LIMBS = 1, MOX_INT_DOT_FLOATS = 2 };

/* A 4-bit number format in integers. */
typedef struct mox_int_dot_format {
    __m512i counts; /* W + offset by code, four copies */
    __m512 values;  /* W h by code; with zero points W */
    float h, max;   /* max: of |W| */
    int32_t offset; /* with zero points: 1 */
    bool zeros;
} mox_int_dot_format;
_Static_assert(sizeof(mox_int_dot_format) == MOX_INT_DOT_FORMAT_BYTES, "scratch has room for it");

MOX_KERNEL_INLINE mox_int_dot_format mox_int_dot_format_of(const mox_panel_counts *format, bool zeros)
{
    const __m128i counts = _mm_loadu_si128((const __m128i *)(const void *)format->counts);
    const __m512 from_offset =
        _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_cvtepu8_epi32(counts), _mm512_set1_epi32(format->offset)));
    return (mox_int_dot_format) { .counts = _mm512_broadcast_i32x4(counts),
                                  .values = _mm512_mul_ps(from_offset, _mm512_set1_ps(format->h)),
                                  .h = format->h,
                                  .max = format->max,
                                  .offset = zeros ? 1 : format->offset,
                                  .zeros = zeros };
}

/* ---- activations to limbs -------------------------------------------------------------------------------------- */

/* The larger of the sum over x and the sum over y, in all lanes. */
MOX_KERNEL_INLINE __m512 mox_int_dot_larger_sum(__m512 x, __m512 y)
{
    __m512 sums = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
    sums = _mm512_add_ps(sums, _mm512_shuffle_f32x4(sums, sums, 0xb1));
    sums = _mm512_add_ps(sums, _mm512_permute_ps(sums, 0x4e));
    sums = _mm512_add_ps(sums, _mm512_permute_ps(sums, 0xb1));
    return _mm512_max_ps(sums, _mm512_shuffle_f32x4(sums, sums, 0x4e));
}

MOX_KERNEL_INLINE __m512i mox_int_dot_total(__m512i x)
{
    x = _mm512_add_epi32(x, _mm512_shuffle_i32x4(x, x, 0x4e));
    x = _mm512_add_epi32(x, _mm512_shuffle_i32x4(x, x, 0xb1));
    x = _mm512_add_epi32(x, _mm512_shuffle_epi32(x, 0x4e));
    return _mm512_add_epi32(x, _mm512_shuffle_epi32(x, 0xb1));
}

/* INITIAL of a step, from `sum` = sum A. */
MOX_KERNEL_INLINE __m512i mox_int_dot_initial(const mox_int_dot_format *format, __m512i sum)
{
    const __m512i start = _mm512_mullo_epi32(sum, _mm512_set1_epi32(-format->offset));
    if (!format->zeros)
        return start;
    /* c is start / 256, rounded; b is the rest. */
    const __m512i c = _mm512_srai_epi32(_mm512_add_epi32(start, _mm512_set1_epi32(128)), 8);
    const __m512i b = _mm512_sub_epi32(start, _mm512_slli_epi32(c, 8));
    return _mm512_mask_blend_epi16(0xaaaaaaaa, b, _mm512_slli_epi32(c, 16));
}

/* True when every x and y is from -2^15 to below 2^15 - 2^8: two limbs hold it. */
MOX_KERNEL_INLINE bool mox_int_dot_fit_two_limbs(__m512i x, __m512i y)
{
    const __m512i half = _mm512_set1_epi32(0x8000), range = _mm512_set1_epi32(0xff00);
    return (_mm512_cmpge_epu32_mask(_mm512_add_epi32(x, half), range) |
            _mm512_cmpge_epu32_mask(_mm512_add_epi32(y, half), range)) == 0;
}

/* Sorts the limbs of each 4 columns: l0 of the first and third, l0 of the others; l1 likewise; l2 likewise. */
MOX_KERNEL_INLINE __m512i mox_int_dot_split(__m512i a)
{
    const __m512i by_limb = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15));
    /* The bytes of A + 0x808080 are the limbs + 128. */
    const __m512i carry = _mm512_set1_epi32(0x00808080);
    return _mm512_shuffle_epi8(_mm512_xor_si512(_mm512_add_epi32(a, carry), carry), by_limb);
}

MOX_KERNEL_INLINE __m512i mox_int_dot_initial_of(const mox_int_dot_format *format, __m512i even, __m512i odd)
{
    return mox_int_dot_initial(format, mox_int_dot_total(_mm512_add_epi32(even, odd)));
}

/* Stores a step: the limbs of A, INITIAL and UNIT. */
MOX_KERNEL_INLINE void mox_int_dot_store_limbs(const mox_int_dot_format *format, __m512i even, __m512i odd,
                                               __m512i unit, uint8_t *out)
{
    const __m512i even_limbs = mox_int_dot_split(even), odd_limbs = mox_int_dot_split(odd);
    __m512i last = _mm512_unpackhi_epi16(even_limbs, odd_limbs);
    last = _mm512_mask_mov_epi32(last, 1 << (MOX_INT_DOT_LIMBS_INITIAL - 64) / 4,
                                 mox_int_dot_initial_of(format, even, odd));
    last = _mm512_mask_mov_epi32(last, 1 << (MOX_INT_DOT_LIMBS_UNIT - 64) / 4, unit);
    _mm512_store_si512(out, _mm512_unpacklo_epi16(even_limbs, odd_limbs));
    _mm512_store_si512(out + 64, last);
}

/* Stores a step of bytes. */
MOX_KERNEL_INLINE void mox_int_dot_store_bytes(const mox_int_dot_format *format, __m512i even, __m512i odd, __m512 unit,
                                               uint8_t *out)
{
    __m512i limbs = _mm512_unpacklo_epi16(mox_int_dot_split(even), mox_int_dot_split(odd));
    limbs = _mm512_mask_mov_epi32(limbs, 1 << MOX_INT_DOT_BYTES_INITIAL / 4, mox_int_dot_initial_of(format, even, odd));
    limbs = _mm512_mask_mov_epi32(limbs, 1 << MOX_INT_DOT_BYTES_UNIT / 4, _mm512_castps_si512(unit));
    _mm512_store_si512(out, limbs);
}

/* Loads a step of bf16 activations as floats. */
MOX_KERNEL_INLINE void mox_int_dot_load_bf16(const uint8_t *line, __m512 *even, __m512 *odd)
{
    const __m512i bits = _mm512_load_si512(line);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
}

/* Loads a step of `cols` fp32 activations, 32 or 16; after 16 columns come zeros. */
MOX_KERNEL_INLINE void mox_int_dot_load_f32(const float *a, int cols, __m512 *even, __m512 *odd)
{
    const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512 low = _mm512_load_ps(a), high = cols == 32 ? _mm512_load_ps(a + 16) : _mm512_setzero_ps();
    *even = _mm512_permutex2var_ps(low, evens, high);
    *odd = _mm512_permutex2var_ps(low, _mm512_or_si512(evens, _mm512_set1_epi32(1)), high);
}

/* A step in units u: even[k] = a[k] u, odd[k] = b[k] u, where u is the least power of two for which no sum of
 * multiply-adds rounds (above). False where some activation is no multiple of u, is NaN or too large. `sum`: the
 * largest sum of magnitudes over a chain, in all lanes; `max`: of |W|. */
MOX_KERNEL_INLINE bool mox_int_dot_units_of(__m512 sum, float max, __m512 even, __m512 odd, __m512i *a, __m512i *b,
                                            __m512i *unit)
{
    /* 2^23 <= max |W| * sum / u < 2^24. If `sum` itself was rounded, some activation is no multiple of u. */
    const __m512 limit = _mm512_max_ps(_mm512_mul_ps(sum, _mm512_set1_ps(max)), _mm512_set1_ps(0x1p-37f));
    *unit = _mm512_sub_epi32(_mm512_and_si512(_mm512_castps_si512(limit), _mm512_set1_epi32(0x7f800000)),
                             _mm512_set1_epi32(23 << 23));
    const __m512 per_unit = _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32(254 << 23), *unit));
    const __m512 even_units = _mm512_mul_ps(even, per_unit), odd_units = _mm512_mul_ps(odd, per_unit);
    *a = _mm512_cvtps_epi32(even_units);
    *b = _mm512_cvtps_epi32(odd_units);
    /* False for NaN. */
    const __mmask16 whole = _mm512_cmp_ps_mask(_mm512_cvtepi32_ps(*a), even_units, _CMP_EQ_OQ) &
                            _mm512_cmp_ps_mask(_mm512_cvtepi32_ps(*b), odd_units, _CMP_EQ_OQ) &
                            _mm512_cmp_ps_mask(limit, _mm512_set1_ps(0x1p53f), _CMP_LE_OQ);
    return whole == 0xffff;
}

/* The same for chains of all even columns and of all odd ones. */
MOX_KERNEL_INLINE bool mox_int_dot_units(const mox_int_dot_format *format, __m512 even, __m512 odd, __m512i *a,
                                         __m512i *b, __m512i *unit)
{
    const __m512i sign = _mm512_set1_epi32((int)0x80000000);
    const __m512 sum = mox_int_dot_larger_sum(_mm512_andnot_ps(_mm512_castsi512_ps(sign), even),
                                              _mm512_andnot_ps(_mm512_castsi512_ps(sign), odd));
    return mox_int_dot_units_of(sum, format->max, even, odd, a, b, unit);
}

/* Stores a step as limbs and returns its kind. Where all activations are multiples of 8 units, and small, two limbs
 * do. */
MOX_KERNEL_INLINE int mox_int_dot_to_limbs(const mox_int_dot_format *format, __m512 even, __m512 odd, uint8_t *out)
{
    __m512i a, b, unit;
    if (!mox_int_dot_units(format, even, odd, &a, &b, &unit))
        return MOX_INT_DOT_FLOATS;
    const __m512i scaled = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(unit), _mm512_set1_ps(format->h)));
    const __m512i a8 = _mm512_srai_epi32(a, 3), b8 = _mm512_srai_epi32(b, 3);
    if (mox_int_dot_fit_two_limbs(a8, b8) && _mm512_test_epi32_mask(_mm512_or_si512(a, b), _mm512_set1_epi32(7)) == 0) {
        mox_int_dot_store_limbs(format, a8, b8, _mm512_add_epi32(scaled, _mm512_set1_epi32(3 << 23)), out);
        return MOX_INT_DOT_TWO_LIMBS;
    }
    mox_int_dot_store_limbs(format, a, b, scaled, out);
    return MOX_INT_DOT_THREE_LIMBS;
}

/* Stores a step as bytes and returns its kind. Steps whose largest magnitude is neither zero nor within 2^-60 .. 2^60,
 * or that hold NaN, are FLOATS. */
MOX_KERNEL_INLINE int mox_int_dot_to_bytes(const mox_int_dot_format *format, __m512 even, __m512 odd, uint8_t *out)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512i a = _mm512_and_si512(_mm512_castps_si512(even), magnitude);
    const __m512i b = _mm512_and_si512(_mm512_castps_si512(odd), magnitude);
    /* Magnitudes compare as their bits do, with NaN above infinity. */
    const uint32_t max = _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
    const __m512 largest = _mm512_castsi512_ps(_mm512_set1_epi32((int32_t)max));
    if (max >= 1u << 23 && (max < (127u - 60) << 23 || max > (127u + 60) << 23))
        return MOX_INT_DOT_FLOATS;
    const __m512 per_unit = max < 1u << 23 ? _mm512_setzero_ps() : _mm512_div_ps(_mm512_set1_ps(127.0f), largest);
    const __m512 unit = _mm512_mul_ps(largest, _mm512_set1_ps(1.0f / 127.0f));
    mox_int_dot_store_bytes(format, _mm512_cvtps_epi32(_mm512_mul_ps(even, per_unit)),
                            _mm512_cvtps_epi32(_mm512_mul_ps(odd, per_unit)),
                            _mm512_mul_ps(unit, _mm512_set1_ps(format->h)), out);
    return MOX_INT_DOT_BYTES;
}

/* ---- products ------------------------------------------------------------------------------------ */

/* W + offset for limb group i, four columns of all 16 rows: the low nibbles of line i / 2, or the high ones. VPERMB
 * ignores bits 6 and 7 of an index, and the table's four copies make bits 4 and 5 irrelevant. */
MOX_KERNEL_INLINE __m512i mox_int_dot_look_up(__m512i table, const uint8_t *codes, int i)
{
    const __m512i line = _mm512_loadu_si512(codes + 64 * (i / 2));
    const __m512i moved = i % 2 == 0 ? line : _mm512_srli_epi16(line, 4);
#ifdef __AVX512VBMI__
    return _mm512_permutexvar_epi8(moved, table);
#else
    return _mm512_shuffle_epi8(table, _mm512_and_si512(moved, _mm512_set1_epi8(0x0f)));
#endif
}

/* The zero point z of each row: z in the first word of its lane, 256 z in the second (INITIAL: b, c). */
MOX_KERNEL_INLINE __m512i mox_int_dot_zero_points(const uint8_t *zero)
{
    const __m512i ends = _mm512_set_epi32(0x0fffff0f, 0x0effff0e, 0x0dffff0d, 0x0cffff0c, 0x0bffff0b, 0x0affff0a,
                                          0x09ffff09, 0x08ffff08, 0x07ffff07, 0x06ffff06, 0x05ffff05, 0x04ffff04,
                                          0x03ffff03, 0x02ffff02, 0x01ffff01, 0x00ffff00);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)zero)), ends);
}

MOX_KERNEL_INLINE __m512i mox_int_dot_broadcast(const uint8_t *four)
{
    int32_t bits;
    memcpy(&bits, four, sizeof bits);
    return _mm512_set1_epi32(bits);
}

/* The codes of a step of two panels, and the table that turns them into W + offset. */
typedef struct mox_int_dot_codes {
    __m512i table;
    const uint8_t *codes[2];
} mox_int_dot_codes;

/* A row of L limbs in the step `limbs`. */
MOX_KERNEL_INLINE const uint8_t *mox_int_dot_row(int L, const uint8_t *limbs, int64_t row)
{
    return limbs + row * (L == 1 ? MOX_INT_DOT_BYTES_STEP : MOX_INT_DOT_LIMBS_STEP);
}

/* UNIT of a row, in all lanes. */
MOX_KERNEL_INLINE __m512 mox_int_dot_unit(int L, const uint8_t *row)
{
    return _mm512_castsi512_ps(mox_int_dot_broadcast(row + (L == 1 ? MOX_INT_DOT_BYTES_UNIT : MOX_INT_DOT_LIMBS_UNIT)));
}

/* The sums of a step by limb. One row has too few sums to hide the latency of VPDPBUSD, so each is kept in two halves.
 */
typedef struct mox_int_dot_sums {
    __m512i of[2][MOX_INT_DOT_BYTE_ROWS][2][3]; /* [half][row][panel][limb] */
} mox_int_dot_sums;

MOX_KERNEL_INLINE void mox_int_dot_start_sums(bool has_zeros, int R, int L, const __m512i zeros[2],
                                              const uint8_t *limbs, mox_int_dot_sums *sums)
{
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const int at = L == 1 ? MOX_INT_DOT_BYTES_INITIAL : MOX_INT_DOT_LIMBS_INITIAL;
        const __m512i start = mox_int_dot_broadcast(mox_int_dot_row(L, limbs, r) + at);
        MOX_KERNEL_UNROLL
        for (int p = 0; p < 2; p++) {
            MOX_KERNEL_UNROLL
            for (int d = 0; d < L; d++)
                sums->of[0][r][p][d] = sums->of[1][r][p][d] = _mm512_setzero_si512();
            sums->of[0][r][p][0] = has_zeros ? _mm512_dpwssd_epi32(_mm512_setzero_si512(), zeros[p], start) : start;
        }
    }
}

/* t / (u h) of two panels for R rows of L limbs over Q quarters (8 columns) of a step. `found`: W + offset [limb
 * group][panel] if they were looked up before, or NULL. `zeros`: mox_int_dot_zero_points() of both panels. */
MOX_KERNEL_INLINE void mox_int_dot_multiply_step(bool has_zeros, int Q, int R, int L, const mox_int_dot_codes *from,
                                                 const __m512i (*found)[2], const __m512i zeros[2],
                                                 const uint8_t *limbs, __m512 t[][2])
{
    const bool look_up = found == NULL;
    const int halves = look_up && R == 1 ? 2 : 1;
    mox_int_dot_sums sums;
    mox_int_dot_start_sums(has_zeros, R, L, zeros, limbs, &sums);
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2 * Q; i++) {
        __m512i counts[2];
        MOX_KERNEL_UNROLL
        for (int p = 0; p < 2; p++)
            counts[p] = look_up ? mox_int_dot_look_up(from->table, from->codes[p], i) : found[i][p];
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            const uint8_t *group = mox_int_dot_row(L, limbs, r) + i / 2 * 16 + i % 2 * 4;
            MOX_KERNEL_UNROLL
            for (int d = 0; d < L; d++) {
                const __m512i four = mox_int_dot_broadcast(group + d / 2 * 64 + d % 2 * 8);
                MOX_KERNEL_UNROLL
                for (int p = 0; p < 2; p++) {
                    __m512i *sum = &sums.of[i % halves][r][p][d];
                    *sum = _mm512_dpbusd_epi32(*sum, counts[p], four);
                }
            }
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        MOX_KERNEL_UNROLL
        for (int p = 0; p < 2; p++) {
            __m512i *low = sums.of[0][r][p], *high = sums.of[1][r][p];
            MOX_KERNEL_UNROLL
            for (int d = 0; d < L; d++)
                low[d] = halves == 2 ? _mm512_add_epi32(low[d], high[d]) : low[d];
            __m512i sum = low[0];
            if (L > 1)
                sum = _mm512_add_epi32(sum, _mm512_slli_epi32(low[1], 8));
            if (L > 2)
                sum = _mm512_add_epi32(sum, _mm512_slli_epi32(low[2], 16));
            t[r][p] = _mm512_cvtepi32_ps(sum);
        }
    }
}

/* ---- steps in floats -------------------------------------------------------------------------------------- */

/* Stores a step of activations as floats in the place of limbs: even columns, then odd ones. */
MOX_KERNEL_INLINE void mox_int_dot_store_floats(__m512 even, __m512 odd, uint8_t *out)
{
    _mm512_store_ps(out, even);
    _mm512_store_ps(out + 64, odd);
}

/* True when no activation of the step is near infinity or the subnormal range, and none is NaN. Then a power of two
 * from 2^-63 to 2^61 gives the same bits whether it multiplies the weights or t: all terms are zero or multiples of
 * 2^-61 below 2^40. */
MOX_KERNEL_INLINE bool mox_int_dot_in_range(const uint8_t *line)
{
    const __m512i magnitude = _mm512_and_si512(_mm512_load_si512(line), _mm512_set1_epi16(0x7fff));
    const __m512i min = _mm512_set1_epi16((127 - 53) << 7), max = _mm512_set1_epi16((127 + 30) << 7);
    return (_mm512_test_epi16_mask(magnitude, magnitude) &
            (_mm512_cmplt_epu16_mask(magnitude, min) | _mm512_cmpgt_epu16_mask(magnitude, max))) == 0;
}

/* The weights whose codes begin at bit `bit` of each lane. VPERMPS uses 4 bits of an index. */
MOX_KERNEL_INLINE __m512 mox_int_dot_weights(bool has_zeros, __m512 values, __m512 zeros, const uint8_t *line, int bit)
{
    const __m512i codes = _mm512_loadu_si512(line);
    const __m512 weights = _mm512_permutexvar_ps(bit == 0 ? codes : _mm512_srli_epi32(codes, (unsigned)bit), values);
    return has_zeros ? _mm512_sub_ps(weights, zeros) : weights;
}

/* 16 zero points as floats. */
MOX_KERNEL_INLINE __m512 mox_int_dot_counts_to_floats(const uint8_t *counts)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)counts)));
}

/* t of two panels and R rows by multiply-adds. `values`: weights by code; `zeros`: zero points as floats. */
MOX_KERNEL_INLINE void mox_int_dot_multiply_step_floats(bool has_zeros, int R, __m512 values, const __m512 zeros[2],
                                                        const uint8_t *const codes[2], const uint8_t *floats,
                                                        __m512 t[][2])
{
    __m512 sum[MOX_INT_DOT_LIMB_ROWS][2][2]; /* [row][panel][even, odd] */
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++)
        sum[r][0][0] = sum[r][0][1] = sum[r][1][0] = sum[r][1][1] = _mm512_setzero_ps();
    MOX_KERNEL_UNROLL
    for (int q = 0; q < 4; q++) {
        MOX_KERNEL_UNROLL
        for (int i = 0; i < 8; i++) {
            const int word = i % 2, nibble = i / 2;
            __m512 w[2];
            MOX_KERNEL_UNROLL
            for (int p = 0; p < 2; p++)
                w[p] = mox_int_dot_weights(has_zeros, values, zeros[p], codes[p] + 64 * q, 4 * nibble + 16 * word);
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++) {
                const uint8_t *a = floats + r * MOX_INT_DOT_LIMBS_STEP + 64 * word + 16 * q + 4 * nibble;
                MOX_KERNEL_UNROLL
                for (int p = 0; p < 2; p++)
                    sum[r][p][word] =
                        _mm512_fmadd_ps(_mm512_castsi512_ps(mox_int_dot_broadcast(a)), w[p], sum[r][p][word]);
            }
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        MOX_KERNEL_UNROLL
        for (int p = 0; p < 2; p++)
            t[r][p] = _mm512_add_ps(sum[r][p][0], sum[r][p][1]);
    }
}

#endif
