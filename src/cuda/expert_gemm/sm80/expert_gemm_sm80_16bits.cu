/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm80_16bits.cu - instantiates sm80_kernel.cuh for weights that the tensor cores read as they are.
 */
#include "cuda/expert_gemm/sm80/sm80_kernel.cuh"

mox_sm90_kernel mox_sm80_kernel_bf16(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_BF16>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_f16(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_F16>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_int8(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_INT8>(max_columns);
}
