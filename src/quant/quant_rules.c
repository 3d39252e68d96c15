/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_rules.c - which moxie_quant is valid, and its description in messages.
 *
 *     weights       a plain float (f32, f16, bf16) without scale, or a block type, with or without a global, or
 *                   an element with a scale per group, integers with or without zero points, with or without a global
 *     activations   NONE, or what a row of act_quant.c quantizes
 *
 * Everything that reads a layer's configuration calls these checks first. A description that passes can be used with
 * mox_matrix_weight() and mox_act_quant_row() without further checks.
 */
#include "quant/quant.h"

#include <stdio.h>

const char *mox_quant_dtype_name(moxie_dtype dtype)
{
    const mox_format *format = mox_format_of(dtype);
    return format ? format->name : dtype == MOXIE_DTYPE_NONE ? "none" : "?";
}

static bool is_wide_float(moxie_dtype dtype)
{
    return dtype == MOXIE_F32 || dtype == MOXIE_F16 || dtype == MOXIE_BF16;
}

bool mox_quant_is_scale(moxie_dtype dtype)
{
    return is_wide_float(dtype) || dtype == MOXIE_F8_E4M3 || dtype == MOXIE_F8_E8M0;
}

bool mox_quant_is_plain(const moxie_quant *quant)
{
    return is_wide_float(quant->element) && quant->scale == MOXIE_DTYPE_NONE;
}

bool mox_quant_is_block(const moxie_quant *quant)
{
    return mox_is_block(quant->element);
}

bool mox_quant_is_none(const moxie_quant *quant)
{
    return quant->element == MOXIE_DTYPE_NONE;
}

/* Enumerations and extents, the same for weights and activations. */
static moxie_status check_ranges(const moxie_quant *quant, const char *what, moxie_error *error)
{
    MOX_FAIL_IF(quant->group_rows < -1 || quant->group_cols < -1, MOXIE_ERR_ARGUMENT, error,
                "%s: groups of %d x %d; an extent is positive, -1 for all, or 0 for the default", what,
                (int)quant->group_rows, (int)quant->group_cols);
    MOX_FAIL_IF(quant->global < MOXIE_GLOBAL_NONE || quant->global > MOXIE_GLOBAL_DIVIDE, MOXIE_ERR_ARGUMENT, error,
                "%s: global kind %d is unknown; use 0 (none), 1 (multiply) or 2 (divide)", what, (int)quant->global);
    MOX_FAIL_IF(quant->rule < MOXIE_RULE_DEFAULT || quant->rule > MOXIE_RULE_INVERSE, MOXIE_ERR_ARGUMENT, error,
                "%s: scale rule %d is unknown; the rules are 0 to %d", what, (int)quant->rule, MOXIE_RULE_INVERSE);
    MOX_FAIL_IF(quant->rounding < MOXIE_ROUND_EVEN || quant->rounding > MOXIE_ROUND_TRUNCATE, MOXIE_ERR_ARGUMENT, error,
                "%s: rounding %d is unknown; the roundings are 0 to %d", what, (int)quant->rounding,
                MOXIE_ROUND_TRUNCATE);
    return MOXIE_OK;
}

/* An unscaled element: nothing that belongs to scales may be set. */
static moxie_status check_unscaled(const moxie_quant *quant, const char *what, moxie_error *error)
{
    const char *element = mox_quant_dtype_name(quant->element);
    MOX_FAIL_IF(quant->scale != MOXIE_DTYPE_NONE, MOXIE_ERR_ARGUMENT, error,
                "%s: element %s with scales of dtype %s; only elements of 8 bits and fewer have scales", what, element,
                mox_quant_dtype_name(quant->scale));
    const bool has_global = quant->global != MOXIE_GLOBAL_NONE && !mox_quant_is_block(quant);
    MOX_FAIL_IF(quant->has_zero || has_global || quant->is_static, MOXIE_ERR_ARGUMENT, error,
                "%s: element %s has no zero points, no global and no static scale; leave these fields zero", what,
                element);
    return MOXIE_OK;
}

moxie_status mox_quant_check_weight(const moxie_quant *quant, const char *what, moxie_error *error)
{
    const mox_format *element = mox_format_of(quant->element);
    MOX_TRY(check_ranges(quant, what, error));
    MOX_FAIL_IF(
        quant->element == 0, MOXIE_ERR_ARGUMENT, error,
        "%s: its number format (element) is not set; of unquantized weights it is that of the tensor, such as bf16",
        what);
    MOX_FAIL_IF(!element || element->kind == MOX_KIND_EXPONENT, MOXIE_ERR_ARGUMENT, error,
                "%s: dtype %d (%s) is no weight element; use a float or integer format of moxie.h", what,
                (int)quant->element, mox_quant_dtype_name(quant->element));
    if (is_wide_float(quant->element) || mox_quant_is_block(quant))
        return check_unscaled(quant, what, error);
    MOX_FAIL_IF(!mox_quant_is_scale(quant->scale), MOXIE_ERR_ARGUMENT, error,
                "%s: %s weights with scales of dtype %d (%s); a scale is f32, f16, bf16, f8_e4m3 or f8_e8m0 (weights "
                "without one: give a single f32 scale of 1 for all)",
                what, element->name, (int)quant->scale, mox_quant_dtype_name(quant->scale));
    MOX_FAIL_IF(quant->has_zero && element->kind != MOX_KIND_INTEGER, MOXIE_ERR_ARGUMENT, error,
                "%s: zero points with %s weights; only integers have them", what, element->name);
    MOX_FAIL_IF(quant->is_static, MOXIE_ERR_ARGUMENT, error,
                "%s: is_static is set; it says where activations' scales come from and is zero for weights", what);
    return MOXIE_OK;
}

moxie_status mox_quant_check_act(const moxie_quant *quant, const char *what, moxie_error *error)
{
    MOX_TRY(check_ranges(quant, what, error));
    if (mox_quant_is_none(quant))
        return check_unscaled(quant, what, error);
    MOX_FAIL_IF(
        mox_quant_is_plain(quant), MOXIE_ERR_ARGUMENT, error,
        "%s: activations of element %s; unquantized activations have element NONE and come in the layer's dtype", what,
        mox_quant_dtype_name(quant->element));
    char text[128];
    MOX_FAIL_IF(
        !mox_act_quant_is_defined(quant), MOXIE_ERR_UNSUPPORTED, error,
        "%s: no quantizer makes activations of %s; there are f8 and i8 with f32 scales (per tensor, per token, "
        "per 1xG), f8, f6 and f4 with f8_e8m0 scales per 1xG, f4_e2m1 with f8_e4m3 scales per 1xG; static scales "
        "are per tensor, zero points not offered (docs/quantizers.md)",
        what, mox_quant_describe(quant, text, sizeof text));
    return MOXIE_OK;
}

/* ---- text --------------------------------------------------------------------------------------- */

static void describe_extent(int32_t extent, char out[12])
{
    if (extent > 0)
        snprintf(out, 12, "%d", (int)extent);
    else
        snprintf(out, 12, "*");
}

static void describe_groups(const moxie_quant *quant, char *out, size_t size)
{
    const bool whole_row = quant->group_cols <= 0;
    char rows[12], cols[12];
    describe_extent(quant->group_rows == 0 ? 1 : quant->group_rows, rows);
    describe_extent(quant->group_cols, cols);
    if (whole_row && quant->group_rows == -1)
        snprintf(out, size, "per tensor");
    else if (whole_row && (quant->group_rows == 0 || quant->group_rows == 1))
        snprintf(out, size, "per row");
    else
        snprintf(out, size, "%sx%s", rows, cols);
}

const char *mox_quant_describe(const moxie_quant *quant, char *buffer, size_t size)
{
    static const char *const globals[] = { "", " *global", " /global" };
    static const char *const rules[] = { "", " amax", " ceil", " quark_even", " ocp_floor", " vllm_floor", " ue8m0" };
    static const char *const roundings[] = { "", " round_away", " truncate" };
    char groups[32];
    describe_groups(quant, groups, sizeof groups);
    if (quant->scale == MOXIE_DTYPE_NONE) {
        snprintf(buffer, size, "%s%s", mox_quant_dtype_name(quant->element),
                 (uint32_t)quant->global < 3 ? globals[quant->global] : "");
        return buffer;
    }
    /* Enumerations may be out of range: messages about invalid descriptions use this, too. */
    snprintf(buffer, size, "%s %s %s%s%s%s%s%s", mox_quant_dtype_name(quant->element), groups,
             mox_quant_dtype_name(quant->scale), quant->has_zero ? " zero" : "",
             (uint32_t)quant->global < 3 ? globals[quant->global] : "", quant->is_static ? " static" : "",
             (uint32_t)quant->rule < 7 ? rules[quant->rule] : "",
             (uint32_t)quant->rounding < 3 ? roundings[quant->rounding] : "");
    return buffer;
}
