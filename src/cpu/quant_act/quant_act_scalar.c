/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act_scalar.c - family quant_act in portable C: one task a row.
 *
 *     x[source[r]] -> f32 -> (* row weight, rounded to x's dtype) -> operand row r
 *
 * where the last step rounds once to round_to (unquantized), or makes codes by the bit-defined rule of
 * quant/act_quant.c and decodes them. Padding behind the last column is zero.
 */
#include "cpu/quant_act/quant_act.h"

#include "base/sizes.h"

static void weigh(moxie_dtype dtype, float weight, float *x, int64_t cols)
{
    for (int64_t k = 0; k < cols; k++)
        x[k] = mox_round_to(dtype, x[k] * weight);
}

/* The decoded codes are the operand's values; the scales stay apart. */
static void quantize_row(const mox_quant_act_args *args, int64_t row, const float *x, uint8_t *codes)
{
    const mox_operand *out = args->out;
    const mox_act_quantizer quantizer = {
        .quant = args->quant,
        .given = args->row_given != NULL ? args->row_given[row] : 0.0f,
        .amax = args->amax,
    };
    mox_act_quant_row(&quantizer, x, args->cols, codes, out->scales + row * out->scale_cols);
    mox_act_quant_values(args->quant, codes, args->cols, out->values + row * out->stride);
    if (out->global != NULL)
        out->global[row] = quantizer.given;
}

static void pass_row(const mox_quant_act_args *args, int64_t row, const float *x)
{
    float *values = args->out->values + row * args->out->stride;
    for (int64_t k = 0; k < args->cols; k++)
        values[k] = mox_round_to(args->round_to, x[k]);
}

static void one_row(void *context, int64_t row, int32_t worker)
{
    const mox_quant_act_args *args = context;
    const int64_t from = args->source != NULL ? args->source[row] : row;
    float *x = args->row_scratch + (int64_t)worker * args->cols;
    mox_widen(args->x_dtype, (const uint8_t *)args->x + from * args->cols * mox_dtype_bytes(args->x_dtype), x,
              args->cols);
    if (args->row_weight != NULL)
        weigh(args->x_dtype, args->row_weight[row], x, args->cols);
    if (args->out->scale_cols > 0)
        quantize_row(args, row, x, args->codes + (int64_t)worker * args->cols);
    else
        pass_row(args, row, x);
    float *values = args->out->values + row * args->out->stride;
    for (int64_t k = args->cols; k < args->out->stride; k++)
        values[k] = 0.0f;
}

static void describe(const mox_quant_act_args *args, mox_operand *out)
{
    const bool quantized = !mox_quant_is_none(args->quant);
    out->rows = args->rows;
    out->cols = args->cols;
    out->stride = mox_ceil_div(args->cols, MOX_OPERAND_PAD) * MOX_OPERAND_PAD;
    out->group_cols = quantized ? mox_act_group_cols(args->quant, args->cols) : mox_max_i64(args->cols, 1);
    out->scale_cols = quantized ? mox_ceil_div(args->cols, out->group_cols) : 0;
    out->global_kind = quantized ? args->quant->global : MOXIE_GLOBAL_NONE;
    out->integer = quantized && mox_format_of(args->quant->element)->kind == MOX_KIND_INTEGER;
    if (!quantized)
        out->scales = NULL;
    if (out->global_kind == MOXIE_GLOBAL_NONE)
        out->global = NULL;
}

void mox_quant_act_scalar_run(const mox_quant_act_args *args, const moxie_executor *executor)
{
    mox_quant_act_args context = *args;
    describe(args, args->out);
    mox_parallel(executor, args->rows, one_row, &context);
}

bool mox_quant_act_scalar_admit(const moxie_quant *quant, mox_refusal *why)
{
    if (!mox_quant_is_none(quant) && mox_format_table(quant->element) == NULL)
        return mox_refuse(why, "choose an activation format of 8 bits or fewer",
                          "decodes activation codes of at most 8 bits, %s has %d", mox_quant_dtype_name(quant->element),
                          (int)mox_dtype_bits(quant->element));
    return true;
}
