/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm.c - the list of family expert_gemm (the two products of every expert), made from expert_gemm.def.
 */
#include "cpu/expert_gemm/expert_gemm.h"

#define MOX_EXPERT_GEMM(id, isa_, exactness_, layout_)                                                                 \
    {                                                                                                                  \
        .base = { .family = "expert_gemm", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },     \
        .run = mox_expert_gemm_##id##_run,                                                                             \
        .admit = mox_expert_gemm_##id##_admit,                                                                         \
        .scratch_bytes = mox_expert_gemm_##id##_scratch_bytes,                                                         \
    },
static const mox_expert_gemm_row rows[] = {
#include "cpu/expert_gemm/expert_gemm.def"
};
#undef MOX_EXPERT_GEMM

const mox_expert_gemm_row *mox_expert_gemm_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}
