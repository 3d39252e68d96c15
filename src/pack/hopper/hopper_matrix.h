/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_matrix.h - one product of a record of the layouts of hopper.h: its sizes, where its rows, tiles and chunks
 * lie, and which bytes are codes. Plain C that kernels compile, too.
 *
 *     record  | header | codes | scales | codes | scales | ... rows |    all that is not codes, end to end: the rest
 *
 * A device packs codes, and the host makes the rest (cuda/pack).
 */
#ifndef MOX_PACK_HOPPER_MATRIX_H
#define MOX_PACK_HOPPER_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/shared.h"

#define MOX_HOPPER_ALIGN       128
#define MOX_HOPPER_TILE_ROWS   128
#define MOX_HOPPER_HALF_ROWS   8   /* product rows of gate, then as many of up */
#define MOX_HOPPER_CHUNK_WIDTH 128 /* bytes of a row in a chunk: weights of "hopper", and activations */
#define MOX_HOPPER_CODE_COLS   64  /* columns of a chunk of codes */
#define MOX_HOPPER_FP8_COLS    128 /* the same in "hopper_fp8" */
#define MOX_HOPPER_WINDOW      12  /* hopper_fp8: powers of two that one row's scales may span */
#define MOX_HOPPER_ONE_BLOCK   31  /* scale_shift when one block holds the scales of whole rows */

/* One product of a record: its sizes, and its offsets in bytes from the start of the record. */
typedef struct mox_hopper_matrix {
    int64_t rows;        /* of one matrix: I or H */
    int64_t cols;        /* K */
    int64_t stored_rows; /* of the product: rows, or when gated 16 for every 8 rows begun of each half */
    int64_t tiles, chunks, scale_blocks;
    int32_t chunk_cols, chunk_row_bytes;
    int32_t scale_bytes; /* of 128 rows in a block; 0: the tiles hold no scales */
    int32_t scale_shift; /* the scales of chunk c are in block c >> scale_shift */
    int32_t last_rows;   /* of the last tile: 64 or 128 */
    bool gated;
    uint64_t tile_bytes;            /* of a tile of 128 rows; the last tile may have fewer */
    uint64_t tiles_at;              /* tile t starts at tiles_at + t * tile_bytes */
    uint64_t row_scale_at, bias_at; /* [tiles * 128] f32; 0: absent */
    uint64_t end;
} mox_hopper_matrix;

typedef struct mox_hopper_record {
    mox_hopper_matrix w13, w2;
} mox_hopper_record;

/* Product row `n` comes from row *row of matrix 0 or 1, which is returned; and the inverse. */
MOX_SHARED int mox_hopper_half(const mox_hopper_matrix *m, int64_t n, int64_t *row)
{
    const int64_t half = MOX_HOPPER_HALF_ROWS;
    *row = m->gated ? n / (2 * half) * half + n % half : n;
    return m->gated && n / half % 2 == 1;
}

MOX_SHARED int64_t mox_hopper_product_row(const mox_hopper_matrix *m, int half, int64_t row)
{
    const int64_t of = MOX_HOPPER_HALF_ROWS;
    return m->gated ? row / of * 2 * of + half * of + row % of : row;
}

MOX_SHARED int64_t mox_hopper_tile_rows(const mox_hopper_matrix *m, int64_t tile)
{
    return tile == m->tiles - 1 ? m->last_rows : MOX_HOPPER_TILE_ROWS;
}

/* Offset in the record. */
MOX_SHARED uint64_t mox_hopper_tile_at(const mox_hopper_matrix *m, int64_t tile)
{
    return m->tiles_at + (uint64_t)tile * m->tile_bytes;
}

/* Offsets in a tile: of a chunk, and of a block of scales. The block past the last is where the scales end. */
MOX_SHARED uint64_t mox_hopper_chunk_at(const mox_hopper_matrix *m, int64_t tile, int64_t chunk)
{
    return (uint64_t)(chunk * mox_hopper_tile_rows(m, tile)) * (uint64_t)m->chunk_row_bytes;
}

MOX_SHARED uint64_t mox_hopper_block_at(const mox_hopper_matrix *m, int64_t tile, int64_t block)
{
    return mox_hopper_chunk_at(m, tile, m->chunks) +
           (uint64_t)(block * (m->scale_bytes * mox_hopper_tile_rows(m, tile) / MOX_HOPPER_TILE_ROWS));
}

/* Bytes of codes in a tile. */
MOX_SHARED uint64_t mox_hopper_tile_codes(const mox_hopper_matrix *m, int64_t tile)
{
    return mox_hopper_chunk_at(m, tile, m->chunks);
}

/* The tile that holds byte `at` of the record, or the last one before it. There are tiles, and tiles_at <= at. */
MOX_SHARED int64_t mox_hopper_tile_of(const mox_hopper_matrix *m, uint64_t at)
{
    const int64_t tile = (int64_t)((at - m->tiles_at) / m->tile_bytes);
    return tile < m->tiles ? tile : m->tiles - 1;
}

/* How many bytes of codes of the product lie before byte `at` of the record. */
MOX_SHARED uint64_t mox_hopper_codes_before(const mox_hopper_matrix *m, uint64_t at)
{
    if (m->tiles == 0 || at <= m->tiles_at)
        return 0;
    const int64_t tile = mox_hopper_tile_of(m, at);
    const uint64_t in = at - mox_hopper_tile_at(m, tile), codes = mox_hopper_tile_codes(m, tile);
    return (uint64_t)(tile * m->chunks * MOX_HOPPER_TILE_ROWS) * (uint64_t)m->chunk_row_bytes +
           (in < codes ? in : codes);
}

/* Offset in the rest of byte `at` of the record, which is no code. */
MOX_SHARED uint64_t mox_hopper_rest_at(const mox_hopper_record *form, uint64_t at)
{
    return at - mox_hopper_codes_before(&form->w13, at) - mox_hopper_codes_before(&form->w2, at);
}

#endif
