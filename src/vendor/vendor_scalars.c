/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_scalars.c - the scalars of an expert that no part of a layout holds, for undo only: MOX_VENDOR_SCALARS.
 *
 *     globals of gate, up, down | static activation scales a13, a2 | scales of gate, up, down where a matrix has one
 *
 * In the flow: checkpoint views -> [tensor moxie.kept] -> file, and back (vendor.h).
 */
#include "pack/grid_move.h"
#include "vendor/vendor_internal.h"

/* The number in a grid of one element, else 0. */
static float one_of(const moxie_grid *grid)
{
    return grid->data != NULL && grid->rows * grid->cols == 1 ? mox_pack_get_float(grid, 0, 0) : 0;
}

static void put_one(const moxie_grid *grid, float value)
{
    if (grid->data != NULL && grid->rows * grid->cols == 1)
        mox_pack_put_float(grid, 0, 0, value);
}

void mox_vendor_scalars_write(const mox_record_shape *shape, const moxie_expert *expert, void *to)
{
    float scalars[MOX_VENDOR_SCALAR_COUNT];
    const bool scale13 = mox_vendor_has_scalar(shape, MOX_VENDOR_W13),
               scale2 = mox_vendor_has_scalar(shape, MOX_VENDOR_W2);
    scalars[0] = one_of(&expert->gate.global);
    scalars[1] = one_of(&expert->up.global);
    scalars[2] = one_of(&expert->down.global);
    scalars[3] = expert->a13_scale;
    scalars[4] = expert->a2_scale;
    scalars[5] = scale13 ? one_of(&expert->gate.scale) : 0;
    scalars[6] = scale13 ? one_of(&expert->up.scale) : 0;
    scalars[7] = scale2 ? one_of(&expert->down.scale) : 0;
    memcpy(to, scalars, sizeof scalars);
}

void mox_vendor_scalars_restore(const mox_record_shape *shape, const void *tensor, moxie_expert *out)
{
    float scalars[MOX_VENDOR_SCALAR_COUNT];
    memcpy(scalars, tensor, sizeof scalars);
    put_one(&out->gate.global, scalars[0]);
    put_one(&out->up.global, scalars[1]);
    put_one(&out->down.global, scalars[2]);
    out->a13_scale = scalars[3];
    out->a2_scale = scalars[4];
    if (mox_vendor_has_scalar(shape, MOX_VENDOR_W13)) {
        put_one(&out->gate.scale, scalars[5]);
        put_one(&out->up.scale, scalars[6]);
    }
    if (mox_vendor_has_scalar(shape, MOX_VENDOR_W2))
        put_one(&out->down.scale, scalars[7]);
}
