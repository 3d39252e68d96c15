/* SPDX-License-Identifier: Apache-2.0
 *
 * device_launch.cuh - launches that may begin before the kernel in front of them has ended (programmatic dependent
 * launch): once all of its blocks have said mox_grid_release() or ended. What lies behind mox_grid_wait() runs when it
 * has wholly ended.
 *
 *     kernel 1   ---- release -------------- end
 *     kernel 2              | blocks start, prepare |wait| ----- end
 *
 * Rules of every kernel that is launched so:
 *   - every block executes mox_grid_wait() before it ends: that kernel n has ended then means that all before it have
 *   - before that wait it touches nothing that an earlier kernel writes, and writes nothing that one reads
 *   - it executes mox_grid_release() as soon as that does no harm
 * What is launched in plain stream order begins when all before it have ended, and need not wait. permute's first
 * kernel is: whoever made the inputs of a run has then ended, and so have earlier runs and passes in the same
 * workspace. Kernels behind it in the pass may therefore read inputs of the run before they wait.
 */
#ifndef MOX_CUDA_DEVICE_DEVICE_LAUNCH_CUH
#define MOX_CUDA_DEVICE_DEVICE_LAUNCH_CUH

#include <cuda_runtime.h>

/* True when the current device runs code that was compiled for sm_90 or later, in which mox_grid_wait() waits. In older
 * code, and in what a driver makes of it for devices that came later, it does nothing. What the first kernel that is
 * asked for has, all have: they are compiled for the same generations, but for those of one. Thread-safe. */
bool mox_device_has_dependent_code(const void *kernel);

/* Attributes of a launch, and room for one more. */
struct mox_device_attributes {
    cudaLaunchAttribute list[3];
};

/* `attributes` must live until the launch. All kernels of a run ask for as much shared memory as there is: a
 * multiprocessor changes what it has of it only while nothing runs there, so a block of the next kernel would wait for
 * the last of this. */
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

/* `dependent`: a kernel that keeps the rules above, where the device can do that. */
template <class... PARAMETERS, class... ARGS>
static inline cudaError_t mox_device_launch(void (*kernel)(PARAMETERS...), dim3 grid, dim3 block, size_t shared,
                                            void *stream, bool dependent, const ARGS &...args)
{
    mox_device_attributes attributes;
    const bool may = dependent && mox_device_has_dependent_code(reinterpret_cast<const void *>(kernel));
    const cudaLaunchConfig_t config = mox_device_config(grid, block, shared, stream, may, &attributes);
    return cudaLaunchKernelEx(&config, kernel, PARAMETERS(args)...);
}

/* Depends on the kernel before. */
template <class... PARAMETERS, class... ARGS>
static inline cudaError_t mox_device_launch_dependent(void (*kernel)(PARAMETERS...), dim3 grid, dim3 block,
                                                      size_t shared, void *stream, const ARGS &...args)
{
    return mox_device_launch(kernel, grid, block, shared, stream, true, args...);
}

#endif
