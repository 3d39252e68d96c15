/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_orders_triton.c - MXFP4 as Triton's kernels for Hopper read it: what one thread multiplies is contiguous.
 *
 *     values    [rows / 4][4 * row_bytes]. Rows n and n + 8 of every 16 are interleaved ("mixed"), 32 bytes of each:
 *
 *                     of row n        a00 a01 a02 a03 a04 .. a31               line n / 16 * 4 + n % 8 / 2, from byte
 *                     of row n + 8    b00 b01 b02 b03 b04 .. b31               k / 32 * 128 + n % 2 * 64
 *         mma 3       a00 b00 a04 b04 | a08 b08 a12 b12 | a16 .. | a24 .. | a01 b01 a05 b05 | .. | a27 b27 a31 b31
 *         mma 2       a00 .. a03 | b00 .. b03 | a16 .. a19 | b16 .. b19 | a04 .. a07 | b04 .. | .. | b28 .. b31
 *         then every four bytes are twiddled (vendor_twiddle.h)
 *
 *     scales    [rows / 32][32 * cols] for W warps: blocks of 32 W rows and 2 columns, one line per warp. With
 *               n = 16 * warp of the block, a line is:
 *
 *         rows n      n + 8   |  n + 1 ..  n + 9 ..  | .. n + 7, n + 15 |  the same of rows n + 16 W
 *         k n, k n8, k+1 n, k+1 n8
 *
 * Rows and columns are padded with zeros. Rows of values to 256 and columns to 64 bytes in Triton 3.8, to 64 and 64
 * before, to 16 and 32 in the one that vLLM 0.33 brings along. Rows of scales to 32 W, columns to 2, which vLLM pads to
 * 4 first. Source: triton_kernels' hopper_value.py and hopper_scale.py.
 */
#include "vendor/vendor_parts.h"
#include "vendor/vendor_twiddle.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- values --------------------------------------------------------------------------------------- */

enum { VALUE_ROWS = 16, HALF_BLOCK = 32, BLOCK = 64, LINES = 4 };

typedef mox_twiddle_block block;

INLINE void interleave_2(const uint8_t *a, const uint8_t *b, block *out)
{
    out->v[0] = mox_load_v4u32(a);
    out->v[1] = mox_load_v4u32(b);
    out->v[2] = mox_load_v4u32(a + 16);
    out->v[3] = mox_load_v4u32(b + 16);
    mox_transpose_words(out->v);
}

INLINE void deinterleave_2(block *in, uint8_t *a, uint8_t *b)
{
    mox_transpose_words(in->v);
    mox_store_v4u32(a, in->v[0]);
    mox_store_v4u32(b, in->v[1]);
    mox_store_v4u32(a + 16, in->v[2]);
    mox_store_v4u32(b + 16, in->v[3]);
}

/* Offset of the interleaved bytes of row `row`, one of the first 8 of its 16. */
INLINE int64_t line_of(const mox_vendor_matrix *m, int64_t row)
{
    return (row / VALUE_ROWS * LINES + row % 8 / 2) * LINES * m->row_bytes + row % 2 * BLOCK;
}

INLINE void put_values(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                       uint8_t *tensor, void (*interleave)(const uint8_t *, const uint8_t *, block *))
{
    for (int64_t r = 0; r < count; r += r % 8 == 7 ? 9 : 1) {
        uint8_t *to = tensor + line_of(m, row + r);
        for (int64_t k = 0; k < m->row_bytes; k += HALF_BLOCK) {
            block both;
            interleave(rows[r] + k, rows[r + 8] + k, &both);
            for (int i = 0; i < 16; i++)
                both.words[i] = mox_twiddle4(both.words[i]);
            memcpy(to + k * LINES, &both, BLOCK);
        }
    }
}

INLINE void get_values(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                       const uint8_t *tensor, void (*deinterleave)(block *, uint8_t *, uint8_t *))
{
    for (int64_t r = 0; r < count; r += r % 8 == 7 ? 9 : 1) {
        const uint8_t *from = tensor + line_of(m, row + r);
        for (int64_t k = 0; k < m->row_bytes; k += HALF_BLOCK) {
            block both;
            memcpy(&both, from + k * LINES, BLOCK);
            for (int i = 0; i < 16; i++)
                both.words[i] = mox_untwiddle4(both.words[i]);
            deinterleave(&both, rows[r] + k, rows[r + 8] + k);
        }
    }
}

static void put_values_3(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                         uint8_t *tensor)
{
    put_values(m, row, count, rows, tensor, mox_interleave_rows);
}

static void get_values_3(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                         const uint8_t *tensor)
{
    get_values(m, row, count, rows, tensor, mox_deinterleave_rows);
}

static void put_values_2(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                         uint8_t *tensor)
{
    put_values(m, row, count, rows, tensor, interleave_2);
}

static void get_values_2(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                         const uint8_t *tensor)
{
    get_values(m, row, count, rows, tensor, deinterleave_2);
}

static int32_t values_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->rows / LINES;
    shape[1] = m->row_bytes * LINES;
    return 2;
}

#define VALUES(words, rows, cols, version)                                                                             \
    {                                                                                                                  \
        .name = words, .step = VALUE_ROWS, .bytes_multiple = 1, .pad_rows = rows, .pad_cols = cols,                    \
        .shape = values_shape, .put = put_values_##version, .get = get_values_##version                                \
    }
const mox_vendor_order mox_order_hopper_values = VALUES("hopper values", 256, 128, 3);
const mox_vendor_order mox_order_hopper_values_pad16 = VALUES("hopper values, rows by 16", 16, 64, 3);
const mox_vendor_order mox_order_hopper_values_pad64 = VALUES("hopper values, rows by 64", 64, 128, 3);
const mox_vendor_order mox_order_hopper_values_mma2 = VALUES("hopper values for mma 2", 256, 128, 2);

/* ---- scales --------------------------------------------------------------------------------------- */

/* WARP_ROWS: rows that a line takes from one half of its block. HALF_LINE: bytes of a pair of columns there. */
enum { WARP_ROWS = 16, HALF_LINE = 32 };

/* Offset of columns 0 and 1 of row `row`, one of the first 8 of its 16. */
INLINE int64_t scale_of(const mox_vendor_matrix *m, int64_t row, int64_t warps)
{
    const int64_t half = row % (32 * warps) / (WARP_ROWS * warps);
    const int64_t line = row / (32 * warps) * warps + row % (WARP_ROWS * warps) / WARP_ROWS;
    return line * 32 * m->cols + half * HALF_LINE + row % 8 * 4;
}

INLINE void put_scales(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                       uint8_t *tensor, int64_t warps)
{
    for (int64_t r = 0; r < count; r += r % 8 == 7 ? 9 : 1) {
        uint8_t *to = tensor + scale_of(m, row + r, warps);
        const uint8_t *a = rows[r], *b = rows[r + 8];
        for (int64_t q = 0; q < m->cols; q += 2, to += 2 * HALF_LINE) {
            const uint8_t four[4] = { a[q], b[q], a[q + 1], b[q + 1] };
            memcpy(to, four, sizeof four);
        }
    }
}

INLINE void get_scales(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                       const uint8_t *tensor, int64_t warps)
{
    for (int64_t r = 0; r < count; r += r % 8 == 7 ? 9 : 1) {
        const uint8_t *from = tensor + scale_of(m, row + r, warps);
        uint8_t *a = rows[r], *b = rows[r + 8];
        for (int64_t q = 0; q < m->cols; q += 2, from += 2 * HALF_LINE) {
            a[q] = from[0];
            b[q] = from[1];
            a[q + 1] = from[2];
            b[q + 1] = from[3];
        }
    }
}

static void put_scales_8(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                         uint8_t *tensor)
{
    put_scales(m, row, count, rows, tensor, 8);
}

static void get_scales_8(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                         const uint8_t *tensor)
{
    get_scales(m, row, count, rows, tensor, 8);
}

static void put_scales_4(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                         uint8_t *tensor)
{
    put_scales(m, row, count, rows, tensor, 4);
}

static void get_scales_4(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                         const uint8_t *tensor)
{
    get_scales(m, row, count, rows, tensor, 4);
}

static int32_t scales_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->rows / 32;
    shape[1] = m->cols * 32;
    return 2;
}

#define SCALES(words, warps, cols)                                                                                     \
    {                                                                                                                  \
        .name = words, .step = 16, .bytes_multiple = 1, .pad_rows = 32 * warps, .pad_cols = cols,                      \
        .shape = scales_shape, .put = put_scales_##warps, .get = get_scales_##warps                                    \
    }
const mox_vendor_order mox_order_hopper_scales_8 = SCALES("hopper scales for 8 warps", 8, 2);
const mox_vendor_order mox_order_hopper_scales_8_by_4 = SCALES("hopper scales for 8 warps, columns by 4", 8, 4);
const mox_vendor_order mox_order_hopper_scales_4 = SCALES("hopper scales for 4 warps", 4, 2);
