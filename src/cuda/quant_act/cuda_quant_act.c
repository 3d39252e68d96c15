/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_quant_act.c - the list of family quant_act on CUDA, made from cuda_quant_act.def, and what its rows refuse:
 *
 *     groups    all but FP8 E4M3 codes by dynamic scales of 128 columns, which is what tensor cores of FP8 read, powers
 *               of two of 32, and NVFP4
 *     rows      all but FP8 and 8-bit integers by one scale a row, or by a static one
 *     simple    what the CPU's scalar row refuses
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
    case MOX_ACT_FP8_GROUP: return quant->element == MOXIE_F8_E4M3 && quant->group_cols == GROUP;
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
        return mox_reject(why, "", "makes codes, and the product reads numbers");
    if (problem->weighed)
        return mox_reject(why, "weigh the experts' results",
                          "does not weigh the activations, as this routing wants it");
    return true;
}

static bool admit_groups(const mox_cuda_quant_act_problem *problem, mox_rejection *why)
{
    if (!is_in_groups(problem->quant))
        return mox_reject(why, "quantize them to f8_e4m3 in groups of 128, to nvfp4, or by powers of two of 32",
                          "makes f8_e4m3 codes with dynamic scales of 128 columns, codes with powers of two of 32, or "
                          "nvfp4");
    return makes_codes(problem, why);
}

static bool admit_rows(const mox_cuda_quant_act_problem *problem, mox_rejection *why)
{
    if (!is_by_row(problem->quant))
        return mox_reject(why, "quantize them to f8 or i8 with a scale a row, or a static one",
                          "makes f8 and i8 codes with a dynamic scale a row, or a static one");
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
static const mox_cuda_quant_act_kernel rows[] = {
#include "cuda/quant_act/cuda_quant_act.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_quant_act_kernel *mox_cuda_quant_act_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}
