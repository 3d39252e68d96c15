/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_scalar.c - family lora in portable C: lora_lanes.h, compiled for the vectors of the architecture's baseline.
 */
#include "cpu/lora/lora_lanes.h"

void mox_lora_scalar_shrink(const mox_lora_shrink_tile *tile)
{
    MOX_LORA_FOR(mox_lora_shrink_rows, tile)
}

void mox_lora_scalar_expand(const mox_lora_expand_tile *tile)
{
    MOX_LORA_FOR(mox_lora_expand_rows, tile)
}
