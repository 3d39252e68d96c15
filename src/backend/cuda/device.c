/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c - finds the GPU that options name; allocates, frees and copies its memory (device.h).
 */
#include "backend/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 32 };

/* Splits "1:sm80": the device, and the flags whose kernels it may run; without a colon all. */
static moxie_status split_name(const char *device, char name[NAME_BYTES], uint32_t *flags, moxie_error *error)
{
    const char *colon = strchr(device, ':');
    const size_t length = colon != NULL ? (size_t)(colon - device) : strlen(device);
    mox_cuda_features preset;
    char generation[NAME_BYTES];
    snprintf(name, NAME_BYTES, "%.*s", (int)(length < NAME_BYTES ? length : NAME_BYTES - 1), device);
    *flags = UINT32_MAX;
    if (colon == NULL)
        return MOXIE_OK;
    snprintf(generation, sizeof generation, "sm_%.16s", strncmp(colon + 1, "sm", 2) == 0 ? colon + 3 : "?");
    MOX_FAIL_IF(!mox_cuda_preset(generation, &preset), MOXIE_ERR_ARGUMENT, error,
                "options.device asks for the kernels of \"%.16s\"; it must be one of %s, without the underscore",
                colon + 1, mox_cuda_preset_names());
    *flags = preset.flags;
    return MOXIE_OK;
}

/* The name says it, for messages and so that limits measured with these kernels are not taken for the device's. */
static void cap_kernels(mox_cuda_features *features, uint32_t flags, const char *generation)
{
    const size_t used = strlen(features->name);
    features->flags &= flags;
    snprintf(features->name + used, sizeof features->name - used, ", kernels of %s", generation);
}

static moxie_status parse_ordinal(const char *name, int32_t *out, moxie_error *error)
{
    char *end = NULL;
    const long ordinal = name != NULL ? strtol(name, &end, 10) : 0;
    MOX_FAIL_IF(name != NULL && (end == name || *end != '\0' || ordinal < 0 || ordinal > 1023), MOXIE_ERR_ARGUMENT,
                error, "options.device is \"%.32s\"; it must be a device's number, or, to explain a plan, one of %s",
                name, mox_cuda_preset_names());
    *out = (int32_t)ordinal;
    return MOXIE_OK;
}

static moxie_status open_device(const char *name, mox_device *device, moxie_error *error)
{
    MOX_TRY(parse_ordinal(name, &device->ordinal, error));
    MOX_TRY(mox_cuda_open(&device->table, error));
    const moxie_status status = mox_cuda_device(device->table, device->ordinal, &device->features, error);
    return status == MOXIE_OK ? status : mox_fail_context(status, error, "asking libmoxie_cuda for a device");
}

moxie_status mox_device_find(const moxie_options *options, bool explaining, mox_device *out, moxie_error *error)
{
    mox_device device = { 0 };
    mox_cuda_features preset;
    char text[NAME_BYTES];
    const char *name = options->device != NULL ? text : NULL;
    uint32_t flags = UINT32_MAX;
    if (options->backend != MOXIE_BACKEND_CUDA) {
        MOX_FAIL_IF(
            options->device != NULL, MOXIE_ERR_ARGUMENT, error,
            "options.device is \"%.32s\", but the back end is not cuda: choose backend cuda, or name no device (to "
            "explain a plan for another processor, give its class: scalar, neon, avx2, avx512 or amx)",
            options->device);
        *out = device;
        return MOXIE_OK;
    }
    if (name != NULL)
        MOX_TRY(split_name(options->device, text, &flags, error));
    if (name != NULL && mox_cuda_preset(name, &preset)) {
        MOX_FAIL_IF(!explaining, MOXIE_ERR_ARGUMENT, error,
                    "options.device is %s, which only explains plans: a layer needs a device's number", name);
        device.features = preset;
    } else {
        MOX_TRY(open_device(name, &device, error));
        if (options->device_memory != NULL)
            device.memory = *options->device_memory;
    }
    if (flags != UINT32_MAX) {
        cap_kernels(&device.features, flags, strchr(options->device, ':') + 1);
        snprintf(device.kernels, sizeof device.kernels, "%s", strchr(options->device, ':'));
    }
    *out = device;
    return MOXIE_OK;
}

void mox_device_name(const mox_device *device, char out[MOX_DEVICE_NAME_BYTES])
{
    snprintf(out, MOX_DEVICE_NAME_BYTES, "%d%s", (int)device->ordinal, device->kernels);
}

moxie_status mox_device_allocate(const mox_device *device, uint64_t bytes, const char *what, void **out,
                                 moxie_error *error)
{
    void *memory = NULL;
    MOX_TRY(device->table->use(device->ordinal, error));
    if (device->memory.allocate != NULL) {
        memory = device->memory.allocate(device->memory.self, bytes);
        MOX_FAIL_IF(memory == NULL, MOXIE_ERR_MEMORY, error,
                    "the caller's allocator has no %llu bytes of device memory for %s", (unsigned long long)bytes,
                    what);
    } else {
        const moxie_status status = device->table->allocate(bytes, &memory, error);
        if (status != MOXIE_OK)
            return mox_fail_context(status, error, "allocating %s", what);
    }
    *out = memory;
    return MOXIE_OK;
}

void mox_device_release(const mox_device *device, void *memory)
{
    if (memory == NULL || device->table->use(device->ordinal, NULL) != MOXIE_OK)
        return;
    if (device->memory.release != NULL)
        device->memory.release(device->memory.self, memory);
    else
        device->table->release(memory);
}

moxie_status mox_device_copy(const mox_device *device, void *to, const void *from, uint64_t bytes, moxie_error *error)
{
    MOX_TRY(device->table->use(device->ordinal, error));
    MOX_TRY(device->table->copy(to, from, bytes, NULL, error));
    return device->table->stream_wait(NULL, error);
}
