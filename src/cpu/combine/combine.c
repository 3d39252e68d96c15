/* SPDX-License-Identifier: Apache-2.0
 *
 * combine.c - the kernel list of family combine (the weighted sum over a token's experts), made from combine.def.
 */
#include "cpu/combine/combine.h"

#include "format/format.h"

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

float mox_combine_y(const mox_combine_args *args, int64_t at)
{
    if (args->y16 != NULL)
        return mox_load(args->round_y, (const uint16_t *)args->y16 + at);
    return args->round_y != MOXIE_DTYPE_NONE ? mox_round_to(args->round_y, args->y[at]) : args->y[at];
}
