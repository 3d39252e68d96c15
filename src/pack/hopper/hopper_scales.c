/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_scales.c - multipliers and row factors of the layouts of codes (hopper_scales.h).
 *
 *     1. row_power(): the power p of two that the row's factor takes over, so that every multiplier is exact
 *     2. scaling_of(): the change of exponent from a scale to its multiplier, the same for the whole row
 *     3. reject / accepts: which groups and which values of scales can be represented this way
 *
 * What a multiplier is for each dtype of scales is listed in hopper.h.
 */
#include "pack/hopper/hopper_scales.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sizes.h"
#include "pack/grid_move.h"
#include "pack/grid_tile.h"
#include "pack/hopper/hopper_codes.h"
#include "pack/panel/panel_move.h"

enum { WINDOW = MOX_HOPPER_WINDOW, FP8_BIAS = 133, MIN_FP8_FIELD = 7 }; /* exponent fields, in layout hopper_fp8 */
enum {
    E4M3_UNIT = 8,
    MAX_FACTOR_EXPONENT = 100
}; /* exponents of factors: the part that e4m3 multipliers leave out, and the limit */
enum { ZERO_BIT = 7, ZERO_SIGN = 0x8000 }; /* a zero point in the unit of f16 codes, negated so that it can be added */
enum {
    E8M0_BIAS = 127,
    MAX_BF16_FIELD = 254,
    MIN_BF16_EXPONENT = -133
}; /* bf16: bias, largest field, exponent of the smallest number */

typedef mox_hopper_product product;

/* ---- multipliers ---------------------------------------------------------------------------------------------- */

/* How many groups with a scale of their own lie in a chunk. */
static int64_t own_groups(const product *p)
{
    const int32_t group = p->quant->group_cols;
    return group > 0 && group < mox_hopper_chunk_cols(p) && !mox_hopper_is_by_row(p) ? mox_hopper_chunk_cols(p) / group
                                                                                     : 1;
}

int64_t mox_hopper_groups(const product *p)
{
    return mox_hopper_is_over_4_bits(p) && !mox_hopper_product_has_blocks(p) ? 2 : own_groups(p);
}

/* How 16-bit float scales of integers become multipliers. A decoded code is 2^-unit times its number. Multipliers have
 * exponents up to `max`. Products with numbers of the codes' size stay normal down to exponent `min`. */
typedef struct float16_form {
    int mantissa, bias, special; /* bits of the mantissa; bias of the exponent; exponent field of infinity and NaN */
    int unit, max, min;
    bool any_power; /* p may be negative, since the range of exponents is short */
} float16_form;

static const float16_form *form_of(const product *p)
{
    const moxie_quant *q = p->quant;
    static const float16_form bf16_of_words = { 7, 127, 255, 0, MAX_FACTOR_EXPONENT, -126, false };
    static const float16_form f16_of_words = { 10, 15, 31, 0, 15, -24, false };
    static const float16_form bf16 = { 7, 127, 255, 129, 127, -126, false };
    static const float16_form bf16_of_bytes = { 7, 127, 255, 133, 127, -126, false };
    static const float16_form f16 = { 10, 15, 31, 17, 15, -14, true };
    const bool bytes = mox_dtype_bits(q->element) == 8;
    if (mox_hopper_product_has_words(p))
        return q->scale == MOXIE_F16 ? &f16_of_words : &bf16_of_words;
    return q->scale == MOXIE_BF16 ? bytes ? &bf16_of_bytes : &bf16 : q->scale == MOXIE_F16 && !bytes ? &f16 : NULL;
}

/* One row of scales. Nearly every checkpoint stores them as bytes or 16-bit words, which are read directly. */
typedef struct scale_row {
    const moxie_grid *grid;
    int64_t row;
    const uint8_t *at; /* NULL: read through the grid */
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

/* Range of the exponents of a row's scales. `finite`: all scales are finite. `any`: some scale is not 0. */
typedef struct extent {
    int min, max;
    bool any, finite;
} extent;

static void widen(extent *e, int exponent)
{
    e->min = exponent < e->min ? exponent : e->min;
    e->max = exponent > e->max ? exponent : e->max;
    e->any = true;
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

static extent extent_of_floats(const scale_row *row, const float16_form *form)
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

/* True when all scales (e4m3) are numbers and none is negative. */
static bool are_positive(const scale_row *row)
{
    bool all = true;
    for (int64_t g = 0; g < row->grid->cols; g++)
        all &= code_at(row, g) < 0x7f;
    return all;
}

/* True when all weights are zero in the groups whose scale lies more than the window below the largest. */
static bool is_zero_below(const product *p, const moxie_matrix *from, const scale_row *scales, int greatest)
{
    const int64_t group = p->quant->group_cols, rows = mox_group_rows(p->quant, p->rows);
    uint32_t any = 0;
    for (int64_t g = 0; g < scales->grid->cols; g++) {
        const int64_t end = mox_min_i64((g + 1) * group, p->cols);
        if ((int)code_at(scales, g) > greatest - WINDOW)
            continue;
        for (int64_t r = scales->row * rows; r < mox_min_i64((scales->row + 1) * rows, p->rows); r++)
            for (int64_t k = g * group; k < end; k++)
                any |= mox_grid_code(&from->codes, r, k) & 7;
    }
    return any == 0;
}

/* Exponent field of the row's largest scale, at least what the factor can express. *exact: every other scale is within
 * the window, or its weights are zero. */
static int row_window(const product *p, const moxie_matrix *from, const scale_row *scales, bool *exact)
{
    const extent e = extent_of_bytes(scales);
    const int greatest = e.max > MIN_FP8_FIELD ? e.max : MIN_FP8_FIELD;
    *exact = e.finite && (e.min > greatest - WINDOW || is_zero_below(p, from, scales, greatest));
    return greatest;
}

/* The row's p. *exact: every multiplier is exact with it, and for float elements every product, too. */
static int row_power(const product *p, const moxie_matrix *from, int64_t row, bool *exact)
{
    const scale_row scales = row_of(&from->scale, row / mox_group_rows(p->quant, p->rows));
    const float16_form *form = form_of(p);
    if (p->to_fp8)
        return row_window(p, from, &scales, exact);
    if (p->quant->scale == MOXIE_F8_E4M3) {
        *exact = are_positive(&scales);
        return 0;
    }
    const mox_hopper_element *codes = mox_hopper_element_of(p);
    const extent e = form != NULL ? extent_of_floats(&scales, form) : extent_of_bytes(&scales);
    const int power = !e.any ? 0 : form != NULL ? e.max + form->unit - form->max : e.max + codes->unit - MAX_BF16_FIELD;
    const int used = power > 0 || (form != NULL && form->any_power) ? power : 0;
    const int min = form != NULL ? form->min : codes->fine + E8M0_BIAS + MIN_BF16_EXPONENT;
    *exact = e.finite && used <= E8M0_BIAS && (!e.any || e.min - used >= min);
    return used;
}

/* `code` times 2^shift. The result is normal if `code` is. */
static uint32_t shifted(moxie_dtype dtype, const float16_form *form, uint32_t code, int shift)
{
    const uint32_t magnitude = code & 0x7fff;
    if (magnitude == 0)
        return code;
    if (magnitude >> form->mantissa != 0)
        return code + ((uint32_t)shift << form->mantissa);
    return mox_format_of(dtype)->encode(ldexpf(wide_value(dtype, code), shift));
}

/* How scales of one row become multipliers; computed once per row. */
typedef struct scaling {
    moxie_dtype dtype;
    const float16_form *form; /* NULL: scales are bytes */
    int shift;                /* added to exponents; 0 for e4m3 */
} scaling;

static scaling scaling_of(const product *p, int power)
{
    const float16_form *form = form_of(p);
    const int unit = p->to_fp8 ? WINDOW - 1 : form != NULL ? form->unit : mox_hopper_element_of(p)->unit;
    return (scaling) { p->quant->scale, form, p->quant->scale == MOXIE_F8_E4M3 ? 0 : unit - power };
}

static uint32_t multiplier(const scaling *s, uint32_t code)
{
    return s->form != NULL ? shifted(s->dtype, s->form, code, s->shift) : (code + (uint32_t)s->shift) & 255;
}

static uint32_t scale_of_multiplier(const scaling *s, uint32_t stored)
{
    return s->form != NULL ? mox_format_of(s->dtype)->encode(ldexpf(wide_value(s->dtype, stored), -s->shift))
                           : (stored - (uint32_t)s->shift) & 255;
}

/* The multiplier of rows whose scale is the factor, as an exponent byte: 2^unit, or the largest there is; with a zero
 * point 1, as a 16-bit float. *missing: exponent of what it falls short of 2^unit. */
static uint32_t row_multiplier(const product *p, int *missing)
{
    if (p->quant->has_zero) {
        *missing = 0;
        return mox_format_of(p->quant->scale == MOXIE_F16 ? MOXIE_F16 : MOXIE_BF16)->encode(1.0f);
    }
    const int field = mox_hopper_element_of(p)->unit + E8M0_BIAS;
    *missing = field > MAX_BF16_FIELD ? field - MAX_BF16_FIELD : 0;
    return (uint32_t)(field - *missing);
}

/* Bytes of a multiplier, with the zero point behind it where there is one. */
size_t mox_hopper_scale_bytes(const product *p)
{
    if (mox_hopper_is_by_row(p) && !p->quant->has_zero)
        return 1;
    const bool words =
        p->quant->scale == MOXIE_F16 || mox_hopper_product_has_blocks(p) || mox_hopper_product_has_words(p);
    return words ? 4 : (size_t)mox_dtype_bytes(p->quant->scale);
}

/* Zero points are counted from -8 or -128, like codes. */
static uint8_t zero_bias(const product *p)
{
    return mox_hopper_is_over_4_bits(p) ? MOX_PANEL_ZERO_BIAS_8 : MOX_PANEL_ZERO_BIAS;
}

/* The zero point as a word has it, and the inverse. */
static uint32_t stored_zero(const product *p, const moxie_matrix *from, int64_t r, int64_t g)
{
    uint8_t zero = zero_bias(p);
    if (p->quant->has_zero)
        (void)mox_panel_zero_byte(from, r, g, &zero);
    return mox_hopper_is_over_4_bits(p) ? zero : ZERO_SIGN | (uint32_t)zero << ZERO_BIT;
}

static float zero_of(const product *p, uint32_t stored)
{
    return (float)(mox_hopper_is_over_4_bits(p) ? stored : stored >> ZERO_BIT & 31) - (float)zero_bias(p);
}

/* The zero point of the word at `word`, back to row r and group g. */
static void put_zero(const product *p, const uint8_t *word, int64_t r, int64_t g, const moxie_matrix *to)
{
    uint32_t stored;
    memcpy(&stored, word, sizeof stored);
    mox_pack_put_float(&to->zero, r, g, mox_pack_plus(zero_of(p, stored >> 16), -to->zero_add));
}

/* The f32 scales of row r of the grid, a block each. */
static void put_blocks(const moxie_grid *scales, int64_t r, uint8_t *to, uint64_t apart)
{
    for (int64_t g = 0; g < scales->cols; g++, to += apart) {
        const float scale = mox_pack_get_float(scales, r, g);
        memcpy(to, &scale, sizeof scale);
    }
}

static void get_blocks(const uint8_t *from, uint64_t apart, int64_t r, const moxie_grid *to)
{
    for (int64_t g = 0; g < to->cols; g++, from += apart) {
        float scale;
        memcpy(&scale, from, sizeof scale);
        mox_pack_put_float(to, r, g, scale);
    }
}

void mox_hopper_put_scales(const product *p, const moxie_matrix *from, int64_t row, uint8_t *to, uint64_t apart)
{
    bool exact;
    int missing;
    const int64_t r = row / mox_group_rows(p->quant, p->rows), own = own_groups(p), copies = mox_hopper_groups(p) / own;
    const size_t bytes = mox_hopper_scale_bytes(p);
    if (mox_hopper_is_by_row(p)) {
        uint32_t stored = row_multiplier(p, &missing);
        if (p->quant->has_zero)
            stored |= stored_zero(p, from, r, 0) << 16;
        for (int64_t i = 0; i < copies; i++)
            memcpy(to + (size_t)i * bytes, &stored, bytes);
        return;
    }
    if (mox_hopper_product_has_blocks(p)) {
        put_blocks(&from->scale, r, to, apart);
        return;
    }
    const scaling by = scaling_of(p, row_power(p, from, row, &exact));
    const scale_row scales = row_of(&from->scale, r);
    for (int64_t first = 0; first < from->scale.cols; first += own, to += apart)
        for (int64_t i = 0; i < own * copies && first + i / copies < from->scale.cols; i++) {
            const int64_t g = first + i / copies;
            uint32_t stored = multiplier(&by, code_at(&scales, g)); /* low bytes first */
            if (bytes == 4)
                stored |= stored_zero(p, from, r, g) << 16;
            memcpy(to + (size_t)i * bytes, &stored, bytes);
        }
}

void mox_hopper_get_scales(const product *p, const uint8_t *from, uint64_t apart, float factor, int64_t r,
                           const moxie_matrix *to)
{
    const int64_t own = own_groups(p), copies = mox_hopper_groups(p) / own;
    const size_t bytes = mox_hopper_scale_bytes(p);
    int missing;
    if (mox_hopper_is_by_row(p)) {
        (void)row_multiplier(p, &missing);
        mox_pack_put_float(&to->scale, r, 0, ldexpf(factor, -missing));
        if (p->quant->has_zero)
            put_zero(p, from, r, 0, to);
        return;
    }
    if (mox_hopper_product_has_blocks(p)) {
        get_blocks(from, apart, r, &to->scale);
        return;
    }
    const scaling by = scaling_of(p, ilogbf(factor) + (p->to_fp8 ? FP8_BIAS : 0));
    for (int64_t g = 0; g < to->scale.cols; g++) {
        uint32_t stored = 0;
        const uint8_t *at = from + (uint64_t)(g / own) * apart + (uint64_t)(g % own * copies) * bytes;
        memcpy(&stored, at, bytes);
        mox_grid_store(&to->scale, r, g, scale_of_multiplier(&by, stored & 0xffff));
        if (p->quant->has_zero)
            put_zero(p, at, r, g, to);
    }
}

/* ---- factors -------------------------------------------------------------------------------------------------- */

/* Exponent between the row factor and the global scale, for e4m3 scales. */
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

float mox_hopper_global_of(const product *p, float factor)
{
    return ldexpf(factor, -global_shift(p->quant));
}

float mox_hopper_codes_factor(const product *p, const moxie_matrix *from, int64_t row)
{
    bool exact;
    int missing;
    if (mox_hopper_is_by_row(p)) {
        (void)row_multiplier(p, &missing);
        return ldexpf(mox_pack_get_float(&from->scale, row / mox_group_rows(p->quant, p->rows), 0), missing);
    }
    if (mox_hopper_product_has_blocks(p))
        return 1.0f;
    if (p->quant->scale == MOXIE_F8_E4M3)
        return ldexpf(global_of(p, from, row), global_shift(p->quant));
    return ldexpf(1.0f, row_power(p, from, row, &exact) - (p->to_fp8 ? FP8_BIAS : 0));
}

/* ---- what the layout holds ------------------------------------------------------------------------------------ */

static bool is_nvfp4(const moxie_quant *q)
{
    return q->element == MOXIE_F4_E2M1 && q->scale == MOXIE_F8_E4M3;
}

static bool is_supported(const product *p)
{
    const moxie_quant *q = p->quant;
    const mox_hopper_element *codes = mox_hopper_element_of(p);
    if (p->to_fp8)
        return q->element == MOXIE_F4_E2M1 && q->scale == MOXIE_F8_E8M0 && q->global == MOXIE_GLOBAL_NONE &&
               !q->has_zero;
    if (codes == NULL || q->scale == MOXIE_DTYPE_NONE || (q->global != MOXIE_GLOBAL_NONE && !is_nvfp4(q)))
        return false;
    if (q->has_zero && !mox_hopper_product_has_words(p) && (q->scale != MOXIE_F16 || mox_hopper_is_over_4_bits(p)))
        return false;
    return mox_hopper_is_by_row(p) || mox_hopper_product_has_blocks(p) || is_nvfp4(q) ||
           (codes->integer ? form_of(p) != NULL : q->scale == MOXIE_F8_E8M0);
}

/* Which group sizes the layout supports, in words. NULL: the size is one of them. */
static const char *other_groups(const product *p)
{
    const moxie_quant *q = p->quant;
    const int64_t group = mox_group_cols(q, p->cols);
    if (mox_hopper_is_by_row(p) || mox_hopper_product_has_blocks(p))
        return NULL;
    if (!mox_hopper_element_of(p)->integer)
        return q->group_cols == (is_nvfp4(q) ? 16 : 32) ? NULL
               : is_nvfp4(q)                            ? "16"
               : mox_dtype_bits(q->element) == 8        ? "32, 64, 128, 256, ... or all"
                                                        : "32";
    const bool whole = group == p->cols && (q->group_cols <= 0 || q->group_cols >= mox_hopper_chunk_cols(p));
    const bool even = q->group_cols == 32 || (group >= mox_hopper_chunk_cols(p) && (group & (group - 1)) == 0);
    return whole || even ? NULL : "32, 64, 128, ... or all";
}

const char *mox_hopper_codes_reject(const product *p, const char *name, char *buffer, size_t size)
{
    const moxie_quant *q = p->quant;
    if (!is_supported(p)) {
        char text[128];
        if (p->to_fp8)
            snprintf(buffer, size, "%s has %s, the chunks hold f4_e2m1 with scales of f8_e8m0 of 32 columns", name,
                     mox_quant_describe(q, text, sizeof text));
        else
            snprintf(
                buffer, size,
                "%s has %s%s, the chunks hold f4_e2m1 with scales of f8_e8m0 or f8_e4m3, f6 and f8 with f8_e8m0, "
                "integers with f16 or bf16, f8 with scales of blocks, and f8 and 8-bit integers with one scale per row",
                name, mox_quant_describe(q, text, sizeof text), q->has_zero ? " with zero points" : "");
        return buffer;
    }
    const char *others = other_groups(p);
    if (others != NULL) {
        snprintf(buffer, size, "%s has scales of %lld columns, the chunks hold those of %s columns", name,
                 (long long)mox_group_cols(q, p->cols), others);
        return buffer;
    }
    return NULL;
}

/* True when the factor made from x, and x made from the factor, are exact. */
static bool is_moderate(float x)
{
    return isnormal(x) && abs(ilogbf(x)) <= MAX_FACTOR_EXPONENT;
}

static bool has_safe_zeros(const product *p, const moxie_matrix *from, const char *name, char *reason, size_t size)
{
    for (int64_t r = 0; p->quant->has_zero && !mox_panel_has_safe_zeros(from) && r < from->zero.rows; r++)
        for (int64_t g = 0; g < from->zero.cols; g++) {
            uint8_t zero;
            if (!mox_panel_zero_byte(from, r, g, &zero)) {
                snprintf(reason, size, "the zero point at (%lld, %lld) of %s is not a whole number from -%d on",
                         (long long)r, (long long)g, name, zero_bias(p));
                return false;
            }
        }
    return true;
}

/* The first row with an f8 code that is NaN or infinite, or -1. Decoding would make a finite bf16 of it. */
static int64_t find_special(const product *p, const moxie_grid *codes)
{
    const uint8_t first = p->quant->element == MOXIE_F8_E4M3 ? 0x7f : 0x7c;
    mox_tile store;
    if (p->quant->element != MOXIE_F8_E4M3 && p->quant->element != MOXIE_F8_E5M2)
        return -1;
    for (int64_t row = 0; row < codes->rows; row += MOX_TILE_ROWS)
        for (int64_t col = 0; col < codes->cols; col += MOX_TILE_COLS) {
            int64_t stride;
            const uint8_t *rows = mox_tile_read(codes, row, col, MOX_TILE_COLS, &store, &stride);
            for (int64_t r = row; r < row + MOX_TILE_ROWS && r < codes->rows; r++, rows += stride) {
                int any = 0;
                for (int i = 0; i < MOX_TILE_COLS; i++)
                    any |= (rows[i] & 0x7f) >= first;
                if (any)
                    return r;
            }
        }
    return -1;
}

/* Kernels multiply by the product of a block's scale and a token's, which must be a number. */
static bool accepts_blocks(const moxie_grid *scales, const char *name, char *reason, size_t size)
{
    for (int64_t r = 0; r < scales->rows; r++)
        for (int64_t g = 0; g < scales->cols; g++) {
            const float x = mox_pack_get_float(scales, r, g);
            if (is_moderate(x) || x == 0)
                continue;
            snprintf(reason, size, "scale (%lld, %lld) of %s is %g, scales of blocks can be from 2^-%d to 2^%d",
                     (long long)r, (long long)g, name, (double)x, MAX_FACTOR_EXPONENT, MAX_FACTOR_EXPONENT);
            return false;
        }
    return true;
}

static bool accepts_factors(const product *p, const moxie_matrix *from, const char *name, char *reason, size_t size)
{
    const bool by_row = mox_hopper_is_by_row(p);
    const moxie_grid *grid = by_row ? &from->scale : &from->global;
    const bool any = by_row || p->quant->global != MOXIE_GLOBAL_NONE;
    for (int64_t r = 0; any && r < grid->rows; r++) {
        const float x = mox_pack_get_float(grid, r, 0);
        if (is_moderate(x) || (by_row && x == 0))
            continue;
        snprintf(reason, size, "%s scale %lld of %s is %g, row factors can be from 2^-%d to 2^%d",
                 by_row ? "row" : "global", (long long)r, name, (double)x, MAX_FACTOR_EXPONENT, MAX_FACTOR_EXPONENT);
        return false;
    }
    return true;
}

bool mox_hopper_codes_accept(const product *p, const moxie_matrix *from, const char *name, char *reason, size_t size)
{
    if (!accepts_factors(p, from, name, reason, size) || !has_safe_zeros(p, from, name, reason, size))
        return false;
    const int64_t special = find_special(p, &from->codes);
    if (special >= 0) {
        snprintf(reason, size, "row %lld of %s has a weight that is infinite or NaN", (long long)special, name);
        return false;
    }
    if (mox_hopper_product_has_blocks(p))
        return accepts_blocks(&from->scale, name, reason, size);
    for (int64_t row = 0; row < p->rows && !mox_hopper_is_by_row(p); row += mox_group_rows(p->quant, p->rows)) {
        bool exact;
        (void)row_power(p, from, row, &exact);
        if (!exact) {
            if (p->to_fp8)
                snprintf(reason, size, "row %lld of %s has scales that are NaN, or not within %d powers of two",
                         (long long)row, name, WINDOW);
            else
                snprintf(reason, size,
                         "row %lld of %s has scales that are negative, not finite, or too far apart for one row factor",
                         (long long)row, name);
            return false;
        }
    }
    return true;
}
