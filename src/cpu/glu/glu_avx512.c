/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_avx512.c - family glu, 512 bits at a time: glu_lanes_tile.h, compiled for AVX-512.
 */
#include "cpu/glu/glu.h"
#include "cpu/glu/glu_lanes_tile.h"

void mox_glu_avx512_tile(const mox_glu_tile *tile)
{
    mox_glu_lanes(tile);
}

void mox_glu_avx512_run(const mox_glu_args *args, const moxie_executor *executor)
{
    mox_glu_run_tiles(mox_glu_avx512_tile, args, executor);
}
