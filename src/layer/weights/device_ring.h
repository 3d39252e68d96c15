/* SPDX-License-Identifier: Apache-2.0
 *
 * device_ring.h - brings packed records from the host to a GPU through pinned memory, in two halves:
 *
 *     half 0 | record | record | ... |     the CPU packs one half
 *     half 1 | record | record | ... |     while the other is copied to its slots
 *
 * In the flow: pack -> [device_ring] -> slots in device memory.
 */
#ifndef MOX_LAYER_DEVICE_RING_H
#define MOX_LAYER_DEVICE_RING_H

#include "backend/cuda/device.h"

typedef struct mox_device_ring {
    const mox_device *device;
    mox_cuda_stream stream;
    mox_cuda_event event[2]; /* of a half: its last copy is done */
    uint8_t *memory;         /* pinned, [2, records_per_half] of record_bytes */
    uint64_t record_bytes;
    int64_t records_per_half;
    int32_t half; /* that is being packed */
} mox_device_ring;

moxie_status mox_device_ring_open(mox_device_ring *ring, const mox_device *device, uint64_t record_bytes,
                                  int64_t records_per_half, moxie_error *error);
/* Switches to the other half, waits until its copies are done, and stores its buffers in records[records_per_half]. */
moxie_status mox_device_ring_begin(mox_device_ring *ring, void **records, moxie_error *error);
/* Enqueues copies of the half's first `count` buffers to to[0..count). */
moxie_status mox_device_ring_send(mox_device_ring *ring, void *const *to, int64_t count, moxie_error *error);
/* Waits for all copies and frees the ring. Returns `status`, the result of the caller's work so far, if that is an
 * error; else the result of the wait. */
moxie_status mox_device_ring_close(mox_device_ring *ring, moxie_status status, moxie_error *error);

#endif
