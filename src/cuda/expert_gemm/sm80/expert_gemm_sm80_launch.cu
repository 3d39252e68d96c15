/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm80_launch.cu - the launcher of the mma.sync gemm: the kernel for an element and a width, and its ring
 * of stages by the shared memory of the device.
 */
#include "cuda/device/device_launch.cuh"
#include "cuda/expert_gemm/sm80/sm80_ring.cuh"

static mox_sm90_kernel kernel_of(mox_sm90_element element, int32_t max_columns)
{
    switch (element) {
#define MOX_SM80_ELEMENT(name, file)                                                                                   \
    case MOX_SM90_##name:                                                                                              \
        return mox_sm80_kernel_##file(max_columns);
#include "cuda/expert_gemm/sm80/sm80_elements.def"
#undef MOX_SM80_ELEMENT
    default: return nullptr;
    }
}

int mox_sm80_launch_gemm(mox_sm90_element element, const mox_sm90_args *args, int32_t blocks, int dependent,
                         void *stream)
{
    const mox_sm90_kernel kernel = kernel_of(element, args->max_columns);
    mox_sm90_args ringed = *args;
    const uint32_t shared = mox_sm80_make_ring(element, &ringed);
    if (kernel == nullptr || ringed.stages < 2) /* one is filled while another is read */
        return cudaErrorInvalidValue;
    const cudaError_t error = mox_device_allow_shared(reinterpret_cast<const void *>(kernel));
    if (error != cudaSuccess)
        return error;
    mox_device_attributes attributes;
    const bool may = dependent && mox_device_has_dependent_code(reinterpret_cast<const void *>(kernel));
    const cudaLaunchConfig_t config =
        mox_device_config(blocks, mox_sm80_threads(args->max_columns), shared, stream, may, &attributes);
    return cudaLaunchKernelEx(&config, kernel, ringed);
}
