/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_quant_act.c - the kernel list of family quant_act on CUDA, made from cuda_quant_act.def, and what each kernel
 * accepts:
 *
 *     groups    E4M3 codes by dynamic scales of 128 columns, codes by powers of two of 32 columns, and NVFP4
 *     rows      FP8 and 8-bit integers by one scale per row, or by a static scale
 *     simple    all that the CPU's scalar kernel accepts
 */
#include "cuda/quant_act/cuda_quant_act.h"

#include "cpu/quant_act/quant_act.h"
#include "cuda/cuda_table.h"
#include "quant/act_rules.h"
#include "quant/quant.h"

enum { GROUP = 128, MX_GROUP = 32, NVFP4_GROUP = 16 };

static bool is_in_groups(const moxie_quant *quant)
{
    if (mox_quant_is_none(quant))
        return false;
    switch (mox_act_quant_rule(quant)) {
    case MOX_ACT_FP8_GROUP:
        return (quant->element == MOXIE_F8_E4M3 && quant->group_cols == GROUP) ||
               (quant->rule == MOXIE_RULE_UE8M0 && quant->group_cols == MX_GROUP);
    case MOX_ACT_MX_GROUP: return quant->group_cols == MX_GROUP;
    case MOX_ACT_NVFP4_GROUP: return quant->group_cols == NVFP4_GROUP;
    default: return false;
    }
}

static bool is_by_row(const moxie_quant *quant)
{
    if (mox_quant_is_none(quant))
        return false;
    switch (mox_act_quant_rule(quant)) {
    case MOX_ACT_FP8_TOKEN:
    case MOX_ACT_FP8_TENSOR_STATIC:
    case MOX_ACT_INT8_TOKEN:
    case MOX_ACT_INT8_TENSOR_STATIC: return true;
    default: return false;
    }
}

static bool makes_codes(const mox_cuda_quant_act_problem *problem, mox_rejection *why)
{
    if (problem->kind != MOX_ACTIVATIONS_CODES)
        return mox_reject(why, "", "makes codes, but the product reads decoded values");
    if (problem->weighed)
        return mox_reject(why, "apply the routing weights to the experts' results",
                          "cannot multiply activations by routing weights, as this routing requires");
    return true;
}

static bool admit_groups(const mox_cuda_quant_act_problem *problem, mox_rejection *why)
{
    if (!is_in_groups(problem->quant))
        return mox_reject(
            why, "quantize activations to f8_e4m3 in groups of 128, to nvfp4, or by powers of two of 32 columns",
            "makes f8_e4m3 codes with dynamic scales of 128 columns, codes with powers of two of 32 "
            "columns, or nvfp4");
    return makes_codes(problem, why);
}

static bool admit_rows(const mox_cuda_quant_act_problem *problem, mox_rejection *why)
{
    if (!is_by_row(problem->quant))
        return mox_reject(why, "quantize activations to f8 or i8 with a scale per row, or a static scale",
                          "makes f8 and i8 codes with a dynamic scale per row, or a static scale");
    return makes_codes(problem, why);
}

static bool admit_simple(const mox_cuda_quant_act_problem *problem, mox_rejection *why)
{
    return mox_quant_act_scalar_admit(problem->quant, why);
}

#define MOX_CUDA_ROW(family_, id, needs_, exactness_)                                                                  \
    { .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = "" },                    \
                .needs = needs_,                                                                                       \
                .launcher = MOX_CUDA_AT_##family_##_##id },                                                            \
      .admit = admit_##id },
static const mox_cuda_quant_act_kernel kernels[] = {
#include "cuda/quant_act/cuda_quant_act.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_quant_act_kernel *mox_cuda_quant_act_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
