/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_survey.c - what numbers an expert, or all experts of a layer, have: for constants, and for codes that depend
 * on more than their element.
 *
 *     scales of 8 bits    which codes occur, row by row; then their values. Exponents only: the largest and the
 * smallest others              value by value
 */
#include <math.h>

#include "pack/grid_move.h"
#include "vendor/vendor_internal.h"

static void note(float value, int which, mox_vendor_facts *facts)
{
    if (value > facts->scale_most[which])
        facts->scale_most[which] = value;
    if (value > 0 && (facts->scale_least[which] == 0 || value < facts->scale_least[which]))
        facts->scale_least[which] = value;
}

static void note_bytes(const moxie_grid *scale, int which, mox_vendor_facts *facts)
{
    bool occurs[256] = { false };
    for (int64_t r = 0; r < scale->rows; r++) {
        const uint8_t *row = (const uint8_t *)scale->data + r * scale->row_stride;
        for (int64_t c = 0; c < scale->cols; c++)
            occurs[row[c]] = true;
    }
    for (uint32_t code = 0; code < 256; code++)
        if (occurs[code])
            note(moxie_decode(scale->dtype, code), which, facts);
}

/* E8M0's codes are in the order of their values, but for NaN, 255, which comes before all once 1 is added. */
static void note_exponents(const moxie_grid *scale, int which, mox_vendor_facts *facts)
{
    uint8_t most = 0, least = 255;
    for (int64_t r = 0; r < scale->rows; r++) {
        const uint8_t *row = (const uint8_t *)scale->data + r * scale->row_stride;
        for (int64_t c = 0; c < scale->cols; c++) {
            const uint8_t next = (uint8_t)(row[c] + 1);
            most = next > most ? next : most;
            least = row[c] < least ? row[c] : least;
        }
    }
    if (most > 0) {
        note(moxie_decode(scale->dtype, most - 1u), which, facts);
        note(moxie_decode(scale->dtype, least), which, facts);
    }
}

static void measure_matrix(const moxie_grid *scale, int which, mox_vendor_facts *facts)
{
    if (scale->data == NULL)
        return;
    if (mox_dtype_bits(scale->dtype) == 8 && mox_pack_has_dense_rows(scale)) {
        (scale->dtype == MOXIE_F8_E8M0 ? note_exponents : note_bytes)(scale, which, facts);
        return;
    }
    for (int64_t r = 0; r < scale->rows; r++)
        for (int64_t c = 0; c < scale->cols; c++)
            note(moxie_decode(scale->dtype, mox_grid_code(scale, r, c)), which, facts);
}

void mox_vendor_measure(const moxie_expert *expert, mox_vendor_facts *facts)
{
    measure_matrix(&expert->gate.scale, MOX_VENDOR_W13, facts);
    measure_matrix(&expert->up.scale, MOX_VENDOR_W13, facts);
    measure_matrix(&expert->down.scale, MOX_VENDOR_W2, facts);
}

/* The scale that multiplies codes: `given`, or its reciprocal when activations divide by it. */
static moxie_status survey_act(float given, const moxie_quant *act, const moxie_quant *weight, float *most,
                               moxie_error *error)
{
    MOX_FAIL_IF(!(given >= 0 && given < INFINITY), MOXIE_ERR_UNSUPPORTED, error,
                "a static scale of activations is %g, which must be a positive number", (double)given);
    const int32_t kind = act->global != MOXIE_GLOBAL_NONE ? act->global : weight->global;
    const float scale = given == 0 ? 0 : kind == MOXIE_GLOBAL_DIVIDE ? 1.0f / given : given;
    *most = scale > *most ? scale : *most;
    return MOXIE_OK;
}

static moxie_status check_range(float most, float least, const char *which, moxie_status code, moxie_error *error)
{
    MOX_FAIL_IF(!(most >= 0 && most < INFINITY && least >= 0 && least <= most) || (most > 0) != (least > 0), code,
                error,
                "scales of %s reach from %g to %g; both ends must be finite numbers above zero in this order, or both "
                "zero",
                which, (double)least, (double)most);
    return MOXIE_OK;
}

static moxie_status check_act(float most, const char *which, moxie_status code, moxie_error *error)
{
    MOX_FAIL_IF(!(most >= 0 && most < INFINITY), code, error,
                "the largest static scale of activations into %s is %g; it must be a finite number above zero, or zero "
                "where there is none",
                which, (double)most);
    return MOXIE_OK;
}

moxie_status mox_vendor_check_facts(const mox_vendor_facts *facts, moxie_status code, moxie_error *error)
{
    MOX_TRY(check_range(facts->scale_most[0], facts->scale_least[0], "w13", code, error));
    MOX_TRY(check_range(facts->scale_most[1], facts->scale_least[1], "w2", code, error));
    MOX_TRY(check_act(facts->a13_most, "w13", code, error));
    return check_act(facts->a2_most, "w2", code, error);
}

moxie_status mox_vendor_survey(mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error)
{
    mox_vendor_facts f = plan->facts;
    MOX_TRY(mox_vendor_check(plan, expert, error));
    mox_vendor_measure(expert, &f);
    MOX_TRY(survey_act(expert->a13_scale, &plan->use.a13, &plan->shape.w13, &f.a13_most, error));
    MOX_TRY(survey_act(expert->a2_scale, &plan->use.a2, &plan->shape.w2, &f.a2_most, error));
    MOX_TRY(mox_vendor_check_facts(&f, MOXIE_ERR_UNSUPPORTED, error));
    plan->facts = f;
    return MOXIE_OK;
}
