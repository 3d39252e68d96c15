/* SPDX-License-Identifier: Apache-2.0
 *
 * adapters.h - the LoRA adapters of a layer: factors as kernels read them (cpu/lora/lora_args.h), by adapter number.
 *
 *     moxie_lora (the caller's views) -> checked -> packed, expert by expert of this rank -> adapters[number]
 *
 *     adapters.c          the table: set, remove, enable
 *     adapters_pack.c     one adapter: its views, their shapes, the packing
 *     adapters_device.c   adapters of a layer in device memory
 *
 *     device memory   table [count] of pointers -> | mox_lora_adapter | factors |, a block for each adapter
 *
 * On a device the table stays where it is as adapters come and go, so a graph that captured a run sees them.
 *
 * In the flow: [adapters] -> run (run_adapters.c).
 */
#ifndef MOX_LAYER_ADAPTERS_H
#define MOX_LAYER_ADAPTERS_H

#include <moxie/moxie_adapters.h>

#include "cpu/lora/lora_args.h"
#include "layer/weights/layer.h"

/* One adapter, in one block of memory. */
typedef struct mox_adapter {
    mox_lora_adapter factors; /* with pointers into the block */
    int32_t rank;             /* the largest of its matrices */
    bool enabled;
    uint64_t generation; /* of the layer's slot map, in whose order the factors lie */
    uint64_t bytes;      /* of the factors */
    void *block;         /* on the host the factors; on a device see above */
} mox_adapter;

struct moxie_adapters {
    const moxie_layer *layer;
    int32_t count;
    mox_adapter **items;              /* [count]; NULL: there is none */
    const mox_lora_adapter **factors; /* host: [count] of the adapters that are there */
    const mox_lora_adapter *
        *table; /* device memory: [count] of those that are enabled; NULL: the layer is the host's */
};

moxie_status mox_adapters_create(const moxie_layer *layer, int32_t count, moxie_adapters **out, moxie_error *error);
void mox_adapters_destroy(moxie_adapters *adapters);
moxie_status mox_adapters_set(moxie_adapters *adapters, int32_t number, const moxie_lora *lora, moxie_error *error);
moxie_status mox_adapters_remove(moxie_adapters *adapters, int32_t number, moxie_error *error);
moxie_status mox_adapters_enable(moxie_adapters *adapters, int32_t number, bool enabled, moxie_error *error);
/* The adapter with this number; NULL for a number that is none. Immutable. */
const mox_adapter *mox_adapters_at(const moxie_adapters *adapters, int32_t number);

/* Factors by number, in the memory of the layer's device. */
const mox_lora_adapter *const *mox_adapters_for_kernels(const moxie_adapters *adapters);

/* Checks the caller's struct and packs it for a layer, in host memory (adapters_pack.c). */
moxie_status mox_adapter_make(const moxie_layer *layer, const moxie_lora *lora, mox_adapter **out, moxie_error *error);
void mox_adapter_free(mox_adapter *adapter);

/* ---- device memory (adapters_device.c) ---- */
/* Makes an empty table. */
moxie_status mox_adapters_create_table(moxie_adapters *adapters, moxie_error *error);
/* Moves the factors from the host to the device. On failure they stay. */
moxie_status mox_adapter_upload(const moxie_layer *layer, mox_adapter *adapter, moxie_error *error);
/* Lets the table have `adapter`, which may be NULL. */
moxie_status mox_adapters_write_table(const moxie_adapters *adapters, int32_t number, const mox_adapter *adapter,
                                      moxie_error *error);
/* A copy in host memory, for mox_adapter_free(). */
moxie_status mox_adapter_fetch(const moxie_layer *layer, const mox_adapter *adapter, mox_adapter **out,
                               moxie_error *error);
/* As mox_adapter_free(), of an adapter on the layer's device. */
void mox_adapter_release(const moxie_layer *layer, mox_adapter *adapter);

#endif
