/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm90_w8_blocks.cu - instantiates sm90_kernel.cuh for FP8 weights with scales of blocks. Each element has
 * a file: files compile in parallel.
 */
#include "cuda/expert_gemm/sm90/sm90_kernel.cuh"

mox_sm90_kernel mox_sm90_kernel_w8_blocks(int32_t max_columns)
{
    return mox_sm90_kernel_of<MOX_SM90_W8_BLOCKS>(max_columns);
}
