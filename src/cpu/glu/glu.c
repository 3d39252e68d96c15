/* SPDX-License-Identifier: Apache-2.0
 *
 * glu.c - the list of family glu (the activation between the two products), made from glu.def.
 */
#include "cpu/glu/glu.h"

#define MOX_GLU(id, isa_, exactness_, layout_)                                                                         \
    {                                                                                                                  \
        .base = { .family = "glu", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },             \
        .run = mox_glu_##id##_run,                                                                                     \
        .admit = mox_glu_##id##_admit,                                                                                 \
    },
static const mox_glu_row rows[] = {
#include "cpu/glu/glu.def"
};
#undef MOX_GLU

const mox_glu_row *mox_glu_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}
