/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_scales.c - multipliers and row factors of the layouts of codes (hopper_scales.h).
 *
 *     1. mox_hopper_row_power(): the power p of two that the row's factor takes over, so that every multiplier is exact
 *     2. scaling_of(): the change of exponent from a scale to its multiplier, the same for the whole row
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
enum { E4M3_UNIT = 8, MAX_FACTOR_EXPONENT = MOX_HOPPER_MAX_FACTOR };    /* E4M3_UNIT: what e4m3 multipliers leave out */
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
    return group > 0 && group < mox_hopper_chunk_cols(p) && !p->is_by_row ? mox_hopper_chunk_cols(p) / group : 1;
}

int64_t mox_hopper_groups(const product *p)
{
    return p->bits > 4 && !p->has_blocks ? 2 : own_groups(p);
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
    static const float16_form bf16_of_fp8 = { 7, 127, 255, 2, MAX_FACTOR_EXPONENT, -126, false };
    static const float16_form f16 = { 10, 15, 31, 17, 15, -14, true };
    const bool bytes = p->bits == 8;
    if (p->to_fp8)
        return q->scale == MOXIE_BF16 ? &bf16_of_fp8 : NULL;
    if (p->has_words)
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

enum { CODES_AT_ONCE = 512 };

/* Codes of groups `first` .. first + count - 1, count up to CODES_AT_ONCE, dense. */
static void read_codes(const scale_row *row, int64_t first, int64_t count, uint16_t *codes)
{
    const int64_t step = row->grid->col_stride;
    const int word = row->at != NULL ? row->grid->packing.word_bytes : 0;
    const uint8_t *at = word != 0 ? row->at + first * step : NULL;
    if (word == 1 && step == 1)
        for (int64_t i = 0; i < count; i++)
            codes[i] = at[i];
    else if (word == 2 && step == 2)
        for (int64_t i = 0; i < count; i++)
            codes[i] = (uint16_t)(at[2 * i] | at[2 * i + 1] << 8);
    else
        for (int64_t i = 0; i < count; i++)
            codes[i] = (uint16_t)code_at(row, first + i);
}

/* The smallest and the largest code of a row without its bits outside `mask`. `any`: there is one that is not 0.
 * `min_any`: the smallest that is not 0. */
typedef struct range {
    uint32_t min, min_any, max;
    bool any;
} range;

static range range_of(const scale_row *row, uint16_t mask)
{
    uint16_t codes[CODES_AT_ONCE], min = UINT16_MAX, max = 0, below = UINT16_MAX; /* below: the smallest, less 1 */
    for (int64_t first = 0; first < row->grid->cols; first += CODES_AT_ONCE) {
        const int64_t count = mox_min_i64(CODES_AT_ONCE, row->grid->cols - first);
        read_codes(row, first, count, codes);
        for (int64_t i = 0; i < count; i++) {
            const uint16_t code = codes[i] & mask, less = (uint16_t)(code - 1); /* of 0 the largest number */
            min = code < min ? code : min;
            max = code > max ? code : max;
            below = less < below ? less : below;
        }
    }
    return (range) { min, below + 1u, max, max != 0 };
}

/* Range of the exponents of a row's scales. `finite`: all scales are finite. `any`: some scale is not 0. */
typedef struct extent {
    int min, max;
    bool any, finite;
} extent;

static extent extent_of_bytes(const scale_row *row)
{
    const range r = range_of(row, UINT16_MAX);
    return (extent) { (int)r.min, (int)r.max, row->grid->cols > 0, r.max != 255 };
}

/* Exponents grow with magnitudes, so the extremes have the extreme ones. */
static extent extent_of_floats(const scale_row *row, const float16_form *form)
{
    const range r = range_of(row, 0x7fff);
    const uint32_t ends[] = { r.min_any, r.max };
    extent e = { 0, 0, r.any, (int)(r.max >> form->mantissa) != form->special };
    for (int i = 0; i < 2 && r.any; i++) {
        const int field = (int)(ends[i] >> form->mantissa);
        *(i == 0 ? &e.min : &e.max) = field != 0 ? field - form->bias : ilogbf(wide_value(row->grid->dtype, ends[i]));
    }
    return e;
}

/* True when all scales (e4m3) are numbers and none is negative. */
static bool are_positive(const scale_row *row)
{
    return range_of(row, UINT16_MAX).max < 0x7f;
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
int mox_hopper_row_power(const product *p, const moxie_matrix *from, int64_t row, bool *exact)
{
    const scale_row scales = row_of(&from->scale, row / mox_group_rows(p->quant, p->rows));
    const float16_form *form = form_of(p);
    if (p->has_window)
        return row_window(p, from, &scales, exact);
    if (p->quant->scale == MOXIE_F8_E4M3) {
        *exact = are_positive(&scales);
        return 0;
    }
    const mox_hopper_element *codes = p->element;
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
    const int unit = p->has_window ? WINDOW - 1 : form != NULL ? form->unit : p->element->unit;
    return (scaling) { p->quant->scale, form, p->quant->scale == MOXIE_F8_E4M3 ? 0 : unit - power };
}

/* Codes of scales become multipliers. Nearly all rows have no subnormal scale, and are added to side by side. */
static void multiply(const scaling *s, uint16_t *codes, int64_t count)
{
    const float16_form *form = s->form;
    if (form == NULL) {
        for (int64_t i = 0; i < count; i++)
            codes[i] = (uint16_t)(codes[i] + s->shift) & 255;
        return;
    }
    const uint16_t add = (uint16_t)((uint32_t)s->shift << form->mantissa), normal = (uint16_t)(1u << form->mantissa);
    uint16_t subnormals = 0;
    for (int64_t i = 0; i < count; i++)
        subnormals |= (uint16_t)((codes[i] & 0x7fff) - 1) < (uint16_t)(normal - 1) ? 1 : 0;
    for (int64_t i = 0; i < count && !subnormals; i++)
        codes[i] = (uint16_t)(codes[i] + ((codes[i] & 0x7fff) != 0 ? add : 0));
    for (int64_t i = 0; i < count && subnormals; i++)
        codes[i] = (uint16_t)shifted(s->dtype, form, codes[i], s->shift);
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
    const int field = p->element->unit + E8M0_BIAS;
    *missing = field > MAX_BF16_FIELD ? field - MAX_BF16_FIELD : 0;
    return (uint32_t)(field - *missing);
}

/* Bytes of a multiplier, with the zero point behind it where there is one. */
size_t mox_hopper_scale_bytes(const product *p)
{
    if (p->is_by_row && !p->quant->has_zero)
        return 1;
    const bool words = p->quant->scale == MOXIE_F16 || p->has_blocks || p->has_words;
    return words ? 4 : (size_t)mox_dtype_bytes(p->quant->scale);
}

/* Zero points are counted from -8 or -128, like codes. */
uint8_t mox_hopper_zero_bias(const product *p)
{
    return (p->bits > 4) ? MOX_PANEL_ZERO_BIAS_8 : MOX_PANEL_ZERO_BIAS;
}

/* The zero point as a word has it, and the inverse. Nearly all zero points are 4-bit codes, perhaps stored less 1. */
static uint32_t stored_zero(const product *p, const moxie_matrix *from, int64_t r, int64_t g)
{
    uint8_t zero = mox_hopper_zero_bias(p);
    if (p->quant->has_zero && !(p->bits > 4) && mox_panel_has_safe_zeros(from))
        zero = (uint8_t)((mox_grid_short_code(&from->zero, r, g, 4) ^ (from->zero.dtype == MOXIE_I4 ? 8 : 0)) +
                         (from->zero_add != 0));
    else if (p->quant->has_zero)
        (void)mox_panel_zero_byte(from, r, g, &zero);
    return (p->bits > 4) ? zero : ZERO_SIGN | (uint32_t)zero << ZERO_BIT;
}

static float zero_of(const product *p, uint32_t stored)
{
    return (float)((p->bits > 4) ? stored : stored >> ZERO_BIT & 31) - (float)mox_hopper_zero_bias(p);
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

/* Where multipliers of a row go: `width` bytes in a block, which are `own` groups, each `copies` times. CODES_AT_ONCE
 * is a multiple of `own`. */
typedef struct places {
    uint8_t *to;
    uint64_t apart; /* from block to block */
    int64_t own, copies;
    size_t bytes, width;
} places;

static inline void scatter_of(uint8_t *to, uint64_t apart, const uint8_t *from, int64_t bytes, int64_t width)
{
    for (; bytes >= width; bytes -= width, from += width, to += apart)
        memcpy(to, from, (size_t)width);
    memcpy(to, from, (size_t)bytes); /* of a last block that is not full */
}

/* Dense bytes to one block after the other. The width is a constant in each call, so copies are loads and stores. */
static void scatter(const places *p, int64_t first, const void *dense, int64_t bytes)
{
    uint8_t *to = p->to + (uint64_t)(first / p->own) * p->apart;
    switch (p->width) {
    case 1: scatter_of(to, p->apart, dense, bytes, 1); break;
    case 2: scatter_of(to, p->apart, dense, bytes, 2); break;
    case 4: scatter_of(to, p->apart, dense, bytes, 4); break;
    case 8: scatter_of(to, p->apart, dense, bytes, 8); break;
    default: scatter_of(to, p->apart, dense, bytes, (int64_t)p->width); break;
    }
}

/* Multipliers `codes` of groups `first` .. first + count - 1, behind each of a word its zero point. */
static void put_multipliers(const product *p, const moxie_matrix *from, int64_t r, const places *place,
                            const uint16_t *codes, int64_t first, int64_t count)
{
    uint8_t dense[CODES_AT_ONCE * 2 * sizeof(uint32_t)];
    const int64_t copies = place->copies, bytes = (int64_t)place->bytes;
    if (bytes == 2 && copies == 1) { /* low bytes first, as everywhere */
        scatter(place, first, codes, count * 2);
        return;
    }
    for (int64_t i = 0; i < count && bytes == 1 && copies == 1; i++)
        dense[i] = (uint8_t)codes[i];
    for (int64_t i = 0; i < count && (bytes != 1 || copies != 1); i++) {
        const uint32_t word = codes[i] | (bytes == 4 ? stored_zero(p, from, r, first + i) << 16 : 0);
        for (int64_t c = 0; c < copies; c++)
            memcpy(dense + (i * copies + c) * bytes, &word, (size_t)bytes);
    }
    scatter(place, first, dense, count * copies * bytes);
}

void mox_hopper_put_scales(const product *p, const moxie_matrix *from, int64_t row, uint8_t *to, uint64_t apart)
{
    bool exact;
    int missing;
    const int64_t r = row / mox_group_rows(p->quant, p->rows), own = own_groups(p), copies = mox_hopper_groups(p) / own;
    const size_t bytes = mox_hopper_scale_bytes(p);
    if (p->is_by_row) {
        uint32_t stored = row_multiplier(p, &missing);
        if (p->quant->has_zero)
            stored |= stored_zero(p, from, r, 0) << 16;
        for (int64_t i = 0; i < copies; i++)
            memcpy(to + (size_t)i * bytes, &stored, bytes);
        return;
    }
    if (p->has_blocks) {
        put_blocks(&from->scale, r, to, apart);
        return;
    }
    const scaling by = scaling_of(p, mox_hopper_row_power(p, from, row, &exact));
    const scale_row scales = row_of(&from->scale, r);
    const places place = { to, apart, own, copies, bytes, (size_t)(own * copies) * bytes };
    for (int64_t first = 0; first < from->scale.cols; first += CODES_AT_ONCE) {
        const int64_t count = mox_min_i64(CODES_AT_ONCE, from->scale.cols - first);
        uint16_t codes[CODES_AT_ONCE];
        read_codes(&scales, first, count, codes);
        multiply(&by, codes, count);
        put_multipliers(p, from, r, &place, codes, first, count);
    }
}

void mox_hopper_get_scales(const product *p, const uint8_t *from, uint64_t apart, float factor, int64_t r,
                           const moxie_matrix *to)
{
    const int64_t own = own_groups(p), copies = mox_hopper_groups(p) / own;
    const size_t bytes = mox_hopper_scale_bytes(p);
    int missing;
    if (p->is_by_row) {
        (void)row_multiplier(p, &missing);
        mox_pack_put_float(&to->scale, r, 0, ldexpf(factor, -missing));
        if (p->quant->has_zero)
            put_zero(p, from, r, 0, to);
        return;
    }
    if (p->has_blocks) {
        get_blocks(from, apart, r, &to->scale);
        return;
    }
    const scaling by = scaling_of(p, ilogbf(factor) + (p->has_window ? FP8_BIAS : 0));
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
    return p->super.bits > 0 ? factor : ldexpf(factor, -global_shift(p->quant));
}

float mox_hopper_codes_factor(const product *p, const moxie_matrix *from, int64_t row)
{
    bool exact;
    int missing;
    if (p->super.bits > 0)
        return global_of(p, from, row);
    if (p->is_by_row) {
        (void)row_multiplier(p, &missing);
        return ldexpf(mox_pack_get_float(&from->scale, row / mox_group_rows(p->quant, p->rows), 0), missing);
    }
    if (p->has_blocks)
        return 1.0f;
    if (p->quant->scale == MOXIE_F8_E4M3)
        return ldexpf(global_of(p, from, row), global_shift(p->quant));
    return ldexpf(1.0f, mox_hopper_row_power(p, from, row, &exact) - (p->has_window ? FP8_BIAS : 0));
}

bool mox_hopper_has_float_scales(const product *p)
{
    return form_of(p) != NULL;
}
