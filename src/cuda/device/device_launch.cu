/* SPDX-License-Identifier: Apache-2.0
 *
 * device_launch.cu - which code the current device runs (device_launch.cuh), determined once per device.
 */
#include <atomic>

#include "cuda/device/device_launch.cuh"

bool mox_device_has_dependent_code(const void *kernel)
{
    enum { DEVICES = 64, UNKNOWN = 0, ABSENT, PRESENT };
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
