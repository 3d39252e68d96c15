/* SPDX-License-Identifier: Apache-2.0
 *
 * permute.c - the list of family permute (grouping of pairs by slot), made from permute.def.
 */
#include "cpu/permute/permute.h"

#define MOX_PERMUTE(id, isa_, exactness_, layout_)                                                                     \
    {                                                                                                                  \
        .base = { .family = "permute", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },         \
        .run = mox_permute_##id##_run,                                                                                 \
    },
static const mox_permute_kernel kernels[] = {
#include "cpu/permute/permute.def"
};
#undef MOX_PERMUTE

const mox_permute_kernel *mox_permute_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
