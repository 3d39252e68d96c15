/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm90_gguf6.cu - instantiates sm90_kernel.cuh for block types with codes of 6 bits (mma_decode_gguf.cuh).
 * Each element has a file: files compile in parallel.
 */
#include "cuda/expert_gemm/sm90/sm90_kernel.cuh"

mox_sm90_kernel mox_sm90_kernel_gguf6(int32_t max_columns)
{
    return mox_sm90_kernel_of<MOX_SM90_GGUF6>(max_columns);
}
