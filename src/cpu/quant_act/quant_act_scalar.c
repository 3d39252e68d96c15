/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_scalar.c - family quant_act in portable C: one task per row.
 *
 *     x[source[r]] -> f32 -> (* row weight, rounded to x's dtype) -> row r of `out`
 *
 * The last step rounds once to round_to (unquantized). Or it makes codes by a rule of quant/act_quant.c, which defines
 * them bit by bit, and decodes them. Padding after the last column is zero. Rows that came from other ranks are codes
 * already.
 */
#include "cpu/quant_act/quant_act.h"

#include "quant/act_row.h"

typedef struct quant_job {
    const mox_quant_act_args *args;
    float amax;
} quant_job;

/* The codes of x, or those of row `row` where they came as codes. */
static void codes_of(const quant_job *job, const mox_act_quantizer *quantizer, int64_t row, const float *x,
                     uint8_t *codes, float *scales)
{
    const mox_quant_act_args *args = job->args;
    const int64_t from = args->source != NULL ? args->source[row] : row;
    if (args->coded)
        mox_act_row_load(&args->quant, (const uint8_t *)args->x + from * mox_act_row_bytes(&args->quant, args->cols),
                         args->cols, codes, scales);
    else
        mox_act_quant_row(quantizer, x, args->cols, codes, scales);
}

/* Values are the decoded codes. The scales are not multiplied in. */
static void quantize_row(const quant_job *job, int64_t row, const float *x, uint8_t *codes)
{
    const mox_quant_act_args *args = job->args;
    const mox_activations *out = &args->out;
    const mox_act_quantizer quantizer = {
        .quant = &args->quant,
        .static_scale = args->row_scale != NULL ? args->row_scale[row] : args->static_scale,
        .amax = job->amax,
    };
    codes_of(job, &quantizer, row, x, codes, out->scales + row * out->scale_cols);
    mox_act_quant_values(&args->quant, codes, args->cols, out->values + row * out->stride);
    if (out->global != NULL)
        out->global[row] = quantizer.static_scale;
}

static void pass_row(const mox_quant_act_args *args, int64_t row, const float *x)
{
    float *values = args->out.values + row * args->out.stride;
    for (int64_t k = 0; k < args->cols; k++)
        values[k] = mox_round_to(args->round_to, x[k]);
}

static void one_row(void *context, int64_t row, int32_t worker)
{
    const quant_job *job = context;
    const mox_quant_act_args *args = job->args;
    float *x = args->row_scratch + (int64_t)worker * args->cols;
    if (!args->coded)
        mox_quant_act_load(args, row, x);
    if (args->out.scale_cols > 0)
        quantize_row(job, row, x, args->codes + (int64_t)worker * args->cols);
    else
        pass_row(args, row, x);
    float *values = args->out.values + row * args->out.stride;
    for (int64_t k = args->cols; k < args->out.stride; k++)
        values[k] = 0.0f;
}

void mox_quant_act_scalar_run(const mox_quant_act_args *args, const moxie_executor *executor)
{
    quant_job job = { args, mox_quant_act_amax(args) };
    mox_parallel(executor, mox_quant_act_rows(args), one_row, &job);
}

bool mox_quant_act_scalar_admit(const moxie_quant *quant, mox_rejection *why)
{
    if (!mox_quant_is_none(quant) && mox_format_table(quant->element) == NULL)
        return mox_reject(why, "choose an activation format of 8 bits or fewer",
                          "decodes activation codes of at most 8 bits, %s has %d", mox_quant_dtype_name(quant->element),
                          (int)mox_dtype_bits(quant->element));
    return true;
}
