/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_kept.c - the few numbers of an expert that no part of a layout holds, for undo only: MOX_VENDOR_KEPT.
 *
 *     gate's, up's and down's global | a13's, a2's scale | gate's, up's and down's scale where it is one per matrix
 *
 * In the flow: checkpoint views -> [moxie.kept] -> file, and back (vendor.h).
 */
#include "pack/grid_move.h"
#include "vendor/vendor_internal.h"

/* The one number of a grid; 0: it has none or many. */
static float one_of(const moxie_grid *grid)
{
    return grid->data != NULL && grid->rows * grid->cols == 1 ? mox_pack_get_float(grid, 0, 0) : 0;
}

static void put_one(const moxie_grid *grid, float value)
{
    if (grid->data != NULL && grid->rows * grid->cols == 1)
        mox_pack_put_float(grid, 0, 0, value);
}

void mox_kept_write(const mox_record_shape *shape, const moxie_expert *expert, void *to)
{
    float kept[MOX_VENDOR_KEPT_COUNT];
    const bool scale13 = mox_vendor_has_scalar(shape, MOX_VENDOR_W13),
               scale2 = mox_vendor_has_scalar(shape, MOX_VENDOR_W2);
    kept[0] = one_of(&expert->gate.global);
    kept[1] = one_of(&expert->up.global);
    kept[2] = one_of(&expert->down.global);
    kept[3] = expert->a13_scale;
    kept[4] = expert->a2_scale;
    kept[5] = scale13 ? one_of(&expert->gate.scale) : 0;
    kept[6] = scale13 ? one_of(&expert->up.scale) : 0;
    kept[7] = scale2 ? one_of(&expert->down.scale) : 0;
    memcpy(to, kept, sizeof kept);
}

void mox_kept_restore(const mox_record_shape *shape, const void *tensor, moxie_expert *out)
{
    float kept[MOX_VENDOR_KEPT_COUNT];
    memcpy(kept, tensor, sizeof kept);
    put_one(&out->gate.global, kept[0]);
    put_one(&out->up.global, kept[1]);
    put_one(&out->down.global, kept[2]);
    out->a13_scale = kept[3];
    out->a2_scale = kept[4];
    if (mox_vendor_has_scalar(shape, MOX_VENDOR_W13)) {
        put_one(&out->gate.scale, kept[5]);
        put_one(&out->up.scale, kept[6]);
    }
    if (mox_vendor_has_scalar(shape, MOX_VENDOR_W2))
        put_one(&out->down.scale, kept[7]);
}
