/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_gemm.cpp - the product of sm90_plan.h's operations, by the emulator.
 */
#include "cuda/expert_gemm/sm90_plan.h"
#include "test_cuda_sm90.h"

extern "C" moxie_status test_emulated_gemm(void *context, mox_sm90_element element, const mox_sm90_args *args, int32_t most,
                                           int32_t blocks, bool dependent)
{
    (void)context, (void)most;
    mox_sm90_args g = *args;
    (void)mox_sm90_ring(element, &g);
    if (g.few.ids != nullptr && g.stages > MOX_SM90_FEW_STAGES)
        g.stages = MOX_SM90_FEW_STAGES;
    return mox_sm90_launch_gemm(element, &g, blocks, dependent, nullptr) == 0 ? MOXIE_OK : MOXIE_ERR_UNSUPPORTED;
}
