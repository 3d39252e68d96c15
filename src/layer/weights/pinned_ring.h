/* SPDX-License-Identifier: Apache-2.0
 *
 * pinned_ring.h - rings of pinned memory through which records come to a GPU. To pin memory takes half a millisecond a
 * MiB, longer than to fill a layer through it. So it is done once, not for each layer:
 *
 *     layers of GPU 0 --hold--> [ pool of GPU 0: ring, ring ... ] --take, give back--> a fill (device_fill.c)
 *
 * Every layer of an expert file holds its GPU's pool. The last one that drops it frees the rings. A fill takes a ring
 * that nobody uses, or makes one: no fill waits for another. There are as many rings as there were fills at the same
 * time, one in a program that opens its layers one after the other.
 *
 *     ring | chunk 0 | chunk 1 | ... | chunk n-1 |     one stream for all copies; for each chunk an event: copied
 *
 * In the flow: packed records -> [pinned_ring] -> slots in device memory.
 */
#ifndef MOX_LAYER_PINNED_RING_H
#define MOX_LAYER_PINNED_RING_H

#include "backend/cuda/device.h"

/* CHUNK: what one copy brings. The copy engine rests for 3 us between two copies; a copy of 4 MiB takes 80 us. With
 * fewer CHUNKS the engine waits for reads: on an H100 rings of 8, 16 and 32 MiB were filled at 22, 40 and 50 GB/s. More
 * would not stay in the processors' caches, where the engine finds them. */
enum { MOX_RING_CHUNK = 4 << 20, MOX_RING_CHUNKS = 8 };

typedef struct mox_ring_pool mox_ring_pool;

typedef struct mox_pinned_ring {
    struct mox_pinned_ring *next; /* in the pool, while nobody uses it */
    uint8_t *memory;
    uint64_t bytes;
    int64_t chunks; /* the last one may be shorter */
    mox_cuda_stream stream;
    mox_cuda_event copied[MOX_RING_CHUNKS];
} mox_pinned_ring;

/* The pool of a GPU, which is made when nobody holds it. All functions are thread-safe. */
moxie_status mox_ring_pool_hold(const mox_device *device, mox_ring_pool **out, moxie_error *error);
/* NULL is fine. */
void mox_ring_pool_drop(mox_ring_pool *pool);

/* A ring for `bytes` (at least 1) to go through, with no copy on its way: one of the pool that is large enough, or a
 * new one. *seconds: the time of making it; 0 when it was there. Makes the GPU the thread's current one. */
moxie_status mox_pinned_ring_take(mox_ring_pool *pool, uint64_t bytes, mox_pinned_ring **out, double *seconds,
                                  moxie_error *error);
/* Waits for its copies. Returns `status`, the result of the caller's work so far, if that is an error; else the result
 * of the wait. */
moxie_status mox_pinned_ring_give_back(mox_ring_pool *pool, mox_pinned_ring *ring, moxie_status status,
                                       moxie_error *error);

#endif
