/* SPDX-License-Identifier: Apache-2.0
 *
 * adapters.h - the LoRA adapters of a layer: factors as kernels read them (cpu/lora/lora_args.h), by adapter number.
 *
 *     moxie_lora (the caller's views) -> checked -> packed, expert by expert of this rank -> adapters[number]
 *
 *     adapters.c       the table: set, remove, enable
 *     adapters_pack.c  one adapter: its views, their shapes, the packing
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
    mox_lora_adapter factors;
    int32_t rank; /* the largest of its matrices */
    bool enabled;
    uint64_t generation; /* of the layer's slot map, in whose order the factors lie */
    uint64_t bytes;
    void *block;
} mox_adapter;

struct moxie_adapters {
    const moxie_layer *layer;
    int32_t count;
    mox_adapter **items;              /* [count]; NULL: there is none */
    const mox_lora_adapter **factors; /* [count] of the adapters that are there */
};

moxie_status mox_adapters_create(const moxie_layer *layer, int32_t count, moxie_adapters **out, moxie_error *error);
void mox_adapters_destroy(moxie_adapters *adapters);
moxie_status mox_adapters_set(moxie_adapters *adapters, int32_t number, const moxie_lora *lora, moxie_error *error);
moxie_status mox_adapters_remove(moxie_adapters *adapters, int32_t number, moxie_error *error);
moxie_status mox_adapters_enable(moxie_adapters *adapters, int32_t number, bool enabled, moxie_error *error);
/* The adapter with this number; NULL for a number that is none. Immutable. */
const mox_adapter *mox_adapters_at(const moxie_adapters *adapters, int32_t number);

/* Checks the caller's struct and packs it for a layer (adapters_pack.c). */
moxie_status mox_adapter_make(const moxie_layer *layer, const moxie_lora *lora, mox_adapter **out, moxie_error *error);
void mox_adapter_free(mox_adapter *adapter);

#endif
