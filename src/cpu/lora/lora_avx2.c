/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_avx2.c - family lora, 256 bits at a time: lora_lanes.h, compiled for AVX2.
 */
#include "cpu/lora/lora_lanes.h"

void mox_lora_avx2_shrink(const mox_lora_shrink_tile *tile)
{
    MOX_LORA_FOR(mox_lora_shrink_rows, tile)
}

void mox_lora_avx2_expand(const mox_lora_expand_tile *tile)
{
    MOX_LORA_FOR(mox_lora_expand_rows, tile)
}
