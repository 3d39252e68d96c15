/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_hopper_codes.c - layout "hopper_codes", and the order of elements that "hopper_fp8" shares with it (hopper.h).
 *
 *     tile    16 product rows (one warp) at a time: words of codes by hopper_words.c, multipliers by hopper_scales.c
 *
 * In the flow: checkpoint views -> [record] -> slot -> the kernels of cuda/expert_gemm that read layout hopper_codes.
 */
#include <string.h>

#include "base/sizes.h"
#include "pack/grid_move.h"
#include "pack/grid_tile.h"
#include "pack/hopper/hopper_scales.h"
#include "pack/hopper/hopper_words.h"
#include "pack/order/column_order.h"

enum { BLOCK = MOX_TILE_ROWS, HALF = MOX_HOPPER_HALF_ROWS, MAX_COLS = MOX_HOPPER_FP8_COLS };

typedef mox_hopper_product product;

static bool has_row_factors(const product *p)
{
    (void)p;
    return true;
}

static void measure(const product *p, mox_hopper_matrix *m)
{
    const int64_t group = mox_group_cols(p->quant, p->cols);
    const int32_t cols = p->to_fp8 ? MOX_HOPPER_FP8_COLS : MOX_HOPPER_CODE_COLS;
    m->chunk_cols = cols;
    m->chunk_row_bytes = cols / 8 * p->bits;
    if (p->super.bits > 0) {
        m->scale_bytes = MOX_HOPPER_TILE_ROWS * p->super.row_bytes;
        m->scale_shift = MOX_HOPPER_SUPER_SHIFT;
        return;
    }
    m->scale_bytes = (int32_t)(MOX_HOPPER_TILE_ROWS * mox_hopper_groups(p) * (int64_t)mox_hopper_scale_bytes(p));
    m->scale_shift = group >= p->cols && p->cols > cols ? MOX_HOPPER_ONE_BLOCK : 0;
    while (group < p->cols && cols << m->scale_shift < group)
        m->scale_shift++;
}

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

/* Dense rows from `row` on of a matrix, for some chunks; of block types all of a block. NULL behind the last row. */
static const uint8_t *read_rows(const mox_hopper_matrix *m, const product *p, const moxie_matrix *from, int64_t row,
                                int64_t chunk, int chunks, mox_tile *store, int64_t *stride)
{
    if (row >= m->rows)
        return NULL;
    if (p->super.bits == 0)
        return mox_tile_read(&from->codes, row, chunk * m->chunk_cols, (int64_t)chunks * m->chunk_cols, store, stride);
    mox_hopper_block_codes(&p->super, &from->codes, row, BLOCK, chunk / MOX_HOPPER_MAX_CHUNKS, store->bytes);
    *stride = MOX_HOPPER_SUPER_COLS / 8 * p->bits;
    return store->bytes;
}

/* Packs the codes of 32 product rows (two warps) of a gated product, else of 16, from row n of the tile on. */
static void pack_block(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, int64_t tile,
                       int64_t n, uint8_t *to)
{
    mox_tile store[2];
    int64_t row, stride[2] = { 0, 0 };
    const uint64_t warp = (uint64_t)mox_hopper_warp_bytes(&p->words);
    const int64_t at_once =
        p->super.bits > 0 ? MOX_HOPPER_MAX_CHUNKS : MOX_HOPPER_CHUNKS_AT_ONCE * MOX_HOPPER_CODE_COLS / m->chunk_cols;
    (void)mox_hopper_half(m, tile * MOX_HOPPER_TILE_ROWS + n, &row);
    for (int64_t c = 0; c < m->chunks; c += at_once) {
        const int chunks = (int)mox_min_i64(at_once, m->chunks - c);
        mox_hopper_warp place = { to + mox_hopper_chunk_at(m, tile, c) + (uint64_t)(n / BLOCK) * warp,
                                  (int64_t)mox_hopper_chunk_at(m, tile, 1), chunks };
        const uint8_t *rows = read_rows(m, p, from[0], row, c, chunks, &store[0], &stride[0]);
        const uint8_t *second = rows == NULL || row + HALF >= m->rows ? NULL : rows + HALF * stride[0];
        if (!m->gated) {
            mox_hopper_put_warp(&p->words, rows, stride[0], second, stride[0], &place);
            continue;
        }
        const uint8_t *ups = read_rows(m, p, from[1], row, c, chunks, &store[1], &stride[1]);
        mox_hopper_put_warp(&p->words, rows, stride[0], ups, stride[1], &place);
        place.to += warp;
        mox_hopper_put_warp(&p->words, second, stride[0], second == NULL ? NULL : ups + HALF * stride[1], stride[1],
                            &place);
    }
}

/* Offset in a block of scales of row n of the tile: [pair of rows][which of the two]. */
static uint64_t scales_at(const mox_hopper_matrix *m, int64_t n)
{
    const int64_t pair = n / BLOCK * HALF + n % HALF, second = n % BLOCK / HALF;
    return (uint64_t)((2 * pair + second) * (m->scale_bytes / MOX_HOPPER_TILE_ROWS));
}

static void pack_codes(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, int64_t tile,
                       uint8_t *to)
{
    const int64_t rows = mox_hopper_tile_rows(m, tile);
    for (int64_t n = 0; n < rows; n += m->gated ? 2 * BLOCK : BLOCK)
        pack_block(m, p, from, tile, n, to);
}

static void pack_scales(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, int64_t tile,
                        uint8_t *to)
{
    const int64_t rows = mox_hopper_tile_rows(m, tile);
    const uint64_t codes = mox_hopper_tile_codes(m, tile), block = mox_hopper_block_at(m, tile, 1) - codes;
    memset(to, 0, mox_hopper_tile_bytes(m, rows) - codes);
    for (int64_t n = 0; n < rows; n++) {
        int64_t row;
        const int half = mox_hopper_half(m, tile * MOX_HOPPER_TILE_ROWS + n, &row);
        if (row < m->rows && p->super.bits == 0)
            mox_hopper_put_scales(p, from[half], row, to + scales_at(m, n), block);
        for (int64_t b = 0; row < m->rows && p->super.bits > 0 && b < m->scale_blocks; b++)
            mox_hopper_block_scales(&p->super, &from[half]->codes, row, b, to + scales_at(m, n) + (uint64_t)b * block);
    }
}

/* ---- back ----------------------------------------------------------------------------------------------------- */

/* The tile that holds row r of a matrix; *n is the row in the tile. */
static int64_t find_row(const mox_hopper_matrix *m, int half, int64_t r, int64_t *n)
{
    const int64_t at = mox_hopper_product_row(m, half, r);
    *n = at % MOX_HOPPER_TILE_ROWS;
    return at / MOX_HOPPER_TILE_ROWS;
}

/* Writes element `col` of a dense row; its bits are 0 before. */
static void put_bits(uint8_t *row, int col, int bits, uint32_t code)
{
    const int first = col * bits / 8, shift = col * bits % 8;
    row[first] |= (uint8_t)(code << shift);
    if (shift + bits > 8)
        row[first + 1] |= (uint8_t)(code >> (8 - shift));
}

static void unpack_codes(const mox_hopper_matrix *m, const product *p, const uint8_t *record, int half,
                         const moxie_grid *to)
{
    uint8_t rows[BLOCK * MAX_COLS];
    const int bits = p->bits, cols = m->chunk_cols;
    const int64_t warp_bytes = mox_hopper_warp_bytes(&p->words);
    for (int64_t row = 0; row < m->rows; row += BLOCK)
        for (int64_t c = 0; c < m->chunks; c++) {
            memset(rows, 0, sizeof rows);
            for (int64_t r = row; r < row + BLOCK && r < m->rows; r++) {
                int64_t n;
                const int64_t tile = find_row(m, half, r, &n);
                const uint8_t *warp = record + mox_hopper_tile_at(m, tile) + mox_hopper_chunk_at(m, tile, c) +
                                      (uint64_t)(n / BLOCK * warp_bytes);
                for (int col = 0; col < cols; col++)
                    put_bits(rows + (r - row) * cols, col, bits,
                             mox_hopper_code_of(&p->words, warp, (int)(n % BLOCK), col));
            }
            mox_tile_write(to, row, c * cols, cols, rows, cols);
        }
}

/* Codes and scales of block types, row by row. */
static void unpack_blocks(const mox_hopper_matrix *m, const product *p, const uint8_t *record, int half,
                          const moxie_grid *to)
{
    const int64_t warp_bytes = mox_hopper_warp_bytes(&p->words);
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t b = 0; b < m->scale_blocks; b++) {
            int64_t n;
            uint8_t codes[MOX_HOPPER_SUPER_COLS];
            const int64_t at = find_row(m, half, r, &n);
            const uint8_t *tile = record + mox_hopper_tile_at(m, at);
            for (int col = 0; col < MOX_HOPPER_SUPER_COLS; col++)
                codes[col] = (uint8_t)mox_hopper_code_of(
                    &p->words,
                    tile + mox_hopper_chunk_at(m, at, b * MOX_HOPPER_MAX_CHUNKS + col / MOX_HOPPER_CODE_COLS) +
                        n / BLOCK * warp_bytes,
                    (int)(n % BLOCK), col % MOX_HOPPER_CODE_COLS);
            mox_hopper_block_store(&p->super, to, r, b, codes, tile + mox_hopper_block_at(m, at, b) + scales_at(m, n));
        }
}

static void unpack_matrix(const mox_hopper_matrix *m, const product *p, const uint8_t *record, int half,
                          const moxie_matrix *to)
{
    const float *factors = (const float *)(const void *)(record + m->row_scale_at);
    const int64_t group_rows = mox_group_rows(p->quant, p->rows);
    if (p->super.bits > 0)
        unpack_blocks(m, p, record, half, &to->codes);
    else
        unpack_codes(m, p, record, half, &to->codes);
    for (int64_t r = 0; p->quant->global != MOXIE_GLOBAL_NONE && r < to->global.rows; r++)
        mox_pack_put_float(&to->global, r, 0, mox_hopper_global_of(p, factors[mox_hopper_product_row(m, half, r)]));
    for (int64_t r = 0; r < to->scale.rows; r++) {
        int64_t n;
        const int64_t tile = find_row(m, half, r * group_rows, &n);
        const uint64_t first = mox_hopper_block_at(m, tile, 0), block = mox_hopper_block_at(m, tile, 1) - first;
        mox_hopper_get_scales(p, record + mox_hopper_tile_at(m, tile) + first + scales_at(m, n), block,
                              factors[mox_hopper_product_row(m, half, r * group_rows)], r, to);
    }
}

/* ---- the layout ---------------------------------------------------------------------------------------------- */

#define FRAGMENTS                                                                                                      \
    .measure = measure, .has_row_factors = has_row_factors, .reject = mox_hopper_codes_reject,                         \
    .accepts = mox_hopper_codes_accept, .pack_codes = pack_codes, .pack_scales = pack_scales,                          \
    .row_factor = mox_hopper_codes_factor, .unpack = unpack_matrix

const mox_hopper_order mox_hopper_fragments = { FRAGMENTS };
const mox_hopper_order mox_hopper_fragments_fp8 = { FRAGMENTS, .to_fp8 = true };

MOX_HOPPER_LAYOUT(mox_hopper_fragments)

const mox_layout mox_layout_hopper_codes = {
    .number = 4,
    .name = "hopper_codes",
    .summary = "codes of 4 to 8 bits in the order of registers that decode for warpgroup MMA of Hopper GPUs",
    .fallback = &mox_layout_hopper_codes_order,
    MOX_HOPPER_FUNCTIONS,
};
