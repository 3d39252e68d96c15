/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm90_e4m3.cu - instantiates sm90_kernel.cuh for e4m3 weights and tokens. Each element has a
 * file: files compile in parallel.
 */
#include "cuda/expert_gemm/sm90/sm90_kernel.cuh"

mox_sm90_kernel mox_sm90_kernel_e4m3(int32_t max_columns)
{
    return mox_sm90_kernel_of<MOX_SM90_E4M3>(max_columns);
}
