/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_hopper_codes8.c - layout "hopper_codes8", drawn in hopper.h: layout_hopper_codes.c has what it is made by.
 *
 * In the flow: checkpoint views -> [record] -> slot -> the kernels of cuda/expert_gemm that read layout hopper_codes8.
 */
#include "pack/hopper_tiles.h"

MOX_HOPPER_LAYOUT(mox_hopper_byte_fragments)

const mox_layout mox_layout_hopper_codes8 = {
    .number = 5,
    .name = "hopper_codes8",
    .summary = "codes of 4 bits in the order of registers that decode to FP8 for warpgroup MMA of Hopper GPUs",
    MOX_HOPPER_FUNCTIONS,
};
