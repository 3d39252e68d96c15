/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm90_mxfp4_e4m3.cu - the kernel of sm90_kernel.cuh for weights of MXFP4 and tokens of e4m3. A file by itself, since it
 * takes long to compile.
 */
#include "cuda/expert_gemm/sm90_kernel.cuh"

mox_sm90_kernel mox_sm90_kernel_mxfp4_e4m3(int32_t most)
{
    return mox_sm90_kernel_of<MOX_SM90_MXFP4_E4M3, mox_sm90_widths_codes8>(most);
}
