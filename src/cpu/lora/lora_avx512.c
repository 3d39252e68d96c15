/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_avx512.c - family lora, 512 bits at a time: lora_lanes.h, compiled for AVX-512.
 */
#include "cpu/lora/lora_lanes.h"

void mox_lora_avx512_shrink(const mox_lora_shrink_tile *tile)
{
    MOX_LORA_FOR(mox_lora_shrink_rows, tile)
}

void mox_lora_avx512_expand(const mox_lora_expand_tile *tile)
{
    MOX_LORA_FOR(mox_lora_expand_rows, tile)
}
