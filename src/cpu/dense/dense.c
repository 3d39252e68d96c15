/* SPDX-License-Identifier: Apache-2.0
 *
 * dense.c - the kernel list of family dense (router and shared gate), made from dense.def.
 */
#include "cpu/dense/dense.h"

#define MOX_DENSE(id, isa_, exactness_, layout_)                                                                       \
    {                                                                                                                  \
        .base = { .family = "dense", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },           \
        .run = mox_dense_##id##_run,                                                                                   \
    },
static const mox_dense_kernel kernels[] = {
#include "cpu/dense/dense.def"
};
#undef MOX_DENSE

const mox_dense_kernel *mox_dense_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}
