/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_plan.c - what a plan asks of the NEON kernels: whether they accept a problem, and how much scratch they need
 * (neon_plan.h). Compiled for any processor.
 */
#include "cpu/expert_gemm/neon/neon_plan.h"

#include "base/sizes.h"
#include "cpu/expert_gemm/rowmajor_gemm.h"

mox_neon_class mox_neon_class_of(moxie_dtype element, bool zeros)
{
    switch (mox_panel_order_of(element)) {
    case MOX_PANEL_PAIRS: return MOX_NEON_PAIRS;
    case MOX_PANEL_HALVES: return MOX_NEON_HALVES;
    case MOX_PANEL_QUADS: return MOX_NEON_QUADS;
    case MOX_PANEL_ZIPPED: return element == MOXIE_F8_E4M3 ? MOX_NEON_E4M3 : MOX_NEON_E5M2;
    case MOX_PANEL_NIBBLES: return zeros ? MOX_NEON_NIBBLES_ZEROS : MOX_NEON_NIBBLES;
    case MOX_PANEL_PLANES: return MOX_NEON_PLANES;
    case MOX_PANEL_BLOCKS: return MOX_NEON_BLOCKS;
    default: return MOX_NEON_CLASSES;
    }
}

static bool has_i8mm(void)
{
    return mox_neon_i8_i8mm_multiply != NULL && mox_cpu()->i8mm && mox_cpu()->dotprod;
}

static bool has_dotprod(void)
{
    return mox_neon_fma_dotprod_multiply != NULL && mox_cpu()->dotprod;
}

mox_neon_sizes mox_neon_float_sizes(bool bytes, moxie_dtype element, int64_t cols, int64_t groups)
{
    const mox_panel_order order = mox_panel_order_of(element);
    mox_neon_sizes sizes = { .groups = groups };
    if (order == MOX_PANEL_NIBBLES || (bytes && order == MOX_PANEL_QUADS)) {
        sizes.limb_cols = mox_ceil_div(cols, MOX_PANEL_STEP) * MOX_PANEL_STEP;
        sizes.limb_rows = bytes || has_dotprod() ? MOX_PANEL_BLOCK : MOX_NEON_PLAIN_ROWS;
    }
    return sizes;
}

void mox_neon_lay_out(mox_carver *carver, const mox_neon_sizes *sizes, mox_neon_scratch *out)
{
    const uint64_t values = (uint64_t)sizes->groups * MOX_PANEL_ROWS, limbs = (uint64_t)sizes->limb_cols * 4;
    out->max_rows = sizes->limb_rows;
    out->floats = mox_carve(carver, 1, sizeof *out->floats);
    out->limbs = limbs > 0 ? mox_carve(carver, (uint64_t)sizes->limb_rows, limbs) : NULL;
    out->slab = mox_carve(carver, MOX_NEON_SLAB, MOX_NEON_STEP_BYTES);
    out->part = mox_carve(carver, MOX_PANEL_BLOCK * MOX_PANEL_ROWS, sizeof *out->part);
    out->scale = mox_carve(carver, values, sizeof *out->scale);
    out->zero = mox_carve(carver, values, sizeof *out->zero);
    out->sums =
        sizes->segments > 0 ? mox_carve(carver, MOX_PANEL_BLOCK * (uint64_t)sizes->segments, sizeof *out->sums) : NULL;
}

static uint64_t bytes_of(const mox_neon_sizes *sizes)
{
    mox_carver carver = mox_carver_of(NULL);
    mox_neon_scratch unused;
    mox_neon_lay_out(&carver, sizes, &unused);
    return carver.used;
}

static int64_t groups_of(const mox_expert_gemm_problem *problem)
{
    return mox_scale_cols(problem->weight, mox_expert_gemm_cols(problem));
}

static uint64_t float_bytes(bool bytes, const mox_expert_gemm_problem *problem)
{
    const mox_neon_sizes sizes =
        mox_neon_float_sizes(bytes, problem->weight->element, mox_expert_gemm_cols(problem), groups_of(problem));
    return bytes_of(&sizes);
}

static bool has_class(const moxie_quant *weight, mox_rejection *why)
{
    if (mox_neon_class_of(weight->element, weight->has_zero != 0) != MOX_NEON_CLASSES)
        return true;
    return mox_reject(why, "quantize the weights to a format with scales of groups, or store them in 16 bits",
                      "cannot decode %s", mox_quant_dtype_name(weight->element));
}

mox_panel_multiply_fn mox_expert_gemm_neon_fma_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (mox_neon_fma_multiply == NULL)
        return mox_panel_absent(why, "aarch64");
    if (!has_class(problem->weight, why) || !mox_panel_admit_floats(problem, why))
        return NULL;
    return has_dotprod() ? mox_neon_fma_dotprod_multiply : mox_neon_fma_multiply;
}

uint64_t mox_expert_gemm_neon_fma_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return float_bytes(false, problem);
}

mox_panel_multiply_fn mox_expert_gemm_neon_bytes_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (mox_neon_bytes_multiply == NULL)
        return mox_panel_absent(why, "aarch64");
    if (!mox_panel_admit_bytes(problem, why))
        return NULL;
    if (has_i8mm())
        return mox_neon_bytes_i8mm_multiply;
    return has_dotprod() ? mox_neon_bytes_dotprod_multiply : mox_neon_bytes_multiply;
}

uint64_t mox_expert_gemm_neon_bytes_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return float_bytes(true, problem);
}

static bool exact_in_bf16(const moxie_quant *weight, mox_rejection *why)
{
    const mox_neon_class decode = mox_neon_class_of(weight->element, weight->has_zero != 0);
    if (decode != MOX_NEON_HALVES && decode != MOX_NEON_BLOCKS)
        return true;
    return mox_reject(why, "store the weights in bf16, or quantize them to another format",
                      "multiplies weights that are exact in bf16, these are %s", mox_quant_dtype_name(weight->element));
}

mox_panel_multiply_fn mox_expert_gemm_neon_bf16_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (mox_neon_bf16_multiply == NULL || !mox_cpu()->neon_bf16)
        mox_reject(why, "run on a processor that has it",
                   "needs BFDOT and BFMMLA, which this processor or build lacks");
    else if (mox_panel_admit_bf16(problem, why) && has_class(problem->weight, why) &&
             exact_in_bf16(problem->weight, why))
        return mox_neon_bf16_multiply;
    return NULL;
}

uint64_t mox_expert_gemm_neon_bf16_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return bytes_of(&(mox_neon_sizes) { .groups = groups_of(problem) });
}

/* A segment's sum of products must fit int32. A product is at most 2^14, with zero points 2^15. */
static bool fits_int32(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const int64_t cols = mox_expert_gemm_cols(problem), max_cols = INT32_MAX >> (problem->weight->has_zero ? 15 : 14);
    const int64_t group = mox_min_i64(mox_group_cols(problem->weight, cols), mox_gemm_problem_act_group(problem));
    if (group <= max_cols)
        return true;
    return mox_reject(why, "quantize weights or activations in shorter groups",
                      "sums groups of at most %lld columns exactly in int32, these have %lld", (long long)max_cols,
                      (long long)group);
}

static mox_panel_multiply_fn best_i8(void)
{
    if (has_i8mm())
        return mox_neon_i8_i8mm_multiply;
    return mox_neon_i8_dotprod_multiply != NULL && mox_cpu()->dotprod ? mox_neon_i8_dotprod_multiply
                                                                      : mox_neon_i8_multiply;
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
    else if (fits_int32(problem, why))
        return best_i8();
    return NULL;
}

uint64_t mox_expert_gemm_neon_i8_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const int64_t most = mox_ceil_div(mox_expert_gemm_cols(problem), MOX_PANEL_STEP / 2); /* of segments */
    return bytes_of(
        &(mox_neon_sizes) { .groups = groups_of(problem), .segments = problem->weight->has_zero ? most : 0 });
}
