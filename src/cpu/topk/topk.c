/* SPDX-License-Identifier: Apache-2.0
 *
 * topk.c - the kernel list of family topk (routing methods to ids and weights), made from topk.def.
 */
#include "cpu/topk/topk.h"

#define MOX_TOPK(id, isa_, exactness_, layout_)                                                                        \
    {                                                                                                                  \
        .base = { .family = "topk", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },            \
        .run = mox_topk_##id##_run,                                                                                    \
        .admit = mox_topk_##id##_admit,                                                                                \
    },
static const mox_topk_kernel kernels[] = {
#include "cpu/topk/topk.def"
};
#undef MOX_TOPK

const mox_topk_kernel *mox_topk_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
