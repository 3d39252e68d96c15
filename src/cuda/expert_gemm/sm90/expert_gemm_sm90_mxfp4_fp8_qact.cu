/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm90_mxfp4_fp8_qact.cu - instantiates sm90_kernel.cuh for MXFP4 weights, converted to e4m3, and e4m3
 * tokens with scales of groups. Each element has a file: files compile in parallel.
 */
#include "cuda/expert_gemm/sm90/sm90_kernel.cuh"

mox_sm90_kernel mox_sm90_kernel_mxfp4_fp8_qact(int32_t max_columns)
{
    return mox_sm90_kernel_of<MOX_SM90_MXFP4_FP8_QACT>(max_columns);
}
