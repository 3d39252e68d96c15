/* SPDX-License-Identifier: Apache-2.0
 *
 * activations.c - what kind F32 of activations looks like for a quantizer (activations.h).
 */
#include "cpu/activations.h"

#include "base/sizes.h"
#include "quant/quant.h"

mox_activations mox_activations_f32(const moxie_quant *quant, int64_t rows, int64_t cols)
{
    mox_activations a = { .kind = MOX_ACTIVATIONS_F32,
                          .rows = rows,
                          .cols = cols,
                          .stride = mox_ceil_div(cols, MOX_ACTIVATIONS_PAD) * MOX_ACTIVATIONS_PAD,
                          .group_cols = mox_max_i64(cols, 1) };
    if (mox_quant_is_none(quant))
        return a;
    a.group_cols = mox_act_group_cols(quant, cols);
    a.scale_cols = mox_ceil_div(cols, a.group_cols);
    a.global_kind = quant->global;
    a.integer = mox_format_of(quant->element)->kind == MOX_KIND_INTEGER;
    return a;
}
