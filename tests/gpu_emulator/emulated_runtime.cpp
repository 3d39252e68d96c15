/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_runtime.cpp - the functions of src/cuda/device that launchers call. Emulated kernels run one after the other.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"

bool mox_device_has_dependent_code(const void *)
{
    return false;
}

cudaError_t mox_device_allow_shared(const void *)
{
    return cudaSuccess;
}

moxie_status mox_cuda_status(cudaError_t code, const char *, moxie_error *)
{
    return code == cudaSuccess ? MOXIE_OK : MOXIE_ERR_IO;
}
