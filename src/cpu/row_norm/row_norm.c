/* SPDX-License-Identifier: Apache-2.0
 *
 * row_norm.c - the kernel list of family row_norm (norms of the router's input and of experts' results), made from
 * row_norm.def.
 */
#include "cpu/row_norm/row_norm.h"

#define MOX_ROW_NORM(id, isa_, exactness_, layout_)                                                                    \
    {                                                                                                                  \
        .base = { .family = "row_norm", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },        \
        .run = mox_row_norm_##id##_run,                                                                                \
    },
static const mox_row_norm_kernel kernels[] = {
#include "cpu/row_norm/row_norm.def"
};
#undef MOX_ROW_NORM

const mox_row_norm_kernel *mox_row_norm_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
