/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm90_w8.cu - the kernel of sm90_kernel.cuh for weights of 8 bits that are decoded. A file by itself,
 * since it takes long to compile.
 */
#include "cuda/expert_gemm/sm90/sm90_kernel.cuh"

mox_sm90_kernel mox_sm90_kernel_w8(int32_t max_columns)
{
    return mox_sm90_kernel_of<MOX_SM90_W8>(max_columns);
}
