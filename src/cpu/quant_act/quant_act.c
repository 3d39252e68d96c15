/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act.c - the list of family quant_act (activations to operands), made from quant_act.def.
 */
#include "cpu/quant_act/quant_act.h"

#define MOX_QUANT_ACT(id, isa_, exactness_, layout_)                                                                   \
    {                                                                                                                  \
        .base = { .family = "quant_act", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },       \
        .run = mox_quant_act_##id##_run,                                                                               \
        .admit = mox_quant_act_##id##_admit,                                                                           \
    },
static const mox_quant_act_row rows[] = {
#include "cpu/quant_act/quant_act.def"
};
#undef MOX_QUANT_ACT

const mox_quant_act_row *mox_quant_act_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}
