/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_kernel.c - what all panel kernels share (panel_kernel.h): which problems they accept, how a finished sum
 * becomes a number of the product, and 4-bit formats as integers.
 */
#include "cpu/expert_gemm/panel_kernel.h"

#include "base/sizes.h"
#include "pack/panel/block_panel.h"
#include "pack/panel/element_traits.h"

uint64_t mox_act_order_row_bytes(mox_act_order order, int64_t cols)
{
    switch (order) {
    case MOX_ACT_ORDER_BF16: return (uint64_t)mox_ceil_div(cols, 32) * 64;
    case MOX_ACT_ORDER_I8: return (uint64_t)mox_ceil_div(cols, 64) * 64;
    default: return (uint64_t)mox_ceil_div(cols, 32) * 128;
    }
}

mox_act_scaling mox_panel_act_scaling(const moxie_quant *act, int64_t cols)
{
    if (mox_quant_is_none(act))
        return MOX_ACT_UNSCALED;
    if (act->scale == MOXIE_F8_E8M0 || (act->scale == MOXIE_F8_E4M3 && act->element == MOXIE_F4_E2M1))
        return MOX_ACT_IN_VALUE;
    return mox_act_group_cols(act, cols) < cols ? MOX_ACT_GROUPED : MOX_ACT_BY_ROW;
}

mox_panel_multiply_fn mox_panel_absent(mox_rejection *why, const char *target)
{
    mox_reject(why, "compile the library for it", "is for %s, which this build leaves out", target);
    return NULL;
}

mox_panel_multiply_fn mox_panel_variant_of(const mox_panel_variants *variants, const moxie_quant *weight, int64_t cols)
{
    const bool zeros = weight->has_zero != 0, by_16 = mox_panel_step_cols(weight, cols) < MOX_PANEL_STEP;
    for (size_t i = 0; i < variants->count; i++) {
        const mox_panel_variant *v = &variants->of[i];
        if (v->zeros == zeros && mox_element_decodes_as(weight->element, zeros, v->element))
            return by_16 ? v->by_16 : v->multiply;
    }
    return NULL;
}

static bool is_multiple(int64_t a, int64_t b)
{
    return a % b == 0 || b % a == 0;
}

bool mox_panel_admit_groups(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const int64_t cols = mox_expert_gemm_cols(problem), weight = mox_group_cols(problem->weight, cols);
    const bool grouped = mox_panel_act_scaling(problem->act, cols) == MOX_ACT_GROUPED;
    const int64_t act = grouped ? mox_act_group_cols(problem->act, cols) : cols;
    if (weight < cols && weight != 16 && weight % MOX_PANEL_STEP != 0)
        return mox_reject(why, "quantize the weights in groups of 16 or a multiple of 32 columns",
                          "sums steps of 32 columns, the weights' groups have %lld", (long long)weight);
    if (grouped && (act % MOX_PANEL_STEP != 0 || weight == 16))
        return mox_reject(why, "quantize the activations in groups of a multiple of 32 columns",
                          "sums steps of 32 columns, the activations' groups have %lld and the weights' %lld",
                          (long long)act, (long long)weight);
    if (grouped && weight < cols && !is_multiple(weight, act))
        return mox_reject(why, "make one group size a multiple of the other",
                          "needs nested groups, the weights' have %lld columns and the activations' %lld",
                          (long long)weight, (long long)act);
    return true;
}

static bool is_integer(moxie_dtype element)
{
    return mox_format_of(element)->kind == MOX_KIND_INTEGER;
}

bool mox_panel_admit_floats(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *act = problem->act, *weight = problem->weight;
    if (mox_quant_is_none(act) || !is_integer(act->element) || !is_integer(weight->element) ||
        mox_dtype_bits(weight->element) <= 4)
        return true;
    return mox_reject(why, "leave the activations in 16 bits",
                      "sums in fp32, products of %s and %s are summed in int32", mox_quant_dtype_name(weight->element),
                      mox_quant_dtype_name(act->element));
}

bool mox_panel_admit_bf16(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const bool quantized = !mox_quant_is_none(problem->act);
    const moxie_dtype dtype = quantized ? problem->act->element : problem->dtype;
    if (dtype == MOXIE_BF16 || (quantized && mox_dtype_bits(dtype) <= 8))
        return mox_panel_admit_floats(problem, why);
    return mox_reject(why, "run the layer in bf16, or quantize its activations to 8 bits or fewer",
                      "multiplies activations that are exact in bf16, these are %s", mox_quant_dtype_name(dtype));
}

int64_t mox_panel_step_cols(const moxie_quant *weight, int64_t cols)
{
    const bool by_16 = mox_group_cols(weight, cols) == MOX_PANEL_STEP / 2 && mox_scale_cols(weight, cols) > 1;
    return by_16 ? MOX_PANEL_STEP / 2 : MOX_PANEL_STEP;
}

bool mox_panel_admit_rounding(const moxie_quant *act, mox_rejection *why)
{
    if (mox_quant_is_none(act) || (!is_integer(act->element) && mox_dtype_bits(act->element) >= 8))
        return true;
    return mox_reject(why, "leave the activations in 16 bits, or quantize them to FP8",
                      "rounds activations to bytes, which would lose what %s keeps exactly",
                      mox_quant_dtype_name(act->element));
}

/* 8-bit integers are multiplied in whole steps. */
static bool admit_quads(const moxie_quant *weight, int64_t cols, mox_rejection *why)
{
    return mox_panel_step_cols(weight, cols) == MOX_PANEL_STEP ||
           mox_reject(why, "quantize the weights in groups of a multiple of 32 columns",
                      "multiplies %s in steps of 32 columns, the weights' groups have 16",
                      mox_quant_dtype_name(weight->element));
}

bool mox_panel_admit_bytes(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight;
    mox_panel_counts unused;
    if (mox_panel_order_of(weight->element) == MOX_PANEL_QUADS) {
        if (!admit_quads(weight, mox_expert_gemm_cols(problem), why))
            return false;
    } else if (!mox_panel_count(weight->element, weight->has_zero != 0, &unused)) {
        return mox_reject(why, "quantize the weights to 4 bits or to 8-bit integers",
                          "multiplies weights of 4 bits and 8-bit integers, these are %s",
                          mox_quant_dtype_name(weight->element));
    }
    return mox_panel_admit_rounding(problem->act, why);
}

bool mox_panel_admit_blocks(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    return mox_block_panel_holds(problem->weight->element) ||
           mox_reject(why, "take weights of a block type, such as q4_k",
                      "multiplies blocks of GGUF, the weights are %s", mox_quant_dtype_name(problem->weight->element));
}

bool mox_panel_admit_block_int8(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *act = problem->act;
    if (!mox_panel_admit_blocks(problem, why))
        return false;
    if (mox_quant_is_none(act) || act->element != MOXIE_I8)
        return mox_reject(why, "quantize the activations to i8", "multiplies int8 activations, these are %s",
                          mox_quant_is_none(act) ? "not quantized" : mox_quant_dtype_name(act->element));
    if (act->is_static)
        return mox_reject(why, "let the activations' scales be dynamic",
                          "multiplies codes from -127 on, static scales give -128");
    return !mox_block_has_minimums(problem->weight->element) ||
           mox_reject(why, "use fast mode, whose kernels for blocks take them",
                      "would subtract %s's minimums after the sum, which rounds more",
                      mox_quant_dtype_name(problem->weight->element));
}

/* ---- the end of a sum ----------------------------------------------------------------------------- */

static void apply_global(float *out, int32_t kind, const float *global, int64_t step)
{
    for (int64_t n = 0; n < MOX_PANEL_ROWS; n++)
        out[n] = kind == MOXIE_GLOBAL_DIVIDE ? out[n] / global[n * step] : out[n] * global[n * step];
}

void mox_panel_finish(const mox_panel_end *end, const mox_panel_matrix *matrix, int64_t panel, const float *c,
                      float *out)
{
    for (int64_t n = 0; n < MOX_PANEL_ROWS; n++)
        out[n] = end->scale != NULL ? c[n] * *end->scale : c[n];
    if (end->act_global != NULL)
        apply_global(out, end->act_global_kind, end->act_global, 0);
    if (matrix->global != NULL)
        apply_global(out, end->weight_global_kind, matrix->global + panel * MOX_PANEL_ROWS, 1);
    for (int64_t n = 0; matrix->bias != NULL && n < MOX_PANEL_ROWS; n++)
        out[n] += matrix->bias[panel * MOX_PANEL_ROWS + n];
}

void mox_panel_place(const mox_panel_matrix *matrix, int64_t panel, int64_t *column, int64_t *count)
{
    const int64_t first = (matrix->gated ? panel / 2 : panel) * MOX_PANEL_ROWS;
    *column = first + (matrix->gated && panel % 2 != 0 ? matrix->rows : 0);
    *count = mox_min_i64(MOX_PANEL_ROWS, matrix->rows - first);
}

bool mox_panel_count(moxie_dtype element, bool zeros, mox_panel_counts *out)
{
    const mox_element_traits traits = mox_element_traits_of(element);
    if (traits.unit == 0 || (zeros && traits.unit != 1.0f))
        return false;
    const float *values = mox_format_table(element);
    const float max = zeros ? 16.0f : (float)(traits.max > -traits.min ? traits.max : -traits.min);
    *out = (mox_panel_counts) { .offset = zeros ? 0 : -traits.min, .h = traits.unit, .max = max };
    for (int code = 0; code < 16; code++)
        out->counts[code] = (uint8_t)((int32_t)(values[code] / traits.unit) - traits.min);
    return true;
}
