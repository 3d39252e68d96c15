/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_scalar.c - family glu in portable C: glu_lanes_tile.h, compiled for the vectors of the architecture's baseline.
 */
#include "cpu/glu/glu.h"
#include "cpu/glu/glu_lanes_tile.h"

void mox_glu_scalar_tile(const mox_glu_tile *tile)
{
    mox_glu_lanes(tile);
}

void mox_glu_scalar_run(const mox_glu_args *args, const moxie_executor *executor)
{
    mox_glu_run_tiles(mox_glu_scalar_tile, args, executor);
}
