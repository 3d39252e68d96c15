/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm80_floats.cu - instantiates sm80_kernel.cuh for codes of floats, and 8-bit integers with a scale a row.
 */
#include "cuda/expert_gemm/sm80/sm80_kernel.cuh"

mox_sm90_kernel mox_sm80_kernel_mxfp4(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_MXFP4>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_nvfp4(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_NVFP4>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_mxfp6(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_MXFP6>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_w8(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_W8>(max_columns);
}
