/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm90_int4_fp8.cu - instantiates sm90_kernel.cuh for 4-bit integers, converted to e4m3, and e4m3 tokens.
 * Each element has a file: files compile in parallel.
 */
#include "cuda/expert_gemm/sm90/sm90_kernel.cuh"

mox_sm90_kernel mox_sm90_kernel_int4_fp8(int32_t max_columns)
{
    return mox_sm90_kernel_of<MOX_SM90_INT4_FP8>(max_columns);
}
