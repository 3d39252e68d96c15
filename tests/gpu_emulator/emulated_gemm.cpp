/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_gemm.cpp - the operations of sm90_plan.h on the emulator: the list, the gather, the product; and packers. Ranks are threads,
 * and the emulator runs one kernel at a time.
 */
#include <mutex>

#include "cuda/expert_gemm/sm90/sm90_plan.h"
#include "test_cuda_packers.h"
#include "test_cuda_sm90.h"

static std::mutex one_kernel;

extern "C" moxie_status test_emulated_gemm(void *context, mox_sm90_element element, const mox_sm90_args *args,
                                           int32_t blocks, bool dependent)
{
    (void)context;
    const std::lock_guard<std::mutex> alone(one_kernel);
    const auto launch = args->mma_sync ? mox_sm80_launch_gemm : mox_sm90_launch_gemm;
    return launch(element, args, blocks, dependent, nullptr) == 0 ? MOXIE_OK : MOXIE_ERR_UNSUPPORTED;
}

extern "C" moxie_status test_emulated_list(void *context, const mox_sm90_list_args *args, bool dependent)
{
    (void)context;
    const std::lock_guard<std::mutex> alone(one_kernel);
    return mox_sm90_launch_list(args, dependent, nullptr) == 0 ? MOXIE_OK : MOXIE_ERR_UNSUPPORTED;
}

extern "C" moxie_status test_emulated_gather(void *context, const mox_sm90_gather_args *args, bool dependent)
{
    (void)context;
    const std::lock_guard<std::mutex> alone(one_kernel);
    return mox_sm90_launch_gather(args, dependent, nullptr) == 0 ? MOXIE_OK : MOXIE_ERR_UNSUPPORTED;
}

extern "C" moxie_status test_emulated_pack(const mox_cuda_pack_args *args, mox_pack_order order, moxie_error *error)
{
    const std::lock_guard<std::mutex> alone(one_kernel);
    const auto launch = order == MOX_PACK_SWIZZLED    ? mox_cuda_pack_hopper_launch
                        : order == MOX_PACK_FRAGMENTS ? mox_cuda_pack_hopper_codes_launch
                                                      : mox_cuda_pack_hopper_fp8_launch;
    return launch(args, nullptr, error);
}
