/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_quant_act.c - the list of family quant_act on CUDA, made from cuda_quant_act.def: it takes what the CPU's scalar
 * row takes.
 */
#include "cuda/quant_act/cuda_quant_act.h"

#include "cpu/quant_act/quant_act.h"
#include "cuda/cuda_table.h"

#define MOX_CUDA_ROW(family_, id, needs_, exactness_)                                                                  \
    { .cuda = { .base = { .family = #family_, .name = #id, .exactness = exactness_, .layout = "" },                    \
                .needs = needs_,                                                                                       \
                .launcher = MOX_CUDA_AT_##family_##_##id },                                                            \
      .admit = mox_quant_act_scalar_admit },
static const mox_cuda_quant_act_row rows[] = {
#include "cuda/quant_act/cuda_quant_act.def"
};
#undef MOX_CUDA_ROW

const mox_cuda_quant_act_row *mox_cuda_quant_act_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}
