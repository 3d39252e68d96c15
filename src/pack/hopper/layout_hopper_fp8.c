/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_hopper_fp8.c - layout "hopper_fp8", drawn in hopper.h: chunks of 128 columns whose codes kernels decode to
 * e4m3.
 *
 * The order of elements is layout_hopper_codes.c's, with to_fp8 set. Experts whose scales span too many powers of two
 * fall back to hopper_codes.
 *
 * In the flow: checkpoint views -> [record] -> slot -> the kernels of cuda/expert_gemm that read layout hopper_fp8.
 */
#include "pack/hopper/hopper_tiles.h"

MOX_HOPPER_LAYOUT(mox_hopper_fragments_fp8)

const mox_layout mox_layout_hopper_fp8 = {
    .number = 5,
    .name = "hopper_fp8",
    .summary = "codes of 4 bits in the order of registers that make FP8 of them for warpgroup MMA of Hopper GPUs",
    .fallback = &mox_layout_hopper_codes,
    MOX_HOPPER_FUNCTIONS,
};
