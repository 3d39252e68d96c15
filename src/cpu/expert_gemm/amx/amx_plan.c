/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_plan.c - what a plan asks of the AMX kernels: whether they accept a problem, and how much scratch they need
 * (amx_plan.h). Compiled for any processor.
 */
#include "cpu/expert_gemm/amx/amx_plan.h"

#include "base/sizes.h"
#include "pack/panel/element_traits.h"

/* ---- amx_bf16 ------------------------------------------------------------------------------------ */

static const mox_amx_format *format_of(const moxie_quant *weight)
{
    for (size_t i = 0; i < mox_amx_bf16_formats.count; i++) {
        const mox_amx_format *format = &mox_amx_bf16_formats.of[i];
        if (format->zeros == (weight->has_zero != 0) &&
            mox_element_decodes_as(weight->element, format->zeros, format->element))
            return format;
    }
    return NULL;
}

static bool is_by_16(const moxie_quant *weight, int64_t cols)
{
    return mox_panel_step_cols(weight, cols) < MOX_PANEL_STEP;
}

/* The function for a problem's scales. */
static mox_panel_multiply_fn variant_of(const mox_amx_format *format, const moxie_quant *weight, int64_t cols)
{
    const bool by_16 = is_by_16(weight, cols);
    if (weight->scale == MOXIE_F8_E8M0 && format->e8m0_in_weight != NULL)
        return by_16 ? NULL : format->e8m0_in_weight;
    if (weight->scale == MOXIE_F8_E4M3 && by_16)
        return weight->element == format->element ? format->e4m3_in_weight : NULL;
    return by_16 ? NULL : format->per_segment;
}

mox_panel_multiply_fn mox_expert_gemm_amx_bf16_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight;
    const int64_t cols = mox_expert_gemm_cols(problem);
    if (mox_amx_bf16_formats.count == 0)
        return mox_panel_absent(why, "x86-64 with AMX");
    if (!mox_cpu()->avx512_fp16 || !mox_cpu()->avx512_vnni) {
        mox_reject(why, "use the avx512 kernels", "needs AVX-512 FP16 and VNNI beside AMX");
        return NULL;
    }
    if (!mox_panel_admit_bf16(problem, why))
        return NULL;
    const mox_amx_format *format = format_of(weight);
    const mox_panel_multiply_fn found = format != NULL ? variant_of(format, weight, cols) : NULL;
    if (found == NULL)
        mox_reject(why, "quantize the weights in groups of 32 columns or more, or store them in bf16",
                   "decodes to bf16, and has no variant for %s%s in these groups",
                   mox_quant_dtype_name(weight->element), weight->has_zero ? " with zero points" : "");
    return found;
}

void mox_amx_lay_out(mox_carver *carver, mox_amx_scaling scaling, uint64_t steps, uint64_t groups, mox_amx_scratch *out)
{
    out->buffer = mox_carve(carver, MOX_PANEL_BLOCK / 32 * 4 * MOX_AMX_TILE_FLOATS, sizeof *out->buffer);
    out->pending = mox_carve(carver, 4 * MOX_AMX_TILE_FLOATS, sizeof *out->pending);
    for (int p = 0; p < 2; p++) {
        out->space[p].scale = mox_carve(carver, groups * MOX_PANEL_ROWS, sizeof *out->space[p].scale);
        out->space[p].codes = mox_carve(carver, groups, MOX_PANEL_ROWS);
        out->lines[p] = mox_carve(carver, steps > MOX_AMX_BLOCK_STEPS + 1 ? steps : MOX_AMX_BLOCK_STEPS + 1,
                                  MOX_AMX_STEP_LINES_BYTES);
    }
    out->limbs.limbs = mox_carve(carver, steps * MOX_AMX_INT_DOT_ROWS, MOX_AMX_LIMB_BYTES);
    out->limbs.kinds = mox_carve(carver, steps, sizeof *out->limbs.kinds);
    out->limbs.stats = mox_carve(carver, 1, sizeof *out->limbs.stats);
    if (mox_amx_prescale_of(scaling) > 0) {
        out->prescaled.state = mox_carve(carver, 1, sizeof *out->prescaled.state);
        out->prescaled.rows = mox_carve(carver, steps * MOX_PANEL_BLOCK, MOX_AMX_LINE_BYTES);
    }
}

uint64_t mox_expert_gemm_amx_bf16_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const moxie_quant *weight = problem->weight;
    const int64_t cols = mox_expert_gemm_cols(problem);
    const mox_amx_format *format = format_of(weight);
    if (format == NULL)
        return 0;
    /* The variants that prescale activations need more than the others. */
    const mox_amx_scaling scaling = is_by_16(weight, cols) ? MOX_AMX_E4M3_IN_WEIGHT : format->scaling;
    mox_carver carver = mox_carver_of(NULL);
    mox_amx_scratch unused;
    mox_amx_lay_out(&carver, scaling, (uint64_t)mox_ceil_div(cols, MOX_PANEL_STEP),
                    (uint64_t)mox_scale_cols(weight, cols), &unused);
    return carver.used;
}

/* ---- amx_int8 ------------------------------------------------------------------------------------ */

enum { MAX_COLS = 131071 }; /* whose sum fits int32 */

mox_panel_multiply_fn mox_expert_gemm_amx_int8_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const int64_t cols = mox_expert_gemm_cols(problem);
    const int64_t weight = mox_group_cols(problem->weight, cols);
    const int64_t act = mox_quant_is_none(problem->act) ? cols : mox_act_group_cols(problem->act, cols);
    if (mox_amx_int8_multiply == NULL)
        return mox_panel_absent(why, "x86-64 with AMX");
    if (problem->weight->element != MOXIE_I8 || problem->weight->has_zero || mox_quant_is_none(problem->act) ||
        problem->act->element != MOXIE_I8) {
        mox_reject(why, "quantize both to i8", "multiplies i8 weights and i8 activations, these are %s and %s",
                   mox_quant_dtype_name(problem->weight->element),
                   mox_quant_is_none(problem->act) ? "not quantized" : mox_quant_dtype_name(problem->act->element));
        return NULL;
    }
    if ((weight < cols && weight % MOX_AMX_I8_STEP != 0) || (act < cols && act % MOX_AMX_I8_STEP != 0) ||
        cols > MAX_COLS) {
        mox_reject(why, "quantize in groups of a multiple of 64 columns",
                   "sums steps of 64 columns in int32, these are %lld in groups of %lld and %lld", (long long)cols,
                   (long long)weight, (long long)act);
        return NULL;
    }
    return mox_amx_int8_multiply;
}

void mox_amx_int8_lay_out(mox_carver *carver, int64_t groups, mox_amx_int8_scratch *out)
{
    out->buffer = mox_carve(carver, MOX_PANEL_BLOCK / 32 * 4 * MOX_AMX_TILE_FLOATS, sizeof *out->buffer);
    out->pending = mox_carve(carver, 4 * MOX_AMX_TILE_FLOATS, sizeof *out->pending);
    for (int p = 0; p < 2; p++) {
        out->scale[p] = mox_carve(carver, (uint64_t)groups * MOX_PANEL_ROWS, sizeof *out->scale[p]);
        out->last[p] = mox_carve(carver, MOX_AMX_I8_STEP_BYTES, 1);
    }
}

uint64_t mox_expert_gemm_amx_int8_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = mox_expert_gemm_cols(problem);
    mox_carver carver = mox_carver_of(NULL);
    mox_amx_int8_scratch unused;
    mox_amx_int8_lay_out(&carver, mox_scale_cols(problem->weight, cols), &unused);
    return carver.used;
}
