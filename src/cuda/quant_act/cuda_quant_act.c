/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_quant_act.c - the list of family quant_act on CUDA, made from cuda_quant_act.def, and what its rows refuse:
 *
 *     groups    all but FP8 E4M3 codes by dynamic scales of 128 columns, or powers of two of 32, which is what tensor
 * cores of FP8 read simple    what the CPU's scalar row refuses
 */
#include "cuda/quant_act/cuda_quant_act.h"

#include "cpu/quant_act/quant_act.h"
#include "cuda/cuda_table.h"
#include "quant/act_rules.h"
#include "quant/quant.h"

enum { GROUP = 128, MX_GROUP = 32 };

static bool admit_groups(const mox_cuda_quant_act_problem *problem, mox_refusal *why)
{
    const moxie_quant *quant = problem->quant;
    const int32_t rule = quant->element == MOXIE_F8_E4M3 ? mox_act_quant_rule(quant) : -1;
    if ((rule != MOX_ACT_FP8_GROUP || quant->group_cols != GROUP) &&
        (rule != MOX_ACT_MX_GROUP || quant->group_cols != MX_GROUP))
        return mox_refuse(why, "quantize them to f8_e4m3 in groups of 128, or of 32 by powers of two",
                          "makes f8_e4m3 codes with dynamic scales of 128 columns, or powers of two of 32");
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
