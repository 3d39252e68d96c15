/* SPDX-License-Identifier: Apache-2.0
 *
 * device_launch.cuh - programmatic dependent launch: a kernel may begin before the kernel ahead of it in the stream has
 * ended, once all blocks of that kernel have called mox_grid_release() or ended. Code after mox_grid_wait() runs only
 * when that kernel has ended.
 *
 *     kernel 1   ---- release -------------- end
 *     kernel 2              | blocks start, prepare |wait| ----- end
 *
 * Rules of every dependent kernel:
 *   - every block calls mox_grid_wait() before it ends; so all kernels before kernel n have ended when n has
 *   - before that call it reads nothing that an earlier kernel writes, and writes nothing that an earlier kernel uses
 *   - it calls mox_grid_release() as early as that does no harm
 * A kernel in plain stream order begins when all kernels before it have ended, and need not wait. The first kernel of
 * permute is one. When it begins, the inputs of the run are complete, and earlier runs and passes in the same workspace
 * have ended. So kernels after it in the pass may read inputs of the run before they wait.
 */
#ifndef MOX_CUDA_DEVICE_DEVICE_LAUNCH_CUH
#define MOX_CUDA_DEVICE_DEVICE_LAUNCH_CUH

#include <cuda_runtime.h>

/* True when the current device runs code that was compiled for sm_90 or later, where mox_grid_wait() waits. In older
 * code it does nothing, even if a driver translates that code for a newer device. The answer is found once, for the
 * first `kernel` passed, and holds for all, because all kernels are compiled for the same generations (except kernels
 * for a single one). Thread-safe. */
bool mox_device_has_dependent_code(const void *kernel);

/* Lets blocks of `kernel` use all the shared memory that the current device has, less what the kernel declares. The
 * driver is asked at the first launch on a device only: it is always the same, so threads that launch at the same time
 * do not disturb each other. Thread-safe. */
cudaError_t mox_device_allow_shared(const void *kernel);

/* Attributes of a launch, and room for one more. */
struct mox_device_attributes {
    cudaLaunchAttribute list[3];
};

/* `attributes` must live until the launch. All kernels of a run request the largest carve-out of shared memory. A
 * multiprocessor can change its carve-out only while it is idle: with another one, a block of the next kernel would
 * wait for the last block of this kernel. */
static inline cudaLaunchConfig_t mox_device_config(dim3 grid, dim3 block, size_t shared, void *stream, bool dependent,
                                                   mox_device_attributes *attributes)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = static_cast<cudaStream_t>(stream);
    attributes->list[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes->list[0].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    attributes->list[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes->list[1].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attributes->list;
    config.numAttrs = dependent ? 2 : 1;
    return config;
}

/* `dependent`: the kernel obeys the rules above, and is launched so if the device supports it. */
template <class... PARAMETERS, class... ARGS>
static inline cudaError_t mox_device_launch(void (*kernel)(PARAMETERS...), dim3 grid, dim3 block, size_t shared,
                                            void *stream, bool dependent, const ARGS &...args)
{
    mox_device_attributes attributes;
    const bool may = dependent && mox_device_has_dependent_code(reinterpret_cast<const void *>(kernel));
    const cudaLaunchConfig_t config = mox_device_config(grid, block, shared, stream, may, &attributes);
    return cudaLaunchKernelEx(&config, kernel, PARAMETERS(args)...);
}

/* A dependent launch. */
template <class... PARAMETERS, class... ARGS>
static inline cudaError_t mox_device_launch_dependent(void (*kernel)(PARAMETERS...), dim3 grid, dim3 block,
                                                      size_t shared, void *stream, const ARGS &...args)
{
    return mox_device_launch(kernel, grid, block, shared, stream, true, args...);
}

#endif
