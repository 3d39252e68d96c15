/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm80_sums.cu - instantiates sm80_kernel.cuh for codes whose scales multiply sums.
 */
#include "cuda/expert_gemm/sm80/sm80_kernel.cuh"

mox_sm90_kernel mox_sm80_kernel_w8_blocks(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_W8_BLOCKS>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_w8_blocks_qact(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_W8_BLOCKS_QACT>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_int8_blocks(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_INT8_BLOCKS>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_int4_blocks_short(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_INT4_BLOCKS_SHORT>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_int4_blocks_long(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_INT4_BLOCKS_LONG>(max_columns);
}
