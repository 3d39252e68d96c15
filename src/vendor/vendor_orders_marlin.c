/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_orders_marlin.c - weights as Marlin's warps load them: [K / 16][N * 16] fields in 32-bit words, whatever the
 * fields mean.
 *
 *     activations   tile k x n   its words, lane = 4 * (n % 8) + q       a word holds, of row n,
 *     16 bit  4     16 x 64      [lane][n / 16]                          k = 2q 2q+1 2q+8 2q+9, and the same of row
 *                                                                        n + 8: even k in its low half
 *             8     16 x 64      [lane][n / 8]                           k = 2q, 2q+8, 2q+1, 2q+9
 *      8 bit  4     32 x 32      [lane][n / 8]                           k = 4q and 4q+16, 4q+1 and 4q+17 ...
 *             8     32 x 32      [lane][n / 8][k / 16]                   k = 4q .. 4q+3
 *
 * Tiles lie row by row, those of n next to each other. All four are one walk: of the rows n % 8 = c, a piece of 16
 * bytes at a time is brought into four words, one for each q; four pieces turned over are 16 bytes of each of four
 * lanes.
 *
 *     piece j, words q 0..3      p00 p01 p02 p03            lane 4c      p00 p10 p20 p30 ...
 *                                p10 p11 p12 p13     ->     lane 4c + 1  p01 p11 p21 p31 ...
 *                                ...                        ...
 *
 * Source: index formulas of vLLM's gptq_marlin_repack, and of the tiles of Marlin by IST-DASLab.
 */
#include "base/sizes.h"
#include "pack/flip.h"
#include "vendor/vendor_parts.h"

/* Which of the four; a constant wherever it is inlined. */
typedef enum tiling { TILES_4, TILES_8, TILES_A8_4, TILES_A8_8 } tiling;

enum { CHUNK = 128, AHEAD = 64, MOST_TILE_ROWS = 64 };

/* Bytes of a row in a tile, rows of a tile, pieces of 16 bytes for each c. */
MOX_FLIP_INLINE int64_t width_of(tiling t)
{
    return t == TILES_4 ? 8 : t == TILES_A8_8 ? 32 : 16;
}

MOX_FLIP_INLINE int64_t rows_of(tiling t)
{
    return t == TILES_4 || t == TILES_8 ? 64 : 32;
}

MOX_FLIP_INLINE int64_t pieces_of(tiling t)
{
    return t == TILES_4 || t == TILES_A8_4 ? 4 : 8;
}

/* ---- a piece: 16 bytes of rows to four words, and back -------------------------------------------- */

typedef uint64_t v2u64 __attribute__((vector_size(16)));

/* Shuffles of one vector are said with two, as the oldest processors have only those of two. */
MOX_FLIP_INLINE v2u64 last_half(mox_v16u8 v)
{
    return __builtin_shufflevector((v2u64)v, (v2u64)v, 1, 1);
}

/* The last 8 bytes between the first 8; four times is nothing. */
MOX_FLIP_INLINE mox_v16u8 interleave(mox_v16u8 v)
{
    return __builtin_shufflevector(v, (mox_v16u8)last_half(v), 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

MOX_FLIP_INLINE mox_v16u8 part(mox_v16u8 v)
{
    return interleave(interleave(interleave(v)));
}

/* The same of pairs of bytes; three times is nothing. */
MOX_FLIP_INLINE mox_v16u8 interleave_pairs(mox_v16u8 v)
{
    return (mox_v16u8)__builtin_shufflevector((mox_v8u16)v, (mox_v8u16)last_half(v), 0, 8, 1, 9, 2, 10, 3, 11);
}

MOX_FLIP_INLINE mox_v4u32 exchange(mox_v4u32 x, uint32_t mask, int shift)
{
    const mox_v4u32 t = (x ^ x >> shift) & mask;
    return x ^ t ^ t << shift;
}

/* Where piece j of rows n % 8 = c begins. */
MOX_FLIP_INLINE int64_t piece_offset(tiling t, int64_t c, int64_t j, int64_t stride)
{
    switch (t) {
    case TILES_4: return (16 * j + c) * stride;
    case TILES_A8_8: return (8 * (j / 2) + c) * stride + 16 * (j % 2);
    default: return (8 * j + c) * stride;
    }
}

MOX_FLIP_INLINE mox_v4u32 take_piece(tiling t, const uint8_t *from)
{
    mox_v16u8 v;
    memcpy(&v, from, sizeof v);
    if (t == TILES_A8_8)
        return (mox_v4u32)v;
    const mox_v4u32 words = (mox_v4u32)interleave(v);
    return t == TILES_8 ? words : exchange(words, 0x00f000f0, 4);
}

MOX_FLIP_INLINE void give_piece(tiling t, mox_v4u32 words, uint8_t *to)
{
    mox_v16u8 v = (mox_v16u8)words;
    if (t == TILES_A8_4)
        v = part((mox_v16u8)exchange(words, 0x00f000f0, 4));
    else if (t == TILES_8)
        v = part(v);
    memcpy(to, &v, sizeof v);
}

/* TILES_4: 16 bytes of a row, and of that 8 rows on, are a piece of two tiles. Word q: byte q of both, byte q + 4 of
 * both; the nibbles of odd k change places. */
MOX_FLIP_INLINE void take_two(const uint8_t *from, int64_t stride, mox_v4u32 *first, mox_v4u32 *second)
{
    mox_v16u8 a, b;
    memcpy(&a, from, sizeof a);
    memcpy(&b, from + 8 * stride, sizeof b);
    const mox_v16u8 low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const mox_v16u8 high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    *first = exchange((mox_v4u32)interleave_pairs(low), 0x0000f0f0, 12);
    *second = exchange((mox_v4u32)interleave_pairs(high), 0x0000f0f0, 12);
}

MOX_FLIP_INLINE mox_v16u8 part_pairs(mox_v4u32 words)
{
    return interleave_pairs(interleave_pairs((mox_v16u8)exchange(words, 0x0000f0f0, 12)));
}

MOX_FLIP_INLINE void give_two(mox_v4u32 first, mox_v4u32 second, uint8_t *to, int64_t stride)
{
    const mox_v16u8 low = part_pairs(first), high = part_pairs(second);
    const mox_v16u8 a = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const mox_v16u8 b = __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    memcpy(to, &a, sizeof a);
    memcpy(to + 8 * stride, &b, sizeof b);
}

/* ---- a tile --------------------------------------------------------------------------------------- */

MOX_FLIP_INLINE void flip_pieces(mox_v4u32 v[4])
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

/* With TILES_4 two tiles, the second `next` bytes behind the first. */
MOX_FLIP_INLINE void put_tile(tiling t, const uint8_t *rows, int64_t stride, uint8_t *tile, int64_t next)
{
    const int64_t pieces = pieces_of(t);
    for (int64_t c = 0; c < 8; c++)
        for (int64_t j = 0; j < pieces; j += 4) {
            mox_v4u32 v[4], u[4];
            for (int i = 0; i < 4; i++)
                if (t == TILES_4)
                    take_two(rows + piece_offset(t, c, j + i, stride), stride, &v[i], &u[i]);
                else
                    v[i] = take_piece(t, rows + piece_offset(t, c, j + i, stride));
            flip_pieces(v);
            if (t == TILES_4)
                flip_pieces(u);
            for (int q = 0; q < 4; q++) {
                uint8_t *to = tile + ((4 * c + q) * pieces + j) * 4;
                mox_store_v4u32(to, v[q]);
                if (t == TILES_4)
                    mox_store_v4u32(to + next, u[q]);
            }
        }
}

MOX_FLIP_INLINE void get_tile(tiling t, const uint8_t *tile, int64_t next, uint8_t *rows, int64_t stride)
{
    const int64_t pieces = pieces_of(t);
    for (int64_t c = 0; c < 8; c++)
        for (int64_t j = 0; j < pieces; j += 4) {
            mox_v4u32 v[4], u[4];
            for (int q = 0; q < 4; q++) {
                const uint8_t *from = tile + ((4 * c + q) * pieces + j) * 4;
                v[q] = mox_load_v4u32(from);
                if (t == TILES_4)
                    u[q] = mox_load_v4u32(from + next);
            }
            flip_pieces(v);
            if (t == TILES_4)
                flip_pieces(u);
            for (int i = 0; i < 4; i++)
                if (t == TILES_4)
                    give_two(v[i], u[i], rows + piece_offset(t, c, j + i, stride), stride);
                else
                    give_piece(t, v[i], rows + piece_offset(t, c, j + i, stride));
        }
}

/* ---- all tiles of some rows ----------------------------------------------------------------------- */

/* The tile of rows `row` and on that begins at byte `at` of them. */
MOX_FLIP_INLINE int64_t tile_offset(tiling t, const mox_vendor_matrix *m, int64_t row, int64_t at)
{
    return (at / width_of(t) * (m->rows / rows_of(t)) + row / rows_of(t)) * rows_of(t) * width_of(t);
}

/* A tile row further on is on a page of its own, where the processor does not look ahead. */
MOX_FLIP_INLINE void prefetch(tiling t, const mox_vendor_matrix *m, const uint8_t *tensor, int64_t row, int64_t at,
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

/* A call, or a loop inside one instruction, would cost more than the moves. */
MOX_FLIP_INLINE void copy_chunk(uint8_t *to, const uint8_t *from, int64_t bytes)
{
    if (bytes == CHUNK)
        memcpy(to, from, CHUNK);
    else
        memcpy(to, from, (size_t)bytes);
}

/* Rows are far apart, often by a multiple of a page: CHUNK bytes of each go to the side first, so that every line of
 * them is read once. */
MOX_FLIP_INLINE void put_tiles(tiling t, const mox_vendor_matrix *m, int64_t row, int64_t count,
                               const uint8_t *const *rows, uint8_t *tensor)
{
    _Alignas(64) uint8_t side[MOST_TILE_ROWS * CHUNK];
    const int64_t step = t == TILES_4 ? 2 * width_of(t) : width_of(t);
    const int64_t next = m->rows / rows_of(t) * rows_of(t) * width_of(t);
    for (int64_t at = 0; at < m->row_bytes; at += CHUNK)
        for (int64_t r = 0; r < count; r += rows_of(t)) {
            const int64_t bytes = mox_min_i64(CHUNK, m->row_bytes - at);
            for (int64_t n = 0; n < rows_of(t); n++) {
                copy_chunk(side + n * CHUNK, rows[r + n] + at, bytes);
                if (at + 2 * CHUNK <= m->row_bytes) /* more rows than the processor follows by itself */
                    for (int64_t line = 0; line < CHUNK; line += 64)
                        __builtin_prefetch(rows[r + n] + at + CHUNK + line);
            }
            for (int64_t b = 0; b < bytes; b += step) {
                prefetch(t, m, tensor, row + r, at + b + AHEAD, true);
                put_tile(t, side + b, CHUNK, tensor + tile_offset(t, m, row + r, at + b), next);
            }
        }
}

MOX_FLIP_INLINE void get_tiles(tiling t, const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                               const uint8_t *tensor)
{
    _Alignas(64) uint8_t side[MOST_TILE_ROWS * CHUNK];
    const int64_t step = t == TILES_4 ? 2 * width_of(t) : width_of(t);
    const int64_t next = m->rows / rows_of(t) * rows_of(t) * width_of(t);
    for (int64_t at = 0; at < m->row_bytes; at += CHUNK)
        for (int64_t r = 0; r < count; r += rows_of(t)) {
            const int64_t bytes = mox_min_i64(CHUNK, m->row_bytes - at);
            for (int64_t b = 0; b < bytes; b += step) {
                prefetch(t, m, tensor, row + r, at + b + AHEAD, false);
                get_tile(t, tensor + tile_offset(t, m, row + r, at + b), next, side + b, CHUNK);
            }
            for (int64_t n = 0; n < rows_of(t); n++)
                copy_chunk(rows[r + n] + at, side + n * CHUNK, bytes);
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

/* A row is whole tiles wide, or two of the narrowest: layouts limit both extents to multiples of 64 columns, which are
 * 32 bytes. */
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
