/* SPDX-License-Identifier: Apache-2.0
 *
 * device_count.c - how many kernels this library holds. Opening the library registers every kernel, and every instance
 * of a template, with the runtime, even without a GPU. The linker redirects these calls to here (--wrap), where they
 * are counted. So no list of kernels has to be maintained.
 */
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "cuda/device/device_count.h"

static int32_t registered;

void __wrap___cudaRegisterFunction(void **fat_binary, const char *host, char *device, const char *name, int threads,
                                   uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp);
void __real___cudaRegisterFunction(void **fat_binary, const char *host, char *device, const char *name, int threads,
                                   uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp);

void __wrap___cudaRegisterFunction(void **fat_binary, const char *host, char *device, const char *name, int threads,
                                   uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp)
{
    registered++;
    __real___cudaRegisterFunction(fat_binary, host, device, name, threads, thread, block, block_size, grid_size, warp);
}

int32_t mox_cuda_kernels(void)
{
    return registered;
}
