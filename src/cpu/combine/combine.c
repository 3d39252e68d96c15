/* SPDX-License-Identifier: Apache-2.0
 *
 * combine.c - the kernel list of family combine (the weighted sum over a token's experts), made from combine.def.
 */
#include "cpu/combine/combine.h"

#define MOX_COMBINE(id, isa_, exactness_, layout_)                                                                     \
    {                                                                                                                  \
        .base = { .family = "combine", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },         \
        .run = mox_combine_##id##_run,                                                                                 \
    },
static const mox_combine_kernel kernels[] = {
#include "cpu/combine/combine.def"
};
#undef MOX_COMBINE

const mox_combine_kernel *mox_combine_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
