/* SPDX-License-Identifier: Apache-2.0
 *
 * packed_choice.c - an id and a weight in 32 bits, the form in which FlashInfer's kernels accept precomputed choices.
 *
 *     31 .. 16          15 .. 0
 *     id, int16         weight, bf16
 *
 * The halves are combined as unsigned numbers: with int16, the sign extension of a negative weight would overwrite the
 * id with ones. An id is stored as its 16 low bits and read back with its sign, so that -1 (skip) survives.
 */
#include "route/route.h"

uint32_t mox_pack_choice(int32_t id, float weight)
{
    return (uint32_t)id << 16 | mox_bf16_narrow(weight);
}

void mox_unpack_choice(uint32_t packed, int32_t *id, float *weight)
{
    *id = (int32_t)((packed >> 16) ^ 0x8000u) - 0x8000;
    *weight = mox_bf16_decode(packed & 0xffffu);
}
