/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_quant_act.c - the list of family quant_act on CUDA, made from cuda_quant_act.def, and what its rows refuse:
 *
 *     groups    all but FP8 E4M3 codes by dynamic scales of 128 columns, which is what tensor cores of FP8 read
 *     simple    what the CPU's scalar row refuses
 */
#include "cuda/quant_act/cuda_quant_act.h"

#include "cpu/quant_act/quant_act.h"
#include "cuda/cuda_table.h"
#include "quant/act_rules.h"
#include "quant/quant.h"

enum { GROUP = 128 };

static bool admit_groups(const mox_cuda_quant_act_problem *problem, mox_refusal *why)
{
    const moxie_quant *quant = problem->quant;
    if (quant->element != MOXIE_F8_E4M3 || mox_act_quant_rule(quant) != MOX_ACT_FP8_GROUP || quant->group_cols != GROUP)
        return mox_refuse(why, "quantize them to f8_e4m3 in groups of 128",
                          "makes f8_e4m3 codes with dynamic scales of 128 columns");
    if (problem->operand != MOX_CUDA_OPERAND_CODES)
        return mox_refuse(why, "", "makes codes, and the product reads numbers");
    if (problem->weighed)
        return mox_refuse(why, "weigh the experts' results",
                          "does not weigh the activations, as this routing wants it");
    return true;
}

static bool admit_simple(const mox_cuda_quant_act_problem *problem, mox_refusal *why)
{
    return mox_quant_act_scalar_admit(problem->quant, why);
}

#define MOX_CUDA_ROW(family_, id, needs_, exactness_)                                                                  \
    { .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = "" },                    \
                .needs = needs_,                                                                                       \
                .launcher = MOX_CUDA_AT_##family_##_##id },                                                            \
      .admit = admit_##id },
static const mox_cuda_quant_act_row rows[] = {
#include "cuda/quant_act/cuda_quant_act.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_quant_act_row *mox_cuda_quant_act_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}
