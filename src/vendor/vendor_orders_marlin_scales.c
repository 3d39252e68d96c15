/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_orders_marlin_scales.c - scales and zero points for Marlin: transposed, so that a row holds all N of one
 * group, and permuted in every run of columns as the lanes read them.
 *
 *     scales [N][G]  ->  [G][N]; of every 64 (or 32) columns, column p of the result is the source's column
 *
 *         grouped      i + 8j   for p = 8i + j                        0 8 16 24 32 40 48 56 | 1 9 17 ..   runs of 64
 *         single       2i + 8 (j / 2) + j % 2                         0 1 8 9 16 17 24 25 | 2 3 10 11 ..  runs of 32
 *         grouped_fp4  as grouped, columns 1 and 2 of every 4 exchanged
 *
 *     zeros [N][G]   ->  [G][N * bits / 32] words: grouped, then in every 8 columns 0 2 4 6 1 3 5 7; with 8-bit
 *                        activations grouped only
 *     row pairs      ->  [N / 2][G] bytes: row 2i in the low nibbles, 2i + 1 in the high (zero points of moe_wna16)
 *
 * `grouped` is for more than one group, as in Marlin's kernel. With 8-bit activations it is always `single`.
 * Source: index formulas of vLLM's marlin_permute_scales, marlin_zero_points and the FP4 scales' processing.
 */
#include "base/sizes.h"
#include "pack/transpose.h"
#include "vendor/vendor_parts.h"

enum { RUN = 64, CHUNK = 64 };

typedef enum permutation { GROUPED, SINGLE, GROUPED_FP4 } permutation;

MOX_PACK_INLINE int64_t permuted(permutation which, int64_t p)
{
    if (which == GROUPED_FP4)
        p = p % 4 == 1 ? p + 1 : p % 4 == 2 ? p - 1 : p;
    const int64_t i = p % 64 / 8, j = p % 8;
    return which == SINGLE ? p / 32 * 32 + 2 * (i % 4) + 8 * (j / 2) + j % 2 : i + 8 * j;
}

/* ---- scales --------------------------------------------------------------------------------------- */

/* Copies one element of `size` bytes. */
MOX_PACK_INLINE void move(const uint8_t *from, uint8_t *to, int64_t size)
{
    memcpy(to, from, (size_t)size);
}

/* Transposes rows x cols elements of `size` bytes; whole blocks in registers. */
MOX_PACK_INLINE void transpose(const uint8_t *from, int64_t from_stride, int64_t rows, int64_t cols, uint8_t *to,
                               int64_t to_stride, int64_t size)
{
    const int64_t block = size == 4 ? 4 : 16 / size;
    const int64_t whole_rows = rows / block * block, whole = cols / block * block;
    for (int64_t r = 0; r < whole_rows; r += block)
        for (int64_t c = 0; c < whole; c += block) {
            const uint8_t *a = from + r * from_stride + c * size;
            uint8_t *b = to + c * to_stride + r * size;
            if (size == 1)
                mox_transpose_8(a, from_stride, b, to_stride);
            else if (size == 2)
                mox_transpose_16(a, from_stride, b, to_stride);
            else
                mox_transpose_32(a, from_stride, b, to_stride);
        }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole : 0; c < cols; c++)
            move(from + r * from_stride + c * size, to + c * to_stride + r * size, size);
}

/* The rows of a run are staged in the order of the columns of the result. */
MOX_PACK_INLINE void put_scales(permutation which, int64_t size, const mox_vendor_matrix *m, int64_t row, int64_t count,
                                const uint8_t *const *rows, uint8_t *tensor)
{
    _Alignas(64) uint8_t staged[RUN * CHUNK];
    for (int64_t r = 0; r < count; r += RUN)
        for (int64_t at = 0; at < m->row_bytes; at += CHUNK) {
            const int64_t bytes = mox_min_i64(CHUNK, m->row_bytes - at);
            for (int64_t p = 0; p < RUN; p++)
                memcpy(staged + p * CHUNK, rows[r + permuted(which, p)] + at, (size_t)bytes);
            transpose(staged, CHUNK, RUN, bytes / size, tensor + (at / size * m->rows + row + r) * size, m->rows * size,
                      size);
        }
}

MOX_PACK_INLINE void get_scales(permutation which, int64_t size, const mox_vendor_matrix *m, int64_t row, int64_t count,
                                uint8_t *const *rows, const uint8_t *tensor)
{
    _Alignas(64) uint8_t staged[RUN * CHUNK];
    for (int64_t r = 0; r < count; r += RUN)
        for (int64_t at = 0; at < m->row_bytes; at += CHUNK) {
            const int64_t bytes = mox_min_i64(CHUNK, m->row_bytes - at);
            transpose(tensor + (at / size * m->rows + row + r) * size, m->rows * size, bytes / size, RUN, staged, CHUNK,
                      size);
            for (int64_t p = 0; p < RUN; p++)
                memcpy(rows[r + permuted(which, p)] + at, staged + p * CHUNK, (size_t)bytes);
        }
}

MOX_PACK_INLINE void put_sized(permutation which, const mox_vendor_matrix *m, int64_t row, int64_t count,
                               const uint8_t *const *rows, uint8_t *tensor)
{
    if (m->bits == 8)
        put_scales(which, 1, m, row, count, rows, tensor);
    else
        put_scales(which, 2, m, row, count, rows, tensor);
}

MOX_PACK_INLINE void get_sized(permutation which, const mox_vendor_matrix *m, int64_t row, int64_t count,
                               uint8_t *const *rows, const uint8_t *tensor)
{
    if (m->bits == 8)
        get_scales(which, 1, m, row, count, rows, tensor);
    else
        get_scales(which, 2, m, row, count, rows, tensor);
}

static void put_single(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                       uint8_t *tensor)
{
    put_sized(SINGLE, m, row, count, rows, tensor);
}

static void get_single(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                       const uint8_t *tensor)
{
    get_sized(SINGLE, m, row, count, rows, tensor);
}

static void put_grouped(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                        uint8_t *tensor)
{
    if (m->cols == 1)
        put_sized(SINGLE, m, row, count, rows, tensor);
    else
        put_sized(GROUPED, m, row, count, rows, tensor);
}

static void get_grouped(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                        const uint8_t *tensor)
{
    if (m->cols == 1)
        get_sized(SINGLE, m, row, count, rows, tensor);
    else
        get_sized(GROUPED, m, row, count, rows, tensor);
}

static void put_fp4(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows, uint8_t *tensor)
{
    put_scales(GROUPED_FP4, 1, m, row, count, rows, tensor);
}

static void get_fp4(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows, const uint8_t *tensor)
{
    get_scales(GROUPED_FP4, 1, m, row, count, rows, tensor);
}

static int32_t transposed_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->cols;
    shape[1] = m->rows;
    return 2;
}

static int32_t bias_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->rows;
    return 1;
}

/* All orders here work on runs of 64 rows of any width and need no padding. */
#define RUNS .step = RUN, .bytes_multiple = 1, .pad_rows = 1, .pad_cols = 1

const mox_vendor_order mox_order_marlin_scales = {
    .name = "marlin_scales", RUNS, .shape = transposed_shape, .put = put_grouped, .get = get_grouped
};
const mox_vendor_order mox_order_marlin_single = {
    .name = "marlin_single", RUNS, .shape = transposed_shape, .put = put_single, .get = get_single
};
const mox_vendor_order mox_order_marlin_fp4_scales = {
    .name = "marlin_fp4_scales", RUNS, .shape = transposed_shape, .put = put_fp4, .get = get_fp4
};
const mox_vendor_order mox_order_marlin_bias = {
    .name = "marlin_bias", RUNS, .shape = bias_shape, .put = put_single, .get = get_single
};

/* ---- zero points ---------------------------------------------------------------------------------- */

/* The row of the run whose zero point is nibble p of the result. */
MOX_PACK_INLINE int64_t zero_row(bool a8, int64_t p)
{
    const int64_t i = p % 8;
    return permuted(GROUPED, a8 ? p : p / 8 * 8 + (i < 4 ? 2 * i : 2 * i - 7));
}

static inline uint32_t nibble(const uint8_t *row, int64_t i)
{
    return row[i / 2] >> i % 2 * 4 & 15u;
}

/* Packs the nibbles of a run, some groups at a time, in a staging block where groups are neighbours: in the tensor they
 * are so far apart that few of them are in the cache together. */
MOX_PACK_INLINE void put_nibbles(bool a8, const mox_vendor_matrix *m, int64_t row, int64_t count,
                                 const uint8_t *const *rows, uint8_t *tensor)
{
    uint8_t staged[CHUNK][RUN / 2];
    for (int64_t r = 0; r < count; r += RUN)
        for (int64_t at = 0; at < m->cols; at += CHUNK) {
            const int64_t groups = mox_min_i64(CHUNK, m->cols - at);
            for (int64_t p = 0; p < RUN; p += 2) {
                const uint8_t *low = rows[r + zero_row(a8, p)], *high = rows[r + zero_row(a8, p + 1)];
                for (int64_t g = 0; g < groups; g++)
                    staged[g][p / 2] = (uint8_t)(nibble(low, at + g) | nibble(high, at + g) << 4);
            }
            for (int64_t g = 0; g < groups; g++)
                memcpy(tensor + ((at + g) * m->rows + row + r) / 2, staged[g], sizeof staged[g]);
        }
}

MOX_PACK_INLINE void get_nibbles(bool a8, const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                                 const uint8_t *tensor)
{
    uint8_t staged[CHUNK + 1][RUN / 2];
    for (int64_t r = 0; r < count; r += RUN)
        for (int64_t at = 0; at < m->cols; at += CHUNK) {
            const int64_t groups = mox_min_i64(CHUNK, m->cols - at);
            for (int64_t g = 0; g < groups; g++)
                memcpy(staged[g], tensor + ((at + g) * m->rows + row + r) / 2, sizeof staged[g]);
            memset(staged[groups], 0,
                   sizeof staged[groups]); /* the partner of the last group, when their number is odd */
            for (int64_t p = 0; p < RUN; p++) {
                uint8_t *to = rows[r + zero_row(a8, p)] + at / 2;
                for (int64_t g = 0; g < groups; g += 2)
                    to[g / 2] = (uint8_t)(nibble(staged[g], p) | nibble(staged[g + 1], p) << 4);
            }
        }
}

static void put_zeros(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                      uint8_t *tensor)
{
    put_nibbles(false, m, row, count, rows, tensor);
}

static void get_zeros(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                      const uint8_t *tensor)
{
    get_nibbles(false, m, row, count, rows, tensor);
}

static void put_zeros_a8(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                         uint8_t *tensor)
{
    put_nibbles(true, m, row, count, rows, tensor);
}

static void get_zeros_a8(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                         const uint8_t *tensor)
{
    get_nibbles(true, m, row, count, rows, tensor);
}

static int32_t zeros_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->cols;
    shape[1] = m->rows / 8;
    return 2;
}

static uint64_t nibbles(const mox_vendor_matrix *m)
{
    return (uint64_t)(m->rows / 2 * m->cols);
}

const mox_vendor_order mox_order_marlin_zeros = {
    .name = "marlin_zeros", RUNS, .shape = zeros_shape, .bytes = nibbles, .put = put_zeros, .get = get_zeros
};

const mox_vendor_order mox_order_marlin_zeros_a8 = {
    .name = "marlin_zeros_a8", RUNS, .shape = zeros_shape, .bytes = nibbles, .put = put_zeros_a8, .get = get_zeros_a8
};

/* ---- row pairs ------------------------------------------------------------------------------------ */

static void put_pairs(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                      uint8_t *tensor)
{
    for (int64_t r = 0; r < count; r += m->bits == 4 ? 2 : 1) {
        uint8_t *to = tensor + (m->bits == 4 ? (row + r) / 2 : row + r) * m->cols;
        if (m->bits == 8)
            memcpy(to, rows[r], (size_t)m->cols);
        for (int64_t g = 0; m->bits == 4 && g < m->cols; g++)
            to[g] = (uint8_t)(nibble(rows[r], g) | nibble(rows[r + 1], g) << 4);
    }
}

static void get_pairs(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                      const uint8_t *tensor)
{
    for (int64_t r = 0; r < count; r++) {
        const uint8_t *from = tensor + (m->bits == 4 ? (row + r) / 2 : row + r) * m->cols;
        memset(rows[r], 0, (size_t)m->row_bytes);
        for (int64_t g = 0; g < m->cols; g++)
            if (m->bits == 8)
                rows[r][g] = from[g];
            else
                rows[r][g / 2] |= (uint8_t)((from[g] >> r % 2 * 4 & 15) << g % 2 * 4);
    }
}

static int32_t pairs_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->rows * m->bits / 8;
    shape[1] = m->cols;
    return 2;
}

static uint64_t pairs_bytes(const mox_vendor_matrix *m)
{
    return (uint64_t)(m->rows * m->bits / 8 * m->cols);
}

const mox_vendor_order mox_order_row_pairs = { .name = "row_pairs",
                                               .step = 2,
                                               .bytes_multiple = 1,
                                               .pad_rows = 1,
                                               .pad_cols = 1,
                                               .shape = pairs_shape,
                                               .bytes = pairs_bytes,
                                               .put = put_pairs,
                                               .get = get_pairs };
