/* SPDX-License-Identifier: Apache-2.0
 *
 * device_ring.c - the pinned ring that records travel through on their way to a GPU (device_ring.h).
 */
#include "layer/weights/device_ring.h"

moxie_status mox_device_ring_open(mox_device_ring *ring, const mox_device *device, uint64_t record_bytes,
                                  int64_t records_per_half, moxie_error *error)
{
    const mox_cuda_table *table = device->table;
    void *memory = NULL;
    *ring = (mox_device_ring) { .device = device, .record_bytes = record_bytes, .records_per_half = records_per_half };
    MOX_TRY(table->use(device->ordinal, error));
    moxie_status status = table->allocate_pinned(2 * (uint64_t)records_per_half * record_bytes, &memory, error);
    ring->memory = memory;
    if (status == MOXIE_OK)
        status = table->stream_create(&ring->stream, error);
    for (int i = 0; i < 2 && status == MOXIE_OK; i++)
        status = table->event_create(&ring->event[i], error);
    return status == MOXIE_OK ? status : mox_device_ring_close(ring, status, error);
}

moxie_status mox_device_ring_begin(mox_device_ring *ring, void **records, moxie_error *error)
{
    ring->half = 1 - ring->half;
    /* Returns at once for an event that was never recorded. */
    MOX_TRY(ring->device->table->event_wait(ring->event[ring->half], error));
    for (int64_t i = 0; i < ring->records_per_half; i++)
        records[i] = ring->memory + (uint64_t)(ring->half * ring->records_per_half + i) * ring->record_bytes;
    return MOXIE_OK;
}

moxie_status mox_device_ring_send(mox_device_ring *ring, void *const *to, int64_t count, moxie_error *error)
{
    const mox_cuda_table *table = ring->device->table;
    const uint8_t *from = ring->memory + (uint64_t)(ring->half * ring->records_per_half) * ring->record_bytes;
    for (int64_t i = 0; i < count; i++)
        MOX_TRY(table->copy(to[i], from + (uint64_t)i * ring->record_bytes, ring->record_bytes, ring->stream, error));
    return table->event_record(ring->event[ring->half], ring->stream, error);
}

moxie_status mox_device_ring_close(mox_device_ring *ring, moxie_status status, moxie_error *error)
{
    const mox_cuda_table *table = ring->device->table;
    if (ring->stream != NULL) {
        const moxie_status waited = table->stream_wait(ring->stream, status == MOXIE_OK ? error : NULL);
        status = status == MOXIE_OK ? waited : status;
    }
    for (int i = 0; i < 2; i++)
        table->event_destroy(ring->event[i]);
    table->stream_destroy(ring->stream);
    table->release_pinned(ring->memory);
    *ring = (mox_device_ring) { 0 };
    return status;
}
