/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm.c - the list of family expert_gemm (the two products of every expert), made from expert_gemm.def, and
 * what is the same for its two sorts of rows.
 */
#include "cpu/expert_gemm/expert_gemm.h"

#include "cpu/expert_gemm/panel_kernel.h"

#define MOX_EXPERT_GEMM(id, isa_, exactness_, layout_, sum_)                                                           \
    {                                                                                                                  \
        .base = { .family = "expert_gemm", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },     \
        .sum = sum_,                                                                                                   \
        .run = mox_expert_gemm_##id##_run,                                                                             \
        .admit = mox_expert_gemm_##id##_admit,                                                                         \
        .scratch_bytes = mox_expert_gemm_##id##_scratch_bytes,                                                         \
    },
#define MOX_PANEL_GEMM(id, isa_, exactness_, operand_, sum_)                                                           \
    {                                                                                                                  \
        .base = { .family = "expert_gemm", .name = #id, .isa = isa_, .exactness = exactness_, .layout = "panel16" },   \
        .sum = sum_,                                                                                                   \
        .operand = operand_,                                                                                           \
        .bind = mox_expert_gemm_##id##_bind,                                                                           \
        .scratch_bytes = mox_expert_gemm_##id##_scratch_bytes,                                                         \
    },
static const mox_expert_gemm_kernel rows[] = {
#include "cpu/expert_gemm/expert_gemm.def"
};
#undef MOX_EXPERT_GEMM
#undef MOX_PANEL_GEMM

const mox_expert_gemm_kernel *mox_expert_gemm_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}

bool mox_expert_gemm_admit(const mox_expert_gemm_kernel *row, const mox_expert_gemm_problem *problem,
                           mox_rejection *why)
{
    if (row->bind == NULL)
        return row->admit(problem, why);
    return mox_panel_admit_groups(problem, why) && row->bind(problem, why) != NULL;
}
