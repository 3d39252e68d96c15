/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper.h - layout "hopper": weights in the chunks that a warpgroup MMA reads from shared memory, so that a bulk copy
 * of contiguous bytes is all there is between device memory and the tensor cores (layout_hopper.c packs and unpacks).
 *
 *     record | header | W13 tiles | W13 rows | W2 tiles | W2 rows |            every | begins on 128 bytes
 *
 *     tile     | chunk 0 | chunk 1 | ... along K | scales |     128 rows; the last of a product has 64 when that is
 * enough chunk    rows x 128 bytes of codes scales   8-bit elements only: [chunks][rows / 8] f32 rows     one f32 a
 * row: scales of rows, then biases; absent when the projection has none
 *
 * Within a chunk, row n lies at 128 n, and its 16-byte piece q in the place of piece q ^ (n % 8): the 128-byte swizzle
 * of shared memory (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"). A chunk is 64 columns of
 * 16-bit elements or 128 of 8-bit ones; rows and columns past the last are code 0 with scale 0.
 *
 *     8-bit, 128 rows     0 | row 0: 128 columns, pieces 0 1 2 3 4 5 6 7
 *                       128 | row 1:              pieces 1 0 3 2 5 4 7 6
 *                       ... |
 *                     16384 | the next chunk
 *            16384 * chunks | 16 scales of chunk 0: rows 0-7, 8-15, ...; 16 of chunk 1; ... up to a multiple of 128
 * bytes
 *
 * Gated W13: rows 16 b .. 16 b + 7 of the product are gate rows 8 b .., the next eight are the up rows of the same
 * numbers, so that one thread of the MMA gets both halves of its activation. Elsewhere product row n is row n.
 *
 * Scales of 8-bit elements lie in the tiles when they are shared by rows in multiples of 8 (or by all) and by columns
 * in multiples of 128 (or by all). Scales of single rows lie behind the tiles, and those in the tiles are then 1.
 */
#ifndef MOX_PACK_HOPPER_H
#define MOX_PACK_HOPPER_H

#include "pack/layout.h"

#define MOX_HOPPER_ALIGN       128
#define MOX_HOPPER_TILE_ROWS   128
#define MOX_HOPPER_CHUNK_WIDTH 128 /* bytes of a row in a chunk */
#define MOX_HOPPER_SCALE_ROWS  8   /* rows that share a scale in a tile */

/* One product of a record: where it lies (offsets are bytes from the record's start), and its form. */
typedef struct mox_hopper_matrix {
    int64_t rows;        /* of one matrix: I or H */
    int64_t cols;        /* K */
    int64_t stored_rows; /* of the product: gated, 16 for every 8 begun of each half; else rows */
    int64_t tiles, chunks;
    int32_t chunk_cols;
    int32_t last_rows; /* of the last tile: 64 or 128 */
    bool gated, has_tile_scales;
    uint64_t chunk_bytes, tile_bytes; /* of a tile of 128 rows; the last one's may be less */
    uint64_t tiles_at;                /* tile t at tiles_at + t * tile_bytes */
    uint64_t row_scale_at, bias_at;   /* [tiles * 128] f32; 0: absent */
    uint64_t end;
} mox_hopper_matrix;

typedef struct mox_hopper_record {
    mox_hopper_matrix w13, w2;
} mox_hopper_record;

extern const mox_layout mox_layout_hopper;

/* The form of a record of a shape that the layout accepts. Immutable. */
void mox_hopper_form(const mox_record_shape *shape, mox_hopper_record *out);

#endif
