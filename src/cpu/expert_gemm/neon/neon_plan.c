/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_plan.c - what a plan asks of the NEON kernels: whether they accept a problem, and how much scratch they need
 * (neon_plan.h). Compiled for any processor.
 */
#include "cpu/expert_gemm/neon/neon_plan.h"

#include "base/sizes.h"
#include "cpu/expert_gemm/rowmajor_gemm.h"

void mox_neon_lay_out(mox_carver *carver, int64_t groups, mox_neon_scratch *out)
{
    out->part = mox_carve(carver, MOX_PANEL_BLOCK * MOX_PANEL_ROWS, sizeof *out->part);
    out->scale = mox_carve(carver, 2 * (uint64_t)groups * MOX_PANEL_ROWS, sizeof *out->scale);
}

static uint64_t scratch_bytes(const mox_expert_gemm_problem *problem)
{
    mox_carver carver = mox_carver_of(NULL);
    mox_neon_scratch unused;
    mox_neon_lay_out(&carver, mox_scale_cols(problem->weight, mox_expert_gemm_cols(problem)), &unused);
    return carver.used;
}

static bool accepts_weights(const moxie_quant *weight, mox_rejection *why)
{
    const mox_panel_order order = mox_panel_order_of(weight->element);
    if (order != MOX_PANEL_NIBBLES && order != MOX_PANEL_QUADS && order != MOX_PANEL_PAIRS)
        return mox_reject(why, "quantize the weights to MXFP4, NVFP4 or integers of 4 or 8 bits",
                          "decodes elements of 4 bits, integers of 8 bits and bf16, the weights are %s",
                          mox_quant_dtype_name(weight->element));
    if (weight->has_zero)
        return mox_reject(why, "quantize the weights symmetrically", "has no variant for %s with zero points",
                          mox_quant_dtype_name(weight->element));
    return true;
}

mox_panel_multiply_fn mox_expert_gemm_neon_fma_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (mox_neon_fma_multiply == NULL)
        return mox_panel_absent(why, "aarch64");
    return accepts_weights(problem->weight, why) && mox_panel_admit_floats(problem, why) ? mox_neon_fma_multiply : NULL;
}

uint64_t mox_expert_gemm_neon_fma_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return scratch_bytes(problem);
}

mox_panel_multiply_fn mox_expert_gemm_neon_bf16_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (mox_neon_bf16_multiply == NULL || !mox_cpu()->neon_bf16)
        mox_reject(why, "run on a processor that has it", "needs BFMLALB, which this processor or build lacks");
    else if (mox_panel_admit_bf16(problem, why) && accepts_weights(problem->weight, why))
        return mox_neon_bf16_multiply;
    return NULL;
}

uint64_t mox_expert_gemm_neon_bf16_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return scratch_bytes(problem);
}

/* A segment's sum of products, each at most 2^14, must fit int32. */
static bool fits_int32(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const int64_t cols = mox_expert_gemm_cols(problem), max_cols = INT32_MAX >> 14;
    const int64_t group = mox_min_i64(mox_group_cols(problem->weight, cols), mox_gemm_problem_act_group(problem));
    if (group <= max_cols)
        return true;
    return mox_reject(why, "quantize weights or activations in shorter groups",
                      "sums groups of at most %lld columns exactly in int32, these have %lld", (long long)max_cols,
                      (long long)group);
}

mox_panel_multiply_fn mox_expert_gemm_neon_i8_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *act = problem->act, *weight = problem->weight;
    if (mox_neon_i8_multiply == NULL)
        mox_panel_absent(why, "aarch64");
    else if (mox_panel_order_of(weight->element) != MOX_PANEL_QUADS || mox_quant_is_none(act) ||
             act->element != MOXIE_I8)
        mox_reject(why, "quantize weights and activations to i8",
                   "multiplies 8-bit integers by 8-bit integers, these are %s and %s",
                   mox_quant_dtype_name(weight->element),
                   mox_quant_is_none(act) ? "not quantized" : mox_quant_dtype_name(act->element));
    else if (accepts_weights(weight, why) && fits_int32(problem, why))
        return mox_neon_dotprod_multiply != NULL && mox_cpu()->dotprod ? mox_neon_dotprod_multiply
                                                                       : mox_neon_i8_multiply;
    return NULL;
}

uint64_t mox_expert_gemm_neon_i8_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return scratch_bytes(problem);
}
