/* SPDX-License-Identifier: Apache-2.0
 *
 * int_dot_avx2.h - kernels avx2_fma and avx2_bytes: 4-bit weights times activations as integers, 8 panel rows in a
 * register.
 *
 *     t[n] = sum over a step's columns k of  a[k] w[n, k]          a step: 32 columns, or 16
 *
 * Let u be a power of two with a[k] = A[k] u, and h the unit of the number format with w = W h: A and W are integers.
 * The float kernel sums the even columns in one chain of multiply-adds and the odd ones in another. All sums on the way
 * are multiples of u h. While  max |W| * sum |A[k]| <= 2^24  over each chain, they are floats and nothing is rounded.
 * Then t is the float nearest to u h sum A W, and the integer sum, converted, times u h is the same float. (u is kept
 * away from subnormals and infinity. Chains begin at +0 and no exact sum is -0, so zero has the same sign, too.)
 *
 *     W + offset  is 0 .. 24, looked up by code         sum A W = sum A (W + offset) - offset sum A
 *     A           is l0 + 2^8 l1 + 2^16 l2, each limb -128 .. 127; two limbs or three, as the step's largest A needs
 *
 * Most steps of bf16 activations pass the test. The others are multiplied as floats (panel_fma_avx2.h); the bits are
 * the same. With one row of activations, where decoding dominates, integers take half the time.
 *
 * avx2_bytes (class TOL) rounds any activations to bytes: l0 alone, and a unit that is no power of two (sum
 * "BYTE_ACTIVATIONS", panel_kernel.h).
 *
 *     limbs     [step][row] lines of 8 columns, 32 bytes:
 *                   | l0 l1 l2 x of columns 0 4 1 5 | l0 l1 l2 x of columns 2 6 3 7 |      each four bytes
 *                   x in the first line:   u h as a float; -offset sum A (with zero points: -sum A)
 *                   x in the second line:  the number of limbs; 0: multiply as floats; 2 for bytes
 *     order     [step] rows sorted by number of limbs: how many have two, how many two or three, the rows; a byte each
 *     counts    [line][columns 0 4 1 5, columns 2 6 3 7][half][row] four bytes: W + offset of one step
 *
 * One row multiplies W + offset as it is looked up. For more rows it is looked up once and stays in the L1 cache. Plain
 * codes are W + offset themselves (u4b8, and where zero points are subtracted): without AVX-VNNI, up to two rows
 * multiply them as they are masked. Two
 * or more rows that need floats share the step decoded to floats in the same way.
 *
 * VPMADDUBSW multiplies unsigned bytes in a register by signed ones, which may be in memory. So without AVX-VNNI, more
 * rows of avx2_bytes swap the signs: `limbs` are l0 + 128 and `counts` are W, and memory operands replace loads.
 *     sum A W = sum (A + 128) W - 128 sum W           behind the counts: -128 sum W of each row of weights
 */
#ifndef MOX_CPU_INT_DOT_AVX2_H
#define MOX_CPU_INT_DOT_AVX2_H

#include "base/sizes.h"
#include "cpu/expert_gemm/avx2/panel_fma_avx2.h"

/* A number format of decode class NIBBLES or NIBBLES_ZEROS in integers. */
typedef struct mox_ymm_int_dot_format {
    float h;
    int32_t max, offset; /* max of |W|; what sum A is multiplied by: 1 with zero points */
} mox_ymm_int_dot_format;

/* Stores limbs and order for all rows of `job`; returns the number of (row, step) left to floats. */
int64_t mox_ymm_int_dot_prepare(const mox_ymm_job *job, const mox_ymm_int_dot_format *format);

/* The products of a call: the same code as mox_ymm_int_dot_avxvnni, compiled with other flags. */
void mox_ymm_int_dot_avx2(const mox_ymm_job *job);

/* Whether limbs and counts have the swapped signs. */
static inline bool mox_ymm_int_dot_swapped(const mox_ymm_job *j)
{
    return j->bytes && j->a->rows > 1 && !mox_ymm_has_vnni() && !j->plain;
}

/* Whether codes are W + offset, and are multiplied as such. */
static inline bool mox_ymm_int_dot_is_plain(const mox_panel_counts *format, int64_t rows)
{
    int code = 0;
    while (code < 16 && format->counts[code] == code)
        code++;
    return code == 16 && rows <= MOX_YMM_NARROW && !mox_ymm_has_vnni();
}

/* Where W + offset comes from. */
typedef enum mox_ymm_int_dot_source {
    MOX_INT_DOT_COUNTS, /* looked up before, in the slab */
    MOX_INT_DOT_TABLE,  /* looked up by code */
    MOX_INT_DOT_PLAIN   /* the code */
} mox_ymm_int_dot_source;

/* ---- one line ------------------------------------------------------------------------------------ */

MOX_KERNEL_INLINE __m256i mox_ymm_int_dot_broadcast(const int8_t *four)
{
    return _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)four));
}

/* sum + w[0] . a + w[1] . b, in each lane four bytes W + offset by four limbs. */
#ifdef __AVXVNNI__

MOX_KERNEL_INLINE __m256i mox_ymm_int_dot_dot(const __m256i w[2], __m256i a, __m256i b, __m256i sum)
{
    MOX_YMM_DPBUSD(sum, w[0], a);
    MOX_YMM_DPBUSD(sum, w[1], b);
    return sum;
}

#else

/* The sum of four products is at most 4 * 24 * 128, which fits 16 bits. */
MOX_KERNEL_INLINE __m256i mox_ymm_int_dot_dot(const __m256i w[2], __m256i a, __m256i b, __m256i sum)
{
    const __m256i four = _mm256_add_epi16(_mm256_maddubs_epi16(w[0], a), _mm256_maddubs_epi16(w[1], b));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(four, _mm256_set1_epi16(1)));
}

#endif

MOX_KERNEL_INLINE void mox_ymm_int_dot_look_up(const mox_ymm_job *j, const uint8_t *line, __m256i counts[2])
{
    const __m256i codes = mox_half_line(line), mask = j->tables.nibble;
    counts[0] = _mm256_shuffle_epi8(j->counts, _mm256_and_si256(codes, mask));
    counts[1] = _mm256_shuffle_epi8(j->counts, _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask));
}

/* The codes of a step, and W + offset in the slab. The codes of the second panel lie `second` bytes after those of the
 * first. */
typedef struct mox_ymm_int_dot_codes {
    const uint8_t *codes, *counts;
    int64_t second;
} mox_ymm_int_dot_codes;

/* Adds line `line` of a step: L limbs times H halves of panels, from panel p on. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_line(mox_ymm_int_dot_source source, int H, int L, const mox_ymm_job *j,
                                            const mox_ymm_int_dot_codes *from, int p, int64_t line, const int8_t *limbs,
                                            __m256i sum[3][4])
{
    __m256i four[2][3], w[2];
    MOX_KERNEL_UNROLL
    for (int d = 0; d < L; d++) {
        four[0][d] = mox_ymm_int_dot_broadcast(limbs + 4 * d);
        four[1][d] = mox_ymm_int_dot_broadcast(limbs + 16 + 4 * d);
    }
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        if (source == MOX_INT_DOT_TABLE) {
            mox_ymm_int_dot_look_up(j, from->codes + (p + h / 2) * from->second + h % 2 * 32 + line * 64, w);
        } else {
            const uint8_t *counts = from->counts + line * MOX_COUNTS_LINE + 64 * p + 32 * h;
            w[0] = mox_half_line(counts);
            w[1] = mox_half_line(counts + MOX_COUNTS_LINE / 2);
        }
        MOX_KERNEL_UNROLL
        for (int d = 0; d < L; d++)
            sum[d][h] = mox_ymm_int_dot_dot(w, four[0][d], four[1][d], sum[d][h]);
    }
}

enum { MOX_INT_DOT_VECTORS = 3 };

/* The sums of a step of plain codes times `count` vectors: limbs of one row, or bytes of two. A sum of the step's
 * pairs is at most 8 * 2 * 15 * 128, which fits 16 bits. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_plain(int H, int count, const mox_ymm_job *j, const mox_ymm_int_dot_codes *from,
                                             int p, const int8_t *const vectors[], __m256i sum[][4])
{
    const __m256i mask = _mm256_set1_epi8(0x0f), ones = _mm256_set1_epi16(1);
    __m256i part[MOX_INT_DOT_VECTORS][4];
    MOX_KERNEL_UNROLL
    for (int i = 0; i < H * count; i++)
        part[i / H][i % H] = _mm256_setzero_si256();
    for (int64_t line = 0; line < j->quarters; line++) {
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++) {
            const __m256i codes = mox_half_line(from->codes + (p + h / 2) * from->second + h % 2 * 32 + line * 64);
            const __m256i w[2] = { _mm256_and_si256(codes, mask), _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask) };
            MOX_KERNEL_UNROLL
            for (int i = 0; i < 2 * count; i++) {
                const int8_t *four = vectors[i / 2] + line * MOX_YMM_INT_DOT_LINE + i % 2 * 16;
                part[i / 2][h] =
                    mox_ymm_add_16(part[i / 2][h], _mm256_maddubs_epi16(w[i % 2], mox_ymm_int_dot_broadcast(four)));
            }
        }
    }
    MOX_KERNEL_UNROLL
    for (int i = 0; i < H * count; i++)
        sum[i / H][i % H] = _mm256_madd_epi16(part[i / H][i % H], ones);
}

/* ---- one step ------------------------------------------------------------------------------------ */

/* What the rows of a step share. */
typedef struct mox_ymm_int_dot_pos {
    mox_ymm_pos at;
    mox_ymm_sink sink; /* of row 0 */
    mox_ymm_int_dot_codes from;
    int64_t ahead;     /* bytes from the first code to the next that is prefetched */
    __m256i points[4]; /* zero points of each half */
} mox_ymm_int_dot_pos;

MOX_KERNEL_INLINE mox_ymm_sink mox_ymm_int_dot_sink(const mox_ymm_sink *first, int64_t row)
{
    mox_ymm_sink sink = *first;
    sink.before += row * sink.row_step;
    sink.to += row * MOX_YMM_WIDTH;
    if (sink.act != NULL)
        sink.act += row * sink.act_step;
    return sink;
}

/* What the sum of half `h` of panel p starts from. `points`: zero points, or NULL. */
MOX_KERNEL_INLINE __m256i mox_ymm_int_dot_start(const int8_t *limbs, const __m256i *points, int p, int h)
{
    const __m256i start = mox_ymm_int_dot_broadcast(limbs + 28);
    return points != NULL ? _mm256_mullo_epi32(start, points[2 * p + h]) : start;
}

/* A step of H halves of plain codes times the bytes of two rows. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_plain_two(int H, const mox_ymm_job *j, const mox_ymm_int_dot_pos *place,
                                                 const __m256i *points, const int8_t *first, int64_t row_bytes)
{
    const int8_t *const limbs[2] = { first, first + row_bytes };
    __m256i sum[2][4];
    mox_ymm_int_dot_plain(H, 2, j, &place->from, 0, limbs, sum);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < 2; r++) {
        const mox_ymm_sink sink = mox_ymm_int_dot_sink(&place->sink, r);
        const __m256 unit = _mm256_broadcast_ss((const float *)(const void *)(limbs[r] + 12));
        __m256 total[1][4];
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++) {
            const __m256i all = _mm256_add_epi32(sum[r][h], mox_ymm_int_dot_start(limbs[r], points, 0, h));
            total[0][h] = _mm256_mul_ps(_mm256_cvtepi32_ps(all), unit);
        }
        mox_ymm_add_step(1, H, true, &sink, 0, 0, total);
    }
}

/* Sums of a step of H halves, from panel p on, times a row of L limbs. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_sums(mox_ymm_int_dot_source source, int H, int L, const mox_ymm_job *j,
                                            mox_ymm_int_dot_codes from, const __m256i *points, int p,
                                            const int8_t *limbs, int64_t row_bytes, __m256i sum[3][4])
{
    const int8_t *const vectors[3] = { limbs, limbs + 4, limbs + 8 }, *const end = limbs + row_bytes;
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        sum[0][h] = mox_ymm_int_dot_start(limbs, points, p, h);
        sum[1][h] = sum[2][h] = _mm256_setzero_si256();
    }
    if (source == MOX_INT_DOT_PLAIN) {
        __m256i plain[MOX_INT_DOT_VECTORS][4];
        mox_ymm_int_dot_plain(H, L, j, &from, p, vectors, plain);
        MOX_KERNEL_UNROLL
        for (int i = 0; i < H * L; i++)
            sum[i / H][i % H] = _mm256_add_epi32(sum[i / H][i % H], plain[i / H][i % H]);
        return;
    }
    for (; limbs < end; limbs += 2 * MOX_YMM_INT_DOT_LINE) {
        mox_ymm_int_dot_line(source, H, L, j, &from, p, 0, limbs, sum);
        mox_ymm_int_dot_line(source, H, L, j, &from, p, 1, limbs + MOX_YMM_INT_DOT_LINE, sum);
        from.codes += 2 * 64;
        from.counts += 2 * MOX_COUNTS_LINE;
    }
}

/* A step of H halves of panels, from panel p on, times a row of L limbs. `points`: zero points, or NULL. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_step(mox_ymm_int_dot_source source, int H, int L, const mox_ymm_job *j,
                                            mox_ymm_int_dot_codes from, const __m256i *points, int p,
                                            const int8_t *limbs, int64_t row_bytes, const mox_ymm_sink *sink)
{
    const __m256 unit = _mm256_broadcast_ss((const float *)(const void *)(limbs + 12));
    __m256i sum[3][4];
    __m256 total[1][4];
    mox_ymm_int_dot_sums(source, H, L, j, from, points, p, limbs, row_bytes, sum);
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        __m256i all = sum[0][h];
        if (L > 1)
            all = _mm256_add_epi32(all, _mm256_slli_epi32(sum[1][h], 8));
        if (L > 2)
            all = _mm256_add_epi32(all, _mm256_slli_epi32(sum[2][h], 16));
        total[0][h] = _mm256_mul_ps(_mm256_cvtepi32_ps(all), unit);
    }
    mox_ymm_add_step(1, H, true, sink, p, 0, total);
}

#ifdef __AVXVNNI__
enum { MOX_YMM_SWAPPED = 0 };
#else
enum { MOX_YMM_SWAPPED = 1 };
#endif

/* The same for bytes with swapped signs. Four products of at most 2 * 255 * 15 fit 16 bits. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_swapped_step(int H, const mox_ymm_job *j, const uint8_t *counts,
                                                    const __m256i *points, const int8_t *limbs,
                                                    const mox_ymm_sink *sink)
{
    const __m256 unit = _mm256_broadcast_ss((const float *)(const void *)(limbs + 12));
    const __m256i ones = _mm256_set1_epi16(1), start = mox_ymm_int_dot_broadcast(limbs + 28);
    const uint8_t *end = counts + j->quarters * MOX_COUNTS_LINE;
    __m256i sum[4];
    __m256 total[1][4];
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        sum[h] = mox_half_line(end + 32 * h);
        if (points != NULL)
            sum[h] = _mm256_add_epi32(sum[h], _mm256_mullo_epi32(start, points[h]));
    }
    for (; counts < end; counts += 2 * MOX_COUNTS_LINE, limbs += 2 * MOX_YMM_INT_DOT_LINE) {
        __m256i four[4];
        MOX_KERNEL_UNROLL
        for (int i = 0; i < 4; i++)
            four[i] = mox_ymm_int_dot_broadcast(limbs + 16 * i);
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++) {
            __m256i products = _mm256_maddubs_epi16(four[0], mox_half_line(counts + 32 * h));
            MOX_KERNEL_UNROLL
            for (int i = 1; i < 4; i++) {
                const __m256i w = mox_half_line(counts + i * (MOX_COUNTS_LINE / 2) + 32 * h);
                products = _mm256_add_epi16(products, _mm256_maddubs_epi16(four[i], w));
            }
            sum[h] = _mm256_add_epi32(sum[h], _mm256_madd_epi16(products, ones));
        }
    }
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++)
        total[0][h] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[h]), unit);
    mox_ymm_add_step(1, H, true, sink, 0, 0, total);
}

/* All rows of the step that are multiplied as integers; they come first in `order`. Rows with the same number of limbs
 * follow each other, so that the branch is predicted. Three limbs take one panel at a time, because two do not fit the
 * registers. What the rows share is copied to locals, so that no store makes the compiler load it again. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_rows(mox_ymm_int_dot_source source, bool bytes, int panels, const mox_ymm_job *j,
                                            const mox_ymm_int_dot_pos *place, const uint8_t *order)
{
    const int64_t row_bytes = j->quarters * MOX_YMM_INT_DOT_LINE, two = order[0], three = bytes ? two : order[1];
    const int8_t *limbs = j->limbs + place->at.step * j->a->rows * row_bytes;
    const __m256i *points = j->zeros ? place->points : NULL;
    const mox_ymm_int_dot_codes from = place->from;
    const mox_ymm_sink first = place->sink;
    int64_t i = 0;
    if (source == MOX_INT_DOT_PLAIN && bytes && two == 2) {
        mox_ymm_int_dot_plain_two(2 * panels, j, place, points, limbs, row_bytes);
        i = two;
    }
    for (; i < two; i++) {
        const int64_t row = order[2 + i];
        const mox_ymm_sink sink = mox_ymm_int_dot_sink(&first, row);
        if (MOX_YMM_SWAPPED && bytes && source == MOX_INT_DOT_COUNTS) {
            mox_ymm_int_dot_swapped_step(2 * panels, j, from.counts, points, limbs + row * row_bytes, &sink);
            continue;
        }
        mox_ymm_int_dot_step(source, 2 * panels, bytes ? 1 : 2, j, from, points, 0, limbs + row * row_bytes, row_bytes,
                             &sink);
    }
    for (i = two; i < three; i++) {
        const int64_t row = order[2 + i];
        const mox_ymm_sink sink = mox_ymm_int_dot_sink(&first, row);
        for (int p = 0; p < panels; p++)
            mox_ymm_int_dot_step(source, 2, 3, j, from, points, p, limbs + row * row_bytes, row_bytes, &sink);
    }
}

/* ---- floats -------------------------------------------------------------------------------------- */

/* H halves of the step, from half `half` of panel p on, in the slab at `w`, times R rows. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_floats_block(int R, int H, const mox_ymm_job *j,
                                                    const mox_ymm_int_dot_pos *place, int p, int half,
                                                    const uint8_t *rows)
{
    const float *w = j->slab + half * MOX_YMM_HALF, *end = w + j->quarters * 64, *x[MOX_YMM_BLOCK];
    __m256 chains[2][MOX_YMM_BLOCK][2];
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        x[r] = (const float *)j->a->data + rows[r] * j->stride + place->at.step * j->quarters * 8;
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++)
            chains[h][r][0] = chains[h][r][1] = _mm256_setzero_ps();
    }
    for (int64_t k = 0; w < end; w += 16, k += 2) {
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++) {
            const __m256 pair[2] = { _mm256_load_ps(w + h * MOX_YMM_HALF), _mm256_load_ps(w + h * MOX_YMM_HALF + 8) };
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++)
                mox_ymm_add_pair(MOX_DECODE_NIBBLES, 1, x[r] + k, 0, pair, &chains[h][r]);
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const mox_ymm_sink sink = mox_ymm_int_dot_sink(&place->sink, rows[r]);
        __m256 sum[1][4];
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++)
            sum[0][h] = mox_ymm_step_sum(MOX_DECODE_NIBBLES, chains[h][r]);
        mox_ymm_add_step(1, H, false, &sink, p, half, sum);
    }
}

/* Two rows need both halves at once to have 8 chains; more rows have enough with one half. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_floats_rows(int R, const mox_ymm_job *j, const mox_ymm_int_dot_pos *place, int p,
                                                   const uint8_t *rows)
{
    for (int half = 0; half<2; half += R> 2 ? 1 : 2)
        mox_ymm_int_dot_floats_block(R, R > 2 ? 1 : 2, j, place, p, half, rows);
}

/* rows[0 .. count), at least two. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_floats(mox_decode_class decode, const mox_ymm_job *j,
                                              const mox_ymm_int_dot_pos *place, const uint8_t *rows, int64_t count)
{
    const int64_t blocks = mox_ceil_div(count, MOX_YMM_BLOCK);
    for (int p = 0; p < j->panels; p++) {
        mox_ymm_expand(decode, j, p, &place->at, 1);
        for (int64_t b = 0; b < blocks; b++) {
            const uint8_t *first = rows + b * count / blocks;
            switch ((b + 1) * count / blocks - b * count / blocks) {
            case 2: mox_ymm_int_dot_floats_rows(2, j, place, p, first); break;
            case 3: mox_ymm_int_dot_floats_rows(3, j, place, p, first); break;
            case 4: mox_ymm_int_dot_floats_rows(4, j, place, p, first); break;
            case 5: mox_ymm_int_dot_floats_rows(5, j, place, p, first); break;
            default: mox_ymm_int_dot_floats_rows(MOX_YMM_BLOCK, j, place, p, first); break;
            }
        }
    }
}

#define MOX_YMM_INT_DOT_FLOAT_ROWS(name, decode)                                                                       \
    static __attribute__((noinline)) void name(const mox_ymm_job *j, const mox_ymm_int_dot_pos *place,                 \
                                               const uint8_t *rows, int64_t count)                                     \
    {                                                                                                                  \
        if (count > 1)                                                                                                 \
            mox_ymm_int_dot_floats(decode, j, place, rows, count);                                                     \
        else if (j->panels == 2)                                                                                       \
            mox_ymm_narrow_step(decode, 1, 4, j, &place->at, 0, 0, rows[0]);                                           \
        else                                                                                                           \
            mox_ymm_narrow_step(decode, 1, 2, j, &place->at, 0, 0, rows[0]);                                           \
    }
MOX_YMM_INT_DOT_FLOAT_ROWS(int_dot_float_rows, MOX_DECODE_NIBBLES)
MOX_YMM_INT_DOT_FLOAT_ROWS(int_dot_float_rows_zeros, MOX_DECODE_NIBBLES_ZEROS)

/* ---- one call ------------------------------------------------------------------------------------ */

/* Looks up W + offset of a step and stores it to the slab; with swapped signs W, and -128 sum W. The sum of eight W
 * fits a byte. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_expand(bool swapped, int panels, const mox_ymm_job *j,
                                              const mox_ymm_int_dot_codes *from)
{
    uint8_t *to = (uint8_t *)j->slab;
    __m256i sums[4];
    MOX_KERNEL_UNROLL
    for (int h = 0; h < 4; h++)
        sums[h] = _mm256_setzero_si256();
    for (int64_t line = 0; line < j->quarters; line++, to += MOX_COUNTS_LINE) {
        MOX_KERNEL_UNROLL
        for (int h = 0; h < 2 * panels; h++) {
            __m256i w[2];
            mox_ymm_int_dot_look_up(j, from->codes + h / 2 * from->second + h % 2 * 32 + line * 64, w);
            _mm256_store_si256((__m256i *)(void *)(to + 32 * h), w[0]);
            _mm256_store_si256((__m256i *)(void *)(to + MOX_COUNTS_LINE / 2 + 32 * h), w[1]);
            if (swapped)
                sums[h] = _mm256_add_epi8(sums[h], _mm256_add_epi8(w[0], w[1]));
        }
    }
    if (!swapped)
        return;
    MOX_KERNEL_UNROLL
    for (int h = 0; h < 2 * panels; h++) {
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), sums[h]);
        _mm256_store_si256((__m256i *)(void *)(to + 32 * h), _mm256_madd_epi16(pairs, _mm256_set1_epi16(-128)));
    }
}

/* Prefetches as mox_ymm_prefetch() does, at place->ahead, which it advances. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_prefetch(int panels, const mox_ymm_job *j, mox_ymm_int_dot_pos *place)
{
    const mox_panel_matrix *m = j->matrix;
    const int64_t bytes = j->quarters * 64, all = bytes * j->steps, next = panels * (int64_t)m->panel_bytes;
    const int64_t scales = (int64_t)m->scale_at + place->at.step * 64;
    for (int p = 0; p < panels; p++) {
        const uint8_t *panel = j->codes + p * (int64_t)m->panel_bytes;
        for (int64_t b = 0; b < bytes; b += 128) {
            _mm_prefetch((const char *)panel + place->ahead + b, _MM_HINT_T1);
            _mm_prefetch((const char *)panel + place->ahead + b + 64, _MM_HINT_T1);
        }
        if (scales < (int64_t)m->panel_bytes)
            _mm_prefetch((const char *)panel + next + scales, _MM_HINT_T1);
    }
    place->ahead += bytes;
    if (place->ahead == all)
        place->ahead = next;
}

/* Sets up the step at place->at. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_enter(int panels, const mox_ymm_job *j, mox_ymm_int_dot_pos *place)
{
    place->sink = mox_ymm_sink_of(j, &place->at, 0);
    place->from = (mox_ymm_int_dot_codes) { .codes = j->codes + place->at.step * j->quarters * 64,
                                            .counts = (const uint8_t *)j->slab,
                                            .second = (int64_t)j->matrix->panel_bytes };
    for (int h = 0; j->zeros && h < 2 * panels; h++) {
        const float *points = j->zero + place->at.group * MOX_PANEL_ROWS + h / 2 * j->panel_floats + h % 2 * 8;
        place->points[h] = _mm256_cvtps_epi32(_mm256_load_ps(points));
    }
    mox_ymm_int_dot_prefetch(panels, j, place);
}

MOX_KERNEL_INLINE void mox_ymm_int_dot_panels(mox_ymm_int_dot_source source, bool bytes, int panels,
                                              const mox_ymm_job *j)
{
    const int64_t all = j->steps * j->quarters * 64, rows = source == MOX_INT_DOT_TABLE ? 1 : j->a->rows;
    const uint8_t *order = j->order;
    mox_ymm_int_dot_pos place = { .at = { 0 }, .ahead = MOX_YMM_PREFETCH_L2_BYTES };
    if (place.ahead >= all)
        place.ahead += panels * (int64_t)j->matrix->panel_bytes - all;
    for (; place.at.step < j->steps; mox_ymm_next(j, &place.at), order += mox_ymm_int_dot_order_bytes(rows)) {
        mox_ymm_int_dot_enter(panels, j, &place);
        if (source == MOX_INT_DOT_COUNTS)
            mox_ymm_int_dot_expand(MOX_YMM_SWAPPED && bytes, panels, j, &place.from);
        mox_ymm_int_dot_rows(source, bytes, panels, j, &place, order);
        if (order[1] < rows)
            (j->zeros ? int_dot_float_rows_zeros : int_dot_float_rows)(j, &place, order + 2 + order[1],
                                                                       rows - order[1]);
    }
}

MOX_KERNEL_INLINE void mox_ymm_int_dot_from(mox_ymm_int_dot_source source, bool bytes, const mox_ymm_job *j)
{
    if (j->panels == 2)
        mox_ymm_int_dot_panels(source, bytes, 2, j);
    else
        mox_ymm_int_dot_panels(source, bytes, 1, j);
}

MOX_KERNEL_INLINE void mox_ymm_int_dot_of(bool bytes, const mox_ymm_job *j)
{
    if (MOX_YMM_SWAPPED && j->plain)
        mox_ymm_int_dot_from(MOX_INT_DOT_PLAIN, bytes, j);
    else if (j->a->rows > 1)
        mox_ymm_int_dot_from(MOX_INT_DOT_COUNTS, bytes, j);
    else
        mox_ymm_int_dot_from(MOX_INT_DOT_TABLE, bytes, j);
}

static inline void mox_ymm_int_dot_all(const mox_ymm_job *j)
{
    if (j->bytes)
        mox_ymm_int_dot_of(true, j);
    else
        mox_ymm_int_dot_of(false, j);
}

#endif
