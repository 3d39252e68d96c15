/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm90_int8_blocks.cu - instantiates sm90_kernel.cuh for 8-bit integers in groups, whose sums are
 * multiplied by scales, and tokens of bf16. Each element has a file: files compile in parallel.
 */
#include "cuda/expert_gemm/sm90/sm90_kernel.cuh"

mox_sm90_kernel mox_sm90_kernel_int8_blocks(int32_t max_columns)
{
    return mox_sm90_kernel_of<MOX_SM90_INT8_BLOCKS>(max_columns);
}
