/* SPDX-License-Identifier: Apache-2.0
 *
 * device_fill.h - copies records that were packed before to their slots in device memory.
 *
 * All that goes there is one row of bytes: routed experts by slot, then the shared one. A copy brings a chunk of it. A
 * worker reads a slice of a chunk at a time:
 *
 *     bytes   | chunk 0               | chunk 1               | ... | chunk 8               |
 *             | slice | slice | slice | slice | slice | slice | ... | slice | slice | slice |
 *                 |       |       |
 *     workers     0       1       2 ...       whoever reads the last slice of a chunk enqueues its copy
 *                 v       v       v
 *     ring    | chunk 0, 8, 16 ...    | chunk 1, 9, 17 ...    | ...          (pinned_ring.h)
 *             whoever takes the first slice of chunk 8 waits until the copy of chunk 0 is done
 *
 * Slices are small, so that all workers share a chunk and its bytes stay in the caches; copies are large, because the
 * copy engine rests between two of them. While some chunks are filled, the copies of others are in the engine's queue.
 *
 * In the flow: layer_given.c -> [device_fill] -> slots in device memory.
 */
#ifndef MOX_LAYER_DEVICE_FILL_H
#define MOX_LAYER_DEVICE_FILL_H

#include "layer/weights/given_records.h"

/* Fills the layer's slots, and its fill times but for that of the slab. The layer holds the GPU's pool of rings. All
 * workers of the executor take part, and make the layer's GPU their current one. */
moxie_status mox_device_fill(moxie_layer *layer, const mox_given_records *given, const moxie_executor *executor,
                             moxie_error *error);

#endif
