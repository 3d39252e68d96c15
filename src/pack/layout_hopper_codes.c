/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_hopper_codes.c - layout "hopper_codes": codes of 4 bits in the order of a warpgroup MMA's registers, drawn in
 * hopper.h.
 *
 *     scales    what a row's multipliers are in units of, and whether they fit
 *     words     eight codes to a word, and back: a byte of two neighbours goes where a table says
 *     tiles     16 rows of the product at a time, which are one warp's
 *
 * In the flow: checkpoint views -> [record] -> slot -> the kernels of cuda/expert_gemm that read layout hopper_codes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sizes.h"
#include "pack/grid_move.h"
#include "pack/grid_tile.h"
#include "pack/hopper_tiles.h"

enum { BLOCK = MOX_TILE_ROWS, HALF = MOX_HOPPER_HALF_ROWS, COLS = MOX_HOPPER_CODE_COLS, ROW_BYTES = COLS / 2 };
enum { LANES = 32, WORDS = 4 };
enum { E8M0_BIAS = 126, E8M0_LEAST = -5, E8M0_MOST = 128 }; /* of a scale's code less p: products in bf16 are exact */
enum { INT_UNIT = 129 };                                    /* codes come as 2^-129 times their numbers */
enum { E4M3_UNIT = 8, MOST_GLOBAL = 100 };                  /* exponents of factors: what multipliers lack, the limit */

typedef mox_hopper_product product;

/* ---- scales --------------------------------------------------------------------------------------------------- */

static bool is_float(const moxie_quant *q)
{
    return q->element == MOXIE_F4_E2M1;
}

/* Groups of a chunk's columns that have a scale of their own. */
static int64_t groups_of(const product *p)
{
    const int32_t group = p->quant->group_cols;
    return group > 0 && group < COLS ? COLS / group : 1;
}

static uint32_t scale_code(const moxie_grid *grid, int64_t r, int64_t g)
{
    if (grid->packing.per_word != 1)
        return mox_grid_code(grid, r, g);
    const uint8_t *at = (const uint8_t *)grid->data + r * grid->row_stride + g * grid->col_stride;
    return grid->packing.word_bytes == 1 ? at[0] : at[0] | (uint32_t)at[1] << 8;
}

static float bf16_value(uint32_t code)
{
    const uint32_t bits = code << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The exponent of a bf16 that is finite and not 0: magnitude < 2^(exponent + 1). */
static int exponent_of(uint32_t code)
{
    return ilogbf(bf16_value(code));
}

/* The exponents of a row's scales, and whether all are finite; false of `some`: all are 0. */
typedef struct extent {
    int least, most;
    bool some, finite;
} extent;

static extent extent_of(const moxie_grid *scale, int64_t r)
{
    const bool bytes = scale->dtype == MOXIE_F8_E8M0;
    extent e = { INT32_MAX, INT32_MIN, false, true };
    for (int64_t g = 0; g < scale->cols && e.finite; g++) {
        const uint32_t code = scale_code(scale, r, g);
        e.finite = bytes ? code != 255 : (code & 0x7f80) != 0x7f80;
        if (!e.finite || (!bytes && (code & 0x7fff) == 0))
            continue;
        const int at = bytes ? (int)code : exponent_of(code);
        e.least = at < e.least ? at : e.least;
        e.most = at > e.most ? at : e.most;
        e.some = true;
    }
    return e;
}

/* Scales of e4m3 that are numbers, and not below 0. */
static bool are_positive(const moxie_grid *scale, int64_t r)
{
    bool all = true;
    for (int64_t g = 0; g < scale->cols; g++)
        all &= scale_code(scale, r, g) < 0x7f;
    return all;
}

/* A row's p, and whether every multiplier is exact under it. */
static int row_power(const product *p, const moxie_matrix *from, int64_t row, bool *exact)
{
    const int64_t r = row / mox_group_rows(p->quant, p->rows);
    if (p->quant->scale == MOXIE_F8_E4M3) {
        *exact = are_positive(&from->scale, r);
        return 0;
    }
    const bool bytes = p->quant->scale == MOXIE_F8_E8M0;
    const extent e = extent_of(&from->scale, r);
    const int power = !e.some ? 0 : bytes ? e.most - E8M0_MOST : e.most + INT_UNIT - 127, up = power > 0 ? power : 0;
    *exact = e.finite && (!e.some || e.least - up >= (bytes ? E8M0_LEAST : -126));
    return up;
}

static uint32_t multiplier(const product *p, uint32_t code, int power)
{
    if (p->quant->scale == MOXIE_F8_E4M3)
        return code;
    if (p->quant->scale == MOXIE_F8_E8M0)
        return (code + E8M0_BIAS - (uint32_t)power) & 255;
    const float value = ldexpf(bf16_value(code), INT_UNIT - power);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 16;
}

static uint32_t scale_of_multiplier(const product *p, uint32_t stored, int power)
{
    if (p->quant->scale == MOXIE_F8_E4M3)
        return stored;
    if (p->quant->scale == MOXIE_F8_E8M0)
        return (stored - E8M0_BIAS + (uint32_t)power) & 255;
    const float value = ldexpf(bf16_value(stored), power - INT_UNIT);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 16;
}

/* By which e4m3's factors differ from the global. */
static int global_shift(const moxie_quant *q)
{
    return q->global == MOXIE_GLOBAL_DIVIDE ? -E4M3_UNIT : E4M3_UNIT;
}

static float global_of(const product *p, const moxie_matrix *from, int64_t row)
{
    return p->quant->global == MOXIE_GLOBAL_NONE
               ? 1.0f
               : mox_pack_get_float(&from->global, from->global.rows == 1 ? 0 : row, 0);
}

static float row_factor(const product *p, const moxie_matrix *from, int64_t row)
{
    bool exact;
    if (p->quant->scale == MOXIE_F8_E4M3)
        return ldexpf(global_of(p, from, row), global_shift(p->quant));
    return ldexpf(1.0f, row_power(p, from, row, &exact));
}

/* ---- what the layout holds ------------------------------------------------------------------------------------ */

static bool has_row_factors(const product *p)
{
    (void)p;
    return true;
}

static void measure(const product *p, mox_hopper_matrix *m)
{
    const int64_t group = mox_group_cols(p->quant, p->cols);
    m->chunk_cols = COLS;
    m->chunk_row_bytes = ROW_BYTES;
    m->scale_bytes = (int32_t)(MOX_HOPPER_TILE_ROWS * groups_of(p) * mox_dtype_bytes(p->quant->scale));
    m->scale_shift = group >= p->cols && p->cols > COLS ? MOX_HOPPER_ONE_BLOCK : 0;
    while (group < p->cols && COLS << m->scale_shift < group)
        m->scale_shift++;
}

static const char *refuse_product(const product *p, const char *name, char *buffer, size_t size)
{
    const moxie_quant *q = p->quant;
    const int64_t group = mox_group_cols(q, p->cols);
    const bool ints = q->element == MOXIE_I4 || q->element == MOXIE_U4B8;
    const bool nvfp4 = is_float(q) && q->scale == MOXIE_F8_E4M3;
    const bool held = nvfp4 || (is_float(q) ? q->scale == MOXIE_F8_E8M0 : ints && q->scale == MOXIE_BF16);
    if (!held || q->has_zero || (q->global != MOXIE_GLOBAL_NONE && !nvfp4)) {
        char text[128];
        snprintf(buffer, size,
                 "%s has %s%s, the chunks hold f4_e2m1 with scales of f8_e8m0 or f8_e4m3, and integers of 4 bits with "
                 "scales of bf16 and without zero points",
                 name, mox_quant_describe(q, text, sizeof text), q->has_zero ? " with zero points" : "");
        return buffer;
    }
    const bool whole = group == p->cols && (q->group_cols <= 0 || q->group_cols >= COLS);
    const bool ints_fit = whole || q->group_cols == 32 || (group >= COLS && (group & (group - 1)) == 0);
    if (is_float(q) ? q->group_cols != (nvfp4 ? 16 : 32) : !ints_fit) {
        snprintf(buffer, size, "%s has scales of %lld columns, the chunks hold those of %s columns", name,
                 (long long)group,
                 nvfp4         ? "16"
                 : is_float(q) ? "32"
                               : "32, 64, 128, ... or all");
        return buffer;
    }
    return NULL;
}

/* A global whose factor, and the global back from it, are exact. */
static bool is_moderate(float global)
{
    return isnormal(global) && abs(ilogbf(global)) <= MOST_GLOBAL;
}

static bool takes_matrix(const product *p, const moxie_matrix *from, const char *name, char *reason, size_t size)
{
    for (int64_t row = 0; row < p->rows; row++)
        if (!is_moderate(global_of(p, from, row))) {
            snprintf(reason, size, "the global scale of row %lld of %s is %g, factors hold those from 2^-%d to 2^%d",
                     (long long)row, name, (double)global_of(p, from, row), MOST_GLOBAL, MOST_GLOBAL);
            return false;
        }
    for (int64_t row = 0; row < p->rows; row += mox_group_rows(p->quant, p->rows)) {
        bool exact;
        (void)row_power(p, from, row, &exact);
        if (!exact) {
            snprintf(reason, size,
                     "row %lld of %s has scales that are negative, not finite, or too far apart for one factor",
                     (long long)row, name);
            return false;
        }
    }
    return true;
}

/* ---- words ---------------------------------------------------------------------------------------------------- */

/* Where bit b of a register's half, before its word is turned back, stands: registers of e2m1. */
static uint32_t unturned(int i, uint32_t bits)
{
    static const int turns[WORDS] = { 0, 4, 10, 14 };
    const uint32_t own = i == 3 ? bits & ~UINT32_C(0x00400040) : bits, other = bits ^ own;
    const int turn = turns[i];
    return (turn == 0 ? own : own >> turn | own << (32 - turn)) | other >> 6 | other << 26;
}

/* The part of a word that the codes of a byte of two neighbours make as its register i. */
static uint32_t part_of(bool floats, int i, uint32_t byte)
{
    const uint32_t low = byte & 15, high = byte >> 4;
    if (!floats)
        return low << 4 * i | high << (16 + 4 * i);
    const uint32_t bits = (low & 8) << 12 | (low & 7) << 6 | (high & 8) << 28 | (high & 7) << 22;
    return unturned(i, bits);
}

typedef struct word_tables {
    uint32_t part[WORDS][256]; /* of register i, by byte */
} word_tables;

static void fill_tables(const moxie_quant *q, word_tables *t)
{
    const uint32_t flip = q->element == MOXIE_I4 ? 0x88 : 0; /* to codes counted from -8 */
    for (int i = 0; i < WORDS; i++)
        for (uint32_t byte = 0; byte < 256; byte++)
            t->part[i][byte] = part_of(is_float(q), i, byte ^ flip);
}

/* The byte of register i: the inverse, bit by bit. */
static uint8_t byte_of(const moxie_quant *q, uint32_t word, int i)
{
    uint8_t byte = 0;
    for (int b = 0; b < 8; b++)
        if ((word & part_of(is_float(q), i, 1U << b)) != 0)
            byte |= (uint8_t)(1U << b);
    return q->element == MOXIE_I4 ? byte ^ 0x88 : byte;
}

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

/* Eight dense rows r and eight r + 8 (NULL: none) of a chunk to a warp's words [32 lanes][4]. */
static void put_warp(const word_tables *t, const uint8_t *low, int64_t low_stride, const uint8_t *high,
                     int64_t high_stride, uint8_t *to)
{
    static const uint8_t none[ROW_BYTES];
    for (int lane = 0; lane < LANES; lane++) {
        const uint8_t *a = low != NULL ? low + lane / 4 * low_stride : none;
        const uint8_t *b = high != NULL ? high + lane / 4 * high_stride : none;
        uint32_t words[WORDS];
        for (int j = 0; j < WORDS; j++) {
            const int at = 8 * j + lane % 4;
            words[j] = (low != NULL ? t->part[0][a[at]] | t->part[2][a[at + 4]] : 0) |
                       (high != NULL ? t->part[1][b[at]] | t->part[3][b[at + 4]] : 0);
        }
        memcpy(to + lane * sizeof words, words, sizeof words);
    }
}

/* Rows from `row` on of a matrix in a chunk; NULL behind its last. */
static const uint8_t *read_rows(const mox_hopper_matrix *m, const moxie_matrix *from, int64_t row, int64_t chunk,
                                mox_tile *store, int64_t *stride)
{
    return row >= m->rows ? NULL : mox_tile_read(&from->codes, row, chunk * COLS, COLS, store, stride);
}

/* Codes of 32 product rows of a gated product from row n of the tile on (two warps), or 16 of another. */
static void pack_block(const mox_hopper_matrix *m, const word_tables *t, const moxie_matrix *const *from, int64_t tile,
                       int64_t n, uint8_t *to)
{
    mox_tile store[2];
    int64_t row, stride[2] = { 0, 0 };
    const uint64_t warp = LANES * WORDS * sizeof(uint32_t);
    (void)mox_hopper_half(m, tile * MOX_HOPPER_TILE_ROWS + n, &row);
    for (int64_t c = 0; c < m->chunks; c++) {
        uint8_t *at = to + mox_hopper_chunk_at(m, tile, c) + (uint64_t)(n / BLOCK) * warp;
        const uint8_t *rows = read_rows(m, from[0], row, c, &store[0], &stride[0]);
        const uint8_t *second = rows == NULL || row + HALF >= m->rows ? NULL : rows + HALF * stride[0];
        if (!m->gated) {
            put_warp(t, rows, stride[0], second, stride[0], at);
            continue;
        }
        const uint8_t *ups = read_rows(m, from[1], row, c, &store[1], &stride[1]);
        put_warp(t, rows, stride[0], ups, stride[1], at);
        put_warp(t, second, stride[0], second == NULL ? NULL : ups + HALF * stride[1], stride[1], at + warp);
    }
}

/* Bytes of a block of scales from its begin to those of row n of the tile: pairs of rows, then which of the two. */
static uint64_t scales_at(const mox_hopper_matrix *m, int64_t n)
{
    const int64_t pair = n / BLOCK * HALF + n % HALF, second = n % BLOCK / HALF;
    return (uint64_t)((2 * pair + second) * (m->scale_bytes / MOX_HOPPER_TILE_ROWS));
}

/* Multipliers of a row, block after block. */
static void pack_scales(const mox_hopper_matrix *m, const product *p, const moxie_matrix *from, int64_t row,
                        int64_t tile, int64_t n, uint8_t *to)
{
    bool exact;
    const int power = row_power(p, from, row, &exact);
    const int64_t r = row / mox_group_rows(p->quant, p->rows), groups = groups_of(p);
    const size_t bytes = (size_t)mox_dtype_bytes(p->quant->scale);
    for (int64_t g = 0; g < from->scale.cols; g++) {
        const uint32_t stored = multiplier(p, scale_code(&from->scale, r, g), power); /* low bytes first */
        memcpy(to + mox_hopper_block_at(m, tile, g / groups) + scales_at(m, n) + (uint64_t)(g % groups) * bytes,
               &stored, bytes);
    }
}

static void pack_tile(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, int64_t tile,
                      uint8_t *to)
{
    const int64_t rows = mox_hopper_tile_rows(m, tile);
    const uint64_t scales = mox_hopper_block_at(m, tile, 0);
    word_tables tables;
    fill_tables(p->quant, &tables);
    for (int64_t n = 0; n < rows; n += m->gated ? 2 * BLOCK : BLOCK)
        pack_block(m, &tables, from, tile, n, to);
    memset(to + scales, 0, mox_hopper_tile_bytes(m, rows) - scales);
    for (int64_t n = 0; n < rows; n++) {
        int64_t row;
        const int half = mox_hopper_half(m, tile * MOX_HOPPER_TILE_ROWS + n, &row);
        if (row < m->rows)
            pack_scales(m, p, from[half], row, tile, n, to);
    }
}

/* ---- back ----------------------------------------------------------------------------------------------------- */

/* Where row r of a matrix stands: its tile, and the row in it. */
static int64_t find_row(const mox_hopper_matrix *m, int half, int64_t r, int64_t *n)
{
    const int64_t at = mox_hopper_product_row(m, half, r);
    *n = at % MOX_HOPPER_TILE_ROWS;
    return at / MOX_HOPPER_TILE_ROWS;
}

static void unpack_codes(const mox_hopper_matrix *m, const moxie_quant *q, const uint8_t *record, int half,
                         const moxie_grid *to)
{
    uint8_t rows[BLOCK * ROW_BYTES];
    for (int64_t row = 0; row < m->rows; row += BLOCK)
        for (int64_t c = 0; c < m->chunks; c++) {
            for (int64_t r = row; r < row + BLOCK && r < m->rows; r++) {
                int64_t n;
                const int64_t tile = find_row(m, half, r, &n);
                const uint8_t *warp = record + mox_hopper_tile_at(m, tile) + mox_hopper_chunk_at(m, tile, c) +
                                      (uint64_t)(n / BLOCK) * LANES * WORDS * sizeof(uint32_t);
                for (int b = 0; b < ROW_BYTES; b++) {
                    const int lane = (int)(n % HALF) * 4 + b % 4;
                    uint32_t word;
                    memcpy(&word, warp + (size_t)(lane * WORDS + b / 8) * sizeof word, sizeof word);
                    rows[(r - row) * ROW_BYTES + b] = byte_of(q, word, (int)(n % BLOCK) / HALF + b % 8 / 4 * 2);
                }
            }
            mox_tile_write(to, row, c * COLS, COLS, rows, ROW_BYTES);
        }
}

static void unpack_matrix(const mox_hopper_matrix *m, const product *p, const uint8_t *record, int half,
                          const moxie_matrix *to)
{
    const float *factors = (const float *)(const void *)(record + m->row_scale_at);
    const int64_t group_rows = mox_group_rows(p->quant, p->rows), groups = groups_of(p);
    const size_t bytes = (size_t)mox_dtype_bytes(p->quant->scale);
    unpack_codes(m, p->quant, record, half, &to->codes);
    for (int64_t r = 0; p->quant->global != MOXIE_GLOBAL_NONE && r < to->global.rows; r++)
        mox_pack_put_float(&to->global, r, 0,
                           ldexpf(factors[mox_hopper_product_row(m, half, r)], -global_shift(p->quant)));
    for (int64_t r = 0; r < to->scale.rows; r++) {
        int64_t n;
        const int64_t tile = find_row(m, half, r * group_rows, &n);
        const int power = ilogbf(factors[mox_hopper_product_row(m, half, r * group_rows)]);
        for (int64_t g = 0; g < to->scale.cols; g++) {
            uint32_t stored = 0;
            memcpy(&stored,
                   record + mox_hopper_tile_at(m, tile) + mox_hopper_block_at(m, tile, g / groups) + scales_at(m, n) +
                       (uint64_t)(g % groups) * bytes,
                   bytes);
            mox_grid_store(&to->scale, r, g, scale_of_multiplier(p, stored, power));
        }
    }
}

/* ---- the layout ----------------------------------------------------------------------------------------------- */

const mox_hopper_order mox_hopper_fragments = {
    .measure = measure,
    .has_row_factors = has_row_factors,
    .refuse = refuse_product,
    .takes = takes_matrix,
    .pack_tile = pack_tile,
    .row_factor = row_factor,
    .unpack = unpack_matrix,
};

MOX_HOPPER_LAYOUT(mox_hopper_fragments)

const mox_layout mox_layout_hopper_codes = {
    .number = 4,
    .name = "hopper_codes",
    .summary = "codes of 4 bits in the order of registers that decode for warpgroup MMA of Hopper GPUs",
    MOX_HOPPER_FUNCTIONS,
};
