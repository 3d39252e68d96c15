/* SPDX-License-Identifier: Apache-2.0
 *
 * int_dot_avx2.h - the sums of rows avx2_fma and avx2_bytes over 4-bit codes, in integers: wherever no sum can
 * round, or of activations that are rounded.
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
 * Row avx2_bytes, of class TOL, takes any activations as bytes: d0 alone, and a unit that is no power of two (sum
 * "bytes32", panel_kernel.h).
 *
 *     digits    [step][row] lines of 8 columns, 32 bytes:
 *                   | d0 d1 d2 x of columns 0 4 1 5 | d0 d1 d2 x of columns 2 6 3 7 |      each d four bytes
 *                   x in the first line: u h as a float, less offset sum A (with zero points: less sum A);
 *                   in the second: how many digits, 0 for floats; 2 for bytes, too
 *     order     [step] rows by number of digits: how many have two, how many two or three, the rows; a byte each
 *     counts    [line][columns 0 4 1 5, columns 2 6 3 7][half][row] four bytes: W + offset, of one step
 *
 * One row multiplies counts as they are looked up. More rows find them in the first-level cache; and so do those of
 * them that need floats, when they are at least two, with the step decoded to floats.
 */
#ifndef MOX_CPU_INT_DOT_AVX2_H
#define MOX_CPU_INT_DOT_AVX2_H

#include "base/sizes.h"
#include "cpu/expert_gemm/avx2/panel_fma_avx2.h"

enum { MOX_YMM_INT_DOT_LINE = 32, MOX_COUNTS_LINE = 256 };

/* The formats of ways NIBBLES and NIBBLES_ZEROS in integers. */
typedef struct mox_ymm_int_dot_rule {
    float h;
    int32_t most, offset; /* offset: what the sum of A is multiplied by; 1 with zero points */
} mox_ymm_int_dot_rule;

/* Where the digits of a call are, in scratch. */
typedef struct mox_ymm_int_dot_head {
    int64_t floats; /* steps of all rows that are not exact in integers */
} mox_ymm_int_dot_head;

/* Digits of all rows of `job` and their order; returns how many steps are left to floats. */
int64_t mox_ymm_int_dot_prepare(const mox_ymm_job *job, const mox_ymm_int_dot_rule *rule);

/* Bytes of a step in `order`. */
static inline int64_t mox_ymm_int_dot_order_bytes(int64_t rows)
{
    return rows + 2;
}

/* The products of a call. The same code with different flags; the second is NULL where the compiler has no AVX-VNNI. */
typedef void (*mox_ymm_int_dot_fn)(const mox_ymm_job *job);
void mox_ymm_int_dot_avx2(const mox_ymm_job *job);
extern const mox_ymm_int_dot_fn mox_ymm_int_dot_avxvnni;

/* ---- one line ------------------------------------------------------------------------------------ */

MOX_KERNEL_INLINE __m256i mox_ymm_int_dot_spread(const int8_t *four)
{
    return _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)four));
}

/* sum + counts w[0] times digits a + counts w[1] times digits b. */
#ifdef __AVXVNNI__

/* Adds where sum is: left to itself gcc moves sums from register to register, and then spills. */
MOX_KERNEL_INLINE __m256i mox_ymm_int_dot_dot(const __m256i w[2], __m256i a, __m256i b, __m256i sum)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w[0]), "x"(a));
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w[1]), "x"(b));
    return sum;
}

#else

/* Two products are at most 2 * 24 * 128, four of them fit 16 bits. */
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

/* Where counts are: looked up from `codes`, a panel's `second` bytes after the other's, or when that is NULL in
 * `counts`. */
typedef struct mox_ymm_int_dot_source {
    const uint8_t *codes, *counts;
    int64_t second;
} mox_ymm_int_dot_source;

/* Adds line `line` of a step, D digits times H halves from panel p on. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_line(bool look_up, int H, int D, const mox_ymm_job *j,
                                            const mox_ymm_int_dot_source *from, int p, int64_t line,
                                            const int8_t *digits, __m256i sum[3][4])
{
    __m256i four[2][3], w[2];
    MOX_KERNEL_UNROLL
    for (int d = 0; d < D; d++) {
        four[0][d] = mox_ymm_int_dot_spread(digits + 4 * d);
        four[1][d] = mox_ymm_int_dot_spread(digits + 16 + 4 * d);
    }
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        if (look_up) {
            mox_ymm_int_dot_look_up(j, from->codes + (p + h / 2) * from->second + h % 2 * 32 + line * 64, w);
        } else {
            const uint8_t *counts = from->counts + line * MOX_COUNTS_LINE + 64 * p + 32 * h;
            w[0] = mox_half_line(counts);
            w[1] = mox_half_line(counts + MOX_COUNTS_LINE / 2);
        }
        MOX_KERNEL_UNROLL
        for (int d = 0; d < D; d++)
            sum[d][h] = mox_ymm_int_dot_dot(w, four[0][d], four[1][d], sum[d][h]);
    }
}

/* ---- one step ------------------------------------------------------------------------------------ */

/* What the rows of a step share. */
typedef struct mox_ymm_int_dot_place {
    mox_ymm_place at;
    mox_ymm_sink sink; /* of row 0 */
    mox_ymm_int_dot_source from;
    int64_t ahead;     /* bytes from the first code to the next that is prefetched */
    __m256i points[4]; /* zero points of each half */
} mox_ymm_int_dot_place;

MOX_KERNEL_INLINE mox_ymm_sink mox_ymm_int_dot_sink(const mox_ymm_sink *first, int64_t row)
{
    mox_ymm_sink sink = *first;
    sink.before += row * sink.row_step;
    sink.to += row * MOX_YMM_WIDTH;
    if (sink.act != NULL)
        sink.act += row * sink.act_step;
    return sink;
}

/* H halves from panel p on times a row of D digits; points: NULL without zero points. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_step(bool look_up, int H, int D, const mox_ymm_job *j,
                                            mox_ymm_int_dot_source from, const __m256i *points, int p,
                                            const int8_t *digits, int64_t row_bytes, const mox_ymm_sink *sink)
{
    const __m256 unit = _mm256_broadcast_ss((const float *)(const void *)(digits + 12));
    __m256i sum[3][4];
    __m256 total[1][4];
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        sum[0][h] = mox_ymm_int_dot_spread(digits + 28);
        if (points != NULL)
            sum[0][h] = _mm256_mullo_epi32(sum[0][h], points[2 * p + h]);
        sum[1][h] = sum[2][h] = _mm256_setzero_si256();
    }
    for (const int8_t *end = digits + row_bytes; digits < end; digits += 2 * MOX_YMM_INT_DOT_LINE) {
        mox_ymm_int_dot_line(look_up, H, D, j, &from, p, 0, digits, sum);
        mox_ymm_int_dot_line(look_up, H, D, j, &from, p, 1, digits + MOX_YMM_INT_DOT_LINE, sum);
        from.codes += 2 * 64;
        from.counts += 2 * MOX_COUNTS_LINE;
    }
    MOX_KERNEL_UNROLL
    for (int h = 0; h < H; h++) {
        __m256i all = sum[0][h];
        if (D > 1)
            all = _mm256_add_epi32(all, _mm256_slli_epi32(sum[1][h], 8));
        if (D > 2)
            all = _mm256_add_epi32(all, _mm256_slli_epi32(sum[2][h], 16));
        total[0][h] = _mm256_mul_ps(_mm256_cvtepi32_ps(all), unit);
    }
    mox_ymm_add_step(1, H, true, sink, p, 0, total);
}

/* All rows of the step that are multiplied in integers; after those, in `order`, come those that are not. Rows with as
 * many digits follow each other, or the processor would guess wrong every other time. Three digits of both panels at
 * once would not fit the registers. What rows share is copied, so that no store makes it be loaded again. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_rows(bool look_up, bool bytes, int panels, const mox_ymm_job *j,
                                            const mox_ymm_int_dot_place *place, const uint8_t *order)
{
    const int64_t row_bytes = j->quarters * MOX_YMM_INT_DOT_LINE, two = order[0], three = bytes ? two : order[1];
    const int8_t *digits = j->digits + place->at.step * j->a->rows * row_bytes;
    const __m256i *points = j->zeros ? place->points : NULL;
    const mox_ymm_int_dot_source from = place->from;
    const mox_ymm_sink first = place->sink;
    for (int64_t i = 0; i < two; i++) {
        const int64_t row = order[2 + i];
        const mox_ymm_sink sink = mox_ymm_int_dot_sink(&first, row);
        mox_ymm_int_dot_step(look_up, 2 * panels, bytes ? 1 : 2, j, from, points, 0, digits + row * row_bytes,
                             row_bytes, &sink);
    }
    for (int64_t i = two; i < three; i++) {
        const int64_t row = order[2 + i];
        const mox_ymm_sink sink = mox_ymm_int_dot_sink(&first, row);
        for (int p = 0; p < panels; p++)
            mox_ymm_int_dot_step(look_up, 2, 3, j, from, points, p, digits + row * row_bytes, row_bytes, &sink);
    }
}

/* ---- floats -------------------------------------------------------------------------------------- */

/* H halves of the step, from half `half` of panel p on, in the slab at `w`, times R rows. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_floats_block(int R, int H, const mox_ymm_job *j,
                                                    const mox_ymm_int_dot_place *place, int p, int half,
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
                mox_ymm_add_pair(MOX_HALF_NIBBLES, 1, x[r] + k, 0, pair, &chains[h][r]);
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const mox_ymm_sink sink = mox_ymm_int_dot_sink(&place->sink, rows[r]);
        __m256 sum[1][4];
        MOX_KERNEL_UNROLL
        for (int h = 0; h < H; h++)
            sum[0][h] = mox_ymm_step_sum(MOX_HALF_NIBBLES, chains[h][r]);
        mox_ymm_add_step(1, H, false, &sink, p, half, sum);
    }
}

/* Two rows keep 8 chains busy with both halves at once, more do with one. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_floats_rows(int R, const mox_ymm_job *j, const mox_ymm_int_dot_place *place,
                                                   int p, const uint8_t *rows)
{
    for (int half = 0; half<2; half += R> 2 ? 1 : 2)
        mox_ymm_int_dot_floats_block(R, R > 2 ? 1 : 2, j, place, p, half, rows);
}

/* Rows rows[0 .. count), of which there are two at least. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_floats(mox_half_way way, const mox_ymm_job *j,
                                              const mox_ymm_int_dot_place *place, const uint8_t *rows, int64_t count)
{
    const int64_t blocks = mox_ceil_div(count, MOX_YMM_BLOCK);
    for (int p = 0; p < j->panels; p++) {
        mox_ymm_expand(way, j, p, &place->at, 1);
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

#define MOX_YMM_INT_DOT_FLOATS_OF(name, way)                                                                           \
    static __attribute__((noinline)) void name(const mox_ymm_job *j, const mox_ymm_int_dot_place *place,               \
                                               const uint8_t *rows, int64_t count)                                     \
    {                                                                                                                  \
        if (count > 1)                                                                                                 \
            mox_ymm_int_dot_floats(way, j, place, rows, count);                                                        \
        else if (j->panels == 2)                                                                                       \
            mox_ymm_narrow_step(way, 1, 4, j, &place->at, 0, rows[0]);                                                 \
        else                                                                                                           \
            mox_ymm_narrow_step(way, 1, 2, j, &place->at, 0, rows[0]);                                                 \
    }
MOX_YMM_INT_DOT_FLOATS_OF(digits_floats, MOX_HALF_NIBBLES)
MOX_YMM_INT_DOT_FLOATS_OF(digits_floats_zeros, MOX_HALF_NIBBLES_ZEROS)

/* ---- one call ------------------------------------------------------------------------------------ */

/* Counts of the step to the slab. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_expand(int panels, const mox_ymm_job *j, const mox_ymm_int_dot_source *from)
{
    uint8_t *to = (uint8_t *)j->slab;
    for (int64_t line = 0; line < j->quarters; line++, to += MOX_COUNTS_LINE) {
        MOX_KERNEL_UNROLL
        for (int h = 0; h < 2 * panels; h++) {
            __m256i w[2];
            mox_ymm_int_dot_look_up(j, from->codes + h / 2 * from->second + h % 2 * 32 + line * 64, w);
            _mm256_store_si256((__m256i *)(void *)(to + 32 * h), w[0]);
            _mm256_store_si256((__m256i *)(void *)(to + MOX_COUNTS_LINE / 2 + 32 * h), w[1]);
        }
    }
}

/* Brings in codes and scales as mox_ymm_prefetch() does; place->ahead is where, and moves on. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_prefetch(int panels, const mox_ymm_job *j, mox_ymm_int_dot_place *place)
{
    const mox_panel_matrix *m = j->matrix;
    const int64_t bytes = j->quarters * 64, all = bytes * j->steps, next = panels * (int64_t)m->panel_bytes;
    const int64_t scales = (int64_t)m->scale_at + place->at.step * 64;
    for (int p = 0; p < panels; p++) {
        const uint8_t *panel = j->codes + p * (int64_t)m->panel_bytes;
        for (int64_t b = 0; b < bytes; b += 128) {
            _mm_prefetch((const char *)panel + place->ahead + b, _MM_HINT_T0);
            _mm_prefetch((const char *)panel + place->ahead + b + 64, _MM_HINT_T0);
        }
        if (scales < (int64_t)m->panel_bytes)
            _mm_prefetch((const char *)panel + next + scales, _MM_HINT_T0);
    }
    place->ahead += bytes;
    if (place->ahead == all)
        place->ahead = next;
}

/* The step at place->at, which says where it is. */
MOX_KERNEL_INLINE void mox_ymm_int_dot_enter(int panels, const mox_ymm_job *j, mox_ymm_int_dot_place *place)
{
    place->sink = mox_ymm_sink_of(j, &place->at, 0);
    place->from = (mox_ymm_int_dot_source) { .codes = j->codes + place->at.step * j->quarters * 64,
                                             .counts = (const uint8_t *)j->slab,
                                             .second = (int64_t)j->matrix->panel_bytes };
    for (int h = 0; j->zeros && h < 2 * panels; h++) {
        const float *points = j->zero + place->at.group * MOX_PANEL_ROWS + h / 2 * j->panel_floats + h % 2 * 8;
        place->points[h] = _mm256_cvtps_epi32(_mm256_load_ps(points));
    }
    mox_ymm_int_dot_prefetch(panels, j, place);
}

MOX_KERNEL_INLINE void mox_ymm_int_dot_panels(bool look_up, bool bytes, int panels, const mox_ymm_job *j)
{
    const int64_t all = j->steps * j->quarters * 64, rows = look_up ? 1 : j->a->rows;
    const uint8_t *order = j->order;
    mox_ymm_int_dot_place place = { .at = { 0 }, .ahead = MOX_YMM_AHEAD };
    if (place.ahead >= all)
        place.ahead += panels * (int64_t)j->matrix->panel_bytes - all;
    for (; place.at.step < j->steps; mox_ymm_advance(j, &place.at), order += mox_ymm_int_dot_order_bytes(rows)) {
        mox_ymm_int_dot_enter(panels, j, &place);
        if (!look_up)
            mox_ymm_int_dot_expand(panels, j, &place.from);
        mox_ymm_int_dot_rows(look_up, bytes, panels, j, &place, order);
        if (order[1] < rows)
            (j->zeros ? digits_floats_zeros : digits_floats)(j, &place, order + 2 + order[1], rows - order[1]);
    }
}

MOX_KERNEL_INLINE void mox_ymm_int_dot_of(bool bytes, const mox_ymm_job *j)
{
    if (j->a->rows > 1)
        j->panels == 2 ? mox_ymm_int_dot_panels(false, bytes, 2, j) : mox_ymm_int_dot_panels(false, bytes, 1, j);
    else
        j->panels == 2 ? mox_ymm_int_dot_panels(true, bytes, 2, j) : mox_ymm_int_dot_panels(true, bytes, 1, j);
}

static inline void mox_ymm_int_dot_all(const mox_ymm_job *j)
{
    if (j->bytes)
        mox_ymm_int_dot_of(true, j);
    else
        mox_ymm_int_dot_of(false, j);
}

#endif
