/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_form.c - mox_hopper_form(): where the parts of a record lie, for kernels and their checks.
 *
 * Each of the three layouts (hopper.h) has its own order of elements in a tile; sizes follow from that order.
 */
#include "pack/hopper/hopper.h"

#include "pack/hopper/hopper_tiles.h"

bool mox_hopper_form(const mox_layout *layout, const mox_record_shape *shape, mox_hopper_record *out)
{
    if (layout->base != NULL) /* with sorted columns */
        layout = layout->base;
    const mox_hopper_order *order = layout == &mox_layout_hopper         ? &mox_hopper_swizzled
                                    : layout == &mox_layout_hopper_codes ? &mox_hopper_fragments
                                    : layout == &mox_layout_hopper_fp8   ? &mox_hopper_fragments_fp8
                                                                         : NULL;
    return order != NULL && mox_hopper_measure(order, shape, out);
}
