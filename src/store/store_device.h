/* SPDX-License-Identifier: Apache-2.0
 *
 * store_device.h - the GPU's tier of a store: slots for some experts of each layer in device memory. The others are
 * copied there from the store's buffers in RAM, which are pinned, when a run needs them.
 *
 *     device memory | slots of layer 0 | slots of layer 1 | ... | half 0 | half 1 |     one block of records
 *                              ^                                     ^
 *                              | an expert that the cache keeps      | one that it does not
 *     pinned RAM    | buffer | buffer | ...                         (store.h)        both by the stream of copies
 *
 * One run at a time has the tier, whatever its layer; the next one's kernels and copies wait for an event at its end.
 * In a run, missing experts are copied while others are computed:
 *
 *     copies     | window 1: half 0 | window 2: slots | window 3: half 1 | window 4: half 0, when 1 is computed
 *     the run's  | window 0: hits         | window 1        | window 2          | window 3 ...
 *
 * Where the CPU computes what has no slot (store->host), nothing is copied for one run alone: the experts that get no
 * slot are a window of the host's. It comes when the GPU has all work that can be enqueued without a wait.
 *
 * A record in a buffer may be given back to RAM when its copy is done; the host waits for that before it asks RAM for
 * more, and at the end of the run.
 */
#ifndef MOX_STORE_STORE_DEVICE_H
#define MOX_STORE_STORE_DEVICE_H

#include "backend/cuda/device.h"
#include "store/store.h"

/* Experts that come together, as the run gets them. */
typedef struct mox_store_window {
    mox_device_window view;
    int32_t *experts, *slot; /* [E] */
    int half;                /* of the buffers; -1: slots of the layer */
    int number;              /* of its event in `copied`; -1: nothing is copied */
} mox_store_window;

struct mox_store_device {
    mox_device device;
    pthread_mutex_t turn; /* of the run that has the tier */
    bool has_turn;
    mox_cuda_stream copies;
    mox_cuda_event copied[2], used[2], ended; /* copies of a window; products of a half; the last run */
    uint8_t *slab;

    /* ---- the run that has the tier ---- */
    mox_store_layer *layer;
    mox_cuda_stream stream;
    moxie_store_counters counters;
    void *ram;               /* session of the layer's source in RAM */
    mox_cache_place *places; /* [E] */
    int32_t *slot_of;        /* [E] of the run's experts; -1: it gets none */
    bool waits_for_copy;     /* records in RAM are being copied: `latest` is the last window's event */
    int latest, half;        /* used last */
    /* of a pass */
    mox_store_window held, windows[2]; /* those with slots; the present one, and the one ahead */
    mox_store_window *present, *ahead;
    mox_store_window on_host; /* of experts that the CPU computes */
    uint64_t host_since;      /* when it got them */
    bool gave_held, gave_host;
    int32_t *missing;            /* [E] in the order in which RAM gives them */
    const void **records;        /* [E] of these */
    int64_t n_missing, from, to; /* records from..to are in RAM and not yet copied */
};

/* What the options' device_bytes are for: slots and buffers. Without such bytes nothing. */
moxie_status mox_store_device_divide(moxie_store *store, const moxie_store_options *options, moxie_error *error);
/* Finds the GPU. The store's buffers must be pinned, so this comes first. */
moxie_status mox_store_device_open(moxie_store *store, const moxie_store_options *options, moxie_error *error);
/* Memory of the slots, and what a run needs. */
moxie_status mox_store_device_allocate(moxie_store *store, moxie_error *error);
/* The slots of a layer hold nothing yet; sets its source (store_device.c). */
moxie_status mox_store_device_add(mox_store_layer *layer, moxie_error *error);
void mox_store_device_close(moxie_store *store);

/* The functions of a layer's source. */
void mox_store_set_device_source(mox_store_layer *layer);

#endif
