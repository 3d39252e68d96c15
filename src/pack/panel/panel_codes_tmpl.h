/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_codes_tmpl.h - template: the six orders of panel.h for one vector width. panel_codes.c and panel_codes_avx2.c
 * include it.
 *
 * A step is the 32-bit words of its rows transposed, [16][words] to [words][16]. Then the bits in each word, or in each
 * lane of 16 bytes, move as the order wants them:
 *
 *     PAIRS, QUADS    nothing moves
 *     HALVES          elements of 16 bits are transposed instead of words
 *     ZIPPED          in the lane of 4 rows: low halves of the words, then high halves
 *     NIBBLES         in a word: nibbles 0 2 4 6, then 1 3 5 7
 *     PLANES          three words of 16 codes: two words of low nibbles like NIBBLES, one word of high bits
 *
 * A lane is 4 rows x 16 bytes, so 1 or 2 lanes fill a quarter or half of a line.
 * Parameter: MOX_LANES (transpose.h). Defines pack_order(), unpack_order(), pack_columns_order(), pack_rows_order().
 */
#include "pack/transpose.h"
#include "pack/panel/panel.h"

enum { LINE = 64, LANE_ROWS = 4, VECTOR_ROWS = LANE_ROWS * MOX_LANES };

/* ---- bits inside words -------------------------------------------------------------------------------------- */

/* Halves 0 .. 7 of every lane to 0 2 4 6 1 3 5 7, and back. */
MOX_PACK_INLINE mox_words deinterleave_halves(mox_words x)
{
    const mox_double_words d = (mox_double_words)x, t = (d ^ d >> 16) & 0xffff0000;
    const mox_words inner = (mox_words)(d ^ t ^ t << 16);
    return MOX_PICK_WORDS(inner, inner, 0, 2, 1, 3);
}

MOX_PACK_INLINE mox_words interleave_halves(mox_words x)
{
    const mox_double_words d = (mox_double_words)MOX_PICK_WORDS(x, x, 0, 2, 1, 3), t = (d ^ d >> 16) & 0xffff0000;
    return (mox_words)(d ^ t ^ t << 16);
}

/* Four codes of 6 bits, c0 lowest. Low nibbles: c0 c2 | c1 c3 at bits 0 4 | 16 20. High bits: c0 c2 | c1 c3 at bits 0 2
 * | 16 18. */
MOX_PACK_INLINE mox_words low_nibbles(mox_words g)
{
    return (g & 0x0000000f) | (g >> 8 & 0x000000f0) | (g << 10 & 0x000f0000) | (g << 2 & 0x00f00000);
}

MOX_PACK_INLINE mox_words high_bits(mox_words g)
{
    return (g >> 4 & 0x00000003) | (g >> 14 & 0x0000000c) | (g << 6 & 0x00030000) | (g >> 4 & 0x000c0000);
}

MOX_PACK_INLINE mox_words join_codes(mox_words low, mox_words high)
{
    return (low & 0x0000000f) | (low & 0x000000f0) << 8 | (low >> 10 & 0x000003c0) | (low >> 2 & 0x003c0000) |
           (high & 0x00000003) << 4 | (high & 0x0000000c) << 14 | (high >> 6 & 0x00000c00) | (high << 4 & 0x00c00000);
}

/* 16 codes in three words <-> two words of low nibbles and one of high bits. */
MOX_PACK_INLINE void split_planes(mox_words w[3])
{
    const mox_words g0 = w[0] & 0xffffff, g1 = (w[0] >> 24 | w[1] << 8) & 0xffffff;
    const mox_words g2 = (w[1] >> 16 | w[2] << 16) & 0xffffff, g3 = w[2] >> 8;
    w[0] = low_nibbles(g0) | low_nibbles(g1) << 8;
    w[1] = low_nibbles(g2) | low_nibbles(g3) << 8;
    w[2] = high_bits(g0) | high_bits(g1) << 4 | high_bits(g2) << 8 | high_bits(g3) << 12;
}

MOX_PACK_INLINE void join_planes(mox_words w[3])
{
    const uint32_t nibbles = 0x00ff00ff, bits = 0x000f000f;
    const mox_words g0 = join_codes(w[0] & nibbles, w[2] & bits);
    const mox_words g1 = join_codes(w[0] >> 8 & nibbles, w[2] >> 4 & bits);
    const mox_words g2 = join_codes(w[1] & nibbles, w[2] >> 8 & bits);
    const mox_words g3 = join_codes(w[1] >> 8 & nibbles, w[2] >> 12 & bits);
    w[0] = g0 | g1 << 24;
    w[1] = g1 >> 8 | g2 << 16;
    w[2] = g2 >> 16 | g3 << 8;
}

/* ---- orders of whole words ---------------------------------------------------------------------------------- */

/* Reorders the bits of a vector of words. `order` is a constant at every call. */
MOX_PACK_INLINE mox_words to_order(mox_panel_order order, mox_words v)
{
    return order == MOX_PANEL_NIBBLES  ? mox_deinterleave_nibbles(v)
           : order == MOX_PANEL_ZIPPED ? deinterleave_halves(v)
                                       : v;
}

MOX_PACK_INLINE mox_words from_order(mox_panel_order order, mox_words v)
{
    return order == MOX_PANEL_NIBBLES  ? mox_interleave_nibbles(v)
           : order == MOX_PANEL_ZIPPED ? interleave_halves(v)
                                       : v;
}

/* Four words of 16 rows make four lines; `count` times, along a row of steps. */
MOX_PACK_INLINE void pack_lines(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t count, uint8_t *to)
{
    for (int64_t i = 0; i < count; i++, rows += 16, to += 4 * LINE)
        for (int n = 0; n < MOX_PANEL_ROWS; n += VECTOR_ROWS) {
            mox_words v[4];
            for (int j = 0; j < 4; j++)
                v[j] = mox_load_lanes(rows + (n + j) * stride, LANE_ROWS * stride);
            mox_transpose_words(v);
            for (int j = 0; j < 4; j++)
                mox_store_words(to + j * LINE + 4 * n, to_order(order, v[j]));
        }
}

MOX_PACK_INLINE void unpack_lines(mox_panel_order order, const uint8_t *from, int64_t count, uint8_t *rows,
                                  int64_t stride)
{
    for (int64_t i = 0; i < count; i++, rows += 16, from += 4 * LINE)
        for (int n = 0; n < MOX_PANEL_ROWS; n += VECTOR_ROWS) {
            mox_words v[4];
            for (int j = 0; j < 4; j++)
                v[j] = from_order(order, mox_load_words(from + j * LINE + 4 * n));
            mox_transpose_words(v);
            for (int j = 0; j < 4; j++)
                mox_store_lanes(rows + (n + j) * stride, LANE_ROWS * stride, v[j]);
        }
}

/* ---- HALVES and PLANES -------------------------------------------------------------------------------------- */

/* 8 columns of all rows; two columns make a line. */
static void pack_halves(const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to)
{
    for (int64_t i = 0; i < 4 * steps; i++, rows += 16, to += 4 * LINE) {
        mox_transpose_16(rows, stride, to, LINE / 2);
        mox_transpose_16(rows + 8 * stride, stride, to + 16, LINE / 2);
    }
}

static void unpack_halves(const uint8_t *from, int64_t steps, uint8_t *rows, int64_t stride)
{
    for (int64_t i = 0; i < 4 * steps; i++, rows += 16, from += 4 * LINE) {
        mox_transpose_16(from, LINE / 2, rows, stride);
        mox_transpose_16(from + 16, LINE / 2, rows + 8 * stride, stride);
    }
}

/* A row has words 0 .. 5 in a step. They are read as 0 .. 3 and 2 .. 5, so neither read leaves the step. */
static void pack_planes(const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to)
{
    for (int64_t s = 0; s < steps; s++, rows += 24, to += 6 * LINE)
        for (int n = 0; n < MOX_PANEL_ROWS; n += VECTOR_ROWS) {
            mox_words a[4], b[4];
            for (int j = 0; j < 4; j++) {
                a[j] = mox_load_lanes(rows + (n + j) * stride, LANE_ROWS * stride);
                b[j] = mox_load_lanes(rows + (n + j) * stride + 8, LANE_ROWS * stride);
            }
            mox_transpose_words(a);
            mox_transpose_words(b);
            mox_words w[6] = { a[0], a[1], a[2], a[3], b[2], b[3] };
            split_planes(w);
            split_planes(w + 3);
            uint8_t *out = to + 4 * n;
            mox_store_words(out, w[0]);
            mox_store_words(out + LINE, w[1]);
            mox_store_words(out + 2 * LINE, w[3]);
            mox_store_words(out + 3 * LINE, w[4]);
            mox_store_words(out + 4 * LINE, w[2]);
            mox_store_words(out + 5 * LINE, w[5]);
        }
}

static void unpack_planes(const uint8_t *from, int64_t steps, uint8_t *rows, int64_t stride)
{
    for (int64_t s = 0; s < steps; s++, rows += 24, from += 6 * LINE)
        for (int n = 0; n < MOX_PANEL_ROWS; n += VECTOR_ROWS) {
            const uint8_t *in = from + 4 * n;
            mox_words w[6] = { mox_load_words(in),
                               mox_load_words(in + LINE),
                               mox_load_words(in + 4 * LINE),
                               mox_load_words(in + 2 * LINE),
                               mox_load_words(in + 3 * LINE),
                               mox_load_words(in + 5 * LINE) };
            join_planes(w);
            join_planes(w + 3);
            mox_words a[4] = { w[0], w[1], w[2], w[3] }, b[4] = { w[2], w[3], w[4], w[5] };
            mox_transpose_words(a);
            mox_transpose_words(b);
            for (int j = 0; j < 4; j++) {
                mox_store_lanes(rows + (n + j) * stride, LANE_ROWS * stride, a[j]);
                mox_store_lanes(rows + (n + j) * stride + 8, LANE_ROWS * stride, b[j]);
            }
        }
}

/* ---- words that are stored transposed ----------------------------------------------------------------------- */

/* Word j of 16 rows is already line j; only its bits move. */
MOX_PACK_INLINE void pack_word_columns(mox_panel_order order, const uint8_t *words, int64_t col_stride, int64_t count,
                                       uint8_t *to)
{
    for (int64_t i = 0; i < count; i++, words += col_stride, to += LINE)
        for (int n = 0; n < MOX_PANEL_ROWS; n += VECTOR_ROWS)
            mox_store_words(to + 4 * n, to_order(order, mox_load_words(words + 4 * n)));
}

/* Delta swap between two vectors: the bits of b under `mask` with the bits of a `shift` higher. */
MOX_PACK_INLINE void delta_swap_between(mox_words *a, mox_words *b, uint32_t mask, int shift)
{
    const mox_words t = (*a >> shift ^ *b) & mask;
    *b ^= t;
    *a ^= t << shift;
}

/* Transposes 8 x 8 nibbles in every word: nibble i of x[j] becomes nibble j of x[i]. */
MOX_PACK_INLINE void transpose_nibbles(mox_words x[8])
{
    for (int i = 0; i < 4; i++)
        delta_swap_between(&x[2 * i], &x[2 * i + 1], 0x0f0f0f0f, 4);
    for (int i = 0; i < 4; i++)
        delta_swap_between(&x[i / 2 * 4 + i % 2], &x[i / 2 * 4 + i % 2 + 2], 0x00ff00ff, 8);
    for (int i = 0; i < 4; i++)
        delta_swap_between(&x[i], &x[i + 4], 0x0000ffff, 16);
}

/* Nibble r of columns 0 .. 7 makes a word of row r, once the columns are in the order of NIBBLES. A lane has two groups
 * of 8 columns, hence two lines; each has the words of rows r and r + 8. */
MOX_PACK_INLINE void pack_word_rows(bool awq, const uint8_t *words, int64_t word_stride, int64_t col_stride,
                                    int64_t steps, uint8_t *to)
{
    static const uint8_t interleaved[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    for (int64_t i = 0; i < 2 * steps / MOX_LANES; i++, to += 2 * MOX_LANES * LINE) {
        mox_words x[8];
        for (int k = 0; k < 8; k++, words += col_stride)
            x[interleaved[k]] = mox_gather_words(words, word_stride, 8 * col_stride);
        words += (16 * MOX_LANES - 8) * col_stride;
        transpose_nibbles(x);
        for (int r = 0; r < 8; r += 4) {
            mox_words v[4];
            for (int j = 0; j < 4; j++)
                v[j] = x[awq ? interleaved[r + j] : r + j];
            mox_transpose_words(v);
            for (int j = 0; j < 4; j++)
                mox_store_lanes(to + j / 2 * LINE + j % 2 * 32 + 4 * r, 2 * LINE, v[j]);
        }
    }
}

/* ---- by order ----------------------------------------------------------------------------------------------- */

static inline void pack_order(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to)
{
    switch (order) {
    case MOX_PANEL_NONE:
    case MOX_PANEL_BLOCKS: break;
    case MOX_PANEL_PAIRS: pack_lines(MOX_PANEL_PAIRS, rows, stride, 4 * steps, to); break;
    case MOX_PANEL_QUADS: pack_lines(MOX_PANEL_QUADS, rows, stride, 2 * steps, to); break;
    case MOX_PANEL_ZIPPED: pack_lines(MOX_PANEL_ZIPPED, rows, stride, 2 * steps, to); break;
    case MOX_PANEL_NIBBLES: pack_lines(MOX_PANEL_NIBBLES, rows, stride, steps, to); break;
    case MOX_PANEL_HALVES: pack_halves(rows, stride, steps, to); break;
    case MOX_PANEL_PLANES: pack_planes(rows, stride, steps, to); break;
    }
}

static inline void unpack_order(mox_panel_order order, const uint8_t *from, int64_t steps, uint8_t *rows,
                                int64_t stride)
{
    switch (order) {
    case MOX_PANEL_NONE:
    case MOX_PANEL_BLOCKS: break;
    case MOX_PANEL_PAIRS: unpack_lines(MOX_PANEL_PAIRS, from, 4 * steps, rows, stride); break;
    case MOX_PANEL_QUADS: unpack_lines(MOX_PANEL_QUADS, from, 2 * steps, rows, stride); break;
    case MOX_PANEL_ZIPPED: unpack_lines(MOX_PANEL_ZIPPED, from, 2 * steps, rows, stride); break;
    case MOX_PANEL_NIBBLES: unpack_lines(MOX_PANEL_NIBBLES, from, steps, rows, stride); break;
    case MOX_PANEL_HALVES: unpack_halves(from, steps, rows, stride); break;
    case MOX_PANEL_PLANES: unpack_planes(from, steps, rows, stride); break;
    }
}

static inline void pack_columns_order(mox_panel_order order, const uint8_t *words, int64_t col_stride, int64_t steps,
                                      uint8_t *to)
{
    if (order == MOX_PANEL_NIBBLES)
        pack_word_columns(MOX_PANEL_NIBBLES, words, col_stride, 4 * steps, to);
    else if (order == MOX_PANEL_ZIPPED)
        pack_word_columns(MOX_PANEL_ZIPPED, words, col_stride, 8 * steps, to);
    else
        pack_word_columns(MOX_PANEL_QUADS, words, col_stride, 8 * steps, to);
}

/* Separate calls, so that the strides of the inner loop are constants. */
static inline void pack_rows_order(bool awq, const uint8_t *words, int64_t word_stride, int64_t col_stride,
                                   int64_t steps, uint8_t *to)
{
    if (awq && word_stride == 4)
        pack_word_rows(true, words, 4, col_stride, steps, to);
    else if (awq)
        pack_word_rows(true, words, word_stride, col_stride, steps, to);
    else
        pack_word_rows(false, words, word_stride, col_stride, steps, to);
}
