/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_accept.c - which groups and which values of scales the layouts of codes can hold (hopper_scales.h).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "pack/grid_move.h"
#include "pack/grid_tile.h"
#include "pack/hopper/hopper_codes.h"
#include "pack/hopper/hopper_scales.h"
#include "pack/panel/panel_move.h"

enum { WINDOW = MOX_HOPPER_WINDOW, MAX_FACTOR_EXPONENT = MOX_HOPPER_MAX_FACTOR };

typedef mox_hopper_product product;

static bool is_nvfp4(const moxie_quant *q)
{
    return q->element == MOXIE_F4_E2M1 && q->scale == MOXIE_F8_E4M3;
}

static bool is_supported(const product *p)
{
    const moxie_quant *q = p->quant;
    const mox_hopper_element *codes = p->element;
    if (p->to_fp8)
        return (p->has_window ? q->scale == MOXIE_F8_E8M0 : p->bits == 4 && mox_hopper_has_float_scales(p)) &&
               codes != NULL && q->global == MOXIE_GLOBAL_NONE && !q->has_zero;
    if (p->super.bits > 0)
        return true;
    if (codes == NULL || q->scale == MOXIE_DTYPE_NONE || (q->global != MOXIE_GLOBAL_NONE && !is_nvfp4(q)))
        return false;
    if (q->has_zero && !p->has_words && (q->scale != MOXIE_F16 || (p->bits > 4)))
        return false;
    return p->is_by_row || p->has_blocks || is_nvfp4(q) ||
           (codes->integer ? mox_hopper_has_float_scales(p) : q->scale == MOXIE_F8_E8M0);
}

/* Which group sizes the layout supports, in words. NULL: the size is one of them. */
static const char *other_groups(const product *p)
{
    const moxie_quant *q = p->quant;
    const int64_t group = mox_group_cols(q, p->cols);
    if (p->is_by_row || p->has_blocks || p->super.bits > 0)
        return NULL;
    if (!p->element->integer)
        return q->group_cols == (is_nvfp4(q) ? 16 : 32) ? NULL
               : is_nvfp4(q)                            ? "16"
               : p->bits == 8                           ? "32, 64, 128, 256, ... or all"
                                                        : "32";
    const bool whole = group == p->cols && (q->group_cols <= 0 || q->group_cols >= mox_hopper_chunk_cols(p));
    const bool even =
        (q->group_cols == 32 && !p->to_fp8) || (group >= mox_hopper_chunk_cols(p) && (group & (group - 1)) == 0);
    return whole || even ? NULL : p->to_fp8 ? "128, 256, ... or all" : "32, 64, 128, ... or all";
}

const char *mox_hopper_codes_reject(const product *p, const char *name, char *buffer, size_t size)
{
    const moxie_quant *q = p->quant;
    if (!is_supported(p)) {
        char text[128];
        if (p->to_fp8)
            snprintf(buffer, size,
                     "%s has %s, the chunks hold f4_e2m1 with scales of f8_e8m0 of 32 columns, and 4-bit integers with "
                     "scales of bf16",
                     name, mox_quant_describe(q, text, sizeof text));
        else
            snprintf(buffer, size,
                     "%s has %s%s, the chunks hold f4_e2m1 with scales of f8_e8m0 or f8_e4m3, f6 and f8 with f8_e8m0, "
                     "integers with f16 or bf16, f8 with scales of blocks, f8 and 8-bit integers with one scale per "
                     "row, and q4_k, q5_k, q6_k, iq4_xs",
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
                         (long long)r, (long long)g, name, mox_hopper_zero_bias(p));
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

static bool accepts_super(const product *p, const moxie_grid *codes, const char *name, char *reason, size_t size)
{
    const int64_t row = mox_hopper_block_special(&p->super, codes);
    if (row >= 0)
        snprintf(reason, size, "row %lld of %s has a block scale that is infinite or NaN", (long long)row, name);
    return row < 0;
}

static bool accepts_factors(const product *p, const moxie_matrix *from, const char *name, char *reason, size_t size)
{
    const bool by_row = p->is_by_row;
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
    if (p->super.bits > 0)
        return accepts_super(p, &from->codes, name, reason, size);
    const int64_t special = find_special(p, &from->codes);
    if (special >= 0) {
        snprintf(reason, size, "row %lld of %s has a weight that is infinite or NaN", (long long)special, name);
        return false;
    }
    if (p->has_blocks)
        return accepts_blocks(&from->scale, name, reason, size);
    for (int64_t row = 0; row < p->rows && !p->is_by_row; row += mox_group_rows(p->quant, p->rows)) {
        bool exact;
        (void)mox_hopper_row_power(p, from, row, &exact);
        if (!exact) {
            if (p->has_window)
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
