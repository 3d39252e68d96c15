/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h - the GPU of a layer or a plan, and memory on it.
 *
 * Everything goes through the launch table (cuda/cuda_table.h), so that none of this needs CUDA to be built, and tests
 * can put a table of their own in its place.
 */
#ifndef MOX_LAYER_DEVICE_H
#define MOX_LAYER_DEVICE_H

#include <moxie/moxie_cuda.h>

#include "cuda/cuda_loader.h"

#define MOX_DEVICE_ALIGN 256

/* A device, or a preset to explain plans with: that has features but no table. All zero: the host. */
typedef struct mox_device {
    const mox_cuda_table *table;
    int32_t ordinal;
    mox_cuda_features features;
    moxie_cuda_allocator memory;
} mox_device;

static inline bool mox_device_is_host(const mox_device *device)
{
    return device->features.flags == 0;
}

/* The device that `options` ask for; the host when their back end is not cuda. `explaining`: a preset will do. */
moxie_status mox_device_find(const moxie_options *options, bool explaining, mox_device *out, moxie_error *error);

/* Memory of the device, from its allocator. `what` is for the error's words. The device becomes the thread's. */
moxie_status mox_device_allocate(const mox_device *device, uint64_t bytes, const char *what, void **out,
                                 moxie_error *error);
void mox_device_release(const mox_device *device, void *memory);
/* Copies between host and device and waits. */
moxie_status mox_device_copy(const mox_device *device, void *to, const void *from, uint64_t bytes, moxie_error *error);

#endif
