/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_arrays.h - what kernels read of a layer besides its records, in the memory where they run: the slot map, the
 * arrays of its routing and activation, static scales, plain matrices, tables of number formats. On the host these are
 * the layer's own; a device has copies. And the way of records from the host to a device:
 *
 *     pack expert -> pinned ring -> copy -> slot           one half of the ring is packed while the other travels
 *
 * In the flow: layer -> [layer_arrays] -> run.
 */
#ifndef MOX_LAYER_LAYER_ARRAYS_H
#define MOX_LAYER_LAYER_ARRAYS_H

#include "backend/cuda/device.h"

struct moxie_layer;

#define MOX_DEVICE_ARRAYS 16

/* NULL where the layer has none. */
typedef struct mox_layer_arrays {
    int32_t *slot_of;       /* [E] */
    int64_t *expert_of;     /* [slots] */
    float *static_scale[2]; /* [slots], by mox_projection */
    float *router, *router_bias, *shared_gate;
    moxie_routing routing;
    moxie_activation activation;
    float *tables; /* device: [formats, 256] */
    void *owned[MOX_DEVICE_ARRAYS];
    int32_t owns;
} mox_layer_arrays;

/* What does not depend on weights. `layer` has its device, and its arrays on the host. */
moxie_status mox_layer_arrays_create(struct moxie_layer *layer, moxie_error *error);
void mox_layer_arrays_destroy(struct moxie_layer *layer);
/* Static scales and plain matrices, after they changed on the host. */
moxie_status mox_layer_arrays_refresh(struct moxie_layer *layer, moxie_error *error);
/* Values of a format's codes, [256]; NULL above 8 bits, and for no format. */
const float *mox_layer_table(const struct moxie_layer *layer, moxie_dtype dtype);

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
