/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h - the GPU of a layer or a plan, and memory on it.
 *
 * All calls go through the launch table (cuda/cuda_table.h). So this code builds without CUDA, and tests can install
 * another table.
 */
#ifndef MOX_BACKEND_DEVICE_H
#define MOX_BACKEND_DEVICE_H

#include <moxie/moxie_cuda.h>

#include "cuda/cuda_loader.h"

#define MOX_DEVICE_ALIGN 256 /* bytes, of buffers in device memory */

/* A device. A preset, which only explains plans, has features but no table. All zero: the host. */
typedef struct mox_device {
    const mox_cuda_table *table;
    int32_t ordinal;
    mox_cuda_features features;
    moxie_cuda_allocator memory;
    char kernels[24]; /* ":sm80": options.device asked for the kernels of such cards; empty: it did not */
} mox_device;

enum { MOX_DEVICE_NAME_BYTES = 40 };

static inline bool mox_device_is_host(const mox_device *device)
{
    return device->features.flags == 0;
}

/* The device that `options` name; the host when their back end is not cuda. `explaining`: presets are allowed. */
moxie_status mox_device_find(const moxie_options *options, bool explaining, mox_device *out, moxie_error *error);
/* What options.device must be to find `device` once more. */
void mox_device_name(const mox_device *device, char out[MOX_DEVICE_NAME_BYTES]);

/* Allocates device memory, with the caller's allocator if there is one. `what` names it in an error. Makes the device
 * the thread's current one. */
moxie_status mox_device_allocate(const mox_device *device, uint64_t bytes, const char *what, void **out,
                                 moxie_error *error);
void mox_device_release(const mox_device *device, void *memory);
/* Copies between host and device, either way, and waits. */
moxie_status mox_device_copy(const mox_device *device, void *to, const void *from, uint64_t bytes, moxie_error *error);

#endif
