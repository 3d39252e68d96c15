/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_sm90_launch.cu - the launcher of the Hopper gemm: the kernel for an element and a width, its ring of
 * stages, its clusters.
 */
#include "cuda/device/device_launch.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_ring.cuh"

static mox_sm90_kernel kernel_of(mox_sm90_element element, int32_t max_columns)
{
    switch (element) {
#define MOX_SM90_ELEMENT(name, file, ...)                                                                              \
    case MOX_SM90_##name:                                                                                              \
        return mox_sm90_kernel_##file(max_columns);
#define MOX_SM90_CODES MOX_SM90_ELEMENT
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_CODES
#undef MOX_SM90_ELEMENT
    default: return nullptr;
    }
}

int mox_sm90_launch_gemm(mox_sm90_element element, const mox_sm90_args *args, int32_t blocks, int dependent,
                         void *stream)
{
    const mox_sm90_kernel kernel = kernel_of(element, args->max_columns);
    mox_sm90_args ringed = *args;
    const uint32_t shared = mox_sm90_make_ring(element, &ringed);
    if (ringed.stages < 2) /* a consumer holds one stage while it waits for the next */
        return cudaErrorInvalidValue;
    const cudaError_t error = mox_device_allow_shared(reinterpret_cast<const void *>(kernel));
    if (error != cudaSuccess)
        return error;
    mox_device_attributes attributes;
    cudaLaunchConfig_t config =
        mox_device_config(blocks, mox_sm90_threads(element, args->max_columns), shared, stream, dependent, &attributes);
    if (args->paired) {
        attributes.list[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes.list[config.numAttrs].val.clusterDim = { 2, 1, 1 };
        config.numAttrs++;
        config.gridDim.x = (unsigned)blocks / 2 * 2;
    }
    return cudaLaunchKernelEx(&config, kernel, ringed);
}
