/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_orders_marlin.c - weights as Marlin's warps load them: [K / 16][N * 16] codes in 32-bit words.
 *
 *     activations   tile k x n   its words, lane = 4 * (n % 8) + q       a word holds, of row n,
 *     16 bit  4     16 x 64      [lane][n / 16]                          k = 2q 2q+1 2q+8 2q+9, and the same of row
 *                                                                        n + 8: even k in its low half
 *             8     16 x 64      [lane][n / 8]                           k = 2q, 2q+8, 2q+1, 2q+9
 *      8 bit  4     32 x 32      [lane][n / 8]                           k = 4q and 4q+16, 4q+1 and 4q+17 ...
 *             8     32 x 32      [lane][n / 8][k / 16]                   k = 4q .. 4q+3
 *
 * Tiles lie row by row, tiles of neighbouring n next to each other. All four tilings share one loop: of the rows with n
 * % 8 = c, a run of 16 bytes becomes four words, one for each q. Four runs, transposed, are 16 bytes of each of four
 * lanes.
 *
 *     run j, words q 0..3      p00 p01 p02 p03            lane 4c      p00 p10 p20 p30 ...
 *                              p10 p11 p12 p13     ->     lane 4c + 1  p01 p11 p21 p31 ...
 *                              ...                        ...
 *
 * Source: index formulas of vLLM's gptq_marlin_repack, and of the tiles of Marlin by IST-DASLab.
 */
#include "base/sizes.h"
#include "pack/transpose.h"
#include "vendor/vendor_parts.h"

/* The tiling: bits of activations (A8) and of codes. A constant wherever it is inlined. */
typedef enum tiling { TILES_4, TILES_8, TILES_A8_4, TILES_A8_8 } tiling;

enum { CHUNK = 128, PREFETCH_BYTES = 64, MAX_TILE_ROWS = 64 };

/* Bytes of a row in a tile; rows of a tile; runs of 16 bytes for each c. */
MOX_PACK_INLINE int64_t width_of(tiling t)
{
    return t == TILES_4 ? 8 : t == TILES_A8_8 ? 32 : 16;
}

MOX_PACK_INLINE int64_t rows_of(tiling t)
{
    return t == TILES_4 || t == TILES_8 ? 64 : 32;
}

MOX_PACK_INLINE int64_t runs_of(tiling t)
{
    return t == TILES_4 || t == TILES_A8_4 ? 4 : 8;
}

/* ---- a run: 16 bytes of rows to four words, and back ---------------------------------------------- */

typedef uint64_t v2u64 __attribute__((vector_size(16)));

/* Shuffles of one vector are written with two, since the oldest processors only have those. */
MOX_PACK_INLINE v2u64 last_half(mox_v16u8 v)
{
    return __builtin_shufflevector((v2u64)v, (v2u64)v, 1, 1);
}

/* Interleaves the first and last 8 bytes. Doing it four times changes nothing, so three more times invert it. */
MOX_PACK_INLINE mox_v16u8 interleave(mox_v16u8 v)
{
    return __builtin_shufflevector(v, (mox_v16u8)last_half(v), 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

MOX_PACK_INLINE mox_v16u8 deinterleave(mox_v16u8 v)
{
    return interleave(interleave(interleave(v)));
}

/* The same for pairs of bytes; doing it three times changes nothing. */
MOX_PACK_INLINE mox_v16u8 interleave_pairs(mox_v16u8 v)
{
    return (mox_v16u8)__builtin_shufflevector((mox_v8u16)v, (mox_v8u16)last_half(v), 0, 8, 1, 9, 2, 10, 3, 11);
}

MOX_PACK_INLINE mox_v4u32 delta_swap(mox_v4u32 x, uint32_t mask, int shift)
{
    const mox_v4u32 t = (x ^ x >> shift) & mask;
    return x ^ t ^ t << shift;
}

/* Where run j of the rows with n % 8 = c begins. */
MOX_PACK_INLINE int64_t run_offset(tiling t, int64_t c, int64_t j, int64_t stride)
{
    switch (t) {
    case TILES_4: return (16 * j + c) * stride;
    case TILES_A8_8: return (8 * (j / 2) + c) * stride + 16 * (j % 2);
    default: return (8 * j + c) * stride;
    }
}

MOX_PACK_INLINE mox_v4u32 load_words(tiling t, const uint8_t *from)
{
    mox_v16u8 v;
    memcpy(&v, from, sizeof v);
    if (t == TILES_A8_8)
        return (mox_v4u32)v;
    const mox_v4u32 words = (mox_v4u32)interleave(v);
    return t == TILES_8 ? words : delta_swap(words, 0x00f000f0, 4);
}

MOX_PACK_INLINE void store_words(tiling t, mox_v4u32 words, uint8_t *to)
{
    mox_v16u8 v = (mox_v16u8)words;
    if (t == TILES_A8_4)
        v = deinterleave((mox_v16u8)delta_swap(words, 0x00f000f0, 4));
    else if (t == TILES_8)
        v = deinterleave(v);
    memcpy(to, &v, sizeof v);
}

/* TILES_4: 16 bytes of a row and of the row 8 further on make runs of two tiles. Word q: byte q of both rows, byte q +
 * 4 of both; then the nibbles of odd k swap places. */
MOX_PACK_INLINE void load_pair(const uint8_t *from, int64_t stride, mox_v4u32 *first, mox_v4u32 *second)
{
    mox_v16u8 a, b;
    memcpy(&a, from, sizeof a);
    memcpy(&b, from + 8 * stride, sizeof b);
    const mox_v16u8 low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const mox_v16u8 high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    *first = delta_swap((mox_v4u32)interleave_pairs(low), 0x0000f0f0, 12);
    *second = delta_swap((mox_v4u32)interleave_pairs(high), 0x0000f0f0, 12);
}

MOX_PACK_INLINE mox_v16u8 deinterleave_pairs(mox_v4u32 words)
{
    return interleave_pairs(interleave_pairs((mox_v16u8)delta_swap(words, 0x0000f0f0, 12)));
}

MOX_PACK_INLINE void store_pair(mox_v4u32 first, mox_v4u32 second, uint8_t *to, int64_t stride)
{
    const mox_v16u8 low = deinterleave_pairs(first), high = deinterleave_pairs(second);
    const mox_v16u8 a = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const mox_v16u8 b = __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    memcpy(to, &a, sizeof a);
    memcpy(to + 8 * stride, &b, sizeof b);
}

/* ---- a tile --------------------------------------------------------------------------------------- */

MOX_PACK_INLINE void transpose_words(mox_v4u32 v[4])
{
    const mox_v4u32 a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
    const mox_v4u32 b = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
    const mox_v4u32 c = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
    const mox_v4u32 d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
    v[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    v[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    v[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    v[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

/* With TILES_4 it packs two tiles, the second `next` bytes behind the first. */
MOX_PACK_INLINE void put_tile(tiling t, const uint8_t *rows, int64_t stride, uint8_t *tile, int64_t next)
{
    const int64_t runs = runs_of(t);
    for (int64_t c = 0; c < 8; c++)
        for (int64_t j = 0; j < runs; j += 4) {
            mox_v4u32 v[4], u[4];
            for (int i = 0; i < 4; i++)
                if (t == TILES_4)
                    load_pair(rows + run_offset(t, c, j + i, stride), stride, &v[i], &u[i]);
                else
                    v[i] = load_words(t, rows + run_offset(t, c, j + i, stride));
            transpose_words(v);
            if (t == TILES_4)
                transpose_words(u);
            for (int q = 0; q < 4; q++) {
                uint8_t *to = tile + ((4 * c + q) * runs + j) * 4;
                mox_store_v4u32(to, v[q]);
                if (t == TILES_4)
                    mox_store_v4u32(to + next, u[q]);
            }
        }
}

MOX_PACK_INLINE void get_tile(tiling t, const uint8_t *tile, int64_t next, uint8_t *rows, int64_t stride)
{
    const int64_t runs = runs_of(t);
    for (int64_t c = 0; c < 8; c++)
        for (int64_t j = 0; j < runs; j += 4) {
            mox_v4u32 v[4], u[4];
            for (int q = 0; q < 4; q++) {
                const uint8_t *from = tile + ((4 * c + q) * runs + j) * 4;
                v[q] = mox_load_v4u32(from);
                if (t == TILES_4)
                    u[q] = mox_load_v4u32(from + next);
            }
            transpose_words(v);
            if (t == TILES_4)
                transpose_words(u);
            for (int i = 0; i < 4; i++)
                if (t == TILES_4)
                    store_pair(v[i], u[i], rows + run_offset(t, c, j + i, stride), stride);
                else
                    store_words(t, v[i], rows + run_offset(t, c, j + i, stride));
        }
}

/* ---- all tiles of some rows ----------------------------------------------------------------------- */

/* Offset of the tile that holds rows from `row` on and their bytes from `at` on. */
MOX_PACK_INLINE int64_t tile_offset(tiling t, const mox_vendor_matrix *m, int64_t row, int64_t at)
{
    return (at / width_of(t) * (m->rows / rows_of(t)) + row / rows_of(t)) * rows_of(t) * width_of(t);
}

/* The next tile lies on another page, which the hardware prefetcher does not follow. */
MOX_PACK_INLINE void prefetch(tiling t, const mox_vendor_matrix *m, const uint8_t *tensor, int64_t row, int64_t at,
                              bool write)
{
    if (at + 2 * width_of(t) > m->row_bytes)
        return;
    for (int64_t tile = 0; tile < (t == TILES_4 ? 2 : 1); tile++) {
        const uint8_t *from = tensor + tile_offset(t, m, row, at + tile * width_of(t));
        for (int64_t line = 0; line < rows_of(t) * width_of(t); line += 64)
            if (write)
                __builtin_prefetch(from + line, 1);
            else
                __builtin_prefetch(from + line);
    }
}

/* A constant size becomes a few moves; a call, or rep movs, would cost more. */
MOX_PACK_INLINE void copy_chunk(uint8_t *to, const uint8_t *from, int64_t bytes)
{
    if (bytes == CHUNK)
        memcpy(to, from, CHUNK);
    else
        memcpy(to, from, (size_t)bytes);
}

/* Rows are far apart, often by a multiple of a page. So CHUNK bytes of each row are staged first; then every cache line
 * is read once. */
MOX_PACK_INLINE void put_tiles(tiling t, const mox_vendor_matrix *m, int64_t row, int64_t count,
                               const uint8_t *const *rows, uint8_t *tensor)
{
    _Alignas(64) uint8_t staged[MAX_TILE_ROWS * CHUNK];
    const int64_t step = t == TILES_4 ? 2 * width_of(t) : width_of(t);
    const int64_t next = m->rows / rows_of(t) * rows_of(t) * width_of(t);
    for (int64_t at = 0; at < m->row_bytes; at += CHUNK)
        for (int64_t r = 0; r < count; r += rows_of(t)) {
            const int64_t bytes = mox_min_i64(CHUNK, m->row_bytes - at);
            for (int64_t n = 0; n < rows_of(t); n++) {
                copy_chunk(staged + n * CHUNK, rows[r + n] + at, bytes);
                if (at + 2 * CHUNK <= m->row_bytes) /* more rows than the hardware prefetcher follows */
                    for (int64_t line = 0; line < CHUNK; line += 64)
                        __builtin_prefetch(rows[r + n] + at + CHUNK + line);
            }
            for (int64_t b = 0; b < bytes; b += step) {
                prefetch(t, m, tensor, row + r, at + b + PREFETCH_BYTES, true);
                put_tile(t, staged + b, CHUNK, tensor + tile_offset(t, m, row + r, at + b), next);
            }
        }
}

MOX_PACK_INLINE void get_tiles(tiling t, const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                               const uint8_t *tensor)
{
    _Alignas(64) uint8_t staged[MAX_TILE_ROWS * CHUNK];
    const int64_t step = t == TILES_4 ? 2 * width_of(t) : width_of(t);
    const int64_t next = m->rows / rows_of(t) * rows_of(t) * width_of(t);
    for (int64_t at = 0; at < m->row_bytes; at += CHUNK)
        for (int64_t r = 0; r < count; r += rows_of(t)) {
            const int64_t bytes = mox_min_i64(CHUNK, m->row_bytes - at);
            for (int64_t b = 0; b < bytes; b += step) {
                prefetch(t, m, tensor, row + r, at + b + PREFETCH_BYTES, false);
                get_tile(t, tensor + tile_offset(t, m, row + r, at + b), next, staged + b, CHUNK);
            }
            for (int64_t n = 0; n < rows_of(t); n++)
                copy_chunk(rows[r + n] + at, staged + n * CHUNK, bytes);
        }
}

/* ---- orders --------------------------------------------------------------------------------------- */

static int32_t tiles_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->cols / 16;
    shape[1] = m->rows * 16 * m->bits / 32;
    return 2;
}

static void put_a16(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows, uint8_t *tensor)
{
    if (m->bits == 4)
        put_tiles(TILES_4, m, row, count, rows, tensor);
    else
        put_tiles(TILES_8, m, row, count, rows, tensor);
}

static void get_a16(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows, const uint8_t *tensor)
{
    if (m->bits == 4)
        get_tiles(TILES_4, m, row, count, rows, tensor);
    else
        get_tiles(TILES_8, m, row, count, rows, tensor);
}

static void put_a8(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows, uint8_t *tensor)
{
    if (m->bits == 4)
        put_tiles(TILES_A8_4, m, row, count, rows, tensor);
    else
        put_tiles(TILES_A8_8, m, row, count, rows, tensor);
}

static void get_a8(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows, const uint8_t *tensor)
{
    if (m->bits == 4)
        get_tiles(TILES_A8_4, m, row, count, rows, tensor);
    else
        get_tiles(TILES_A8_8, m, row, count, rows, tensor);
}

/* A row is a whole number of tiles wide, for the narrowest tile of two: layouts limit both extents to multiples of 64
 * columns, which are 32 bytes. */
const mox_vendor_order mox_order_marlin = { .name = "marlin",
                                            .step = 64,
                                            .bytes_multiple = 16,
                                            .pad_rows = 1,
                                            .pad_cols = 1,
                                            .shape = tiles_shape,
                                            .put = put_a16,
                                            .get = get_a16 };

const mox_vendor_order mox_order_marlin_a8 = { .name = "marlin_a8",
                                               .step = 64,
                                               .bytes_multiple = 16,
                                               .pad_rows = 1,
                                               .pad_cols = 1,
                                               .shape = tiles_shape,
                                               .put = put_a8,
                                               .get = get_a8 };
