/* SPDX-License-Identifier: Apache-2.0
 *
 * device_memory.h - what a transport needs of a device: memory, copies, streams, events. The layer fills it from the
 * launch table of the cuda back end (layer/config/comm_device.h), so src/comm knows no CUDA.
 *
 * Streams and events are those of cuda_table.h. Functions return when their work is enqueued.
 */
#ifndef MOX_COMM_DEVICE_MEMORY_H
#define MOX_COMM_DEVICE_MEMORY_H

#include "base/status.h"

typedef struct mox_comm_device {
    int32_t ordinal;
    moxie_status (*use)(int32_t ordinal, moxie_error *error); /* makes it the thread's current device */
    moxie_status (*allocate)(uint64_t bytes, void **out, moxie_error *error);
    void (*release)(void *memory);
    moxie_status (*allocate_pinned)(uint64_t bytes, void **out, moxie_error *error);
    void (*release_pinned)(void *memory);
    moxie_status (*copy)(void *to, const void *from, uint64_t bytes, void *stream, moxie_error *error);
    moxie_status (*fill)(void *to, int32_t byte, uint64_t bytes, void *stream, moxie_error *error);
    moxie_status (*stream_create)(void **out, moxie_error *error);
    void (*stream_destroy)(void *stream);
    moxie_status (*stream_wait)(void *stream, moxie_error *error);
    moxie_status (*event_create)(void **out, moxie_error *error);
    void (*event_destroy)(void *event);
    moxie_status (*event_record)(void *event, void *stream, moxie_error *error);
    moxie_status (*event_done)(void *event, int32_t *done, moxie_error *error);
} mox_comm_device;

#endif
