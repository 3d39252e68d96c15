/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_orders_sm90.c - 4-bit weights and their scales as FlashInfer's CUTLASS kernels for Hopper (sm90) read them
 * when activations have another type.
 *
 *     fp4      [rows][row_bytes]. Rows r and r + 8 of every 16 are interleaved, 32 bytes of both at a time:
 *
 *                  source bytes, both rows     0 .. 7   |  8 .. 15     |  16 .. 23       |  24 .. 31
 *                  go to 16 bytes at           row r, 0 |  row r + 8, 0 |  row r, 16     |  row r + 8, 16
 *                  a of r, b of r + 8:         a0 b0 a4 b4 | a1 b1 a5 b5 | a2 .. | a3 b3 a7 b7
 *                  then every four bytes are twiddled (vendor_twiddle.h)
 *
 *     int4     the same with pairs of bytes, not twiddled: 16 bytes are  a0 a1 b0 b1 | a2 a3 b2 b3 | .. | a6 a7 b6 b7
 *
 *     fp4_fp8  the order of int4; then in each word the signs of nibbles 0 .. 3 move to bits 7, 15, 23, 31 and those of
 *              nibbles 4 .. 7 to bits 3, 11, 19, 27
 *
 *     folded   scales [rows / 64][groups of 128 columns][F][16 bytes]. Line m of 16 bytes holds the scales of rows
 *              m, m + F, m + 2F .. (of 64) for 128 columns; F = 16 for 4 bytes per row, 8 for 2 bytes
 *
 * Source: FlashInfer's moe_gemm_mixed_utils.cu and fused_moe/prepare.py, index by index.
 */
#include "vendor/vendor_parts.h"
#include "vendor/vendor_twiddle.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- weights -------------------------------------------------------------------------------------- */

enum { ROWS = 16, HALF = 8, CHUNK = 32, SPAN = 16 };

/* Reorders 32 bytes of two rows to 32 bytes of two rows of the tensor, or back. */
typedef void interleave_fn(const uint8_t *a, const uint8_t *b, uint8_t *low, uint8_t *high);

INLINE void interleave_fp4(const uint8_t *a, const uint8_t *b, uint8_t *low, uint8_t *high)
{
    mox_twiddle_block block;
    mox_interleave_rows(a, b, &block);
    for (int i = 0; i < SPAN; i++)
        block.words[i] = mox_twiddle4(block.words[i]);
    mox_transpose_words(block.v);
    mox_store_v4u32(low, block.v[0]);
    mox_store_v4u32(high, block.v[1]);
    mox_store_v4u32(low + SPAN, block.v[2]);
    mox_store_v4u32(high + SPAN, block.v[3]);
}

INLINE void deinterleave_fp4(const uint8_t *low, const uint8_t *high, uint8_t *a, uint8_t *b)
{
    mox_twiddle_block block;
    block.v[0] = mox_load_v4u32(low);
    block.v[1] = mox_load_v4u32(high);
    block.v[2] = mox_load_v4u32(low + SPAN);
    block.v[3] = mox_load_v4u32(high + SPAN);
    mox_transpose_words(block.v);
    for (int i = 0; i < SPAN; i++)
        block.words[i] = mox_untwiddle4(block.words[i]);
    mox_deinterleave_rows(&block, a, b);
}

INLINE mox_v8u16 load_units(const uint8_t *from)
{
    mox_v8u16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store_units(uint8_t *to, mox_v8u16 v)
{
    memcpy(to, &v, sizeof v);
}

INLINE void interleave_int4(const uint8_t *a, const uint8_t *b, uint8_t *low, uint8_t *high)
{
    for (int i = 0; i < CHUNK; i += SPAN) {
        const mox_v8u16 x = load_units(a + i), y = load_units(b + i);
        store_units(low + i, __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11));
        store_units(high + i, __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15));
    }
}

INLINE void deinterleave_int4(const uint8_t *low, const uint8_t *high, uint8_t *a, uint8_t *b)
{
    for (int i = 0; i < CHUNK; i += SPAN) {
        const mox_v8u16 x = load_units(low + i), y = load_units(high + i);
        store_units(a + i, __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14));
        store_units(b + i, __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15));
    }
}

/* Moves the signs of nibbles n0 .. n7 to the order n4 n0 n5 n1 n6 n2 n7 n3: swaps halves, then interleaves. */
INLINE mox_v8u16 spread_signs(mox_v8u16 units)
{
    const mox_v4u32 w = (mox_v4u32)units;
    mox_v4u32 s = w & 0x88888888u;
    s = s << 16 | s >> 16;
    mox_v4u32 t = (s ^ s >> 8) & 0x0000ff00u;
    s ^= t ^ t << 8;
    t = (s ^ s >> 4) & 0x00f000f0u;
    s ^= t ^ t << 4;
    return (mox_v8u16)((w & 0x77777777u) | s);
}

INLINE mox_v8u16 gather_signs(mox_v8u16 units)
{
    const mox_v4u32 w = (mox_v4u32)units;
    mox_v4u32 s = w & 0x88888888u;
    mox_v4u32 t = (s ^ s >> 4) & 0x00f000f0u;
    s ^= t ^ t << 4;
    t = (s ^ s >> 8) & 0x0000ff00u;
    s ^= t ^ t << 8;
    return (mox_v8u16)((w & 0x77777777u) | s << 16 | s >> 16);
}

INLINE void interleave_fp4_fp8(const uint8_t *a, const uint8_t *b, uint8_t *low, uint8_t *high)
{
    interleave_int4(a, b, low, high);
    for (int i = 0; i < CHUNK; i += SPAN) {
        store_units(low + i, spread_signs(load_units(low + i)));
        store_units(high + i, spread_signs(load_units(high + i)));
    }
}

INLINE void deinterleave_fp4_fp8(const uint8_t *low, const uint8_t *high, uint8_t *a, uint8_t *b)
{
    uint8_t x[CHUNK], y[CHUNK];
    for (int i = 0; i < CHUNK; i += SPAN) {
        store_units(x + i, gather_signs(load_units(low + i)));
        store_units(y + i, gather_signs(load_units(high + i)));
    }
    deinterleave_int4(x, y, a, b);
}

INLINE void put_weights(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                        uint8_t *tensor, interleave_fn *function)
{
    for (int64_t r = 0; r < count; r += r % HALF == HALF - 1 ? HALF + 1 : 1) {
        uint8_t *low = tensor + (row + r) * m->row_bytes, *high = low + HALF * m->row_bytes;
        for (int64_t k = 0; k < m->row_bytes; k += CHUNK)
            function(rows[r] + k, rows[r + HALF] + k, low + k, high + k);
    }
}

INLINE void get_weights(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                        const uint8_t *tensor, interleave_fn *function)
{
    for (int64_t r = 0; r < count; r += r % HALF == HALF - 1 ? HALF + 1 : 1) {
        const uint8_t *low = tensor + (row + r) * m->row_bytes, *high = low + HALF * m->row_bytes;
        for (int64_t k = 0; k < m->row_bytes; k += CHUNK)
            function(low + k, high + k, rows[r] + k, rows[r + HALF] + k);
    }
}

static void put_fp4(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows, uint8_t *tensor)
{
    put_weights(m, row, count, rows, tensor, interleave_fp4);
}

static void get_fp4(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows, const uint8_t *tensor)
{
    get_weights(m, row, count, rows, tensor, deinterleave_fp4);
}

static void put_int4(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                     uint8_t *tensor)
{
    put_weights(m, row, count, rows, tensor, interleave_int4);
}

static void get_int4(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                     const uint8_t *tensor)
{
    get_weights(m, row, count, rows, tensor, deinterleave_int4);
}

static void put_fp4_fp8(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                        uint8_t *tensor)
{
    put_weights(m, row, count, rows, tensor, interleave_fp4_fp8);
}

static void get_fp4_fp8(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                        const uint8_t *tensor)
{
    get_weights(m, row, count, rows, tensor, deinterleave_fp4_fp8);
}

#define WEIGHTS .step = ROWS, .bytes_multiple = CHUNK, .pad_rows = 1, .pad_cols = 1
const mox_vendor_order mox_order_sm90_fp4 = { .name = "sm90 fp4", WEIGHTS, .put = put_fp4, .get = get_fp4 };
const mox_vendor_order mox_order_sm90_int4 = { .name = "sm90 int4", WEIGHTS, .put = put_int4, .get = get_int4 };
const mox_vendor_order mox_order_sm90_fp4_fp8 = {
    .name = "sm90 fp4 for fp8", WEIGHTS, .put = put_fp4_fp8, .get = get_fp4_fp8
};

/* ---- folded scales -------------------------------------------------------------------------------- */

enum { FOLD = 64, LINE = 16 };

/* Offset of a row in folded scales. `run`: bytes of scales that a row has for 128 columns; 64 rows then fill 4 * run
 * lines. */
INLINE int64_t folded_offset(const mox_vendor_matrix *m, int64_t row, int64_t run)
{
    const int64_t lines = 4 * run, in = row % FOLD;
    return (row / FOLD * (m->row_bytes / run) * lines + in % lines) * LINE + in / lines * run;
}

INLINE void put_folded(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                       uint8_t *tensor, int64_t run)
{
    for (int64_t r = 0; r < count; r++) {
        uint8_t *to = tensor + folded_offset(m, row + r, run);
        for (int64_t k = 0; k < m->row_bytes; k += run, to += FOLD * run)
            memcpy(to, rows[r] + k, (size_t)run);
    }
}

INLINE void get_folded(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                       const uint8_t *tensor, int64_t run)
{
    for (int64_t r = 0; r < count; r++) {
        const uint8_t *from = tensor + folded_offset(m, row + r, run);
        for (int64_t k = 0; k < m->row_bytes; k += run, from += FOLD * run)
            memcpy(rows[r] + k, from, (size_t)run);
    }
}

static void put_folded_8(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                         uint8_t *tensor)
{
    put_folded(m, row, count, rows, tensor, 4);
}

static void get_folded_8(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                         const uint8_t *tensor)
{
    get_folded(m, row, count, rows, tensor, 4);
}

static void put_folded_16(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                          uint8_t *tensor)
{
    put_folded(m, row, count, rows, tensor, 2);
}

static void get_folded_16(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                          const uint8_t *tensor)
{
    get_folded(m, row, count, rows, tensor, 2);
}

static int32_t folded_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    const int64_t run = m->bits == 8 ? 4 : 2;
    shape[0] = m->rows / FOLD;
    shape[1] = m->row_bytes / run;
    shape[2] = 4 * run;
    shape[3] = LINE / m->item_bytes;
    return 4;
}

#define FOLDED(run) .step = FOLD, .bytes_multiple = run, .pad_rows = 1, .pad_cols = 1, .shape = folded_shape
const mox_vendor_order mox_order_sm90_folded_8 = {
    .name = "sm90 folded scales of 8 bits", FOLDED(4), .put = put_folded_8, .get = get_folded_8
};
const mox_vendor_order mox_order_sm90_folded_16 = {
    .name = "sm90 folded scales of 16 bits", FOLDED(2), .put = put_folded_16, .get = get_folded_16
};
