/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm80_int4.cu - instantiates sm80_kernel.cuh for 4-bit integers that are rounded to 16 bits.
 */
#include "cuda/expert_gemm/sm80/sm80_kernel.cuh"

mox_sm90_kernel mox_sm80_kernel_int4_short(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_INT4_SHORT>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_int4_long(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_INT4_LONG>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_int4_f16_short(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_INT4_F16_SHORT>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_int4_f16_long(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_INT4_F16_LONG>(max_columns);
}
