/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_device.c - gives a comm the functions of the launch table (comm_device.h).
 */
#include "layer/config/comm_device.h"

#include "backend/cuda/device.h"

moxie_status mox_comm_device_find(const char *device, mox_comm_device *out, moxie_error *error)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    mox_device found;
    options.backend = MOXIE_BACKEND_CUDA;
    options.device = device;
    MOX_TRY(mox_device_find(&options, false, &found, error));
    const mox_cuda_table *table = found.table;
    *out = (mox_comm_device) { .ordinal = found.ordinal,
                               .use = table->use,
                               .allocate = table->allocate,
                               .release = table->release,
                               .allocate_pinned = table->allocate_pinned,
                               .release_pinned = table->release_pinned,
                               .copy = table->copy,
                               .fill = table->fill,
                               .stream_create = table->stream_create,
                               .stream_destroy = table->stream_destroy,
                               .stream_wait = table->stream_wait,
                               .event_create = table->event_create,
                               .event_destroy = table->event_destroy,
                               .event_record = table->event_record,
                               .event_done = table->event_done };
    return MOXIE_OK;
}
