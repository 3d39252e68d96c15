/* SPDX-License-Identifier: Apache-2.0
 *
 * device_launch.cu - what is found out about the current device and its kernels once (device_launch.cuh).
 */
#include <atomic>

#include "cuda/device/device_launch.cuh"

enum { DEVICES = 64, KERNELS = 1024 };

bool mox_device_has_dependent_code(const void *kernel)
{
    enum { UNKNOWN = 0, ABSENT, PRESENT };
    static std::atomic<int> known[DEVICES];
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= DEVICES)
        return false;
    int found = known[device].load(std::memory_order_relaxed);
    if (found == UNKNOWN) {
        cudaFuncAttributes attributes;
        if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
            (void)cudaGetLastError(); /* else the next launch would report this error */
            return false;
        }
        found = attributes.ptxVersion >= 90 ? PRESENT : ABSENT;
        known[device].store(found, std::memory_order_relaxed);
    }
    return found == PRESENT;
}

/* A kernel, and the devices on which it may use all shared memory, as bits. */
struct allowed_kernel {
    std::atomic<const void *> kernel;
    std::atomic<uint64_t> devices;
};

/* The kernel's entry, made at the first call; a null pointer when the table is full. Entries are found by the address,
 * and from there on. */
static allowed_kernel *entry_of(const void *kernel)
{
    static allowed_kernel table[KERNELS];
    const size_t first = reinterpret_cast<uintptr_t>(kernel) / 16 * 0x9E3779B1u;
    for (size_t i = 0; i < KERNELS; i++) {
        allowed_kernel *entry = &table[(first + i) % KERNELS];
        const void *found = entry->kernel.load(std::memory_order_relaxed);
        if (found == nullptr && entry->kernel.compare_exchange_strong(found, kernel))
            return entry;
        if (found == kernel)
            return entry;
    }
    return nullptr;
}

static cudaError_t allow_all(const void *kernel, int device)
{
    cudaFuncAttributes attributes;
    int most = 0;
    cudaError_t code = cudaFuncGetAttributes(&attributes, kernel);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (code == cudaSuccess)
        code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    most - static_cast<int>(attributes.sharedSizeBytes));
    return code;
}

cudaError_t mox_device_allow_shared(const void *kernel)
{
    int device = 0;
    const cudaError_t code = cudaGetDevice(&device);
    allowed_kernel *entry = entry_of(kernel);
    if (code != cudaSuccess || entry == nullptr || device >= DEVICES)
        return code != cudaSuccess ? code : allow_all(kernel, device);
    if (entry->devices.load(std::memory_order_acquire) >> device & 1)
        return cudaSuccess;
    const cudaError_t allowed = allow_all(kernel, device);
    if (allowed == cudaSuccess)
        entry->devices.fetch_or(uint64_t(1) << device, std::memory_order_release);
    return allowed;
}
