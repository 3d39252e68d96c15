/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_hopper_codes.c - layout "hopper_codes": codes of 4 bits in the order of a warpgroup MMA's registers, drawn in
 * hopper.h.
 *
 *     scales    what a row's multipliers are in units of, and whether they fit
 *     tiles     16 rows of the product at a time, which are one warp's; their words are hopper_words.c's
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
#include "pack/hopper_words.h"
#include "pack/panel_move.h"

enum { BLOCK = MOX_TILE_ROWS, HALF = MOX_HOPPER_HALF_ROWS, COLS = MOX_HOPPER_CODE_COLS, ROW_BYTES = COLS / 2 };
enum { WORDS = 4 };
enum { E8M0_BIAS = 126, E8M0_LEAST = -5, E8M0_MOST = 128 }; /* of a scale's code less p: products in bf16 are exact */
enum { E4M3_UNIT = 8, MOST_GLOBAL = 100 };                  /* exponents of factors: what multipliers lack, the limit */
enum { ZERO_BIT = 7, ZERO_SIGN = 0x8000 };                  /* a zero point in the unit of f16's codes, to be added */

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

/* A float of 16 bits as scales of integers have it. Codes come as 2^-unit times their numbers, multipliers have
 * exponents up to `most`; products of both with numbers below 16 are normal down to `least`. */
typedef struct wide_form {
    int mantissa, bias, special; /* bits; of exponents; the field of what is not finite */
    int unit, most, least;
    bool any_power; /* p may be below 0: the range is short */
} wide_form;

static const wide_form *form_of(moxie_dtype scale)
{
    static const wide_form bf16 = { 7, 127, 255, 129, 127, -126, false };
    static const wide_form f16 = { 10, 15, 31, 17, 15, -14, true };
    return scale == MOXIE_BF16 ? &bf16 : scale == MOXIE_F16 ? &f16 : NULL;
}

/* The codes of a row of scales; rows of bytes or of 16-bit words lie as such in nearly every checkpoint. */
typedef struct scale_row {
    const moxie_grid *grid;
    int64_t row;
    const uint8_t *at; /* NULL: neither */
} scale_row;

static scale_row row_of(const moxie_grid *grid, int64_t r)
{
    const uint8_t *data = (const uint8_t *)grid->data + r * grid->row_stride;
    return (scale_row) { grid, r, grid->packing.per_word == 1 ? data : NULL };
}

static uint32_t code_at(const scale_row *row, int64_t g)
{
    if (row->at == NULL)
        return mox_grid_code(row->grid, row->row, g);
    const uint8_t *at = row->at + g * row->grid->col_stride;
    return row->grid->packing.word_bytes == 1 ? at[0] : at[0] | (uint32_t)at[1] << 8;
}

static float wide_value(moxie_dtype dtype, uint32_t code)
{
    return mox_format_of(dtype)->decode((uint16_t)code);
}

/* The exponents of a row's scales, and whether all are finite; `some`: not all are 0. */
typedef struct extent {
    int least, most;
    bool some, finite;
} extent;

static void widen(extent *e, int exponent)
{
    e->least = exponent < e->least ? exponent : e->least;
    e->most = exponent > e->most ? exponent : e->most;
    e->some = true;
}

static extent extent_of_bytes(const scale_row *row)
{
    extent e = { INT32_MAX, INT32_MIN, false, true };
    for (int64_t g = 0; g < row->grid->cols; g++) {
        const uint32_t code = code_at(row, g);
        e.finite &= code != 255;
        widen(&e, (int)code);
    }
    return e;
}

static extent extent_of_floats(const scale_row *row, const wide_form *form)
{
    extent e = { INT32_MAX, INT32_MIN, false, true };
    for (int64_t g = 0; g < row->grid->cols; g++) {
        const uint32_t code = code_at(row, g) & 0x7fff;
        const int field = (int)(code >> form->mantissa);
        e.finite &= field != form->special;
        if (code != 0)
            widen(&e, field != 0 ? field - form->bias : ilogbf(wide_value(row->grid->dtype, code)));
    }
    return e;
}

/* Scales of e4m3 that are numbers, and not below 0. */
static bool are_positive(const scale_row *row)
{
    bool all = true;
    for (int64_t g = 0; g < row->grid->cols; g++)
        all &= code_at(row, g) < 0x7f;
    return all;
}

/* A row's p, and whether every multiplier is exact under it. */
static int row_power(const product *p, const moxie_matrix *from, int64_t row, bool *exact)
{
    const scale_row scales = row_of(&from->scale, row / mox_group_rows(p->quant, p->rows));
    const wide_form *form = form_of(p->quant->scale);
    if (p->quant->scale == MOXIE_F8_E4M3) {
        *exact = are_positive(&scales);
        return 0;
    }
    const extent e = form != NULL ? extent_of_floats(&scales, form) : extent_of_bytes(&scales);
    const int power = !e.some ? 0 : form != NULL ? e.most + form->unit - form->most : e.most - E8M0_MOST;
    const int kept = power > 0 || (form != NULL && form->any_power) ? power : 0;
    *exact = e.finite && (!e.some || e.least - kept >= (form != NULL ? form->least : E8M0_LEAST));
    return kept;
}

/* `code` times 2^shift, which is no subnormal number if `code` is none. */
static uint32_t shifted(moxie_dtype dtype, const wide_form *form, uint32_t code, int shift)
{
    const uint32_t magnitude = code & 0x7fff;
    if (magnitude == 0)
        return code;
    if (magnitude >> form->mantissa != 0)
        return code + ((uint32_t)shift << form->mantissa);
    return mox_format_of(dtype)->encode(ldexpf(wide_value(dtype, code), shift));
}

static uint32_t multiplier(const product *p, uint32_t code, int power)
{
    const wide_form *form = form_of(p->quant->scale);
    if (form != NULL)
        return shifted(p->quant->scale, form, code, form->unit - power);
    return p->quant->scale == MOXIE_F8_E4M3 ? code : (code + E8M0_BIAS - (uint32_t)power) & 255;
}

static uint32_t scale_of_multiplier(const product *p, uint32_t stored, int power)
{
    const wide_form *form = form_of(p->quant->scale);
    if (form != NULL)
        return mox_format_of(p->quant->scale)->encode(ldexpf(wide_value(p->quant->scale, stored), power - form->unit));
    return p->quant->scale == MOXIE_F8_E4M3 ? stored : (stored - E8M0_BIAS + (uint32_t)power) & 255;
}

/* Bytes of a scale, with its zero point behind it where there may be one. */
static size_t scale_bytes_of(const product *p)
{
    return p->quant->scale == MOXIE_F16 ? 4 : (size_t)mox_dtype_bytes(p->quant->scale);
}

/* Zero points are counted from -8, as codes are. */
static uint32_t zero_of(const product *p, const moxie_matrix *from, int64_t r, int64_t g)
{
    uint8_t zero = MOX_PANEL_ZERO_BIAS;
    if (p->quant->has_zero)
        (void)mox_panel_zero_byte(from, r, g, &zero);
    return zero;
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
    m->scale_bytes = (int32_t)(MOX_HOPPER_TILE_ROWS * groups_of(p) * (int64_t)scale_bytes_of(p));
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
    const bool held = nvfp4 || (is_float(q) ? q->scale == MOXIE_F8_E8M0 : ints && form_of(q->scale) != NULL);
    if (!held || (q->has_zero && q->scale != MOXIE_F16) || (q->global != MOXIE_GLOBAL_NONE && !nvfp4)) {
        char text[128];
        snprintf(buffer, size,
                 "%s has %s%s, the chunks hold f4_e2m1 with scales of f8_e8m0 or f8_e4m3, and integers of 4 bits with "
                 "scales of f16, or of bf16 and without zero points",
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
    for (int64_t r = 0; p->quant->has_zero && !mox_panel_has_safe_zeros(from) && r < from->zero.rows; r++)
        for (int64_t g = 0; g < from->zero.cols; g++) {
            uint8_t zero;
            if (!mox_panel_zero_byte(from, r, g, &zero)) {
                snprintf(reason, size, "the zero point at (%lld, %lld) of %s is not a whole number from -8 to 8",
                         (long long)r, (long long)g, name);
                return false;
            }
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

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

/* Rows from `row` on of a matrix in some chunks; NULL behind its last. */
static const uint8_t *read_rows(const mox_hopper_matrix *m, const moxie_matrix *from, int64_t row, int64_t chunk,
                                int chunks, mox_tile *store, int64_t *stride)
{
    return row >= m->rows ? NULL
                          : mox_tile_read(&from->codes, row, chunk * COLS, (int64_t)chunks * COLS, store, stride);
}

/* Codes of 32 product rows of a gated product from row n of the tile on (two warps), or 16 of another. */
static void pack_block(const mox_hopper_matrix *m, const moxie_quant *q, const moxie_matrix *const *from, int64_t tile,
                       int64_t n, uint8_t *to)
{
    mox_tile store[2];
    int64_t row, stride[2] = { 0, 0 };
    const uint64_t warp = MOX_HOPPER_WARP_BYTES;
    (void)mox_hopper_half(m, tile * MOX_HOPPER_TILE_ROWS + n, &row);
    for (int64_t c = 0; c < m->chunks; c += MOX_HOPPER_TOGETHER) {
        const int chunks = (int)mox_min_i64(MOX_HOPPER_TOGETHER, m->chunks - c);
        mox_hopper_warp place = { to + mox_hopper_chunk_at(m, tile, c) + (uint64_t)(n / BLOCK) * warp,
                                  (int64_t)mox_hopper_chunk_at(m, tile, 1), chunks };
        const uint8_t *rows = read_rows(m, from[0], row, c, chunks, &store[0], &stride[0]);
        const uint8_t *second = rows == NULL || row + HALF >= m->rows ? NULL : rows + HALF * stride[0];
        if (!m->gated) {
            mox_hopper_put_warp(q, rows, stride[0], second, stride[0], &place);
            continue;
        }
        const uint8_t *ups = read_rows(m, from[1], row, c, chunks, &store[1], &stride[1]);
        mox_hopper_put_warp(q, rows, stride[0], ups, stride[1], &place);
        place.to += warp;
        mox_hopper_put_warp(q, second, stride[0], second == NULL ? NULL : ups + HALF * stride[1], stride[1], &place);
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
    const size_t bytes = scale_bytes_of(p);
    const scale_row scales = row_of(&from->scale, r);
    uint8_t *at = to + mox_hopper_block_at(m, tile, 0) + scales_at(m, n);
    const uint64_t block = mox_hopper_block_at(m, tile, 1) - mox_hopper_block_at(m, tile, 0);
    for (int64_t first = 0; first < from->scale.cols; first += groups, at += block)
        for (int64_t i = 0; i < groups && first + i < from->scale.cols; i++) {
            uint32_t stored = multiplier(p, code_at(&scales, first + i), power); /* low bytes first */
            if (bytes == 4)
                stored |= (ZERO_SIGN | zero_of(p, from, r, first + i) << ZERO_BIT) << 16;
            memcpy(at + (size_t)i * bytes, &stored, bytes);
        }
}

static void pack_tile(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, int64_t tile,
                      uint8_t *to)
{
    const int64_t rows = mox_hopper_tile_rows(m, tile);
    const uint64_t scales = mox_hopper_block_at(m, tile, 0);
    for (int64_t n = 0; n < rows; n += m->gated ? 2 * BLOCK : BLOCK)
        pack_block(m, p->quant, from, tile, n, to);
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
                                      (uint64_t)(n / BLOCK) * MOX_HOPPER_WARP_BYTES;
                for (int b = 0; b < ROW_BYTES; b++) {
                    const int lane = (int)(n % HALF) * 4 + b % 4;
                    uint32_t word;
                    memcpy(&word, warp + (size_t)(lane * WORDS + b / 8) * sizeof word, sizeof word);
                    rows[(r - row) * ROW_BYTES + b] =
                        mox_hopper_byte_of(q, word, (int)(n % BLOCK) / HALF + b % 8 / 4 * 2);
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
    const size_t bytes = scale_bytes_of(p);
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
            mox_grid_store(&to->scale, r, g, scale_of_multiplier(p, stored & 0xffff, power));
            const float zero = (float)(stored >> (16 + ZERO_BIT) & 31) - (float)MOX_PANEL_ZERO_BIAS;
            if (p->quant->has_zero)
                mox_pack_put_float(&to->zero, r, g, mox_pack_plus(zero, -to->zero_add));
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
