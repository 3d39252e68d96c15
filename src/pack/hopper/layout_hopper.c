/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_hopper.c - layout "hopper": swizzled chunks of 128 rows x 128 bytes, drawn in hopper.h.
 *
 *     reject   elements, scales and groups that the chunks cannot hold
 *     tiles    codes in blocks of 16 rows and one chunk's columns, then the scales of the tile
 *
 * In the flow: checkpoint views -> [record] -> slot -> the kernels of cuda/expert_gemm that read layout hopper.
 */
#include <stdio.h>

#include "pack/grid_move.h"
#include "pack/grid_tile.h"
#include "pack/hopper/hopper_tiles.h"

enum { BLOCK = MOX_TILE_ROWS, WIDTH = MOX_HOPPER_CHUNK_WIDTH, GROUP = MOX_HOPPER_HALF_ROWS, UNIT = 16 };

typedef mox_hopper_product product;

/* True when scales are row factors: always for integers, else when a scale covers single rows. */
static bool has_row_scales(const product *p)
{
    return p->quant->scale != MOXIE_DTYPE_NONE &&
           (p->quant->element == MOXIE_I8 ||
            (mox_group_rows(p->quant, p->rows) % GROUP != 0 && mox_scale_rows(p->quant, p->rows) > 1));
}

static void measure(const product *p, mox_hopper_matrix *m)
{
    const int32_t bits = mox_dtype_bits(p->quant->element);
    m->chunk_cols = WIDTH * 8 / bits;
    m->chunk_row_bytes = WIDTH;
    m->scale_bytes = p->quant->element == MOXIE_F8_E4M3 ? MOX_HOPPER_TILE_ROWS / GROUP * (int32_t)sizeof(float) : 0;
}

static const char *reject_product(const product *p, const char *name, char *buffer, size_t size)
{
    const moxie_quant *q = p->quant;
    const char *element = mox_quant_dtype_name(q->element);
    const int64_t group = mox_group_cols(q, p->cols);
    const bool wide = q->element == MOXIE_BF16 || q->element == MOXIE_F16;
    if (!wide && q->element != MOXIE_F8_E4M3 && q->element != MOXIE_I8) {
        snprintf(buffer, size, "%s has elements of %s, chunks hold bf16, f16, f8_e4m3 and i8", name, element);
        return buffer;
    }
    if ((wide && q->scale != MOXIE_DTYPE_NONE) || q->has_zero || q->global != MOXIE_GLOBAL_NONE) {
        snprintf(buffer, size, "%s has %s with %s, chunks hold %s", name, element,
                 q->has_zero                      ? "zero points"
                 : q->global != MOXIE_GLOBAL_NONE ? "a global scale"
                                                  : "scales",
                 wide ? "it plain" : "it with scales of f32, f16, bf16 or f8_e8m0 alone");
        return buffer;
    }
    if (q->scale != MOXIE_DTYPE_NONE && group < p->cols && (has_row_scales(p) || group % WIDTH != 0)) {
        snprintf(buffer, size,
                 "%s has scales of %lld x %lld elements, chunks hold those of multiples of 8 rows and of 128 columns, "
                 "and of whole rows",
                 name, (long long)mox_group_rows(q, p->rows), (long long)group);
        return buffer;
    }
    return NULL;
}

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

/* Offset of the scale of 8 rows, from row n of a tile on, for a chunk. */
static uint64_t scale_at(const mox_hopper_matrix *m, int64_t tile, int64_t n, int64_t chunk)
{
    return mox_hopper_block_at(m, tile, chunk) + (uint64_t)(n / GROUP) * sizeof(float);
}

/* Offset of the 16-byte unit q of row n in a chunk: swizzled. */
static uint64_t unit_at(int64_t n, int64_t q)
{
    return (uint64_t)(n * WIDTH + (q ^ n % 8) * UNIT);
}

/* Writes 8 dense rows of one chunk's columns to rows n .. n + 7 of the chunk. NULL: zeros. */
static void put_rows(const uint8_t *rows, int64_t stride, int64_t n, uint8_t *chunk)
{
    for (int64_t i = 0; i < GROUP; i++) {
        if (rows == NULL)
            memset(chunk + (n + i) * WIDTH, 0, WIDTH);
        else
            for (int64_t q = 0; q < WIDTH / UNIT; q++)
                memcpy(chunk + unit_at(n + i, q), rows + i * stride + q * UNIT, UNIT);
    }
}

static void pack_codes(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, int64_t tile,
                       uint8_t *to)
{
    (void)p;
    const int64_t first = tile * MOX_HOPPER_TILE_ROWS, span = m->gated ? 2 * BLOCK : BLOCK;
    mox_tile store;
    for (int64_t n = 0; n < mox_hopper_tile_rows(m, tile); n += span) {
        for (int half = 0; half <= m->gated; half++) {
            int64_t row, stride = 0;
            (void)mox_hopper_half(m, first + n, &row);
            const int64_t second = n + (m->gated ? 2 * GROUP : GROUP);
            for (int64_t c = 0; c < m->chunks; c++) {
                uint8_t *chunk = to + mox_hopper_chunk_at(m, tile, c);
                const uint8_t *rows = row >= m->rows ? NULL
                                                     : mox_tile_read(&from[half]->codes, row, c * m->chunk_cols,
                                                                     m->chunk_cols, &store, &stride);
                put_rows(rows, stride, n + half * GROUP, chunk);
                put_rows(rows == NULL ? NULL : rows + GROUP * stride, stride, second + half * GROUP, chunk);
            }
        }
    }
}

/* The scale of the 8 product rows from n on and the chunk that begins at column k. */
static float chunk_scale(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, int64_t n,
                         int64_t k)
{
    int64_t row;
    const int half = mox_hopper_half(m, n, &row);
    if (row >= m->rows)
        return 0.0f;
    if (p->quant->scale == MOXIE_DTYPE_NONE || m->row_scale_at != 0)
        return 1.0f;
    return mox_pack_get_float(&from[half]->scale, row / mox_group_rows(p->quant, p->rows),
                              k / mox_group_cols(p->quant, p->cols));
}

static void pack_scales(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, int64_t tile,
                        uint8_t *to)
{
    const int64_t rows = mox_hopper_tile_rows(m, tile), first = tile * MOX_HOPPER_TILE_ROWS;
    const uint64_t codes = mox_hopper_tile_codes(m, tile), end = mox_hopper_block_at(m, tile, m->scale_blocks);
    for (int64_t c = 0; c < m->scale_blocks; c++)
        for (int64_t n = 0; n < rows; n += GROUP) {
            const float scale = chunk_scale(m, p, from, first + n, c * m->chunk_cols);
            memcpy(to + scale_at(m, tile, n, c) - codes, &scale, sizeof scale);
        }
    memset(to + end - codes, 0, mox_hopper_tile_bytes(m, rows) - end);
}

static float row_factor(const product *p, const moxie_matrix *from, int64_t row)
{
    return mox_pack_get_float(&from->scale, from->scale.rows == 1 ? 0 : row / mox_group_rows(p->quant, p->rows), 0);
}

static void unpack_codes(const mox_hopper_matrix *m, const uint8_t *record, int half, const moxie_grid *to)
{
    uint8_t rows[BLOCK * WIDTH];
    for (int64_t row = 0; row < m->rows; row += BLOCK)
        for (int64_t c = 0; c < m->chunks; c++) {
            for (int64_t i = 0; i < BLOCK; i++) {
                const int64_t n = mox_hopper_product_row(m, half, row + i), tile = n / MOX_HOPPER_TILE_ROWS;
                if (tile >= m->tiles)
                    break;
                const uint8_t *chunk = record + mox_hopper_tile_at(m, tile) + mox_hopper_chunk_at(m, tile, c);
                for (int64_t q = 0; q < WIDTH / UNIT && n % MOX_HOPPER_TILE_ROWS < mox_hopper_tile_rows(m, tile); q++)
                    memcpy(rows + i * WIDTH + q * UNIT, chunk + unit_at(n % MOX_HOPPER_TILE_ROWS, q), UNIT);
            }
            mox_tile_write(to, row, c * m->chunk_cols, m->chunk_cols, rows, WIDTH);
        }
}

static float stored_scale(const mox_hopper_matrix *m, const uint8_t *record, int64_t n, int64_t k)
{
    const int64_t tile = n / MOX_HOPPER_TILE_ROWS, at = n % MOX_HOPPER_TILE_ROWS;
    float scale;
    memcpy(&scale, record + mox_hopper_tile_at(m, tile) + scale_at(m, tile, at, k / m->chunk_cols), sizeof scale);
    return scale;
}

static void unpack_scales(const mox_hopper_matrix *m, const product *p, const uint8_t *record, int half,
                          const moxie_grid *to)
{
    const int64_t group_rows = mox_group_rows(p->quant, p->rows), group_cols = mox_group_cols(p->quant, p->cols);
    const float *row_scale = (const float *)(const void *)(record + m->row_scale_at);
    for (int64_t r = 0; r < to->rows; r++)
        for (int64_t g = 0; g < to->cols; g++) {
            const int64_t n = mox_hopper_product_row(m, half, r * group_rows);
            mox_pack_put_float(to, r, g,
                               m->row_scale_at != 0 ? row_scale[n] : stored_scale(m, record, n, g * group_cols));
        }
}

static void unpack_matrix(const mox_hopper_matrix *m, const product *p, const uint8_t *record, int half,
                          const moxie_matrix *to)
{
    unpack_codes(m, record, half, &to->codes);
    if (p->quant->scale != MOXIE_DTYPE_NONE)
        unpack_scales(m, p, record, half, &to->scale);
}

/* ---- the layout ----------------------------------------------------------------------------------------------- */

const mox_hopper_order mox_hopper_swizzled = {
    .measure = measure,
    .has_row_factors = has_row_scales,
    .reject = reject_product,
    .pack_codes = pack_codes,
    .pack_scales = pack_scales,
    .row_factor = row_factor,
    .unpack = unpack_matrix,
};

MOX_HOPPER_LAYOUT(mox_hopper_swizzled)

const mox_layout mox_layout_hopper = {
    .number = 3,
    .name = "hopper",
    .summary = "swizzled chunks of 128 rows by 128 bytes, for bulk copies and warpgroup MMA of Hopper GPUs",
    MOX_HOPPER_FUNCTIONS,
};
