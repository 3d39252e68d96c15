/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm80_gguf.cu - instantiates sm80_kernel.cuh for block types (mma_decode_gguf.cuh).
 */
#include "cuda/expert_gemm/sm80/sm80_kernel.cuh"

mox_sm90_kernel mox_sm80_kernel_gguf4(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_GGUF4>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_gguf4_levels(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_GGUF4_LEVELS>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_gguf5(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_GGUF5>(max_columns);
}

mox_sm90_kernel mox_sm80_kernel_gguf6(int32_t max_columns)
{
    return mox_sm80_kernel_of<MOX_SM90_GGUF6>(max_columns);
}
