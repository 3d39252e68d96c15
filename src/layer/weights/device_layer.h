/* SPDX-License-Identifier: Apache-2.0
 *
 * device_layer.h - what a layer has in device memory besides its records: the slot map, the arrays of its routing and
 * activation, static scales, plain matrices, tables of number formats; and the way of records from the host.
 *
 *     pack expert -> pinned ring -> copy -> slot           one half of the ring is packed while the other travels
 *
 * In the flow: layer (host) -> [device_layer] -> run_cuda.
 */
#ifndef MOX_LAYER_DEVICE_LAYER_H
#define MOX_LAYER_DEVICE_LAYER_H

#include "backend/cuda/device.h"

struct moxie_layer;

#define MOX_DEVICE_ARRAYS 16

/* Device copies; NULL where the layer has none. */
typedef struct mox_device_layer {
    mox_device device;
    int32_t *slot_of;        /* [E] */
    int64_t *expert_of;      /* [slots] */
    float *given13, *given2; /* [slots] */
    float *router, *router_bias, *shared_gate;
    float *tables;         /* [formats, 256] */
    moxie_routing routing; /* arrays on the device */
    moxie_activation activation;
    void *owned[MOX_DEVICE_ARRAYS];
    int32_t owns;
} mox_device_layer;

/* What does not depend on weights. `layer` has its device. */
moxie_status mox_device_layer_create(struct moxie_layer *layer, moxie_error *error);
void mox_device_layer_destroy(struct moxie_layer *layer);
/* Static scales and plain matrices, after they changed on the host. */
moxie_status mox_device_layer_refresh(struct moxie_layer *layer, moxie_error *error);
/* Values of a format's codes, [256]; NULL above 8 bits. */
const float *mox_device_layer_table(const mox_device_layer *on, moxie_dtype dtype);

/* Pinned buffers for `at_once` records twice. */
typedef struct mox_device_ring {
    const mox_device *device;
    mox_cuda_stream stream;
    mox_cuda_event event[2];
    uint8_t *memory;
    uint64_t record_bytes;
    int64_t at_once;
    int32_t half;
} mox_device_ring;

moxie_status mox_device_ring_open(mox_device_ring *ring, const mox_device *device, uint64_t record_bytes,
                                  int64_t at_once, moxie_error *error);
/* Buffers of the next half, free to be written, into records[at_once]. */
moxie_status mox_device_ring_begin(mox_device_ring *ring, void **records, moxie_error *error);
/* Sends the half's first `count` buffers to to[0..count). */
moxie_status mox_device_ring_send(mox_device_ring *ring, void *const *to, int64_t count, moxie_error *error);
/* Waits for all that was sent, and frees. `status`: of what came before; that one wins. */
moxie_status mox_device_ring_close(mox_device_ring *ring, moxie_status status, moxie_error *error);

#endif
