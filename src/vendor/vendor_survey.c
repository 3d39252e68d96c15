/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_survey.c - facts about the numbers of an expert, or of all experts of a layer: for constants, and for codes
 * that depend on more than their element.
 *
 *     8-bit scales    find which codes occur, then decode those; for e8m0 only the largest and smallest code
 *     others          decode value by value
 */
#include <math.h>

#include "pack/grid_move.h"
#include "vendor/vendor_internal.h"

static void widen(float value, int which, mox_vendor_facts *facts)
{
    if (value > facts->scale_max[which])
        facts->scale_max[which] = value;
    if (value > 0 && (facts->scale_min[which] == 0 || value < facts->scale_min[which]))
        facts->scale_min[which] = value;
}

static void widen_bytes(const moxie_grid *scale, int which, mox_vendor_facts *facts)
{
    bool occurs[256] = { false };
    for (int64_t r = 0; r < scale->rows; r++) {
        const uint8_t *row = (const uint8_t *)scale->data + r * scale->row_stride;
        for (int64_t c = 0; c < scale->cols; c++)
            occurs[row[c]] = true;
    }
    for (uint32_t code = 0; code < 256; code++)
        if (occurs[code])
            widen(moxie_decode(scale->dtype, code), which, facts);
}

/* Codes of e8m0 are ordered like their values, except NaN (255): adding 1 makes it 0, the smallest. */
static void widen_exponents(const moxie_grid *scale, int which, mox_vendor_facts *facts)
{
    uint8_t max = 0, min = 255;
    for (int64_t r = 0; r < scale->rows; r++) {
        const uint8_t *row = (const uint8_t *)scale->data + r * scale->row_stride;
        for (int64_t c = 0; c < scale->cols; c++) {
            const uint8_t next = (uint8_t)(row[c] + 1);
            max = next > max ? next : max;
            min = row[c] < min ? row[c] : min;
        }
    }
    if (max > 0) {
        widen(moxie_decode(scale->dtype, max - 1u), which, facts);
        widen(moxie_decode(scale->dtype, min), which, facts);
    }
}

static void measure_matrix(const moxie_grid *scale, int which, mox_vendor_facts *facts)
{
    if (scale->data == NULL)
        return;
    if (mox_dtype_bits(scale->dtype) == 8 && mox_pack_has_dense_rows(scale)) {
        (scale->dtype == MOXIE_F8_E8M0 ? widen_exponents : widen_bytes)(scale, which, facts);
        return;
    }
    for (int64_t r = 0; r < scale->rows; r++)
        for (int64_t c = 0; c < scale->cols; c++)
            widen(moxie_decode(scale->dtype, mox_grid_code(scale, r, c)), which, facts);
}

void mox_vendor_measure(const moxie_expert *expert, mox_vendor_facts *facts)
{
    measure_matrix(&expert->gate.scale, MOX_VENDOR_W13, facts);
    measure_matrix(&expert->up.scale, MOX_VENDOR_W13, facts);
    measure_matrix(&expert->down.scale, MOX_VENDOR_W2, facts);
}

/* The scale that multiplies codes: `stored`, or its reciprocal for activations that are divided by it. */
static moxie_status survey_act(float stored, const moxie_quant *act, const moxie_quant *weight, float *max,
                               moxie_error *error)
{
    MOX_FAIL_IF(!(stored >= 0 && stored < INFINITY), MOXIE_ERR_UNSUPPORTED, error,
                "a static activation scale is %g; it must be a positive number, or 0 for none", (double)stored);
    const int32_t kind = act->global != MOXIE_GLOBAL_NONE ? act->global : weight->global;
    const float scale = stored == 0 ? 0 : kind == MOXIE_GLOBAL_DIVIDE ? 1.0f / stored : stored;
    *max = scale > *max ? scale : *max;
    return MOXIE_OK;
}

static moxie_status check_range(float max, float min, const char *which, moxie_status code, moxie_error *error)
{
    MOX_FAIL_IF(!(max >= 0 && max < INFINITY && min >= 0 && min <= max) || (max > 0) != (min > 0), code, error,
                "scales of %s range from %g to %g; both must be finite and above zero, the first no larger, or both "
                "zero",
                which, (double)min, (double)max);
    return MOXIE_OK;
}

static moxie_status check_act(float max, const char *which, moxie_status code, moxie_error *error)
{
    MOX_FAIL_IF(!(max >= 0 && max < INFINITY), code, error,
                "the largest static activation scale of %s is %g; it must be a finite number above zero, or zero "
                "where there is none",
                which, (double)max);
    return MOXIE_OK;
}

moxie_status mox_vendor_check_facts(const mox_vendor_facts *facts, moxie_status code, moxie_error *error)
{
    MOX_TRY(check_range(facts->scale_max[0], facts->scale_min[0], "w13", code, error));
    MOX_TRY(check_range(facts->scale_max[1], facts->scale_min[1], "w2", code, error));
    MOX_TRY(check_act(facts->a13_max, "w13", code, error));
    return check_act(facts->a2_max, "w2", code, error);
}

moxie_status mox_vendor_survey(mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error)
{
    mox_vendor_facts f = plan->facts;
    MOX_TRY(mox_vendor_check(plan, expert, error));
    mox_vendor_measure(expert, &f);
    MOX_TRY(survey_act(expert->a13_scale, &plan->use.a13, &plan->shape.w13, &f.a13_max, error));
    MOX_TRY(survey_act(expert->a2_scale, &plan->use.a2, &plan->shape.w2, &f.a2_max, error));
    MOX_TRY(mox_vendor_check_facts(&f, MOXIE_ERR_UNSUPPORTED, error));
    plan->facts = f;
    return MOXIE_OK;
}
