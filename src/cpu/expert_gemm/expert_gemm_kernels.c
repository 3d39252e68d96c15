/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_kernels.c - the kernels of family expert_gemm (the two products of every expert), made from
 * expert_gemm.def, and the function that says whether a kernel of either type accepts a problem. expert_gemm.h says
 * what a kernel computes; panel_run.c runs one.
 *
 *     expert_gemm.def -> one constant a kernel, of its type -> kernels[], pointers to their heads, best first
 */
#include "cpu/expert_gemm/expert_gemm.h"

#include "cpu/expert_gemm/panel_kernel.h"

#define HEAD(id, isa_, exactness_, layout_, kind_, sum_)                                                               \
    {                                                                                                                  \
        .base = { .family = "expert_gemm", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },     \
        .kind = kind_, .sum = sum_, .scratch_bytes = mox_expert_gemm_##id##_scratch_bytes                              \
    }
#define MOX_EXPERT_GEMM(id, isa, exactness, layout, sum)                                                               \
    static const mox_product_kernel id = { .head = HEAD(id, isa, exactness, layout, MOX_GEMM_PRODUCT, sum),            \
                                           .admit = mox_expert_gemm_##id##_admit,                                      \
                                           .run = mox_expert_gemm_##id##_run };
#define MOX_PANEL_GEMM(id, isa, exactness, order_, sum)                                                                \
    static const mox_panel_kernel id = { .head = HEAD(id, isa, exactness, "panel16", MOX_GEMM_PANEL, sum),             \
                                         .order = order_,                                                              \
                                         .bind = mox_expert_gemm_##id##_bind };
#include "cpu/expert_gemm/expert_gemm.def"
#undef MOX_EXPERT_GEMM
#undef MOX_PANEL_GEMM
#undef HEAD

#define MOX_EXPERT_GEMM(id, ...) &id.head,
#define MOX_PANEL_GEMM(id, ...)  &id.head,
static const mox_expert_gemm_kernel *const kernels[] = {
#include "cpu/expert_gemm/expert_gemm.def"
};
#undef MOX_EXPERT_GEMM
#undef MOX_PANEL_GEMM

const mox_expert_gemm_kernel *mox_expert_gemm_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? kernels[i] : NULL;
}

bool mox_expert_gemm_admit(const mox_expert_gemm_kernel *kernel, const mox_expert_gemm_problem *problem,
                           mox_rejection *why)
{
    const mox_panel_kernel *panel = mox_panel_kernel_of(kernel);
    if (panel == NULL)
        return ((const mox_product_kernel *)kernel)->admit(problem, why);
    return mox_panel_admit_groups(problem, why) && panel->bind(problem, why) != NULL;
}
